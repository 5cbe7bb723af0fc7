"""Reading and comparing the trees of checkpoints. Equal folders are never opened (P8)."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from holdfast.errors import Damaged, NotFound, Remedy
from holdfast.model import Reason, Uncovered
from holdfast.scan import sqlite_files
from holdfast.scan.attrs import Attr, decode, unescaped
from holdfast.scan.dir_handles import join, upwards
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, LINK_MODE, real_name
from holdfast.shadowgit.objects import decode_tree, raw_entries
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


class Undecoded(NamedTuple):
    """What is stored of one folder, cut into its entries and lines."""

    tree: list[bytes]
    lines: list[bytes]
    """Attributes, of the folder itself too."""
    below: list[bytes]
    """Of the tree of the attributes: the folders in it."""


class TreeSource(Source, Protocol):
    """Reads objects, and trees as they are stored."""

    def tree_data(self, oid: bytes) -> bytes: ...


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

    def __init__(self, source: TreeSource) -> None:
        self._source = source
        self._views: dict[Node, View] = {}
        self._pairs: dict[tuple[Node, Node], tuple[View, View]] = {}
        self.cached_entries = 0
        """How many entries the folders have that are in memory, to judge when to begin with a new reader."""

    def view(self, node: Node) -> View:
        """Return the entries of a folder."""
        known = self._views.get(node)
        if known is None:
            known = self._views[node] = _decoded(self._read(node))
            self.cached_entries += 1 + len(known.entries) + len(known.folders)
        return known

    def _read(self, node: Node) -> Undecoded:
        below: list[bytes] = []
        text_mode, text_oid = FILE_MODE, node.attrs
        if node.attrs_is_tree:
            for raw in raw_entries(self._source.tree_data(node.attrs)):
                if raw[:-20].endswith(b" %s\0" % ATTRS_NAME):
                    (entry,) = decode_tree(raw)
                    if entry.name == ATTRS_NAME:
                        text_mode, text_oid = entry.mode, entry.oid
                        continue
                below.append(raw)
        lines = read_parts(self._source, text_mode, text_oid).split(b"\n")
        return Undecoded(raw_entries(self._source.tree_data(node.tree)), lines[:-1], below)

    def _both(self, one: Node, other: Node) -> tuple[View, View]:
        """Return two views of a folder; entries that are stored alike in both may be left out of both."""
        if one in self._views or other in self._views:
            return self.view(one), self.view(other)
        if (known := self._pairs.get((other, one))) is not None:  # a restore compares both ways
            return known[1], known[0]
        found = self._pairs.get((one, other))
        if found is None:
            found = self._pairs[one, other] = _decoded_apart(self._read(one), self._read(other))
            self.cached_entries += sum(1 + len(view.entries) + len(view.folders) for view in found)
        return found

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
            if old_node and new_node:
                old, new = self._both(old_node, new_node)
            else:
                old, new = (self.view(node) if node else _NOTHING for node in (old_node, new_node))
            if old.own != new.own or old_node is None or new_node is None:
                yield Change(where, old.own if old_node else None, new.own if new_node else None)
            for name in sorted({*old.entries, *new.entries}):
                was, now = old.entries.get(name), new.entries.get(name)
                if was != now:
                    yield Change(join(where, name), was, now)
            for name in sorted({*old.folders, *new.folders}, reverse=True):
                stack.append((join(where, name), old.folders.get(name), new.folders.get(name)))


def _decoded(found: Undecoded) -> View:
    below = {
        entry.name: Node(b"", entry.oid, entry.mode == FOLDER_MODE) for raw in found.below for entry in decode_tree(raw)
    }
    attrs = decode(b"".join([b"%s\n" % line for line in found.lines]))
    entries, folders = {}, {}
    for entry in decode_tree(b"".join(found.tree)):
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


def _decoded_apart(one: Undecoded, other: Undecoded) -> tuple[View, View]:
    """Decode of two versions of a folder what is not stored alike in both, and what has the same name as that.

    Most of a folder is alike in two checkpoints, and comparing it undecoded costs a fifth of decoding it.
    """
    names = {_name_of_entry(raw) for raw in {*one.tree} ^ {*other.tree} | {*one.below} ^ {*other.below}}
    names |= {_name_of_line(line) for line in {*one.lines} ^ {*other.lines}}
    names.add(b"")  # malformed lines are damage, also if they are the same in both

    def some(found: Undecoded) -> Undecoded:
        return Undecoded(
            [raw for raw in found.tree if _name_of_entry(raw) in names],
            [line for line in found.lines if _name_of_line(line) in names],
            [raw for raw in found.below if _name_of_entry(raw) in names],
        )

    return _decoded(some(one)), _decoded(some(other))


def _name_of_entry(raw: bytes) -> bytes:
    """The real name in an entry of a tree."""
    return real_name(raw[raw.index(b" ") + 1 : -21])


def _name_of_line(line: bytes) -> bytes:
    """The real name in a line of attributes; empty if it is malformed, and with it all others that are."""
    return unescaped(line.split(b" ", 3)[-1]) if line.count(b" ") > 2 else b""


def merged(changes: Iterable[Change]) -> Iterable[Change]:
    """Join the two changes of a file that became a folder, or the reverse."""
    found: dict[str, Change] = {}
    for change in changes:
        other = found.get(change.path)
        if other is not None:
            change = Change(change.path, change.before or other.before, change.after or other.after)
        found[change.path] = change
    return found.values()


def gaps_of(not_held: tuple[Sequence[Uncovered], Sequence[Uncovered]]) -> list[dict[str, Reason]]:
    """Return what either side does not cover, and why, by path."""
    return [{item.path: item.reason for item in side if item.path} for side in not_held]


def gap_above(change: Change, gaps: Sequence[Mapping[str, Reason]]) -> str | None:
    """Return the uncovered path because of which one side lacks a path; None if it was added, deleted or modified."""
    gap = gaps[1] if change.after is None else gaps[0] if change.before is None else {}
    return next((above for above in upwards(change.path) if above in gap), None)


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
