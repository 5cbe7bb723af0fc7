"""Reading and comparing the trees of checkpoints. Equal folders are never opened (P8)."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.errors import Damaged, NotFound, Remedy
from holdfast.scan import sqlite_files
from holdfast.scan.attrs import Attr, decode
from holdfast.scan.dir_handles import join
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, LINK_MODE, real_name
from holdfast.workspace.stored.chunking import Source, list_parts, read_parts
from holdfast.workspace.stored.record import Node

ATTRS_NAME = b"%"
"""The entry of an `attrs/` tree with the folder's own attributes; no folder is stored under this name."""


class Entry(NamedTuple):
    """One path of a checkpoint."""

    attr: Attr
    oid: bytes  # of the content; empty for a folder or a special file

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.attr.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.attr.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.attr.mode)

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.attr.mode)


class Change(NamedTuple):
    """A path that differs: before and after; None if it does not exist."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, before and after."""
        return all(each is None or each.is_folder for each in (self.before, self.after))


class View(NamedTuple):
    """The content of one folder."""

    own: Entry
    entries: dict[str, Entry]  # all but folders
    folders: dict[str, Node]


_NOTHING = View(Entry(Attr(0, 0, b"-"), b""), {}, {})


def _checked(name: str, *, is_folder: bool) -> str:
    """Return a name if it is one path component and not a git directory (P6). Damaged otherwise."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or (is_folder and name == ".git"):
        raise Damaged(f"a checkpoint contains the invalid name {name!r}", remedy=Remedy("verify"))
    return name


def link_of(paths: Iterable[str]) -> bytes:
    """Return the attribute that marks these paths as hard links of one file."""
    from hashlib import sha1  # start-up cost, as in `shadowgit.objects`

    return sha1(b"\0".join(sorted(map(os.fsencode, paths)))).hexdigest()[:16].encode()


class TreeReader:
    """Reads stored folders."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._views: dict[Node, View] = {}
        self.cached_entries = 0
        """How many entries the folders have that are in memory, to judge when to begin with a new reader."""

    def view(self, node: Node) -> View:
        """Return the entries of a folder."""
        known = self._views.get(node)
        if known is None:
            known = self._views[node] = self._read(node)
            self.cached_entries += 1 + len(known.entries) + len(known.folders)
        return known

    def _read(self, node: Node) -> View:
        below: dict[bytes, Node] = {}
        text_mode, text_oid = FILE_MODE, node.attrs
        if node.attrs_is_tree:
            for entry in self._source.tree(node.attrs):
                if entry.name == ATTRS_NAME:
                    text_mode, text_oid = entry.mode, entry.oid
                else:
                    below[entry.name] = Node(b"", entry.oid, entry.mode == FOLDER_MODE)
        attrs = decode(read_parts(self._source, text_mode, text_oid))
        entries, folders = {}, {}
        for entry in self._source.tree(node.tree):
            name = _checked(os.fsdecode(real_name(entry.name)), is_folder=entry.is_folder)
            attr = attrs.get(name)
            if attr is not None and stat.S_ISREG(attr.mode):
                entries[name] = Entry(attr, entry.oid)
            elif entry.is_folder:
                if entry.name not in below:
                    raise Damaged(f"folder {name!r} of a checkpoint has no attributes", remedy=Remedy("verify"))
                folders[name] = below[entry.name]._replace(tree=entry.oid)
            else:
                default = Attr(0o120777 if entry.mode == LINK_MODE else entry.mode, 0, b"-")
                entries[name] = Entry(attrs.get(name, default), entry.oid)
        for name, attr in attrs.items():
            if name != "." and name not in entries:
                entries[_checked(name, is_folder=False)] = Entry(attr, b"")
        return View(Entry(attrs.get(".", Attr(0o040755, 0, b"-")), b""), entries, folders)

    def find(self, root: Node, path: str) -> Entry | None:
        """Return the entry at a path of a checkpoint; None if there is none."""
        folder, _, name = path.rpartition("/")
        node = self.node(root, folder)
        if node is None:
            return None
        view = self.view(node)
        if name in view.folders:
            return self.view(view.folders[name]).own
        return view.entries.get(name) if name else view.own

    def is_sidecar(self, root: Node, path: str) -> bool:
        """Whether a checkpoint has a sidecar at a path, and its database too."""
        main = sqlite_files.database_name(path)
        found = [self.find(root, each) for each in (main, path)] if main else []
        try:
            begin = [self._begin(entry) for entry in found if entry is not None and entry.is_file]
        except (Damaged, NotFound):
            return True  # damaged, so judge by the name: leave everything alone that may belong to it
        return len(begin) == 2 and sqlite_files.belongs(*begin)

    def is_database(self, root: Node, path: str) -> bool:
        """Whether a checkpoint has an SQLite database at a path."""
        entry = self.find(root, path)
        try:
            return entry is not None and entry.is_file and self._begin(entry).startswith(sqlite_files.MAGIC)
        except (Damaged, NotFound):
            return False

    def _begin(self, entry: Entry) -> bytes:
        mode = FILE_MODE if entry.attr.parts_bytes is None else FOLDER_MODE
        return self._source.blob(next(iter(list_parts(self._source, mode, entry.oid))))

    def node(self, root: Node, path: str) -> Node | None:
        """Return the stored folder at a path; None if there is none."""
        node: Node | None = root
        for name in path.split("/") if path else ():
            node = self.view(node).folders.get(name) if node else None
        return node

    def walk(self, root: Node, path: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield a folder and every path below it."""
        for change in self.diff(None, root, path):
            if change.after is not None:
                yield change.path, change.after

    def diff(self, before: Node | None, after: Node | None, path: str = "") -> Iterator[Change]:
        """Yield what differs between two folders, including themselves; parents before their content."""
        stack = [(path, before, after)]
        while stack:
            where, old_node, new_node = stack.pop()
            if old_node == new_node:
                continue
            old = self.view(old_node) if old_node else _NOTHING
            new = self.view(new_node) if new_node else _NOTHING
            if old.own != new.own or old_node is None or new_node is None:
                yield Change(where, old.own if old_node else None, new.own if new_node else None)
            for name in sorted({*old.entries, *new.entries}):
                was, now = old.entries.get(name), new.entries.get(name)
                if was != now:
                    yield Change(join(where, name), was, now)
            for name in sorted({*old.folders, *new.folders}, reverse=True):
                stack.append((join(where, name), old.folders.get(name), new.folders.get(name)))


def merged(changes: Iterable[Change]) -> Iterable[Change]:
    """Join the two changes of a file that became a folder, or the reverse."""
    found: dict[str, Change] = {}
    for change in changes:
        other = found.get(change.path)
        if other is not None:
            change = Change(change.path, change.before or other.before, change.after or other.after)
        found[change.path] = change
    return found.values()


def is_modified(before: Entry, after: Entry) -> bool:
    """Whether content, type or mode differ; times and other metadata do not count."""
    return before.oid != after.oid or before.attr.mode != after.attr.mode


def files_changed(changes: Iterable[Change]) -> list[str]:
    """Return the paths of files that were added, removed or modified."""
    found = []
    for path, before, after in merged(changes):
        is_folder = (before is None or before.is_folder) and (after is None or after.is_folder)
        if not is_folder and (before is None or after is None or is_modified(before, after)):
            found.append(path)
    return sorted(found)
