"""Reads the files of a checkpoint, and verifies every byte that it returns."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.durable.os_errors import unavailable
from holdfast.durable.platform.memory import fault_in, use_large_pages
from holdfast.errors import Damaged, HoldfastError
from holdfast.training.state_tree import Bytes
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST
from holdfast.training.stored.manifest import HINT, VERIFY, FileEntry, Manifest, TensorEntry, decode
from holdfast.training.threads import each

_MANIFEST_MAX_BYTES = 1 << 30
_FAULT_WHOLE_BELOW_BYTES = 4 << 20
_UNREACHABLE = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED)
_TEMPORARY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, *_UNREACHABLE)
"""Errors that say nothing about the file itself: too many open files, permissions, an unreachable server."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Read the manifest of a checkpoint. Damaged if it is missing or corrupt."""
    path = folder / MANIFEST
    try:
        fd = os.open(path, _FLAGS)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged(f"{path} is not a file", hint=HINT, remedy=VERIFY)
            data = file.read(min(status.st_size, _MANIFEST_MAX_BYTES))  # `read` allocates what it is told
    except FileNotFoundError:
        raise Damaged(
            f"{folder} has no {MANIFEST}, so it is not a complete checkpoint", hint=HINT, remedy=VERIFY
        ) from None
    except OSError as error:
        raise cannot_read(path, error) from error
    return decode(data, str(path), verify=verify)


def read_bytes(path: Path, max_bytes: int = _MANIFEST_MAX_BYTES) -> bytes:
    """Return the content of a file; empty if it is a link, not a regular file, too large, or unreadable."""
    with contextlib.suppress(OSError), open(os.open(path, _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
            return file.read(status.st_size)  # `read` allocates what it is told
    return b""


def cannot_read(path: Path, error: OSError) -> HoldfastError:
    """Return Unavailable if reading may work later or for another user, otherwise Damaged."""
    if error.errno in _TEMPORARY:
        return unavailable(error, path, "reading")
    return Damaged(f"{path} cannot be read: {error.strerror}", hint=HINT, remedy=VERIFY)


class Reader:
    """Reads tensors of one checkpoint. Raises Damaged if a byte that it reads is not what was written."""

    def __init__(self, folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
        self._folder = folder
        self._manifest = manifest
        self._verify = verify
        self._ready: dict[str, memoryview] = {}
        self._maps: dict[str, memoryview] = {}

    def file(self, name: str) -> bytes:
        """Return a file that is not a shard."""
        entry = self._manifest.files.get(name)
        if entry is None:
            raise Damaged(f"{self._folder} has no {name}", hint=HINT, remedy=VERIFY)
        with self._opened(name, entry) as fd:
            data = bytes(_read_all(fd, entry.bytes))
        self._check(data, entry.digest, self._folder / name)
        return data

    @property
    def is_gone(self) -> bool:
        """Whether the checkpoint was removed since it was found."""
        return not os.path.lexists(self._folder / MANIFEST)

    def prepare(self, names: Iterable[str]) -> None:
        """Read many tensors, with several threads."""
        wanted = [name for name in names if name not in self._ready]
        if len(wanted) < 2:
            return
        for found in each(self._read_batch, self._batches(wanted)):
            self._ready |= found

    def _batches(self, names: list[str]) -> list[list[str]]:
        """Divide the work by file, so that threads do not synchronize at each tensor."""
        files: dict[str, list[str]] = {}
        for name in names:
            files.setdefault(self._entry(name).file, []).append(name)
        return list(files.values())

    def _read_batch(self, names: list[str]) -> dict[str, memoryview]:
        """Read tensors of one file. A small file is faulted in at once, just before it is read."""
        file = self._entry(names[0]).file
        whole = self._mapped(file)
        is_small = len(whole) <= _FAULT_WHOLE_BELOW_BYTES
        if is_small:
            self._fault_in(whole, file)
        return {name: self._read(name, is_faulted=is_small) for name in names}

    def fetch(self, name: str) -> Bytes:
        """Return the bytes, type and shape of a tensor."""
        data = self._ready.pop(name, None)
        entry = self._entry(name)
        return self._read(name) if data is None else data, entry.dtype, entry.shape

    def _entry(self, name: str) -> TensorEntry:
        try:
            return self._manifest.tensors[name]
        except KeyError:
            raise Damaged(f"{self._folder} has no tensor {name}", hint=HINT, remedy=VERIFY) from None

    def _read(self, name: str, *, is_faulted: bool = False) -> memoryview:
        tensor = self._entry(name)
        whole = self._mapped(tensor.file)
        data = whole[tensor.offset : tensor.offset + tensor.bytes]
        if not is_faulted:
            self._fault_in(data, tensor.file)
        self._check_tensor(data, name, tensor)
        return data

    def _mapped(self, name: str) -> memoryview:
        """Return a mapped shard, whose header is verified."""
        if name not in self._maps:
            entry = self._manifest.files[name]
            with self._opened(name, entry) as fd:
                whole = map_file(fd, entry.bytes) if entry.bytes else None
                if whole is None:
                    whole = _read_all(fd, entry.bytes)
                self._fault_in(whole[: entry.header_bytes], name)
            self._check(whole[: entry.header_bytes], entry.header_digest, self._folder / name)
            self._maps[name] = whole
        return self._maps[name]

    def _fault_in(self, data: memoryview, name: str) -> None:
        """Fault bytes in, so that a read error is an exception and not a signal."""
        try:
            if self._verify:
                fault_in(data)
        except OSError as error:
            raise Damaged(f"{self._folder / name} cannot be read: {error.strerror}", hint=HINT, remedy=VERIFY) from None

    @contextlib.contextmanager
    def _opened(self, name: str, entry: FileEntry) -> Iterator[int]:
        path = self._folder / name
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            raise Damaged(f"{path} is missing", hint=HINT, remedy=VERIFY) from None
        except OSError as error:
            raise cannot_read(path, error) from error
        try:
            size = os.fstat(fd).st_size
            if size != entry.bytes:
                raise Damaged(f"{path} has {size} bytes where {entry.bytes} were written", hint=HINT, remedy=VERIFY)
            yield fd
        except OSError as error:
            raise cannot_read(path, error) from error
        finally:
            os.close(fd)

    def _check_tensor(self, data: memoryview, name: str, tensor: TensorEntry) -> None:
        """Compare the fingerprint, which is five times as fast, or else the digest."""
        if self._verify and tensor.fingerprint and (found := digests.fingerprint(data)):
            if found != tensor.fingerprint:
                raise Damaged(f"{name} in {self._folder / tensor.file} is corrupt", hint=HINT, remedy=VERIFY)
        else:
            self._check(data, tensor.digest, f"{name} in {self._folder / tensor.file}")

    def _check(self, data: bytes | memoryview, expected: str, what: object) -> None:
        if self._verify and digests.digest(data, self._manifest.digest_algorithm) != expected:
            raise Damaged(f"{what} is corrupt", hint=HINT, remedy=VERIFY)


def _read_all(fd: int, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = os.preadv(fd, [data[at:]], at)
        if not count:
            raise Damaged("a file was truncated while it was read", hint=HINT, remedy=VERIFY)
        at += count
    return data


def map_file(fd: int, size: int) -> memoryview | None:
    """Map a file copy-on-write, so that changes in memory do not reach it; None if it cannot be mapped.

    Reading a gigabyte into new memory takes the kernel a second for the pages alone; mapping takes none.
    """
    try:
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    except OSError:
        return None
    use_large_pages(mapped)
    return memoryview(mapped)
