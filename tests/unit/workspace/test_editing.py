"""Stored folders with paths changed: the same trees that a look at such a folder gives."""

from __future__ import annotations

import os
import shutil

from holdfast.workspace.stored.editing import edit
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.tree import TreeReader


def test_an_edited_root_is_the_one_that_a_save_of_such_a_folder_has(project, ws):
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
    gathering = Gathering(repository.objects, None)
    reader = TreeReader(gathering)
    before, after = (repository.contents(each).root for each in (first, second))
    changed = {change.path for change in reader.diff(before, after)}
    edits = {path: reader.find(after, path) for path in changed}
    assert None in edits.values()
    assert edit(before, edits, reader, gathering) == after
    back = {path: reader.find(before, path) for path in changed}
    assert edit(after, back, reader, gathering) == before


def test_a_root_without_edits_is_itself(project, ws):
    project.write("file")
    root = ws._repository.contents(ws.save()).root
    gathering = Gathering(ws._repository.objects, None)
    assert edit(root, {}, TreeReader(gathering), gathering) == root
