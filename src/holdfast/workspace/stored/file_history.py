"""One file in many checkpoints: its content in each, and which checkpoints came before.

Reads rows of the catalog in batches, and of each tree only the entry that is asked for. Memory does not grow with the
number of checkpoints (P8).
"""

from __future__ import annotations

import json
import os

from holdfast.shadowgit import TreeEntry, store_name
from holdfast.shadowgit.objects import find_entry
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.repository import REVERT, WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader

_BATCH_ROWS = 256
_MOST_BATCHES = 8
_MOST_ENTRIES = 1024


class FileHistory:
    """Looks up files in checkpoints. For one walk: what other processes delete meanwhile may still be found."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.source = ObjectSink(repository.objects)
        self._batches: list[dict[str, Row]] = []
        self._entries: dict[tuple[bytes, str], TreeEntry | None] = {}

    def row(self, checkpoint_id: str) -> Row | None:
        """Return the row of a checkpoint; None if it is deleted."""
        for batch in reversed(self._batches):
            if checkpoint_id in batch:
                return batch[checkpoint_id]
        # a walk goes from a checkpoint to its parent, which is almost always one of the next
        rows = self._repository.catalog.newest(limit=_BATCH_ROWS, safety=True, up_to=checkpoint_id)
        if not rows or rows[0].id != checkpoint_id:
            return None
        self._batches = [*self._batches[1 - _MOST_BATCHES :], {row.id: row for row in rows}]
        return rows[0]

    def predecessors(self, row: Row) -> list[Row]:
        """Return what a checkpoint was made from: its parent; for an undo of an agent or a revert also its start."""
        record = json.loads(row.record)
        operation = record["operation"]
        ids = [record["parent"], operation[1] if operation and operation[0] in (WITHOUT, REVERT) else None]
        found = (self.row(each) for each in ids if each)
        return [each for each in found if each is not None]

    def content(self, row: Row, path: str) -> bytes | None:
        """Return the content id of a file or link. Reads only the folders above it, without attributes."""
        if not path:
            return None  # the folder itself
        *folders, name = path.split("/")
        tree = bytes.fromhex(row.content[:40])
        for folder in folders:
            found = self._entry(tree, folder)
            if found is None or not found.is_folder:
                return None
            tree = found.oid
        found = self._entry(tree, name)
        if found is None or not found.is_folder:
            return found and found.oid
        # a folder, or a large file in chunks: only attributes tell
        root = self._repository.contents(self._repository.checkpoint(row)).root
        entry = TreeReader(self.source).find(root, path)
        return entry.oid if entry is not None and (entry.is_file or entry.is_link) else None

    def _entry(self, tree: bytes, name: str) -> TreeEntry | None:
        """Return an entry of a stored folder, with a cache: neighbouring checkpoints share most folders."""
        key = (tree, name)
        if key not in self._entries:
            if len(self._entries) >= _MOST_ENTRIES:
                self._entries.clear()
            stored = (store_name(os.fsencode(name)), store_name(os.fsencode(name), is_link=True))
            self._entries[key] = find_entry(self._repository.objects.tree_data(tree), stored)
        return self._entries[key]
