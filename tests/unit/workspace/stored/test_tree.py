"""Reading the trees of checkpoints: every path, and what differs, without opening what is equal (P8)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import Workspace
from holdfast.errors import Damaged
from holdfast.scan.attrs import encode_line
from holdfast.shadowgit import (
    EMPTY_TREE,
    FILE_MODE,
    FOLDER_MODE,
    LINK_MODE,
    ObjectKind,
    ObjectStore,
    TreeEntry,
    encode_tree,
    store_name,
)
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Change, TreeReader


class Watched(ObjectSink):
    """Objects of a store, and a note of every tree that was read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.read: list[bytes] = []

    def tree_data(self, oid: bytes) -> bytes:
        self.read.append(oid)
        return super().tree_data(oid)


def root_of(ws: Workspace, ref: str) -> Node:
    return ws._repository.contents(ws.get(ref)).root


@pytest.fixture
def roots(project: Any, ws: Workspace) -> tuple[Node, Node]:
    """Two states of which little differs."""
    for name in ("a/one", "a/b/two", "c/three", "c/d/four", "same/five", "file", ".git file", "%/%", "%2E"):
        project.write(name, name.encode())
    (project.root / "link").symlink_to("file")
    (project.root / "empty").mkdir()
    os.mkfifo(project.root / "pipe")
    ws.save("first")
    project.write("a/b/two", b"changed")
    (project.root / "c/d/four").unlink()
    (project.root / "c/d").rmdir()
    ws.save("second")
    return root_of(ws, "latest~1"), root_of(ws, "latest")


def test_every_path_is_walked_over(ws: Workspace, roots: tuple[Node, Node]) -> None:
    found = dict(TreeReader(ObjectStore(ws.store)).walk(roots[0]))
    assert found.keys() == {
        *("", "a", "a/one", "a/b", "a/b/two", "c", "c/three", "c/d", "c/d/four"),
        *("same", "same/five", "file", ".git file", "%", "%/%", "%2E", "link", "empty", "pipe"),
    }
    assert found["link"].is_link
    assert found["empty"].is_folder
    assert found["file"].is_file
    assert not found["pipe"].is_file
    assert found["pipe"].oid == b""


def test_one_path_is_found(ws: Workspace, roots: tuple[Node, Node]) -> None:
    reader = TreeReader(ObjectStore(ws.store))
    for path in ("", "a", "a/b/two", "empty", "pipe", "%2E"):
        assert reader.find(roots[0], path) is not None, path
    for path in ("nowhere", "a/nowhere", "file/inner", "link/inner", "c/d/four/x", ".git"):
        assert reader.find(roots[0], path) is None, path
    assert reader.find(roots[1], "c/d/four") is None


def test_what_differs_is_told_with_what_it_was_and_is(ws: Workspace, roots: tuple[Node, Node]) -> None:
    changes = {change.path: change for change in TreeReader(ObjectStore(ws.store)).diff(*roots)}
    assert changes.keys() == {"a/b/two", "c", "c/d", "c/d/four"}
    assert changes["c/d"].after is None
    assert changes["c/d/four"].after is None
    both = changes["a/b/two"]
    assert both.before and both.after
    assert both.before.oid != both.after.oid


def test_parents_come_before_what_is_in_them(ws: Workspace, roots: tuple[Node, Node]) -> None:
    paths = [path for path, _ in TreeReader(ObjectStore(ws.store)).walk(roots[0])]
    for path in paths:
        if path:
            assert paths.index(path.rpartition("/")[0]) < paths.index(path)


def test_equal_folders_are_not_opened(ws: Workspace, roots: tuple[Node, Node]) -> None:
    reader = TreeReader(ObjectStore(ws.store))
    same, changed = reader.node(roots[0], "same"), reader.node(roots[0], "a/b")
    assert same and changed
    watched = Watched(ObjectStore(ws.store))
    assert list(TreeReader(watched).diff(roots[0], roots[0])) == []
    assert watched.read == []
    list(TreeReader(watched).diff(*roots))
    assert changed.tree in watched.read
    assert same.tree not in watched.read


NAMES = ("a", "b c", "a %", "%", "%2E", "100644 a", ".git file", "new\nline", "%0A", ".gitmodules", "ü")
STORED = st.one_of(
    st.none(),
    st.tuples(st.sampled_from([0o100644, 0o100755, 0o120777, 0o010644]), st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 2),
)
"""Nothing; a file, a link or a pipe with its time and its content; a folder with its time."""


def stored(sink: ObjectSink, names: dict[str, Any]) -> Node:
    """A folder, stored as a save does it."""
    assert sink.add(ObjectKind.TREE, b"") == EMPTY_TREE
    lines, trees, below = [encode_line(0o040755, names.get(".") or 0, b"", ".")], [], []
    for name, what in names.items():
        full = os.fsencode(name)
        if isinstance(what, int) and name != ".":
            text = sink.add(ObjectKind.BLOB, encode_line(0o040755, what, b"", "."))
            trees.append(TreeEntry(FOLDER_MODE, store_name(full), EMPTY_TREE))
            below.append(TreeEntry(FILE_MODE, store_name(full), text))
        elif isinstance(what, tuple):
            mode, mtime_ns, content = what
            lines.append(encode_line(mode, mtime_ns, b"", name))
            if not stat.S_ISFIFO(mode):
                git_mode = LINK_MODE if stat.S_ISLNK(mode) else FILE_MODE
                trees.append(TreeEntry(git_mode, store_name(full, is_link=stat.S_ISLNK(mode)), bytes([content] * 20)))
    attrs = sink.add(ObjectKind.BLOB, b"".join(lines))
    if below:
        below.append(TreeEntry(FILE_MODE, b"%", attrs))
        attrs = sink.add(ObjectKind.TREE, encode_tree(below))
    return Node(sink.add(ObjectKind.TREE, encode_tree(trees)), attrs, bool(below))


@given(
    st.dictionaries(st.sampled_from(NAMES), STORED),
    st.dictionaries(st.sampled_from(NAMES), STORED, max_size=3),
    st.sets(st.sampled_from(NAMES), max_size=3),
    st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
@example(dict.fromkeys(NAMES, (0o100644, 0, 0)), {}, set(NAMES), (0, 0))
def test_diff_is_the_same_with_and_without_decoding_all(
    one: dict[str, Any], changed: dict[str, Any], touched: set[str], times: tuple[int, int]
) -> None:
    other = one | changed
    for name in touched:
        if isinstance(other.get(name), tuple):
            other[name] = (other[name][0], 7, other[name][2])
    sink = ObjectSink(ObjectStore(Path("/nonexistent")))
    roots = [stored(sink, names | {".": time}) for names, time in zip((one, other), times, strict=True)]
    whole = TreeReader(sink)
    for root, names in zip(roots, (one, other), strict=True):
        assert whole.view(root).entries.keys() == {name for name, what in names.items() if isinstance(what, tuple)}
    assert list(TreeReader(sink).diff(*roots)) == list(whole.diff(*roots))


@pytest.mark.parametrize("line", [b"nonsense\n", b"100644 0 -\n"])
def test_damage_that_both_sides_share_is_found(line: bytes) -> None:
    sink = ObjectSink(ObjectStore(Path("/nonexistent")))
    one, other = (sink.add(ObjectKind.BLOB, b"40755 %d - .\n" % time + line) for time in range(2))
    tree = sink.add(ObjectKind.TREE, b"")
    with pytest.raises(Damaged):
        list(TreeReader(sink).diff(Node(tree, one, False), Node(tree, other, False)))


def test_a_folder_without_attributes_is_damage(ws: Workspace) -> None:
    sink = ObjectSink(ObjectStore(ws.store))
    attrs = sink.add(ObjectKind.BLOB, b"40755 0 - .\n")
    tree = sink.add(ObjectKind.TREE, encode_tree([TreeEntry(FOLDER_MODE, b"folder", EMPTY_TREE)]))
    with pytest.raises(Damaged, match="folder"):
        TreeReader(sink).view(Node(tree, attrs, False))


def test_folders_that_were_compared_are_not_read_again(ws: Workspace, roots: tuple[Node, Node]) -> None:
    """A restore compares the folder with its target, and then the target with the folder."""
    watched = Watched(ObjectStore(ws.store))
    reader = TreeReader(watched)
    there = {change.path: change for change in reader.diff(*roots)}
    read = len(watched.read)
    back = {change.path: change for change in reader.diff(*reversed(roots))}
    assert len(watched.read) == read
    assert back == {path: Change(path, after, before) for path, before, after in there.values()}


def test_folders_that_were_compared_count_as_remembered() -> None:
    """A search compares one checkpoint after the other, and begins with a new reader once much is in memory."""
    sink = ObjectSink(ObjectStore(Path("/nonexistent")))
    one, other = (stored(sink, {".": 0, NAMES[0]: (0o100644, time, 0)}) for time in (0, 7))
    reader = TreeReader(sink)
    assert list(reader.diff(one, other))
    remembered = reader.cached_entries
    assert remembered > 0
    assert list(reader.diff(other, one))
    assert reader.cached_entries == remembered
