"""Blame: which checkpoint, and so which actor, each line of a file came from.

Follows a file back through the checkpoints of the folder, across renames. Reads it only where its content differs from
one checkpoint to the next. Memory does not grow with the number of checkpoints (P8).
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from holdfast.errors import NotFound, Refused, Remedy
from holdfast.model import Blame, BlamedLine, Checkpoint, Origin
from holdfast.scan import sqlite_files
from holdfast.scan.dir_handles import Handles, split
from holdfast.shadowgit import ObjectKind, object_id
from holdfast.workspace.stored.attribution import USER, actor_of
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.diff import find_renames
from holdfast.workspace.stored.file_history import FileHistory
from holdfast.workspace.stored.object_sink import TEXT_MAX_BYTES
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.text_merge import LineHunk, hunks, is_text, split_lines
from holdfast.workspace.stored.tree import TreeReader


class Version(NamedTuple):
    """A file at one checkpoint, or now."""

    row: Row | None
    """The row of the checkpoint; None stands for now."""
    path: str
    oid: bytes


class Blamer:
    """Blames one file of a store."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._history = FileHistory(repository)
        self._source = self._history.source
        self._fresh: dict[bytes, bytes] = {}
        self._last: tuple[bytes, bytes | None] = (b"", None)

    def blame_now(self, path: str, root: str) -> Blame:
        """Blame a file of the folder as it is now. NotFound if there is none."""
        status, data = read_now(path, root)
        if data is None:
            return self._blame(Version(None, path, self._known(path, status)))
        oid = object_id(ObjectKind.BLOB, data)
        self._fresh[oid] = data
        return self._blame(Version(None, path, oid))

    def _known(self, path: str, status: os.stat_result) -> bytes:
        """Return the id of a large file if it is unchanged since the last save, by size and time; empty if not."""
        head = self._repository.head()
        entry = TreeReader(self._source).find(self._root_of(head), path) if head else None
        if entry is None or not entry.is_file or entry.attr.mtime_ns != status.st_mtime_ns:
            return b""
        size = entry.attr.parts_bytes
        return entry.oid if (self._source.size(entry.oid) if size is None else size) == status.st_size else b""

    def blame(self, path: str, checkpoint: Checkpoint) -> Blame:
        """Blame a file of a checkpoint. NotFound if there is none."""
        row = self._repository.catalog.by_id(checkpoint.id)
        found = self._version(row, path) if row else None
        if found is None:
            raise NotFound(f"{checkpoint.id} has no file {path}", hint="Check its spelling.")
        return self._blame(found)

    def _blame(self, newest: Version) -> Blame:
        data = self._text(newest)
        whole = self._whole(newest)
        if data is None:
            return Blame(newest.path, False, [], whole)
        lines = split_lines(data)
        origins = self._origins(newest, {number: number for number in range(len(lines))})
        texts = (line.decode("utf-8", "surrogateescape") for line in lines)
        return Blame(newest.path, True, [BlamedLine(at + 1, text, origins[at]) for at, text in enumerate(texts)], whole)

    def _origins(self, newest: Version, lines: dict[int, int]) -> dict[int, Origin]:
        """Return the origins of some lines: {line of the version: key in the result}."""
        origins: dict[int, Origin] = {}
        stack = [(newest, lines)]
        while stack:
            version, pending = stack.pop()
            version = self._first(version)
            older, is_end = self._older(version)
            for other in older:
                gone, pending = self._passed(other, version, pending)
                if gone:
                    stack.append((other, gone))
            if pending:
                found, pending = self._brought(version, pending)
                stack += found
            if pending:
                origins.update(dict.fromkeys(pending.values(), self._origin(version, is_older=is_end)))
        return origins

    def _passed(self, older: Version, newer: Version, pending: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Split lines of a version into those that an older one has (with its line numbers) and the rest."""
        if older.oid == newer.oid or not pending:
            return pending, {}
        after, before = self._text(newer), self._text(older)
        if before is None or after is None:
            return {}, pending
        gone: dict[int, int] = {}
        left: dict[int, int] = {}
        shift, at = 0, 0
        changes = changed_lines(before, after)
        for line, final in sorted(pending.items()):
            while at < len(changes) and changes[at].new_end <= line:
                shift = changes[at].end - changes[at].new_end
                at += 1
            is_new = at < len(changes) and changes[at].new_start <= line
            (left if is_new else gone)[line if is_new else line + shift] = final
        return gone, left

    def _first(self, version: Version) -> Version:
        """Return the version to continue with: an equal one, if there is reason to believe that it came first."""
        return version

    def _brought(
        self, version: Version, pending: dict[int, int]
    ) -> tuple[list[tuple[Version, dict[int, int]]], dict[int, int]]:
        """Return versions that lines were taken from although they are no predecessors, and the rest of the lines."""
        return [], pending

    def _whole(self, version: Version) -> Origin:
        """Return the origin of the content as a whole."""
        while True:
            older, is_end = self._older(version)
            same = next((each for each in older if each.oid == version.oid), None)
            if same is None:
                return self._origin(version, is_older=is_end)
            version = same

    # going back

    def _older(self, version: Version) -> tuple[list[Version], bool]:
        """Return the file in the predecessors of a version (the parent; for an undo of an agent or a revert also its
        start), and whether there are none."""
        rows = self._befores(version.row)
        found = [self._version(row, version.path) or self._renamed(row, version) for row in rows]
        return [each for each in found if each is not None], version.row is not None and not rows

    def _befores(self, row: Row | None) -> list[Row]:
        if row is not None:
            return self._history.predecessors(row)
        head = self._repository.head()
        found = self._history.row(head.id) if head else None
        return [found] if found else []

    def _root_of(self, checkpoint: Checkpoint) -> Node:
        return self._repository.contents(checkpoint).root

    def _version(self, row: Row, path: str) -> Version | None:
        oid = self._history.content(row, path)
        return Version(row, path, oid) if oid is not None else None

    def _renamed(self, row: Row, version: Version) -> Version | None:
        if version.row is None:
            return None  # that would need a scan of the folder
        before, after = (self._root_of(self._repository.checkpoint(each)) for each in (row, version.row))
        changes = TreeReader(self._source).diff(before, after)
        for old, new in find_renames(changes, self._source):
            if new == version.path:
                return self._version(row, old)
        return None

    def _text(self, version: Version) -> bytes | None:
        """Return the content of a version, if it is a text; the last one is kept, since it is compared twice."""
        if version.oid in self._fresh:
            data: bytes | None = self._fresh[version.oid]
        elif version.oid == self._last[0]:
            data = self._last[1]
        else:
            size = self._source.size(version.oid) if version.oid else None
            is_large = size is None or size > TEXT_MAX_BYTES
            data = None if is_large or self._is_in_parts(version.oid) else self._source.blob(version.oid)
            self._last = version.oid, data
        return data if data is not None and len(data) <= TEXT_MAX_BYTES and is_text(data) else None

    def _is_in_parts(self, oid: bytes) -> bool:
        return self._repository.objects.kind_and_size(oid)[0] is ObjectKind.TREE

    def _origin(self, version: Version, *, is_older: bool) -> Origin:
        checkpoint = self._repository.checkpoint(version.row) if version.row else None
        return Origin(actor_of(checkpoint) if checkpoint else USER, checkpoint, version.path, is_older)


def changed_lines(before: bytes, after: bytes) -> list[LineHunk]:
    """Return where two texts differ. Skips the common beginning and end first: most edits are small."""
    start = before.rfind(b"\n", 0, _same(before, after)) + 1
    before, after, skipped = before[start:], after[start:], before.count(b"\n", 0, start)
    tail = _same(before[::-1], after[::-1])
    at = before.find(b"\n", len(before) - tail) + 1 if tail else 0  # whole lines only
    kept = len(before) - at if at else 0
    found = hunks(before[: len(before) - kept], after[: len(after) - kept])
    return [LineHunk(*(line + skipped for line in each)) for each in found]


def _same(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def read_now(path: str, root: str) -> tuple[os.stat_result, bytes | None]:
    """Read a file of the folder as it is now, or the target of a link; the content is None if it is too large.

    NotFound if there is none; Refused if it is neither. No link above it is followed.
    """
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
            with sqlite_files.reading(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, fd) as file:
                return status, os.pread(file, TEXT_MAX_BYTES, 0)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path} does not exist", remedy=Remedy("blame_checkpoint")) from None
