"""Stored folders with paths changed: the same trees that a look at such a folder gives."""

from __future__ import annotations

import os
import shutil

from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.stored.tree_edit import edit


def test_edited_tree_equals_a_saved_one(project, ws):
    for path in ("same/file", "gone/deep/file", "changed", "swap", "folder/inside", "%2E/odd\nname"):
        project.write(path, path.encode())
    first = ws.save("first")
    shutil.rmtree(project.root / "gone")
    project.write("changed", b"otherwise")
    (project.root / "swap").unlink()
    project.write("swap/inside/deep", b"deep")
    shutil.rmtree(project.root / "folder")
    project.write("folder", b"a file")
    project.write(".git attributes", b"x").chmod(0o755)
    (project.root / "link").symlink_to("changed")
    os.mkfifo(project.root / "pipe")
    (project.root / "same").chmod(0o700)
    second = ws.save("second")
    repository = ws._repository
    sink = ObjectSink(repository.objects)
    reader = TreeReader(sink)
    before, after = (repository.contents(each).root for each in (first, second))
    changed = {change.path for change in reader.diff(before, after)}
    edits = {path: reader.find(after, path) for path in changed}
    assert None in edits.values()
    assert edit(before, edits, reader, sink) == after
    back = {path: reader.find(before, path) for path in changed}
    assert edit(after, back, reader, sink) == before


def test_a_root_without_edits_is_itself(project, ws):
    project.write("file")
    root = ws._repository.contents(ws.save()).root
    sink = ObjectSink(ws._repository.objects)
    assert edit(root, {}, TreeReader(sink), sink) == root
