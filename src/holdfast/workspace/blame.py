"""Blaming: which checkpoint each line of a file came with, and so whose window it was made in.

A file is followed back along what the folder went through. Only where its content differs from one checkpoint to the
next is it read; where it was renamed, it is followed under its older name. What was gone through is not held: memory
does not grow with the number of checkpoints (P8).
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from holdfast.errors import NotFound, Refused
from holdfast.model import Blame, BlamedLine, Checkpoint, Origin
from holdfast.scan import databases
from holdfast.scan.handles import Handles, split
from holdfast.shadowgit import Kind, TreeEntry, object_id, store_name
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.differ import find_renames
from holdfast.workspace.stored.gathering import TEXT_MAX_BYTES, Gathering
from holdfast.workspace.stored.lines import Hunk, hunks, is_text, split_lines
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.stored.windows import USER, actor_of

_MOST_FOUND = 1024


class _Version(NamedTuple):
    """A file as it was at one moment."""

    checkpoint: Checkpoint | None
    """None: now."""
    path: str
    oid: bytes


class Blamer:
    """Blames one file of a store."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._source = Gathering(repository.objects, None)
        self._fresh: dict[bytes, bytes] = {}
        self._found: dict[tuple[bytes, str], TreeEntry | None] = {}

    def blame_now(self, path: str, root: str) -> Blame:
        """The file as it is in the folder. NotFound if it is not there."""
        status, data = _read(path, root)
        if data is None:
            return self._blame(_Version(None, path, self._known(path, status)))
        oid = object_id(Kind.BLOB, data)
        self._fresh[oid] = data
        return self._blame(_Version(None, path, oid))

    def _known(self, path: str, status: os.stat_result) -> bytes:
        """The content of a large file, if it is the one that was saved last, by its size and time; nothing if not."""
        head = self._repository.head()
        entry = TreeReader(self._source).find(self._root_of(head), path) if head else None
        if entry is None or not entry.is_file or entry.attr.mtime_ns != status.st_mtime_ns:
            return b""
        size = entry.attr.parts_bytes
        return entry.oid if (self._source.size(entry.oid) if size is None else size) == status.st_size else b""

    def blame(self, path: str, checkpoint: Checkpoint) -> Blame:
        """The file as a checkpoint has it. NotFound if it has none there."""
        row = self._repository.catalog.by_id(checkpoint.id)
        found = self._version(row, path) if row else None
        if found is None:
            raise NotFound(f"{checkpoint.id} has no file {path}", hint="Check its spelling.")
        return self._blame(found)

    def _blame(self, newest: _Version) -> Blame:
        data = self._text(newest)
        whole = self._whole(newest)
        if data is None:
            return Blame(newest.path, False, [], whole)
        lines = split_lines(data)
        origins: dict[int, Origin] = {}
        stack = [(newest, {number: number for number in range(len(lines))})]
        while stack:
            version, pending = stack.pop()
            older, is_end = self._older(version)
            for other in older:
                gone, pending = self._passed(other, version, pending)
                if gone:
                    stack.append((other, gone))
            if pending:
                origins.update(dict.fromkeys(pending.values(), self._origin(version, is_older=is_end)))
        texts = (line.decode("utf-8", "surrogateescape") for line in lines)
        return Blame(newest.path, True, [BlamedLine(at + 1, text, origins[at]) for at, text in enumerate(texts)], whole)

    def _passed(
        self, older: _Version, newer: _Version, pending: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Which of some lines of a version an older one has (by its own count), and which are left."""
        if older.oid == newer.oid or not pending:
            return pending, {}
        before, after = self._text(older), self._text(newer)
        if before is None or after is None:
            return {}, pending
        gone: dict[int, int] = {}
        left: dict[int, int] = {}
        shift, at = 0, 0
        changes = _changed_lines(before, after)
        for line, final in sorted(pending.items()):
            while at < len(changes) and changes[at].new_end <= line:
                shift = changes[at].end - changes[at].new_end
                at += 1
            is_new = at < len(changes) and changes[at].new_start <= line
            (left if is_new else gone)[line if is_new else line + shift] = final
        return gone, left

    def _whole(self, version: _Version) -> Origin:
        """Where the content as a whole came from."""
        while True:
            older, is_end = self._older(version)
            same = next((each for each in older if each.oid == version.oid), None)
            if same is None:
                return self._origin(version, is_older=is_end)
            version = same

    # going back

    def _older(self, version: _Version) -> tuple[list[_Version], bool]:
        """The file in what a version came from: the parent, and for what is left of an agent's work, where it began.
        And whether there is nothing that it came from."""
        rows = self._befores(version.checkpoint)
        found = [self._version(row, version.path) or self._renamed(row, version) for row in rows]
        return [each for each in found if each is not None], version.checkpoint is not None and not rows

    def _befores(self, checkpoint: Checkpoint | None) -> list[Row]:
        if checkpoint is None:
            head = self._repository.head()
            ids = [head.id if head else None]
        else:
            operation = checkpoint.operation
            ids = [checkpoint.parent, operation.target if operation and operation.verb == WITHOUT else None]
        rows = (self._repository.catalog.by_id(each) for each in ids if each)
        return [row for row in rows if row]

    def _root_of(self, checkpoint: Checkpoint) -> Node:
        return self._repository.contents(checkpoint).root

    def _version(self, row: Row, path: str) -> _Version | None:
        oid = self._content(row, path)
        return _Version(self._repository.checkpoint(row), path, oid) if oid is not None else None

    def _content(self, row: Row, path: str) -> bytes | None:
        """The content of a file or link in a checkpoint. Only the folders on the way are read, without attributes."""
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
        root = self._root_of(self._repository.checkpoint(row))  # a folder, or a large file in parts: attributes tell
        entry = TreeReader(self._source).find(root, path)
        return entry.oid if entry is not None and (entry.is_file or entry.is_link) else None

    def _entry(self, tree: bytes, name: str) -> TreeEntry | None:
        """What a stored folder has under a name. Most checkpoints share most folders with the one looked at before."""
        key = (tree, name)
        if key not in self._found:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            stored = (store_name(os.fsencode(name)), store_name(os.fsencode(name), is_link=True))
            self._found[key] = next((each for each in self._source.tree(tree) if each.name in stored), None)
        return self._found[key]

    def _renamed(self, row: Row, version: _Version) -> _Version | None:
        if version.checkpoint is None:
            return None  # that would take a look at the whole folder
        before = self._root_of(self._repository.checkpoint(row))
        changes = TreeReader(self._source).diff(before, self._root_of(version.checkpoint))
        for old, new in find_renames(changes, self._source):
            if new == version.path:
                return self._version(row, old)
        return None

    def _text(self, version: _Version) -> bytes | None:
        data = self._fresh.get(version.oid)
        if data is None:
            size = self._source.size(version.oid) if version.oid else None
            is_large = size is None or size > TEXT_MAX_BYTES
            data = None if is_large or self._is_in_parts(version.oid) else self._source.blob(version.oid)
        return data if data is not None and len(data) <= TEXT_MAX_BYTES and is_text(data) else None

    def _is_in_parts(self, oid: bytes) -> bool:
        return self._repository.objects.kind_and_size(oid)[0] is Kind.TREE

    def _origin(self, version: _Version, *, is_older: bool) -> Origin:
        checkpoint = version.checkpoint
        return Origin(actor_of(checkpoint) if checkpoint else USER, checkpoint, version.path, is_older)


def _changed_lines(before: bytes, after: bytes) -> list[Hunk]:
    """Where two texts differ. Lines that both begin or end with are not compared one by one: most edits are small."""
    start = before.rfind(b"\n", 0, _same(before, after)) + 1
    before, after, skipped = before[start:], after[start:], before.count(b"\n", 0, start)
    tail = _same(before[::-1], after[::-1])
    at = before.find(b"\n", len(before) - tail) + 1 if tail else 0  # whole lines only
    kept = len(before) - at if at else 0
    found = hunks(before[: len(before) - kept], after[: len(after) - kept])
    return [Hunk(*(line + skipped for line in each)) for each in found]


def _same(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common from the beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _read(path: str, root: str) -> tuple[os.stat_result, bytes | None]:
    """A file of the folder, and its content unless that is too large to have lines."""
    folder, name = split(path)
    try:
        with Handles(root) as handles:
            fd = handles.open(folder)
            status = os.stat(name or ".", dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return status, os.fsencode(os.readlink(name, dir_fd=fd))
            if not stat.S_ISREG(status.st_mode):
                raise Refused(f"{path or '.'} is not a file", hint="Name a file.")
            if status.st_size > TEXT_MAX_BYTES:
                return status, None
            with databases.reading(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, fd) as file:
                return status, os.pread(file, TEXT_MAX_BYTES, 0)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path} is not there", hint="Name a checkpoint that has it: holdfast blame PATH REF.") from None
