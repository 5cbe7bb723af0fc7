"""Where a snapshot puts its objects: into memory only, or into a new pack."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from holdfast.shadowgit import ObjectKind, ObjectStore, PackEntry, TreeEntry, object_id
from holdfast.shadowgit.objects import decode_tree

TEXT_MAX_BYTES = 4 << 20
"""Larger files are named in a diff, and not shown."""


class ObjectSink:
    """Takes objects and can read them back, together with those of the store. Stores nothing."""

    def __init__(self, store: ObjectStore, *, keep_files: bool = False) -> None:
        """`keep_files` keeps small changed files in memory, to be compared."""
        self._store = store
        self._keep_files = keep_files
        self._objects: dict[bytes, bytes] = {}

    def lacks(self, oid: bytes) -> bool:
        """Whether content has to be deflated and given to `add_entry`. Several threads may call this."""
        return False

    def show(self, oid: bytes, data: bytes) -> None:
        """Keep a small file in memory, if `keep_files` is set and the store does not have it.

        Several threads may call this."""
        if self._keep_files and len(data) <= TEXT_MAX_BYTES:
            self._objects[oid] = data

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        """Take a tree, or a blob that is not a file, and return its id."""
        oid = object_id(kind, data)
        self._objects[oid] = data
        return oid

    def add_entry(self, entry: PackEntry) -> None:
        """Take an object that is deflated already."""

    def tree(self, oid: bytes) -> list[TreeEntry]:
        return list(decode_tree(self.tree_data(oid)))

    def tree_data(self, oid: bytes) -> bytes:
        data = self._objects.get(oid)
        return self._store.tree_data(oid) if data is None else data

    def commit(self, oid: bytes) -> bytes:
        data = self._objects.get(oid)
        return self._store.commit(oid) if data is None else data

    def blob(self, oid: bytes) -> bytes:
        data = self._objects.get(oid)
        return self._store.blob(oid) if data is None else data

    def size(self, oid: bytes) -> int | None:
        """The size of a blob in bytes; None if it is neither in memory nor in the store."""
        data = self._objects.get(oid)
        if data is not None:
            return len(data)
        return self._store.kind_and_size(oid)[1] if self._store.has(oid) else None


class PackSink(ObjectSink):
    """Writes the objects into a new pack, which `writer.commit()` makes durable.

    As a context manager it removes an uncommitted pack if an error comes out (P3).
    """

    def __init__(self, store: ObjectStore, *, keep_files: bool = False) -> None:
        super().__init__(store, keep_files=keep_files)
        self.writer = store.writer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.writer.abort()
        self._objects.clear()  # after a first save these are a third of all memory
        self.writer.forget()

    def lacks(self, oid: bytes) -> bool:
        return not self.writer.holds(oid)

    def show(self, oid: bytes, data: bytes) -> None:
        if self._keep_files and self.lacks(oid):
            super().show(oid, data)

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        oid = self.writer.add(kind, data)
        self._objects[oid] = data
        return oid

    def add_entry(self, entry: PackEntry) -> None:
        self.writer.add_entry(entry)
