"""Where a snapshot puts its objects: into a pack, or into memory alone for a look that stores nothing."""

from __future__ import annotations

from holdfast.shadowgit import Kind, ObjectStore, PackEntry, PackWriter, TreeEntry, object_id
from holdfast.shadowgit.objects import decode_tree

TEXT_MAX_BYTES = 4 << 20
"""Larger files are named in a diff, and not shown."""


class Gathering:
    """Takes objects, and reads them (and those of the store) at once, before they are committed."""

    def __init__(self, store: ObjectStore, writer: PackWriter | None, *, keep_files: bool = False) -> None:
        """Without a writer nothing is stored. `keep_files` keeps small changed files in memory, to be compared."""
        self._store = store
        self._writer = writer
        self._keep_files = keep_files
        self._objects: dict[bytes, bytes] = {}

    def lacks(self, oid: bytes) -> bool:
        """Whether content has to be deflated and given to `add_entry`. May be asked from several threads."""
        return self._writer is not None and not self._writer.holds(oid)

    def show(self, oid: bytes, data: bytes) -> None:
        """Keep a small file in memory, if that was asked for and it cannot be read otherwise."""
        is_stored = self._keep_files and self._writer is not None and self._writer.holds(oid)
        if self._keep_files and not is_stored and len(data) <= TEXT_MAX_BYTES:
            self._objects[oid] = data

    def add(self, kind: Kind, data: bytes) -> bytes:
        """Take a tree, or a blob that is no file."""
        oid = self._writer.add(kind, data) if self._writer else object_id(kind, data)
        self._objects[oid] = data
        return oid

    def add_entry(self, entry: PackEntry) -> None:
        if self._writer is not None:
            self._writer.add_entry(entry)

    def tree(self, oid: bytes) -> list[TreeEntry]:
        data = self._objects.get(oid)
        return self._store.tree(oid) if data is None else list(decode_tree(data))

    def commit(self, oid: bytes) -> bytes:
        data = self._objects.get(oid)
        return self._store.commit(oid) if data is None else data

    def blob(self, oid: bytes) -> bytes:
        data = self._objects.get(oid)
        return self._store.blob(oid) if data is None else data

    def size(self, oid: bytes) -> int | None:
        """How large a blob is; None if it is neither in memory nor in the store."""
        data = self._objects.get(oid)
        if data is not None:
            return len(data)
        return self._store.kind_and_size(oid)[1] if self._store.has(oid) else None
