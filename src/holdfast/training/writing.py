"""Shards onto the disk: hashed, written and synced in one pass, or linked where nothing changed (P8)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.durable import disk
from holdfast.durable.stream import Stream
from holdfast.errors import Damaged
from holdfast.training.grouping import group
from holdfast.training.reading import Reader
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST, shard_name
from holdfast.training.stored.manifest import FileEntry, Manifest, TensorEntry
from holdfast.training.stored.shards import SHARD_BYTES, Payload, Shard, header
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
        self._written_ns = os.lstat(folder / MANIFEST).st_mtime_ns

    def is_as_written(self, file: str) -> bool:
        """Whether a file has not been touched since, as far as its size and times tell."""
        try:
            status = os.lstat(self.folder / file)
        except OSError:
            return False
        is_untouched = status.st_size == self.manifest.files[file].bytes and status.st_mtime_ns <= self._written_ns
        return stat.S_ISREG(status.st_mode) and is_untouched

    def is_doubtful(self, file: str, shard: Shard) -> bool:
        """Whether it is this file's turn to be read again, and it is not as it was written."""
        # By its content, not by its place among the others: that shifts when they are written again
        number = zlib.crc32(self.manifest.files[file].digest.encode())
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
    payloads: Sequence[Payload],
    earlier: Earlier | None,
    *,
    algorithm: str,
    threads: int | None = None,
    name: Callable[[int, int], str] = shard_name,
) -> list[WrittenShard]:
    """Bring tensors into a folder. When this returns their bytes are durable; their names are not yet."""
    if earlier is None or earlier.manifest.digest_algorithm != algorithm:
        groups = group(payloads, None)
    else:
        groups = group(payloads, earlier.manifest, may_share=earlier.is_as_written, threads=threads)
    jobs = [(name(at, len(groups)), *one) for at, one in enumerate(groups, 1)]

    def bring(job: tuple[str, Shard, str | None]) -> WrittenShard:
        name, shard, file = job
        if earlier is None or file is None:
            return _write(folder, name, shard, algorithm)
        if earlier.is_doubtful(file, shard):
            return replace(_write(folder, name, shard, algorithm), replaces=str(earlier.folder / file))
        return _link(folder, name, shard, earlier, file) or _write(folder, name, shard, algorithm)

    return each(bring, jobs, threads=threads)


def _link(folder: Path, name: str, shard: Shard, earlier: Earlier, file: str) -> WrittenShard | None:
    try:
        _link_file(earlier.folder / file, folder / name)
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    entries = {payload.name: earlier.manifest.tensors[payload.name] for payload in shard.payloads}
    if name != file:
        entries = {tensor: entry._replace(file=name) for tensor, entry in entries.items()}
    return WrittenShard(name, earlier.manifest.files[file], entries, is_linked=True)


def _link_file(source: Path, target: Path) -> None:
    source_fd = os.open(source.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    target_fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk().link(source.name, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd)
    finally:
        os.close(source_fd)
        os.close(target_fd)


def _write(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    is_small = len(shard.payloads) > 1 and shard.n_bytes <= SHARD_BYTES
    return (_write_gathered if is_small else _write_through)(folder, name, shard, algorithm)


def _write_gathered(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    """Many small tensors, at once: what is hashed is the copy that is written, whatever becomes of them meanwhile."""
    head = header(shard.payloads)
    data = memoryview(b"".join([head, *[payload.read() for payload in shard.payloads]]))
    with Stream(folder / name, len(data), tap=lambda piece: None) as stream:
        stream.write(data)
        stream.finish()
    tensors: dict[str, TensorEntry] = {}
    at = len(head)
    for payload in shard.payloads:
        size = payload.n_bytes
        piece = data[at : at + size]
        digest = digests.digest(piece, algorithm)
        is_sampled = size > digests.SAMPLED_FROM_BYTES
        sample = digests.sample(piece, algorithm) if is_sampled else digests.sample_of_digest(digest)
        tensors[payload.name] = TensorEntry(
            name, payload.dtype, payload.shape, at, size, digest, sample, digests.fingerprint(piece)
        )
        at += size
    if at != len(data):
        raise AssertionError(f"the tensors of {name} have {len(data) - len(head)} bytes and not {at - len(head)}")
    entry = FileEntry(at, digests.digest(data, algorithm), len(head), digests.digest(head, algorithm))
    return WrittenShard(name, entry, tensors, is_linked=False)


def _write_through(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    """Tensors of any size, through one buffer: hashed as they pass."""
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
            samples.append(digests.sample(data, algorithm) if len(data) > digests.SAMPLED_FROM_BYTES else "")
            stream.write(data)
        stream.finish()
    (header_digest, _), *found = tapped.finish()
    for payload, (digest, fingerprint), sample in zip(shard.payloads, found, samples, strict=True):
        n_bytes = payload.n_bytes
        tensors[payload.name] = TensorEntry(
            name, payload.dtype, payload.shape, size, n_bytes, digest,
            sample or digests.sample_of_digest(digest), fingerprint,
        )  # fmt: skip
        size += n_bytes
    entry = FileEntry(size, whole.hexdigest(), len(head), header_digest)
    return WrittenShard(name, entry, tensors, is_linked=False)


class _Tapped:
    """The digests of pieces that come one after the other, cut where they meet."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._left: list[int] = []
        self._at = 0
        self._begun: tuple[digests.Hasher, digests.Hasher | None] | None = None
        self._found: list[tuple[str, str]] = []

    def expect(self, length: int) -> None:
        self._left.append(length)

    def take(self, data: memoryview) -> None:
        start = 0
        while start < len(data):
            taken = min(self._left[self._at], len(data) - start)
            self._left[self._at] -= taken
            self._hash(data[start : start + taken], is_last=not self._left[self._at])
            start += taken

    def _hash(self, data: memoryview, *, is_last: bool) -> None:
        if self._begun is None and is_last:  # all of it at once, as of most that are small
            self._add(digests.digest(data, self._algorithm), digests.fingerprint(data))
            return
        if self._begun is None:
            self._begun = digests.new(self._algorithm), digests.new_fingerprint()
        hasher, quick = self._begun
        hasher.update(data)
        if quick is not None:
            quick.update(data)
        if is_last:
            self._add(hasher.hexdigest(), quick.hexdigest() if quick is not None else "")

    def _add(self, digest: str, fingerprint: str) -> None:
        self._found.append((digest, fingerprint))
        self._begun = None
        self._at += 1

    def finish(self) -> list[tuple[str, str]]:
        """Of each piece, the digest and the fingerprint."""
        while self._at < len(self._left):  # what is empty, at the end
            self._hash(memoryview(b""), is_last=True)
        return self._found
