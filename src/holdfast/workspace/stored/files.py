"""One path of a checkpoint: the content of a file, the target of a link, the names in a folder."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.errors import NotFound, Refused
from holdfast.model import Checkpoint
from holdfast.model.documents import short
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import Entry, TreeReader


@dataclass(frozen=True, slots=True)
class StoredPath:
    """A file, a link or a folder as a checkpoint has it."""

    checkpoint: Checkpoint
    path: str
    mode: int
    size_bytes: int | None
    """Of the content, or of the target of a link; None for a folder and for a special file."""
    names: tuple[str, ...] | None
    """What is in a folder, sorted, folders with a slash; None for anything else."""
    _repository: Repository = field(repr=False, compare=False)
    _oid: bytes = field(repr=False, compare=False)
    _is_in_parts: bool = field(default=False, repr=False, compare=False)

    @property
    def is_folder(self) -> bool:
        return self.names is not None

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    def chunks(self) -> Iterator[bytes]:
        """Read the content, or the target of a link, piece by piece. Refused if there is none."""
        if self.size_bytes is None:
            kind = "a folder" if self.is_folder else "neither a file nor a link"
            raise Refused(f"{self.path or '.'} is {kind} in {short(self.checkpoint.id)}", hint="Name a file.")
        objects = self._repository.objects
        mode = FOLDER_MODE if self._is_in_parts else FILE_MODE
        return map(objects.blob, list_parts(objects, mode, self._oid))

    def read(self) -> bytes:
        """Read all of it."""
        return b"".join(self.chunks())


def find_path(repository: Repository, checkpoint: Checkpoint, path: str) -> StoredPath:
    """Find a path of a checkpoint; empty is the folder itself. NotFound, with why it is not contained if that is so."""
    reader, root = TreeReader(repository.objects), repository.contents(checkpoint).root
    entry = reader.find(root, path)
    if entry is None:
        why = next((each for each in checkpoint.uncovered if each.path and _is_below(path, each.path)), None)
        known = f": {why.path} is not contained ({why.reason.value})" if why else ""
        raise NotFound(f"{short(checkpoint.id)} does not contain {path}{known}", hint="Check its spelling.")
    if entry.is_folder:
        node = reader.node(root, path)
        view = reader.view(node) if node else None
        names = sorted([*view.entries, *(f"{name}/" for name in view.folders)]) if view else []
        return StoredPath(checkpoint, path, entry.attr.mode, None, tuple(names), repository, b"")
    size = _size(repository, entry)
    is_in_parts = entry.attr.parts_bytes is not None
    return StoredPath(checkpoint, path, entry.attr.mode, size, None, repository, entry.oid, is_in_parts)


def _size(repository: Repository, entry: Entry) -> int | None:
    if not (entry.is_file or entry.is_link):
        return None
    if entry.attr.parts_bytes is not None:
        return entry.attr.parts_bytes
    return repository.objects.kind_and_size(entry.oid)[1]


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")
