"""Bytes of checkpoints from an object store, verified as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.model import Problem, VerifyReport
from holdfast.training.folder import Found
from holdfast.training.objects import Objects
from holdfast.training.reading import Reader
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST
from holdfast.training.stored.manifest import HINT, FileEntry
from holdfast.training.threads import each

if TYPE_CHECKING:
    from holdfast.training.remote import RemoteFolder

_PIECE_BYTES = 16 << 20


class RemoteReader(Reader):
    """Reads tensors of one checkpoint by ranges of its objects; verified as those of a folder are."""

    def __init__(self, objects: Objects, found: Found, *, verify: bool = True) -> None:
        super().__init__(found.path, found.manifest, verify=verify)
        self._objects = objects

    @property
    def is_gone(self) -> bool:
        return self._objects.get(f"{self._folder.name}/{MANIFEST}") is None

    def file(self, name: str) -> bytes:
        entry = self._manifest.files.get(name)
        if entry is None:
            raise Damaged(f"{self._folder} has no {name}", hint=HINT)
        data = self._objects.get(f"{self._folder.name}/{name}")
        if data is None:
            self._missing(name)
        self._check(data, entry.digest, self._folder / name)
        return data

    def _batches(self, names: list[str]) -> list[list[str]]:
        return [[name] for name in names]  # each is a request, and they go at once

    def _read_batch(self, names: list[str]) -> dict[str, memoryview]:
        return {name: self._read(name) for name in names}

    def _read(self, name: str, *, has_looked: bool = False) -> memoryview:
        tensor = self._entry(name)
        entry = self._manifest.files[tensor.file]
        if tensor.file not in self._maps:
            head = self._range(tensor.file, 0, entry.header_bytes)
            self._check(head, entry.header_digest, self._folder / tensor.file)
            self._maps[tensor.file] = head
        data = self._range(tensor.file, tensor.offset, tensor.bytes)
        self._check_tensor(data, name, tensor)
        return data

    def _range(self, file: str, start: int, length: int) -> memoryview:
        data = self._objects.range(f"{self._folder.name}/{file}", start, length)
        return self._missing(file) if data is None else data

    def _missing(self, name: str) -> NoReturn:
        """Tell a checkpoint that was removed while it was read from one that is damaged."""
        if self.is_gone:
            raise NotFound(f"{self._folder} was removed meanwhile", hint="Load again: there is a newer one.")
        raise Damaged(f"{self._folder / name} is missing or too short", hint=HINT)


def verify_remote(folder: RemoteFolder) -> VerifyReport:
    """Read every byte of every checkpoint of a store."""
    found, broken = folder.look()
    problems = [Problem(one.path.name, one.error.message, (one.path.name,)) for one in broken]
    sizes = {entry.key: entry.size for entry in folder.entries}
    jobs: list[tuple[Found, str, FileEntry]] = []
    for one in found:
        try:
            whole = folder.full(one)
        except HoldfastError as error:
            problems.append(Problem(one.path.name, error.message, (one.path.name,)))
            continue
        jobs += [(whole, name, entry) for name, entry in whole.manifest.files.items()]

    def check(job: tuple[Found, str, FileEntry]) -> tuple[int, str]:
        return _check(folder.objects, *job, sizes.get(f"{job[0].path.name}/{job[1]}"))

    checked = each(check, jobs)
    for (one, name, _), (_, wrong) in zip(jobs, checked, strict=True):
        if wrong:
            problems.append(Problem(f"{one.path.name}/{name}", wrong, (one.path.name,)))
    read = sum(size for size, _ in checked)
    return VerifyReport(problems, checkpoints=len(found) + len(broken), objects=len(jobs), bytes_read=read)


def _check(objects: Objects, found: Found, name: str, entry: FileEntry, size: int | None) -> tuple[int, str]:
    """How many bytes of an object were read, piece by piece, and what is wrong with it."""
    if size is None:
        return 0, "is missing"
    if size != entry.bytes:
        return 0, f"has {size} bytes where {entry.bytes} were written"
    hasher = digests.new(found.manifest.digest_algorithm)
    for at in range(0, size, _PIECE_BYTES):
        piece = objects.range(f"{found.path.name}/{name}", at, min(_PIECE_BYTES, size - at))
        if piece is None:
            return at, "is missing"
        hasher.update(piece)
    return size, "" if hasher.hexdigest() == entry.digest else "is not as it was written"
