"""`~` is the home folder in every path that a workspace, a service or a project takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.project import SyncCheckpointManager
from holdfast.workspace import CheckpointService


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a project in it. The working directory is elsewhere, and empty."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "project").mkdir(parents=True)
    (tmp_path / "home" / "project" / "a.txt").write_text("one\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("HOLDFAST_STORE_ROOT", raising=False)
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def no_folder_named_tilde(home: Path) -> object:
    yield
    assert not list(home.parent.rglob("~*"))


def test_workspace(home: Path) -> None:
    ws = Workspace("~/project", store="~/store", home="~")
    assert (ws.path, ws.store) == (home / "project", home / "store")
    saved = ws.save("one")
    assert ws.export(saved, "~/out").directory == str(home / "out")
    assert ws.diff(saved, paths=["~/project/a.txt"]).modified_files == []
    (home / "project" / "a.txt").write_text("two\n")
    assert ws.restore(saved, ["~/project/a.txt"]).written == ["a.txt"]
    assert ws.why("~/project/a.txt").path == "a.txt"
    assert ws.blame("~/project/a.txt").path == "a.txt"
    assert ws.bisect(saved, ws.save("b", allow_empty=True), lambda _, at: at.id == saved.id, scratch="~").first_bad


def test_a_file_that_is_called_so_wins(home: Path) -> None:
    ws = Workspace("~/project", store="~/store")
    odd = home / "project" / "~"
    odd.mkdir()
    (odd / "b.txt").write_text("one\n")
    saved = ws.save("one")
    (odd / "b.txt").unlink()
    odd.rmdir()
    assert ws.restore(saved, ["~/b.txt"]).written[-1] == "~/b.txt"
    assert ws.diff(saved, paths=["./~"]).modified_files == []
    (odd / "b.txt").unlink()
    odd.rmdir()


def test_service(home: Path) -> None:
    async def use() -> None:
        async with CheckpointService("~/project", storage_dir="~/.praisonai/checkpoints") as service:
            assert service.workspace_dir == home / "project"
            await service.save("one")
            assert service.workspace.store.is_relative_to(home / ".praisonai" / "checkpoints")

    asyncio.run(use())


def test_store_root(home: Path) -> None:
    ws = Workspace("~/project", environ={"HOLDFAST_STORE_ROOT": "~/stores"})
    assert ws.store.is_relative_to(home / "stores")


def test_project(home: Path) -> None:
    (home / "features.json").write_text("[]")
    manager = SyncCheckpointManager("~/project", "~/features.json", "~/progress.txt", store="~/store", home="~")
    assert manager.project_dir == home / "project"
    saved = manager.create_checkpoint("one")
    (home / "features.json").write_text('[{"id": "x"}]')
    manager.rollback(saved)
    assert (home / "features.json").read_text() == "[]"
    forked = manager.fork(saved, "~/fork", store="~/fork-store")
    assert forked.directory == str(home / "fork")
    assert manager.adopt("~/fork", store="~/fork-store").ok
