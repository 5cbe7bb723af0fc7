"""Saving the changes of a named actor: compared with the head, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Refused, Workspace
from holdfast.workspace.capture.save import StateAndMetadata


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.txt").write_text("one\n")
    return made


@pytest.fixture(params=[False, True], ids=["plain", "watching"])
def ws(request, folder: Path, tmp_path: Path):
    workspace = Workspace(folder, store=tmp_path / "store", watch=request.param)
    yield workspace
    workspace.close()


def details() -> StateAndMetadata:
    return StateAndMetadata({"conversation": ["hello"]}, {"turn": 1})


def never() -> StateAndMetadata:
    raise AssertionError("nobody should ask")


def test_only_what_changed_is_saved(ws: Workspace, folder: Path) -> None:
    first = ws.save_changes("first", details=details, actor="agent", session="s")
    assert (first.message, first.actor, first.session, first.metadata) == ("first", "agent", "s", {"turn": 1})
    assert first.state == {"conversation": ["hello"]}
    assert ws.save_changes("again", details=never) is None
    (folder / "a.txt").write_text("two\n")
    second = ws.save_changes("second", details=details)
    assert second.parent == first.id and second.files_changed == ["a.txt"]
    assert len(ws.list()) == 2 and ws.verify().ok


def test_old_state_is_saved_again_for_its_actor(ws: Workspace, folder: Path) -> None:
    ws.save_changes("first", details=details)
    before = folder.stat()
    (folder / "b.txt").write_text("made\n")
    ws.save_changes("made", details=details, actor="agent")
    (folder / "b.txt").unlink()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    taken = ws.save_changes("rolled back", details=details, actor="user")
    assert taken is not None and taken.files_changed == ["b.txt"] and taken.actor == "user"


def test_after_a_restore_the_head_is_where_it_went(ws: Workspace, folder: Path) -> None:
    first = ws.save("first")
    (folder / "a.txt").write_text("two\n")
    ws.save("second")
    ws.restore(first.id)
    assert ws.save_changes("nothing", details=never) is None


def test_details_that_fail_leave_nothing_behind(ws: Workspace, folder: Path) -> None:
    def fails() -> StateAndMetadata:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ws.save_changes("first", details=fails)
    with pytest.raises(Refused):
        ws.save_changes("first", details=lambda: StateAndMetadata({}, {"a": object()}))
    assert ws.list() == []
    assert ws.save_changes("first", details=details) is not None
