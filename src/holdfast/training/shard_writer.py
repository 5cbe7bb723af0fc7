"""Shards of a checkpoint: hashed, written and synced in one pass, or hard-linked if nothing changed (P8)."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.durable import disk
from holdfast.durable.direct_write import Stream
from holdfast.durable.platform.memory import drop_from_cache
from holdfast.errors import Damaged
from holdfast.training.shard_layout import plan_shards
from holdfast.training.shard_reader import Reader
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST, shard_name
from holdfast.training.stored.manifest import FileEntry, Manifest, TensorEntry, encode_tensors
from holdfast.training.stored.shards import SHARD_BYTES, Payload, Shard, header
from holdfast.training.threads import each

_log = logging.getLogger("holdfast")

REREAD_EVERY = 32
"""A save rereads one in this many of the files that it shares, other ones each time: a disk can lose data silently, and
a hard link to lost data is no second copy."""
_NO_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that is stored."""

    name: str
    entry: FileEntry
    tensors: dict[str, TensorEntry]
    is_linked: bool
    replaces: str = ""
    """The damaged file that it would otherwise have shared."""
    manifest_text: bytes = b""
    """Its tensors as the manifest has them. A shared shard keeps it, so that it is not encoded again (P8)."""
    index_text: bytes = b""
    """Its tensors as the index has them."""

    def encoded(self) -> WrittenShard:
        """Return the same shard with both texts."""
        if self.manifest_text or not self.tensors:
            return self
        names = json.dumps(dict.fromkeys(self.tensors, self.name), separators=(",", ":"))
        return replace(self, manifest_text=encode_tensors(self.tensors), index_text=names[1:-1].encode())

    def linked_as(self, name: str) -> WrittenShard:
        """Return the same shard as a link of this name in another checkpoint."""
        if name == self.name:
            return replace(self, is_linked=True, replaces="")
        # Quotes within a JSON string are escaped, so only the value of an entry can match
        old, new = f':"{self.name}"'.encode(), f':"{name}"'.encode()
        return WrittenShard(
            name,
            self.entry,
            {tensor: entry._replace(file=name) for tensor, entry in self.tensors.items()},
            is_linked=True,
            manifest_text=self.manifest_text.replace(old, new),
            index_text=self.index_text.replace(old, new),
        )


def shards_of(manifest: Manifest) -> dict[str, WrittenShard]:
    """Return the shards of a checkpoint, by name."""
    by_file: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in manifest.tensors.items():
        by_file.setdefault(entry.file, {})[name] = entry
    return {
        file: WrittenShard(file, manifest.files[file], tensors, is_linked=True) for file, tensors in by_file.items()
    }


class PreviousCheckpoint:
    """A checkpoint whose files a save may share."""

    def __init__(
        self, folder: Path, manifest: Manifest, shards: Mapping[str, WrittenShard], *, turn: int | None = None
    ) -> None:
        """shards: those of the checkpoint, by name. turn: selects the files to reread; None selects none."""
        self.folder = folder
        self.manifest = manifest
        self.shards = shards
        self._turn = turn
        self._written_ns = os.lstat(folder / MANIFEST).st_mtime_ns

    def is_untouched(self, file: str) -> bool:
        """Whether size and times say that nobody has changed a file since it was written."""
        try:
            status = os.lstat(self.folder / file)
        except OSError:
            return False
        is_old = status.st_size == self.manifest.files[file].bytes and status.st_mtime_ns <= self._written_ns
        return stat.S_ISREG(status.st_mode) and is_old

    def is_damaged(self, file: str, shard: Shard) -> bool:
        """Reread a file if it is its turn, and return whether it is damaged."""
        # Selected by content, not by position: positions shift when other files are written again
        number = zlib.crc32(self.manifest.files[file].digest.encode())
        if self._turn is None or (number + self._turn) % REREAD_EVERY:
            return False
        reader = Reader(self.folder, self.manifest)
        try:
            _drop_from_cache(self.folder / file)  # read the disk, not the page cache
            for payload in shard.payloads:
                reader.fetch(payload.name)
        except Damaged as error:
            _log.warning("written again: %s", error)
            return True
        return False


def _drop_from_cache(path: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            drop_from_cache(fd)
        finally:
            os.close(fd)


def write_shards(
    folder: Path,
    payloads: Sequence[Payload],
    previous: PreviousCheckpoint | None,
    *,
    algorithm: str,
    threads: int | None = None,
    name: Callable[[int, int], str] = shard_name,
) -> list[WrittenShard]:
    """Write tensors into a folder. When this returns their bytes are durable, and their names are not yet."""
    if previous is None or previous.manifest.digest_algorithm != algorithm:
        plans = plan_shards(payloads, None, {})
    else:
        known = {file: shard.tensors for file, shard in previous.shards.items()}
        plans = plan_shards(payloads, previous.manifest, known, may_share=previous.is_untouched, threads=threads)
    jobs = [(name(number, len(plans)), *plan) for number, plan in enumerate(plans, 1)]

    def write(job: tuple[str, Shard, str | None]) -> WrittenShard:
        name, shard, file = job
        if previous is None or file is None:
            return _write(folder, name, shard, algorithm)
        if previous.is_damaged(file, shard):
            return replace(_write(folder, name, shard, algorithm), replaces=str(previous.folder / file))
        return _link(folder, name, previous, file) or _write(folder, name, shard, algorithm)

    return each(write, jobs, threads=threads)


def _link(folder: Path, name: str, previous: PreviousCheckpoint, file: str) -> WrittenShard | None:
    """Hard-link a file of the previous checkpoint; None if the file system cannot."""
    source_fd = os.open(previous.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    target_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk().link(file, name, src_dir_fd=source_fd, dst_dir_fd=target_fd)
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
    finally:
        os.close(source_fd)
        os.close(target_fd)
    return previous.shards[file].linked_as(name)


def describe_tensor(
    file: str, payload: Payload, offset: int, data: memoryview, algorithm: str, *, fingerprint: bool = True
) -> TensorEntry:
    """Return the manifest entry of a tensor whose bytes are `data`."""
    digest = digests.digest(data, algorithm)
    is_large = len(data) > digests.SAMPLED_FROM_BYTES
    sample = digests.sample(data, algorithm) if is_large else digests.sample_of_digest(digest)
    quick = digests.fingerprint(data) if fingerprint else ""
    return TensorEntry(file, payload.dtype, payload.shape, offset, len(data), digest, sample, quick)


def _write(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    is_small = len(shard.payloads) > 1 and shard.n_bytes <= SHARD_BYTES
    return (_write_gathered if is_small else _write_streamed)(folder, name, shard, algorithm)


def _write_gathered(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    """Write many small tensors as one copy. That copy is hashed, so the digests match even if a tensor changes."""
    head = header(shard.payloads)
    data = memoryview(b"".join([head, *[payload.bytes_of(payload.source) for payload in shard.payloads]]))
    with Stream(folder / name, len(data), tap=lambda chunk: None) as stream:
        stream.write(data)
        stream.finish()
    tensors: dict[str, TensorEntry] = {}
    offset = len(head)
    for payload in shard.payloads:
        end = offset + payload.n_bytes
        tensors[payload.name] = describe_tensor(name, payload, offset, data[offset:end], algorithm)
        offset = end
    if offset != len(data):
        raise AssertionError(f"the tensors of {name} have {len(data) - len(head)} bytes, not {offset - len(head)}")
    entry = FileEntry(offset, digests.digest(data, algorithm), len(head), digests.digest(head, algorithm))
    return WrittenShard(name, entry, tensors, is_linked=False)


def _write_streamed(folder: Path, name: str, shard: Shard, algorithm: str) -> WrittenShard:
    """Write tensors of any size through one buffer, and hash the bytes as they are written."""
    head = header(shard.payloads)
    whole, pieces = digests.new(algorithm), _PieceDigests(algorithm)
    tensors: dict[str, TensorEntry] = {}
    size = len(head)

    def tap(data: memoryview) -> None:
        whole.update(data)
        pieces.update(data)

    with Stream(folder / name, size + shard.n_bytes, tap=tap) as stream:
        pieces.expect(size)
        stream.write(head)
        samples = []
        for payload in shard.payloads:
            data = payload.read()
            if len(data) != payload.n_bytes:
                raise AssertionError(f"{payload.name} has {len(data)} bytes, not {payload.n_bytes}")
            pieces.expect(len(data))
            samples.append(digests.sample(data, algorithm) if len(data) > digests.SAMPLED_FROM_BYTES else "")
            stream.write(data)
        stream.finish()
    (header_digest, _), *found = pieces.finish()
    for payload, (digest, fingerprint), sample in zip(shard.payloads, found, samples, strict=True):
        n_bytes = payload.n_bytes
        tensors[payload.name] = TensorEntry(
            name, payload.dtype, payload.shape, size, n_bytes, digest,
            sample or digests.sample_of_digest(digest), fingerprint,
        )  # fmt: skip
        size += n_bytes
    entry = FileEntry(size, whole.hexdigest(), len(head), header_digest)
    return WrittenShard(name, entry, tensors, is_linked=False)


class _PieceDigests:
    """Digests of consecutive pieces of one stream, whose chunks end anywhere."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._missing: list[int] = []
        """Of each expected piece, how many bytes have not come yet."""
        self._current = 0
        self._hashers: tuple[digests.Hasher, digests.Hasher | None] | None = None
        self._found: list[tuple[str, str]] = []

    def expect(self, length: int) -> None:
        """Announce the next piece."""
        self._missing.append(length)

    def update(self, data: memoryview) -> None:
        start = 0
        while start < len(data):
            taken = min(self._missing[self._current], len(data) - start)
            self._missing[self._current] -= taken
            self._hash(data[start : start + taken], is_last=not self._missing[self._current])
            start += taken

    def _hash(self, data: memoryview, *, is_last: bool) -> None:
        if self._hashers is None and is_last:  # the whole piece in one chunk, as for most small tensors
            self._add(digests.digest(data, self._algorithm), digests.fingerprint(data))
            return
        if self._hashers is None:
            self._hashers = digests.new(self._algorithm), digests.new_fingerprint()
        hasher, quick = self._hashers
        hasher.update(data)
        if quick is not None:
            quick.update(data)
        if is_last:
            self._add(hasher.hexdigest(), quick.hexdigest() if quick is not None else "")

    def _add(self, digest: str, fingerprint: str) -> None:
        self._found.append((digest, fingerprint))
        self._hashers = None
        self._current += 1

    def finish(self) -> list[tuple[str, str]]:
        """Return the digest and the fingerprint of each piece."""
        while self._current < len(self._missing):  # empty pieces at the end
            self._hash(memoryview(b""), is_last=True)
        return self._found
