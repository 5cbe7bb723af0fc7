"""Every store on this computer; folders that are gone come back, or their stores go."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from .conftest import Program


def _picture(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: mode, time, content or target."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            path = os.path.normpath(os.path.join(place, name))
            status = os.lstat(path)
            data = os.readlink(path).encode() if os.path.islink(path) else b""
            if os.path.isfile(path) and not os.path.islink(path):
                data = Path(path).read_bytes()
            found[os.path.relpath(path, folder)] = (status.st_mode, status.st_mtime_ns, data)
    return found


@pytest.fixture
def rich(holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A project with much that a copy loses; the current folder is above it."""
    (project / "empty").mkdir(mode=0o700)
    (project / "run.sh").write_text("#!/bin/sh\n")
    os.chmod(project / "run.sh", 0o750)
    os.symlink("a.txt", project / "link")
    os.utime(project / "a.txt", ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    os.chmod(project, 0o711)
    holdfast.saved("everything")
    monkeypatch.chdir(project.parent)
    return holdfast


def test_they_are_listed(rich: Program, project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    rich("-C", str(other), "init", "--save")
    out = rich("workspaces").out.splitlines()
    assert out[0].split()[:1] == ["folder"] and len(out) == 3
    items = rich("workspaces", "--json").json["items"]
    assert {each["folder"]: each["gone"] for each in items} == {str(project): False, str(other): False}
    (mine,) = [each for each in items if each["name"] == "project"]
    assert mine["checkpoints"] == 1 and mine["store_bytes"] > 0 and mine["last_save"] and mine["last_use"]


def test_where_there_are_none(holdfast: Program) -> None:
    assert holdfast("workspaces").err == "No folder has checkpoints yet.\n"
    assert holdfast("workspaces", "--json").json["items"] == []


@pytest.mark.parametrize("by", ["path", "name"])
def test_a_deleted_folder_comes_back_exactly(rich: Program, project: Path, by: str) -> None:
    before = _picture(project)
    shutil.rmtree(project)
    listed = rich("workspaces")
    assert " gone " in listed.out and f"holdfast -C {project} restore latest" in listed.err
    where = str(project) if by == "path" else "project"
    assert rich("-C", where, "log").out.startswith("a1 ")
    assert rich("-C", where, "cat", "a1:a.txt").out == "one\n"
    dry = rich("-C", where, "restore", "latest", "--dry-run")
    assert dry.code == 0 and "bring back" in dry.out and not project.exists()
    ran = rich("-C", where, "restore", "latest", "--yes")
    assert ran.code == 0, ran
    assert _picture(project) == before
    assert rich("-C", str(project), "diff").err == "No differences.\n"


def test_parents_that_are_gone_come_back_too(rich: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _picture(project)
    monkeypatch.chdir("/")
    shutil.rmtree(project.parent)
    assert rich("-C", str(project), "restore", "a1", "--yes").code == 0
    assert _picture(project) == before


def test_an_unknown_checkpoint_makes_no_folder(rich: Program, project: Path) -> None:
    shutil.rmtree(project)
    assert rich("-C", str(project), "restore", "a9", "--yes").code == 3
    assert not project.exists()


def test_nothing_is_saved_in_a_folder_that_is_gone(rich: Program, project: Path) -> None:
    shutil.rmtree(project)
    ran = rich("-C", str(project), "save")
    assert ran.code == 3 and f"holdfast -C {project} restore latest" in ran.err
    assert not project.exists()
    assert rich("-C", "no-such-name", "log").code == 3


def test_a_name_of_two_is_ambiguous(rich: Program, project: Path) -> None:
    twin = project.parent / "elsewhere" / "project"
    twin.mkdir(parents=True)
    (twin / "x").write_text("x")
    rich("-C", str(twin), "save")
    shutil.rmtree(project)
    shutil.rmtree(twin)
    ran = rich("-C", "project", "log")
    assert ran.code == 4 and str(twin) in ran.err and str(project) in ran.err


def _age() -> None:
    """Have every store last used fifteen days ago."""
    from holdfast.workspace.stores import list_stores

    then = time.time() - 15 * 86400
    for each in list_stores(os.environ):
        for place in [each.store / "refs" / "tags", *(each.store / "holdfast").rglob("*"), each.store / "holdfast"]:
            os.utime(place, (then, then))


def test_safety_checkpoints_are_not_counted(rich: Program, project: Path) -> None:
    (project / "a.txt").write_text("two")
    rich("-C", str(project), "restore", "a1", "--yes")
    assert [each["checkpoints"] for each in rich("workspaces", "--json").json["items"]] == [1]


class TestRenamedFolders:
    @pytest.mark.parametrize("above", [False, True])
    def test_a_renamed_folder_is_not_gone(self, rich: Program, project: Path, above: bool) -> None:
        old, new = (project.parent, project.parent.with_name("src")) if above else (project, project.with_name("new"))
        os.chdir("/")
        old.rename(new)
        place = new / "project" if above else new
        (item,) = rich("workspaces", "--json").json["items"]
        assert (item["gone"], item["moved_to"]) == (False, str(place))
        assert f"now {place}" in rich("workspaces").out
        _age()
        assert "Nothing to delete" in rich("workspaces", "--remove-gone", "--yes").err
        assert rich("-C", str(place), "log").out.startswith("a1 ")

    def test_a_rename_during_the_question_is_seen(self, rich: Program, project: Path) -> None:
        from holdfast.workspace.stores import list_stores, remove_gone

        aside = project.parent / "elsewhere" / "project"
        aside.parent.mkdir()
        project.rename(aside)
        (gone,) = list_stores(os.environ)
        assert gone.is_gone  # not beside its old place: nothing is known about it
        aside.rename(project.with_name("new"))
        assert f"the folder is {project.with_name('new')} now" in remove_gone([gone], os.environ).failed[str(project)]

    def test_a_copy_beside_it_is_another_folder(self, rich: Program, project: Path) -> None:
        shutil.copytree(project, project.with_name("copy"), symlinks=True)
        shutil.rmtree(project)
        assert [each["gone"] for each in rich("workspaces", "--json").json["items"]] == [True]


class TestRemoveGone:
    def test_what_was_used_lately_stays_unless_named(self, rich: Program, project: Path) -> None:
        shutil.rmtree(project)
        ran = rich("workspaces", "--remove-gone", "--yes")
        assert ran.code == 0 and "Kept: 1 store used in the last 14 days" in ran.err and "Deleted" not in ran.out
        assert rich("workspaces", "--remove-gone", "--yes", "no-such").code == 3
        assert len(rich("workspaces", "--json").json["items"]) == 1
        assert "Deleted 1 store" in rich("workspaces", "--remove-gone", "--yes", "project").out
        assert rich("workspaces", "--json").json["items"] == []

    def test_a_folder_that_is_there_cannot_be_named(self, rich: Program, project: Path) -> None:
        assert rich("workspaces", "--remove-gone", "--yes", str(project)).code == 3
        assert rich("workspaces", str(project)).code == 2

    def test_only_those_that_are_gone(self, rich: Program, project: Path) -> None:
        stays = project.parent / "stays"
        stays.mkdir()
        rich("-C", str(stays), "init", "--save")
        shutil.rmtree(project)
        _age()
        plan = rich("workspaces", "--remove-gone", "--dry-run")
        assert str(project) in plan.out and "cannot be undone" in plan.err
        refused = rich("workspaces", "--remove-gone")
        assert refused.code == 6 and len(rich("workspaces", "--json").json["items"]) == 2
        done = rich("workspaces", "--remove-gone", "--yes", "--json").json
        assert [each["folder"] for each in done["result"]["removed"]] == [str(project)]
        assert done["plan"]["bytes_freed"] == done["result"]["bytes_freed"] > 0
        assert [each["folder"] for each in rich("workspaces", "--json").json["items"]] == [str(stays)]
        assert rich("-C", str(stays), "log").code == 0

    def test_nothing_to_delete(self, rich: Program) -> None:
        ran = rich("workspaces", "--remove-gone", "--yes")
        assert ran.code == 0 and "every folder is there" in ran.err

    def test_a_folder_that_is_back_keeps_its_store(self, rich: Program, project: Path) -> None:
        from holdfast.workspace.stores import list_stores, remove_gone

        shutil.rmtree(project)
        gone = list_stores(os.environ)
        project.mkdir()
        done = remove_gone(gone, os.environ)
        assert not done.removed and "there again" in done.failed[str(project)]
        assert rich("-C", str(project), "log").out.startswith("a1 ")

    def test_a_folder_that_cannot_be_looked_at_keeps_its_store(self, rich: Program, project: Path) -> None:
        """As with a network disk that hangs, or a parent without permission: an error says nothing about the folder."""
        above = project.parent
        aside = above.with_name("aside")
        above.rename(aside)
        above.symlink_to(above)  # a loop: every look at what is below fails
        try:
            assert [each["gone"] for each in rich("workspaces", "--json").json["items"]] == [False]
            assert "Nothing to delete" in rich("workspaces", "--remove-gone", "-y").err
        finally:
            above.unlink()
            aside.rename(above)
        assert rich("-C", str(project), "log").code == 0

    def test_a_store_in_use_stays(self, rich: Program, project: Path) -> None:
        from holdfast.workspace.stored.repository import Repository
        from holdfast.workspace.stores import list_stores, remove_gone

        shutil.rmtree(project)
        (gone,) = list_stores(os.environ)
        with Repository(gone.store).lock:
            assert "uses the store" in remove_gone([gone], os.environ).failed[str(project)]

    def test_an_interrupted_removal_leaves_no_store(
        self, rich: Program, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from holdfast import durable
        from holdfast.workspace.stores import list_stores, remove_gone

        shutil.rmtree(project)
        (gone,) = list_stores(os.environ)
        with monkeypatch.context() as patched:
            patched.setattr(durable, "remove_tree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                remove_gone([gone], os.environ)
        assert list_stores(os.environ) == [] and os.listdir(gone.store.parent) != []
        remove_gone([], os.environ)
        assert os.listdir(gone.store.parent) == []


def test_options_that_need_remove_gone(holdfast: Program) -> None:
    assert holdfast("workspaces", "--yes").code == 2
