"""Shards onto the disk: hashed, written and synced in one pass, or linked where nothing changed (P8)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.durable import disk
from holdfast.durable.stream import Stream
from holdfast.errors import Damaged
from holdfast.training.reading import Reader
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST, shard_name
from holdfast.training.stored.manifest import FileEntry, Manifest, TensorEntry
from holdfast.training.stored.shards import Payload, Shard, header
from holdfast.training.threads import each

_log = logging.getLogger("holdfast")

READ_AGAIN_EVERY = 32
"""Of the files that a save shares, one in so many is read again, another one each time: a medium forgets in silence,
and a link to what it forgot is no second copy."""
_NO_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that is on the disk."""

    name: str
    entry: FileEntry
    tensors: dict[str, TensorEntry]
    is_linked: bool
    replaces: str = ""
    """The file that it would have been shared with, had that been sound."""


class Earlier:
    """A checkpoint whose files may be shared."""

    def __init__(self, folder: Path, manifest: Manifest, *, turn: int | None = None) -> None:
        """`turn`: which of the files that may be shared are read again this time; without it none is."""
        self._turn = turn
        self.folder = folder
        self.manifest = manifest
        names: dict[str, list[str]] = {}
        for name, entry in manifest.tensors.items():  # in the order in which they lie there, also of what is empty
            names.setdefault(entry.file, []).append(name)
        self._files = {tuple(found): file for file, found in names.items()}
        self._written_ns = os.lstat(folder / MANIFEST).st_mtime_ns

    def like(self, shard: Shard) -> str | None:
        """The file that has tensors of just these names, types and shapes, and has not been touched since."""
        file = self._files.get(tuple(payload.name for payload in shard.payloads))
        known = self.manifest.tensors
        if file is None or any(
            (known[payload.name].dtype, known[payload.name].shape) != (payload.dtype, payload.shape)
            for payload in shard.payloads
        ):
            return None
        try:
            status = os.lstat(self.folder / file)
        except OSError:
            return None
        is_as_written = status.st_size == self.manifest.files[file].bytes and status.st_mtime_ns <= self._written_ns
        return file if stat.S_ISREG(status.st_mode) and is_as_written else None

    def holds(self, payload: Payload, data: memoryview) -> bool:
        """Whether it holds just these bytes under this name."""
        known = self.manifest.tensors[payload.name]
        algorithm = self.manifest.digest_algorithm
        if digests.sample(data, algorithm) != known.sample:
            return False
        if known.fingerprint and (found := digests.fingerprint(data)):
            return found == known.fingerprint
        return digests.digest(data, algorithm) == known.digest

    def is_doubtful(self, number: int, file: str, shard: Shard) -> bool:
        """Whether it is this file's turn to be read again, and it is not as it was written."""
        if self._turn is None or (number + self._turn) % READ_AGAIN_EVERY:
            return False
        reader = Reader(self.folder, self.manifest)
        try:
            _drop_from_cache(self.folder / file)  # what counts is what the medium says
            for payload in shard.payloads:
                reader.fetch(payload.name)
        except Damaged as error:
            _log.warning("written again: %s", error)
            return True
        return False


def _drop_from_cache(path: Path) -> None:
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def write_shards(
    folder: Path,
    shards: Sequence[Shard],
    earlier: Earlier | None,
    *,
    algorithm: str,
    threads: int | None = None,
    name: Callable[[int, int], str] = shard_name,
) -> list[WrittenShard]:
    """Bring shards into a folder. When this returns their bytes are durable; their names are not yet."""
    if earlier is not None and earlier.manifest.digest_algorithm != algorithm:
        earlier = None
    names = [name(at, len(shards)) for at in range(1, len(shards) + 1)]

    def one(job: tuple[int, str, Shard]) -> WrittenShard:
        number, name, shard = job
        file = _shareable(shard, earlier)
        if earlier is None or file is None:
            return _write(folder, name, shard, algorithm)
        if earlier.is_doubtful(number, file, shard):
            return replace(_write(folder, name, shard, algorithm), replaces=str(earlier.folder / file))
        return _link(folder, name, shard, earlier, file) or _write(folder, name, shard, algorithm)

    return each(one, [(at, *pair) for at, pair in enumerate(zip(names, shards, strict=True))], threads=threads)


def _shareable(shard: Shard, earlier: Earlier | None) -> str | None:
    """The file of the earlier checkpoint that has just these bytes, if one does."""
    file = earlier.like(shard) if earlier else None
    if earlier is None or file is None:
        return None
    return file if all(earlier.holds(payload, payload.read()) for payload in shard.payloads) else None


def _link(folder: Path, name: str, shard: Shard, earlier: Earlier, file: str) -> WrittenShard | None:
    try:
        _link_file(earlier.folder / file, folder / name)
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    known = earlier.manifest.tensors
    entries = [known[payload.name] for payload in shard.payloads]
    tensors = {payload.name: _moved(entry, name) for payload, entry in zip(shard.payloads, entries, strict=True)}
    return WrittenShard(name, earlier.manifest.files[file], tensors, is_linked=True)


def _link_file(source: Path, target: Path) -> None:
    source_fd = os.open(source.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    target_fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk().link(source.name, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd)
    finally:
        os.close(source_fd)
        os.close(target_fd)


def _moved(entry: TensorEntry, file: str) -> TensorEntry:
    return replace(entry, file=file)


def _write(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    head = header(shard.payloads)
    whole, tapped = digests.new(algorithm), _Tapped(algorithm)
    tensors: dict[str, TensorEntry] = {}
    size = len(head)

    def tap(data: memoryview) -> None:
        whole.update(data)
        tapped.take(data)

    with Stream(folder / name, size + shard.n_bytes, tap=tap) as stream:
        tapped.expect(size)
        stream.write(head)
        samples = []
        for payload in shard.payloads:
            data = payload.read()
            if len(data) != payload.n_bytes:
                raise AssertionError(f"{payload.name} has {len(data)} bytes and not {payload.n_bytes}")
            tapped.expect(len(data))
            samples.append(digests.sample(data, algorithm))
            stream.write(data)
        stream.finish()
    (header_digest, _), *found = tapped.finish()
    for payload, (digest, fingerprint), sample in zip(shard.payloads, found, samples, strict=True):
        n_bytes = payload.n_bytes
        tensors[payload.name] = TensorEntry(
            name, payload.dtype, payload.shape, size, n_bytes, digest, sample, fingerprint
        )
        size += n_bytes
    entry = FileEntry(size, whole.hexdigest(), len(head), header_digest)
    return WrittenShard(name, entry, tensors, is_linked=False)


class _Tapped:
    """The digests of pieces that come one after the other, cut where they meet."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._left: list[int] = []
        self._hashers: list[tuple[digests.Hasher, digests.Hasher | None]] = []
        self._at = 0

    def expect(self, length: int) -> None:
        self._left.append(length)
        self._hashers.append((digests.new(self._algorithm), digests.new_fingerprint()))

    def take(self, data: memoryview) -> None:
        while data:
            while not self._left[self._at]:
                self._at += 1
            taken = min(self._left[self._at], len(data))
            for hasher in self._hashers[self._at]:
                if hasher is not None:
                    hasher.update(data[:taken])
            self._left[self._at] -= taken
            data = data[taken:]

    def finish(self) -> list[tuple[str, str]]:
        """Of each piece, the digest and the fingerprint."""
        return [(hasher.hexdigest(), quick.hexdigest() if quick else "") for hasher, quick in self._hashers]
