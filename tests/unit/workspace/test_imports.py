"""Checkpoints of other tools, added to a workspace."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.workspace import Workspace
from holdfast.workspace.imports import OutsideCheckpoint, OutsideFile
from holdfast.workspace.requests import SaveRequest

_WHEN = datetime(2020, 1, 2, tzinfo=UTC)


def outside(origin: str, content: bytes = b"x", *, oid: bytes = b"", base: str | None = None) -> OutsideCheckpoint:
    file = OutsideFile(stat.S_IFREG | 0o644, 0, len(content), lambda: content, oid)
    return OutsideCheckpoint(origin, "elsewhere", SaveRequest("theirs"), _WHEN, {"a": file}, base=base)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "project").mkdir()
    return Workspace(tmp_path / "project", store=tmp_path / "store")


def test_an_origin_is_added_once_by_two_processes(workspace: Workspace) -> None:
    other = Workspace(workspace.path, store=workspace.store)
    one, two = workspace.imports(), other.imports()
    assert not one.known() and not two.known()
    added = one.add(outside("tool:1"))
    again = two.add(outside("tool:1"))
    assert (added.is_new, again.is_new, again.id) == (True, False, added.id)


@pytest.mark.slow
def test_origins_of_many_checkpoints_are_found(workspace: Workspace) -> None:
    imports = workspace.imports()
    ids = [imports.add(outside(f"tool:{number}")).id for number in range(130)]
    known = Workspace(workspace.path, store=workspace.store).imports().known()
    assert known == {f"tool:{number}": each for number, each in enumerate(ids)}


def test_time_and_number(workspace: Workspace) -> None:
    first = workspace.save("ours", allow_empty=True)
    added = workspace.imports().add(outside("tool:1"))
    assert (added.timestamp, added.sequence) == (_WHEN, first.sequence + 1)
    assert workspace.get(added.id).timestamp == _WHEN


def test_folder_does_not_change(workspace: Workspace) -> None:
    workspace.imports().add(outside("tool:1"))
    assert list(workspace.path.iterdir()) == []


def test_wrong_content_leaves_nothing(workspace: Workspace) -> None:
    with pytest.raises(Damaged):
        workspace.imports().add(outside("tool:1", oid=b"0" * 20))
    assert workspace.list(None) == []
    assert workspace.verify().ok


def test_failing_read_leaves_nothing(workspace: Workspace) -> None:
    def fail() -> bytes:
        raise Damaged("gone")

    given = outside("tool:1")
    broken = OutsideFile(stat.S_IFREG | 0o644, 0, 1, fail)
    with pytest.raises(Damaged, match="gone"):
        workspace.imports().add(OutsideCheckpoint(given.origin, "", given.request, _WHEN, {"a": broken}))
    assert workspace.list(None) == []


def test_deleted_one_is_added_again(workspace: Workspace) -> None:
    imports = workspace.imports()
    added = imports.add(outside("tool:1"))
    workspace.delete(added.id)
    assert workspace.imports().add(outside("tool:1")).is_new
