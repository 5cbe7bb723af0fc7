"""A checkpoint of one store becomes one of another, exactly."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Workspace
from holdfast.testing.disk_contract import describe, differences

if TYPE_CHECKING:
    from .conftest import Project


def other(project: Project) -> tuple[Path, Workspace]:
    folder = project.area / "other"
    folder.mkdir()
    return folder, Workspace(folder, store=project.area / "other-store", home=project.home, environ={})


def test_files_and_state_come_along_and_can_be_restored(project: Project) -> None:
    folder, source = other(project)
    (folder / "deep").mkdir()
    (folder / "deep" / "a.txt").write_text("from there\n")
    (folder / "deep" / "a.txt").chmod(0o640)
    (folder / "large.bin").write_bytes(random.Random(3).randbytes((9 << 20) + 5))
    (folder / "empty").mkdir()
    os.symlink("deep/a.txt", folder / "link")
    saved = source.save("theirs", state={"conversation": ["hello"]})
    ws = project.open()
    project.write("mine.txt")
    ws.save("mine")
    taken = ws.import_from(source, saved.id, "taken over", metadata={"from": "there"})
    assert (project.root / "mine.txt").exists()
    assert (taken.message, taken.metadata, taken.state) == (
        "taken over",
        {"from": "there"},
        {"conversation": ["hello"]},
    )
    assert ws.restore(taken.id).ok
    assert not differences(describe(folder), describe(project.root))
    assert ws.verify().ok
    ws.undo()
    assert [path.name for path in project.root.iterdir()] == ["mine.txt"]


def test_what_is_here_already_is_not_stored_again(project: Project) -> None:
    folder, source = other(project)
    data = random.Random(5).randbytes(1 << 20)
    (folder / "same.bin").write_bytes(data)
    saved = source.save("theirs")
    project.write("same.bin", data)
    ws = project.open()
    ws.save("mine")
    before = ws.usage().packs_bytes
    ws.import_from(source, saved.id)
    assert ws.usage().packs_bytes - before < 100_000


def test_the_source_is_as_it_was(project: Project) -> None:
    folder, source = other(project)
    (folder / "a.txt").write_text("theirs\n")
    saved = source.save("theirs")
    before = describe(project.area / "other-store" / "objects")
    project.open().import_from(source, saved.id)
    assert not differences(before, describe(project.area / "other-store" / "objects"))


def test_checkpoint_without_changes_is_imported_whole(project: Project) -> None:
    """Two of its parts are the same bytes then."""
    folder, source = other(project)
    (folder / "a.txt").write_text("theirs\n")
    source.save("theirs")
    saved = source.save("the same", allow_empty=True)
    ws = project.open()
    assert ws.restore(ws.import_from(source, saved.id).id).ok
    assert ws.verify().ok
