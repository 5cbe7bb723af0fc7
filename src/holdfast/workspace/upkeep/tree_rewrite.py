"""Rewriting stored folders without purged paths. Changes no existing folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.scan.attrs import decode
from holdfast.scan.dir_handles import join
from holdfast.shadowgit import (
    EMPTY_TREE,
    FILE_MODE,
    FOLDER_MODE,
    ObjectKind,
    TreeEntry,
    encode_tree,
    object_id,
    real_name,
)
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.stored.chunking import LINES, Source, read_parts, write_parts
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import ATTRS_NAME, Entry, TreeReader

_NOTHING = frozenset({EMPTY_TREE, object_id(ObjectKind.BLOB, b"")})


class Rewritten(NamedTuple):
    """A stored folder without the paths in a scope."""

    node: Node
    gone: tuple[str, ...]
    """The topmost removed paths."""


class Rewriter:
    """Rewrites stored folders; shared ones once (P8)."""

    def __init__(self, sink: ObjectSink, scope: Scope) -> None:
        self._sink = sink
        self._scope = scope
        self._reader = TreeReader(sink)
        self._done: dict[tuple[str, Node], Rewritten] = {}
        self._walked: set[tuple[str, Node]] = set()
        self.doomed: set[bytes] = set()
        """The removed contents."""

    def rewrite(self, root: Node) -> Rewritten:
        """Rewrite the files of a checkpoint without the scope; innermost folders first, without recursion."""
        stack = [("", root, False)]
        while stack:
            path, node, is_ready = stack.pop()
            if (path, node) in self._done:
                continue
            inner = [(join(path, name), child) for name, child in self._reader.view(node).folders.items()]
            inner = [pair for pair in inner if not self._scope.has_folder(pair[0]) and self._scope.may_hold(pair[0])]
            if not is_ready:
                stack.append((path, node, True))
                stack += [(below, child, False) for below, child in inner]
            else:
                self._done[path, node] = self._rebuild(path, node, dict(inner))
        return self._done["", root]

    def _rebuild(self, path: str, node: Node, inner: dict[str, Node]) -> Rewritten:
        view = self._reader.view(node)
        gone = {name for name in view.entries if join(path, name) in self._scope}
        gone |= {name for name in view.folders if self._scope.has_folder(join(path, name))}
        below = {child: self._done[child, known] for child, known in inner.items()}
        paths = [*(join(path, name) for name in sorted(gone)), *(one for each in below.values() for one in each.gone)]
        if not paths:
            return Rewritten(node, ())
        for name in gone:
            self._scope.see(join(path, name), is_folder=name in view.folders)
            self._doom(join(path, name), view.entries.get(name), view.folders.get(name))
        kept = {name: child for name, child in view.folders.items() if name not in gone}
        folders = {name: below[at].node if (at := join(path, name)) in below else kept[name] for name in kept}
        return Rewritten(self._node(node, gone, folders), tuple(paths))

    def _node(self, node: Node, gone: set[str], folders: dict[str, Node]) -> Node:
        """Write a folder without some names, and with other subfolders."""
        trees = []
        below = []
        for entry in self._sink.tree(node.tree):
            name = os.fsdecode(real_name(entry.name))
            if name in gone:
                continue
            if name in folders:
                child = folders[name]
                trees.append(entry._replace(oid=child.tree))
                below.append(TreeEntry(FOLDER_MODE if child.attrs_is_tree else FILE_MODE, entry.name, child.attrs))
            else:
                trees.append(entry)
        lines = [line for line in self._attrs(node).splitlines(keepends=True) if not decode(line).keys() & gone]
        mode, attrs = write_parts(self._sink, b"".join(lines), LINES)
        is_tree = bool(below) or mode == FOLDER_MODE
        if is_tree:
            below.append(TreeEntry(mode, ATTRS_NAME, attrs))
            attrs = self._sink.add(ObjectKind.TREE, encode_tree(below))
        return Node(self._sink.add(ObjectKind.TREE, encode_tree(trees)), attrs, is_tree)

    def _attrs(self, node: Node) -> bytes:
        if not node.attrs_is_tree:
            return self._sink.blob(node.attrs)
        own = next(entry for entry in self._sink.tree(node.attrs) if entry.name == ATTRS_NAME)
        return read_parts(self._sink, own.mode, own.oid)

    def _doom(self, path: str, entry: Entry | None, node: Node | None) -> None:
        found = [entry] if entry is not None else []
        if node is not None and (path, node) not in self._walked:
            self._walked.add((path, node))
            for below, each in TreeReader(self._sink).walk(node, path):
                self._scope.see(below, is_folder=each.is_folder)
                found.append(each)
        for each in found:
            self.doomed.update(contents_of(self._sink, each))


def contents_of(source: Source, entry: Entry) -> Iterator[bytes]:
    """Yield the ids of the content of an entry, except for empty ones."""
    if not entry.oid or entry.oid in _NOTHING:
        return
    if entry.attr.parts_bytes is None:
        yield entry.oid
        return
    stack = [entry.oid]
    while stack:
        tree = stack.pop()
        yield tree
        for part in source.tree(tree):
            if part.is_folder:
                stack.append(part.oid)
            else:
                yield part.oid
