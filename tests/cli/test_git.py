"""`holdfast git`: what the user's git lost, found and brought back with real git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.workspace import Workspace
from holdfast.workspace.capture import git_hold

from .conftest import Program


def _git(folder: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *names, *words], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _commit(folder: Path, text: str) -> str:
    (folder / "file.txt").write_text(text)
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", text)
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a save wait for git as long as a busy machine needs."""
    monkeypatch.setattr(git_hold, "IN_SAVE_S", 600.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    _git(place, "init", "-q")
    _commit(place, "one")
    return place


@pytest.fixture
def workspace(folder: Path, tmp_path: Path) -> Workspace:
    return Workspace(folder, store=tmp_path / "store")


def _losses(workspace: Workspace, ref: str | None = None) -> set[tuple[str, str, bool]]:
    return {(loss.what, loss.name, loss.deleted) for loss in workspace.git_losses(ref).losses}


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((folder / ".git").rglob("*")) if path.is_file()}


def test_nothing_lost(folder: Path, workspace: Workspace) -> None:
    workspace.save()
    _commit(folder, "two")
    assert _losses(workspace) == set()


@pytest.mark.parametrize("packed", [False, True])
def test_deleted_branch_is_found_and_rescued(folder: Path, workspace: Workspace, packed: bool) -> None:
    _git(folder, "checkout", "-q", "-b", "topic/a")
    lost = _commit(folder, "work")
    _git(folder, "checkout", "-q", "main")
    if packed:
        _git(folder, "pack-refs", "--all")
    workspace.save()
    _git(folder, "branch", "-q", "-D", "topic/a")
    assert _losses(workspace) == {("branch", "refs/heads/topic/a", True)}
    workspace.rescue_git()
    assert _git(folder, "rev-parse", "rescued/topic/a") == lost
    assert _git(folder, "fsck", "--strict") == ""


def test_reset_away_commit_is_rescued_and_no_branch_moves(folder: Path, workspace: Workspace) -> None:
    lost = _commit(folder, "two")
    workspace.save()
    _git(folder, "reset", "-q", "--hard", "HEAD~1")
    main = _git(folder, "rev-parse", "main")
    assert _losses(workspace) == {("branch", "refs/heads/main", False)}
    workspace.rescue_git()
    assert _git(folder, "rev-parse", "rescued/main") == lost
    assert _git(folder, "rev-parse", "main") == main


def test_dropped_stash_can_be_applied_again(folder: Path, workspace: Workspace) -> None:
    (folder / "file.txt").write_text("stashed")
    _git(folder, "stash", "-q")
    workspace.save()
    _git(folder, "stash", "drop", "-q")
    assert _losses(workspace) == {("stash", "stash@{0}", True)}
    workspace.rescue_git()
    _git(folder, "stash", "pop", "-q")
    assert (folder / "file.txt").read_text() == "stashed"


def test_popping_a_newer_stash_loses_only_that_one(folder: Path, workspace: Workspace) -> None:
    for text in ("older", "newer"):
        (folder / "file.txt").write_text(text)
        _git(folder, "stash", "-q")
    newer = _git(folder, "rev-parse", "stash@{0}")
    workspace.save()
    _git(folder, "stash", "drop", "-q", "stash@{0}")
    assert [loss.commit for loss in workspace.git_losses().losses] == [newer]


def test_rescue_overwrites_nothing_and_repeats(folder: Path, workspace: Workspace) -> None:
    _git(folder, "branch", "rescued/b")
    taken = _git(folder, "rev-parse", "rescued/b")
    _git(folder, "checkout", "-q", "-b", "b")
    lost = _commit(folder, "two")
    _git(folder, "checkout", "-q", "main")
    workspace.save()
    _git(folder, "branch", "-q", "-D", "b")
    first = [each.ref for each in workspace.rescue_git("latest").refs]
    assert [each.ref for each in workspace.rescue_git("latest").refs] == first == ["refs/heads/rescued/b-2"]
    assert _git(folder, "rev-parse", "rescued/b") == taken
    assert _git(folder, "rev-parse", "rescued/b-2") == lost


def test_operation_that_was_in_progress_is_named(holdfast: Program) -> None:
    project = holdfast.project
    _git(project, "init", "-q")
    _commit(project, "one")
    _git(project, "checkout", "-q", "-b", "topic")
    topic = _commit(project, "two")
    _git(project, "checkout", "-q", "main")
    _commit(project, "three")
    with pytest.raises(subprocess.CalledProcessError):
        _git(project, "merge", "topic")
    holdfast.saved()
    assert "in progress" not in holdfast("git", "status").out
    _git(project, "merge", "--abort")
    assert "note: a merge was in progress; its commits are recorded" in holdfast("git", "status").out
    _git(project, "branch", "-q", "-D", "topic")
    found = holdfast("git", "status", "--json").json
    assert found["operation_ended"] == "a merge" and [each["commit"] for each in found["losses"]] == [topic]


class TestLostEarlier:
    """What is lost before the newest checkpoint: older ones recorded it."""

    def found(self, workspace: Workspace) -> list[tuple[str, str, str, bool, str]]:
        found = workspace.git_losses()
        assert found.losses == [] and found.problems == []
        return [(each.what, each.name, each.commit, each.deleted, each.checkpoint) for each in found.earlier]

    def test_branch(self, folder: Path, workspace: Workspace) -> None:
        _git(folder, "checkout", "-q", "-b", "topic")
        _commit(folder, "work")
        workspace.save()
        lost = _commit(folder, "more work")
        held = workspace.save()
        _git(folder, "checkout", "-q", "main")
        workspace.save()
        _git(folder, "branch", "-q", "-D", "topic")
        workspace.save()
        between = workspace.list()[1].id
        assert between != held.id  # the newest that recorded it, not the one that saved it first
        assert self.found(workspace) == [("branch", "refs/heads/topic", lost, True, between)]
        assert [each.ref for each in workspace.rescue_git(between).refs] == ["refs/heads/rescued/topic"]
        assert self.found(workspace) == []

    def test_stash_and_commits_of_one_branch(self, folder: Path, workspace: Workspace) -> None:
        lost = {}
        for text in ("first", "second"):
            commit = _commit(folder, text)
            lost[commit] = workspace.save().id
            _git(folder, "reset", "-q", "--hard", "HEAD~1")
            workspace.save()
        (folder / "file.txt").write_text("stashed")
        _git(folder, "stash", "-q")
        stashed = _git(folder, "rev-parse", "stash@{0}")
        lost[stashed] = workspace.save().id
        _git(folder, "stash", "drop", "-q")
        _commit(folder, "on and on")
        workspace.save()
        found = self.found(workspace)
        assert {commit: checkpoint for _, _, commit, _, checkpoint in found} == lost
        assert [(what, deleted) for what, _, _, deleted, _ in found] == [
            ("stash", True), ("branch", False), ("branch", False),
        ]  # fmt: skip

    def test_after_gc_what_the_store_holds(self, folder: Path, workspace: Workspace) -> None:
        lost = _commit(folder, "work")
        kept = workspace.save().id
        _git(folder, "reset", "-q", "--hard", "HEAD~1")
        _git(folder, "reflog", "expire", "--expire=now", "--all")
        _git(folder, "gc", "-q", "--prune=now")
        workspace.save()
        assert [(each.commit, each.held, each.available) for each in workspace.git_losses().earlier] == [
            (lost, True, True)
        ]
        workspace.rescue_git(kept)
        assert _git(folder, "rev-parse", "rescued/main") == lost

    def test_merged_pushed_and_moved_branches_are_no_losses(self, folder: Path, workspace: Workspace) -> None:
        for name in ("merged", "pushed"):
            _git(folder, "checkout", "-q", "-b", name)
            commit = _commit(folder, name)
            workspace.save()
            _git(folder, "checkout", "-q", "main")
            if name == "merged":
                _git(folder, "merge", "-q", name)
            else:
                _git(folder, "update-ref", f"refs/remotes/origin/{name}", commit)
            _git(folder, "branch", "-q", "-D", name)
            _commit(folder, f"after {name}")
            workspace.save()
        assert self.found(workspace) == []

    def test_another_checkpoint_is_compared_alone(self, folder: Path, workspace: Workspace) -> None:
        _commit(folder, "work")
        workspace.save()
        _git(folder, "reset", "-q", "--hard", "HEAD~1")
        last = workspace.save()
        assert len(workspace.git_losses().earlier) == 1
        assert workspace.git_losses(last.id).earlier == []

    def test_command_names_the_checkpoint(self, holdfast: Program) -> None:
        _git(holdfast.project, "init", "-q")
        _commit(holdfast.project, "one")
        _commit(holdfast.project, "work")
        holdfast.saved()
        _git(holdfast.project, "reset", "-q", "--hard", "HEAD~1")
        holdfast.saved()
        said = holdfast("git", "status").out.splitlines()
        assert said[:2] == ["Nothing lost since a2.", "Lost before a2:"]
        assert said[2].startswith("branch main ") and said[2].endswith(" (in a1)")
        assert said[3].endswith("git rescue a1")


def test_commit_without_file_change_makes_a_checkpoint(folder: Path, workspace: Workspace) -> None:
    (folder / "file.txt").write_text("two")
    first = workspace.save()
    assert not workspace.save().is_new
    _git(folder, "commit", "-q", "-a", "-m", "two")
    second = workspace.save()
    assert second.is_new and second.id != first.id
    assert not workspace.save().is_new


def test_save_and_status_write_nothing_into_git(folder: Path, workspace: Workspace) -> None:
    before = _files(folder)
    workspace.save()
    workspace.git_losses()
    assert _files(folder) == before


def test_removed_repository_comes_back(folder: Path, workspace: Workspace) -> None:
    _git(folder, "tag", "-a", "v1", "-m", "v1")
    _git(folder, "checkout", "-q", "-b", "topic")
    (folder / "file.txt").write_text("stashed")
    _git(folder, "stash", "-q")
    _commit(folder, "two")
    (folder / "file.txt").write_text("staged")
    _git(folder, "add", ".")
    refs, status = _git(folder, "for-each-ref"), _git(folder, "status", "--porcelain=v2", "--branch")
    workspace.save()
    shutil.rmtree(folder / ".git")
    assert workspace.git_losses().removed
    done = workspace.rescue_git()
    assert done.recreated and done.index and not done.missing
    assert _git(folder, "for-each-ref") == refs
    assert _git(folder, "status", "--porcelain=v2", "--branch") == status
    assert _git(folder, "fsck", "--strict") == ""
    assert _git(folder, "stash", "list").endswith("one")
    assert not (folder / ".git" / "holdfast-rescue").exists()


def test_reftable_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "reftable"
    place.mkdir()
    if subprocess.run(["git", "init", "-q", "--ref-format=reftable"], cwd=place, capture_output=True).returncode:
        pytest.skip("this git has no reftable")
    workspace = Workspace(place, store=tmp_path / "store")
    workspace.save()
    found = workspace.git_losses()
    assert found.losses == [] and "reftable" in found.problems[0]


def test_linked_worktree_sees_shared_branches(folder: Path, tmp_path: Path) -> None:
    _git(folder, "branch", "topic")
    _git(folder, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "side")
    workspace = Workspace(tmp_path / "linked", store=tmp_path / "store")
    workspace.save()
    _git(folder, "branch", "-q", "-D", "topic")
    assert _losses(workspace) == {("branch", "refs/heads/topic", True)}


def test_unreadable_git_does_not_fail_a_save(folder: Path, workspace: Workspace) -> None:
    (folder / ".git" / "packed-refs").write_bytes(b"\xff\x00 nonsense\n")
    (folder / ".git" / "refs" / "heads" / "odd").write_bytes(b"\xff\xfe")
    assert workspace.save().is_new


def test_damaged_cache_is_read_again(folder: Path, workspace: Workspace, tmp_path: Path) -> None:
    workspace.save()
    (tmp_path / "store" / "holdfast" / "git.cache").write_bytes(b"{")
    _git(folder, "branch", "topic")
    assert workspace.save().is_new
    assert json.loads(workspace._repository.objects.blob(_record(workspace)))["refs"].keys() >= {"refs/heads/topic"}
    assert workspace.verify().ok


def _record(workspace: Workspace) -> bytes:
    return workspace._repository.contents(workspace.get("latest")).git
