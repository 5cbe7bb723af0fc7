"""Reading the trees of checkpoints: every path, and what differs, without opening what is equal (P8)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import Damaged
from holdfast.shadowgit import EMPTY_TREE, FOLDER_MODE, ObjectKind, ObjectStore, TreeEntry, encode_tree
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import TreeReader


class Watched(ObjectSink):
    """Objects of a store, and a note of every tree that was read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.read: list[bytes] = []

    def tree(self, oid: bytes) -> list[TreeEntry]:
        self.read.append(oid)
        return super().tree(oid)


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


def test_a_folder_without_attributes_is_damage(ws: Workspace) -> None:
    sink = ObjectSink(ObjectStore(ws.store))
    attrs = sink.add(ObjectKind.BLOB, b"40755 0 - .\n")
    tree = sink.add(ObjectKind.TREE, encode_tree([TreeEntry(FOLDER_MODE, b"folder", EMPTY_TREE)]))
    with pytest.raises(Damaged, match="folder"):
        TreeReader(sink).view(Node(tree, attrs, False))
