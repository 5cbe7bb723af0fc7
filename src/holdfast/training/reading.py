"""Bytes of tensors from a checkpoint's files, verified as they come."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.errors import Damaged, HoldfastError, Unavailable
from holdfast.training.mapping import fault_in, map_file
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST
from holdfast.training.stored.manifest import HINT, FileEntry, Manifest, TensorEntry, decode
from holdfast.training.threads import each
from holdfast.training.tree import Bytes

_MANIFEST_MAX_BYTES = 1 << 30
_LOOKED_AT_WHOLE_BYTES = 4 << 20
_AWAY = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED)
_NOT_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, *_AWAY)
"""What says nothing of the file: too many are open, it is another user's, or its server does not answer."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Read the manifest of a checkpoint; Damaged if there is none, or not the one that was written."""
    path = folder / MANIFEST
    try:
        fd = os.open(path, _FLAGS)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Damaged(f"{path} is not a file", hint=HINT)
            data = file.read(_MANIFEST_MAX_BYTES)
    except FileNotFoundError:
        raise Damaged(f"{folder} has no {MANIFEST}, so it is not a whole checkpoint", hint=HINT) from None
    except OSError as error:
        raise cannot_read(path, error) from error
    return decode(data, str(path), verify=verify)


def read_bytes(path: Path, max_bytes: int = _MANIFEST_MAX_BYTES) -> bytes:
    """What a file holds; nothing if it is a link, no file, larger than that, or cannot be read."""
    with contextlib.suppress(OSError), open(os.open(path, _FLAGS), "rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and len(data := file.read(max_bytes + 1)) <= max_bytes:
            return data
    return b""


def cannot_read(path: Path, error: OSError) -> HoldfastError:
    """What an error of the system means: that a file is not what it was, or that we may not or cannot look now."""
    if error.errno in _NOT_NOW:
        hint = (
            "Close some files, or wait." if error.errno in (errno.EMFILE, errno.ENFILE) else "See to that, and retry."
        )
        return Unavailable(f"{path} cannot be read: {error.strerror}", hint=hint)
    return Damaged(f"{path} cannot be read: {error.strerror}", hint=HINT)


class Reader:
    """Reads tensors of one checkpoint. Damaged, at once, if a byte that is asked for is not as it was written."""

    def __init__(self, folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
        self._folder = folder
        self._manifest = manifest
        self._verify = verify
        self._ready: dict[str, memoryview] = {}
        self._maps: dict[str, memoryview] = {}

    def file(self, name: str) -> bytes:
        """All of a file that is not a shard."""
        entry = self._manifest.files.get(name)
        if entry is None:
            raise Damaged(f"{self._folder} has no {name}", hint=HINT)
        with self._opened(name, entry) as fd:
            data = bytes(_read_all(fd, entry.bytes))
        self._check(data, entry.digest, self._folder / name)
        return data

    @property
    def is_gone(self) -> bool:
        """Whether the checkpoint was removed since it was found."""
        return not os.path.lexists(self._folder / MANIFEST)

    def prepare(self, names: Iterable[str]) -> None:
        """Read many tensors at once, with several threads."""
        wanted = [name for name in names if name not in self._ready]
        if len(wanted) < 2:
            return
        for found in each(self._read_batch, self._batches(wanted)):
            self._ready |= found

    def _batches(self, names: list[str]) -> list[list[str]]:
        """What one thread reads at a time: all of a file, so that threads do not wait for each other at each tensor."""
        files: dict[str, list[str]] = {}
        for name in names:
            files.setdefault(self._entry(name).file, []).append(name)
        return list(files.values())

    def _read_batch(self, names: list[str]) -> dict[str, memoryview]:
        """Tensors of one file; of a small one, all pages are asked for at once, just before they are looked at."""
        file = self._entry(names[0]).file
        whole = self._mapped(file)
        is_small = len(whole) <= _LOOKED_AT_WHOLE_BYTES
        if is_small:
            self._look(whole, file)
        return {name: self._read(name, has_looked=is_small) for name in names}

    def fetch(self, name: str) -> Bytes:
        """The bytes, type and shape of a tensor."""
        data = self._ready.pop(name, None)
        entry = self._entry(name)
        return self._read(name) if data is None else data, entry.dtype, entry.shape

    def _entry(self, name: str) -> TensorEntry:
        try:
            return self._manifest.tensors[name]
        except KeyError:
            raise Damaged(f"{self._folder} has no tensor {name}", hint=HINT) from None

    def _read(self, name: str, *, has_looked: bool = False) -> memoryview:
        tensor = self._entry(name)
        whole = self._mapped(tensor.file)
        data = whole[tensor.offset : tensor.offset + tensor.bytes]
        if not has_looked:
            self._look(data, tensor.file)
        self._check_tensor(data, name, tensor)
        return data

    def _mapped(self, name: str) -> memoryview:
        """All of a shard, mapped; its header is verified."""
        if name not in self._maps:
            entry = self._manifest.files[name]
            with self._opened(name, entry) as fd:
                whole = map_file(fd, entry.bytes) if entry.bytes else None
                if whole is None:
                    whole = _read_all(fd, entry.bytes)
                self._look(whole[: entry.header_bytes], name)
            self._check(whole[: entry.header_bytes], entry.header_digest, self._folder / name)
            self._maps[name] = whole
        return self._maps[name]

    def _look(self, data: memoryview, name: str) -> None:
        """See that bytes can be had at all, before anything is ended by looking at them."""
        try:
            if self._verify:
                fault_in(data)
        except OSError as error:
            raise Damaged(f"{self._folder / name} cannot be read: {error.strerror}", hint=HINT) from None

    @contextlib.contextmanager
    def _opened(self, name: str, entry: FileEntry) -> Iterator[int]:
        path = self._folder / name
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            raise Damaged(f"{path} is missing", hint=HINT) from None
        except OSError as error:
            raise cannot_read(path, error) from error
        try:
            size = os.fstat(fd).st_size
            if size != entry.bytes:
                raise Damaged(f"{path} has {size} bytes where {entry.bytes} were written", hint=HINT)
            yield fd
        except OSError as error:
            raise cannot_read(path, error) from error
        finally:
            os.close(fd)

    def _check_tensor(self, data: memoryview, name: str, tensor: TensorEntry) -> None:
        """By its fingerprint where that can be made, which is five times as quick; else by its digest."""
        if self._verify and tensor.fingerprint and (found := digests.fingerprint(data)):
            if found != tensor.fingerprint:
                raise Damaged(f"{name} in {self._folder / tensor.file} is not as it was written", hint=HINT)
        else:
            self._check(data, tensor.digest, f"{name} in {self._folder / tensor.file}")

    def _check(self, data: bytes | memoryview, expected: str, what: object) -> None:
        if self._verify and digests.digest(data, self._manifest.digest_algorithm) != expected:
            raise Damaged(f"{what} is not as it was written", hint=HINT)


def _read_all(fd: int, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = os.preadv(fd, [data[at:]], at)
        if not count:
            raise Damaged("a file is shorter than it was", hint=HINT)
        at += count
    return data
