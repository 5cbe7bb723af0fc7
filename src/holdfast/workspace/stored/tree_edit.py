"""Editing a stored tree: some paths replaced, the rest shared.

Writes only the folders above the edited paths (P8), in the same form as a snapshot, so that equal folders have equal
ids.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.scan.attrs import Attr, encode_line
from holdfast.scan.dir_handles import split, upwards
from holdfast.shadowgit import (
    EXECUTABLE_MODE,
    FILE_MODE,
    FOLDER_MODE,
    LINK_MODE,
    ObjectKind,
    TreeEntry,
    encode_tree,
    store_name,
)
from holdfast.workspace.stored.chunking import LINES, Sink, write_parts
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import ATTRS_NAME, Entry, TreeReader, View

_PLAIN = Entry(Attr(0o040755, 0, b"-"), b"")

Edits = Mapping[str, Entry | None]
"""By path, the new entry; None removes it. What is below a removed folder must be removed too."""


def edit(root: Node, edits: Edits, reader: TreeReader, sink: Sink) -> Node:
    """Write a root with edited paths."""
    on_the_way = {above for path in edits for above in (*upwards(split(path)[0]), "")}
    folders = on_the_way | {path for path, entry in edits.items() if entry is not None and entry.is_folder}
    below: dict[str, dict[str, Node | Entry | None]] = {}
    for path, entry in edits.items():
        if path and path not in folders:
            parent, name = split(path)
            below.setdefault(parent, {})[name] = entry
    for path in sorted(folders, key=_depth, reverse=True):
        if path in edits and not _is_folder(edits[path]):
            parent, name = split(path)
            below.setdefault(parent, {})[name] = edits[path]  # a folder removed with all its content
            continue
        node = _write(_view(root, path, edits, reader), below.pop(path, {}), sink)
        if not path:
            return node
        parent, name = split(path)
        below.setdefault(parent, {})[name] = node
    return root


def _view(root: Node, path: str, edits: Edits, reader: TreeReader) -> View:
    node = reader.node(root, path)
    own = edits.get(path)
    known = reader.view(node) if node is not None else None
    if known is None:
        return View(own or _PLAIN, {}, {})
    return known if own is None else known._replace(own=own)


def _write(view: View, changed: Mapping[str, Node | Entry | None], sink: Sink) -> Node:
    entries = {name: entry for name, entry in view.entries.items() if name not in changed}
    folders = {name: node for name, node in view.folders.items() if name not in changed}
    for name, what in changed.items():
        if isinstance(what, Node):
            folders[name] = what
        elif what is not None:
            entries[name] = what
    own = view.own.attr
    lines = [encode_line(own.mode, own.mtime_ns, own.extras, ".")]
    lines += [
        encode_line(entry.attr.mode, entry.attr.mtime_ns, entry.attr.extras, name)
        for name, entry in sorted(entries.items())
    ]
    attrs_mode, attrs = write_parts(sink, b"".join(lines), LINES)
    trees = [found for name, entry in entries.items() if (found := _tree_entry(name, entry))]
    below = []
    for name, node in folders.items():
        stored = store_name(os.fsencode(name))
        trees.append(TreeEntry(FOLDER_MODE, stored, node.tree))
        below.append(TreeEntry(FOLDER_MODE if node.attrs_is_tree else FILE_MODE, stored, node.attrs))
    is_tree = bool(below) or attrs_mode == FOLDER_MODE
    if is_tree:
        below.append(TreeEntry(attrs_mode, ATTRS_NAME, attrs))
        attrs = sink.add(ObjectKind.TREE, encode_tree(below))
    return Node(sink.add(ObjectKind.TREE, encode_tree(trees)), attrs, is_tree)


def _tree_entry(name: str, entry: Entry) -> TreeEntry | None:
    """Return the git tree entry of a file or link; None for types that git lacks."""
    if entry.is_link:
        return TreeEntry(LINK_MODE, store_name(os.fsencode(name), is_link=True), entry.oid)
    if not entry.is_file:
        return None
    mode = EXECUTABLE_MODE if entry.attr.mode & 0o100 else FILE_MODE
    if entry.attr.parts_bytes is not None:
        mode = FOLDER_MODE
    return TreeEntry(mode, store_name(os.fsencode(name)), entry.oid)


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.is_folder


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0
