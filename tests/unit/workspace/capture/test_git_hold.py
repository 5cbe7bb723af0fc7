"""Objects of the user's git that the store holds: lost for good in the repository, and brought back; with real git."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.agents.hook import open_workspace
from holdfast.errors import HoldfastError, NotFound
from holdfast.scan import git_refs
from holdfast.shadowgit import FILE_MODE, ObjectKind, TreeEntry, encode_tree
from holdfast.workspace import Workspace, background
from holdfast.workspace.capture import git_hold
from holdfast.workspace.git_losses import read_recorded
from holdfast.workspace.stored.git_data import GitData, GitPack, extract, read_git_data, write_git_data
from holdfast.workspace.stored.object_sink import PackSink
from holdfast.workspace.stored.record import write_commit
from holdfast.workspace.upkeep.growth import Saved, start_holding
from waiting import wait_for


def _git(folder: Path, *words: str, **variables: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **variables}
    names = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    allowed = ("-c", "protocol.file.allow=always", "-c", "core.logAllRefUpdates=true")
    command = ["git", *names, *allowed, *words]
    done = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _commit(folder: Path, text: str, name: str = "file.txt") -> str:
    (folder / name).write_text(text)
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", text)
    return _git(folder, "rev-parse", "HEAD")


def _forget(folder: Path) -> None:
    """Have git remove whatever no ref reaches."""
    _git(folder, "reflog", "expire", "--expire=now", "--all")
    _git(folder, "gc", "-q", "--prune=now")


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


def _packs(workspace: Workspace) -> list[int]:
    recorded = read_recorded(workspace._repository, "latest", workspace.path)
    assert not recorded.not_held
    return [pack.size_bytes for pack in recorded.data.packs]


def _lose_branch(folder: Path, workspace: Workspace) -> str:
    """A branch that a checkpoint recorded, and of which the repository has nothing any more."""
    _git(folder, "checkout", "-q", "-b", "topic")
    lost = _commit(folder, "work that is lost")
    _git(folder, "checkout", "-q", "main")
    workspace.save()
    _git(folder, "branch", "-q", "-D", "topic")
    _forget(folder)
    with pytest.raises(subprocess.CalledProcessError):
        _git(folder, "cat-file", "-e", lost)
    return lost


def test_branch_comes_back_after_gc(folder: Path, workspace: Workspace) -> None:
    lost = _lose_branch(folder, workspace)
    assert [(loss.available, loss.held) for loss in workspace.git_losses().losses] == [(True, True)]
    assert [each.ref for each in workspace.rescue_git().refs] == ["refs/heads/rescued/topic"]
    assert _git(folder, "rev-parse", "rescued/topic") == lost
    assert _git(folder, "show", "rescued/topic:file.txt") == "work that is lost"
    assert _git(folder, "fsck", "--strict") == ""


def test_stashes_come_back_in_their_order(folder: Path, workspace: Workspace) -> None:
    for text in ("older", "newer"):
        (folder / "file.txt").write_text(text)
        _git(folder, "stash", "push", "-q", "-m", text)
    before = _git(folder, "stash", "list")
    workspace.save()
    _git(folder, "stash", "clear")
    _forget(folder)
    assert {each.ref for each in workspace.rescue_git().refs} == {"refs/stash"}
    assert _git(folder, "stash", "list") == before
    _git(folder, "stash", "apply", "-q")
    assert (folder / "file.txt").read_text() == "newer"


def test_index_comes_back_and_a_copy_stays(folder: Path, workspace: Workspace) -> None:
    (folder / "file.txt").write_text("staged and nowhere else")
    _git(folder, "add", ".")
    staged = _git(folder, "ls-files", "--stage")
    (folder / "file.txt").write_text("one")
    workspace.save()
    _git(folder, "reset", "-q", "--hard")
    _forget(folder)
    before = (folder / ".git" / "index").read_bytes()
    done = workspace.rescue_git("latest", index=True)
    assert done.index and Path(done.index_backup).read_bytes() == before
    assert _git(folder, "ls-files", "--stage") == staged
    assert _git(folder, "show", ":file.txt") == "staged and nowhere else"


def test_packs_of_a_checkpoint_deleted_meanwhile(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: no checkpoint refers to a pack that was freed while the next was made."""
    packed = git_hold.GitHolder._packed

    def freed(self: git_hold.GitHolder, *given: Any) -> tuple[GitData, str | None]:
        data, name = packed(self, *given)
        return data._replace(packs=(GitPack([], FILE_MODE, b"\1" * 20, 9), *data.packs)), name

    with monkeypatch.context() as patch:
        patch.setattr(git_hold.GitHolder, "_packed", freed)
        workspace.save()
    assert workspace.verify().ok
    assert workspace.git_losses("latest").not_held
    workspace.hold_git()
    assert workspace.verify().ok and not workspace.git_losses("latest").not_held


def test_index_is_left_alone_while_git_works(folder: Path, workspace: Workspace) -> None:
    workspace.save()
    (folder / ".git" / "index.lock").write_bytes(b"")
    before = (folder / ".git" / "index").read_bytes()
    with pytest.raises(Exception, match=r"index\.lock"):
        workspace.rescue_git(index=True)
    assert (folder / ".git" / "index").read_bytes() == before and (folder / ".git" / "index.lock").exists()


def test_refreshed_index_makes_no_checkpoint(folder: Path, workspace: Workspace) -> None:
    workspace.save()
    os.utime(folder / ".git" / "index")
    _git(folder, "update-index", "--refresh")
    os.utime(folder / "file.txt", ns=(1_600_000_000_000_000_000,) * 2)
    first = workspace.save()
    _git(folder, "update-index", "--refresh")
    assert not workspace.save().is_new and workspace.get("latest").id == first.id
    _git(folder, "rm", "-q", "--cached", "file.txt")
    assert workspace.save().is_new


def test_only_new_objects_are_added(folder: Path, workspace: Workspace) -> None:
    (folder / "large.bin").write_bytes(os.urandom(200_000))
    _commit(folder, "large")
    workspace.save()
    first = _packs(workspace)
    _commit(folder, "small")
    workspace.save()
    assert first[0] > 200_000 and _packs(workspace)[:1] == first and _packs(workspace)[1] < 2_000


def test_packs_do_not_accumulate(folder: Path, workspace: Workspace) -> None:
    for number in range(24):
        _commit(folder, f"commit {number}")
        workspace.save()
    assert len(_packs(workspace)) <= 9
    last = _git(folder, "rev-parse", "HEAD")
    shutil.rmtree(folder / ".git")
    workspace.rescue_git()
    assert _git(folder, "rev-list", "--count", last) == "25"
    assert _git(folder, "fsck", "--strict") == ""


def test_what_a_remote_has_is_not_stored(tmp_path: Path) -> None:
    hub, place = tmp_path / "hub.git", tmp_path / "clone"
    _git(tmp_path, "init", "-q", "--bare", str(hub))
    _git(tmp_path, "clone", "-q", str(hub), str(place))
    (place / "large.bin").write_bytes(os.urandom(200_000))
    _commit(place, "pushed")
    _git(place, "push", "-q", "origin", "main")
    workspace = Workspace(place, store=tmp_path / "store")
    workspace.save()
    assert sum(_packs(workspace)) < 100
    _commit(place, "not pushed")
    workspace.save()
    assert sum(_packs(workspace)) < 2_000


def test_removed_clone_needs_a_fetch_for_the_rest(tmp_path: Path) -> None:
    hub, place = tmp_path / "hub.git", tmp_path / "clone"
    _git(tmp_path, "init", "-q", "--bare", str(hub))
    _git(tmp_path, "clone", "-q", str(hub), str(place))
    _commit(place, "pushed", "pushed.txt")
    _git(place, "push", "-q", "origin", "main")
    local = _commit(place, "not pushed")
    workspace = Workspace(place, store=tmp_path / "store")
    workspace.save()
    shutil.rmtree(place / ".git")
    done = workspace.rescue_git()
    assert done.recreated and [loss.name for loss in done.missing] == ["refs/heads/main"]
    assert any("remote" in problem for problem in done.problems)
    workspace.save()  # in between: the rescue still knows which checkpoint it was from
    _git(place, "fetch", "-q")
    assert _git(place, "fsck", "--strict", "--no-dangling") == ""
    again = workspace.rescue_git(index=True)
    assert [each.ref for each in again.refs] == ["refs/heads/main"] and not again.missing
    assert _git(place, "rev-parse", "main") == local
    assert _git(place, "status", "--porcelain") == ""
    assert _git(place, "fsck", "--strict") == ""


def test_rebase_in_progress_keeps_its_commits(folder: Path, workspace: Workspace) -> None:
    _git(folder, "checkout", "-q", "-b", "topic")
    lost = _commit(folder, "topic")
    _git(folder, "checkout", "-q", "main")
    _commit(folder, "conflict")
    with pytest.raises(subprocess.CalledProcessError):
        _git(folder, "rebase", "main", "topic")
    workspace.save()
    recorded = read_recorded(workspace._repository, "latest", folder)
    assert recorded.refs.operation == "a rebase"
    assert lost in recorded.refs.others.values() and lost in recorded.data.tips


def test_limit_is_reported(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(folder, store=tmp_path / "store", git_objects_max_bytes=100_000)
    for number in range(12):
        (folder / f"{number}.bin").write_bytes(os.urandom(30_000))
        _commit(folder, f"commit {number}")
    _git(folder, "gc", "-q")
    workspace.save()
    said = workspace.git_losses().not_held
    assert "newest 1 commits" in said or "more than 100,000 bytes" in said
    recorded = read_recorded(workspace._repository, "latest", folder)
    assert sum(pack.size_bytes for pack in recorded.data.packs) <= 100_000


def test_slow_git_does_not_delay_a_save(folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.workspace.capture.git_hold.GitHolder._left", lambda self: 0.000_001 if self._deadline else None
    )
    workspace.save()
    assert "not in the store yet" in workspace.git_losses().not_held
    assert (workspace.store / "holdfast" / "git-slow").exists()
    assert workspace.hold_git()
    assert not workspace.git_losses().not_held
    assert not (workspace.store / "holdfast" / "git-slow").exists()


def test_newly_opened_workspace_holds_what_another_saved(folder: Path, workspace: Workspace) -> None:
    workspace.defer_git()
    workspace.save()
    assert Workspace(folder, store=workspace.store).hold_git()
    assert not workspace.git_losses().not_held


@pytest.mark.slow
def test_slow_git_is_left_to_a_process_of_its_own(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real process, started once; it waits for nothing but git."""
    started = []
    start = background.start
    monkeypatch.setattr(background, "start", lambda *args: (started.append(args), start(*args)))
    with monkeypatch.context() as patch:
        patch.setattr(git_hold.GitHolder, "_left", lambda self: 0.000_001 if self._deadline else None)
        workspace.save()
    assert started == [] and "not in the store yet" in workspace.git_losses().not_held
    workspace.after_save()
    workspace.after_save()  # while it is at work, or has just ended
    assert len(started) == 1
    wait_for(lambda: not workspace.git_losses().not_held and not (workspace.store / "holdfast" / "git-slow").exists())
    _git(folder, "checkout", "-q", "--orphan", "other")
    lost = _commit(folder, "after it")
    workspace.save()
    assert not workspace.git_losses().not_held, "what comes next is held by the save again"
    _git(folder, "checkout", "-q", "main")
    _git(folder, "branch", "-q", "-D", "other")
    _forget(folder)
    assert {each.loss.commit for each in workspace.rescue_git("latest").refs} == {lost}


def test_process_for_slow_git_holds_what_was_configured(folder: Path, workspace: Workspace, tmp_path: Path) -> None:
    (folder / "holdfast.toml").write_text('git_objects_max_bytes = "1 KiB"\n')
    (folder / "large.bin").write_bytes(os.urandom(20_000))
    _commit(folder, "large")
    workspace.defer_git()
    workspace.save()
    background.hold_git(str(folder), store=str(workspace.store), allow_home=False, trust_store=False)
    assert "more than 1,024 bytes" in workspace.git_losses().not_held


def test_process_for_slow_git_is_started_again_after_a_while(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was killed leaves the note that it was started."""
    started = []
    monkeypatch.setattr(background, "start", lambda *args: started.append(args))
    note = workspace.store / "holdfast" / "git-slow"
    workspace.save()
    note.write_bytes(b"")
    for now, count in ((0.0, 1), (60.0, 1), (599.0, 1), (601.0, 2), (-5.0, 3)):
        saved = Saved(folder, workspace.store, now + 1_800_000_000, {}, {}, {})
        start_holding(saved)
        assert len(started) == count
        os.utime(note, (1_800_000_000,) * 2)


def test_deferred_objects_are_held_after_the_save(folder: Path, workspace: Workspace) -> None:
    workspace.defer_git()
    (folder / "file.txt").write_text("stashed")
    _git(folder, "stash", "-q")
    first = workspace.save()
    _git(folder, "stash", "drop", "-q")
    second = workspace.save(allow_empty=True)
    assert workspace.git_losses(first).not_held
    workspace.after_save()
    assert not workspace.git_losses(first).not_held and not workspace.git_losses(second).not_held
    _forget(folder)
    assert [each.ref for each in workspace.rescue_git(first).refs] == ["refs/stash"]


def test_error_while_sweeping_frees_the_lock(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper lives long: with the lock, nobody could hold anything until it ends."""

    def failing(repository: object) -> None:
        raise OSError("the disk refuses")

    workspace.save()
    repository = workspace._repository
    lock = repository.git_lock()
    lock.acquire()
    with pytest.raises(OSError, match="refuses"), repository.git_work(lock):
        monkeypatch.setattr(type(repository), "_sweep_git_work", failing)
    again = repository.git_lock()
    assert again.acquire(wait=False)
    again.release()


def test_hostile_settings_run_nothing(folder: Path, workspace: Workspace, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    hooks = folder / ".git" / "hooks"
    for name in ("reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc"):
        hooks.mkdir(exist_ok=True)
        shutil.copy(trap, hooks / name)
    settings = {
        "core.fsmonitor": str(trap), "core.sshCommand": str(trap), "core.gitProxy": str(trap), "core.pager": str(trap),
        "core.alternateRefsCommand": str(trap), "gpg.program": str(trap), "uploadpack.packObjectsHook": str(trap),
        "diff.external": str(trap), "alias.stash": f"!{trap}", "filter.f.clean": str(trap),
        "credential.helper": str(trap),
    }  # fmt: skip
    (folder / ".gitattributes").write_text("* filter=f\n")
    lost = _git(folder, "commit-tree", "-m", "lost", "HEAD^{tree}")
    _git(folder, "branch", "topic", lost)
    (tmp_path / "sprung").unlink(missing_ok=True)
    with open(folder / ".git" / "config", "a") as file:
        for key, value in settings.items():
            section, _, name = key.rpartition(".")
            head, _, sub = section.partition(".")
            file.write(f'[{head}{f" {json.dumps(sub)}" if sub else ""}]\n\t{name} = "{value}"\n')
    workspace.save()
    (folder / ".git" / "refs" / "heads" / "topic").unlink()
    workspace.git_losses()
    workspace.rescue_git(index=True)
    shutil.rmtree(folder / ".git")
    workspace.rescue_git()
    assert not (tmp_path / "sprung").exists()


def test_save_writes_nothing_into_git(folder: Path, workspace: Workspace) -> None:
    (folder / "new.txt").write_text("staged")
    _git(folder, "add", ".")

    def files() -> dict[str, tuple[int, bytes]]:
        found = sorted((folder / ".git").rglob("*"))
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in found}

    before = files()
    workspace.save()
    workspace.git_losses()
    assert files() == before and _packs(workspace)


# kinds of repositories


def _sha256(place: Path, tmp_path: Path) -> None:
    place.mkdir()
    _git(place, "init", "-q", "--object-format=sha256")
    _commit(place, "one")


def _packed_refs(place: Path, tmp_path: Path) -> None:
    place.mkdir()
    _git(place, "init", "-q")
    _commit(place, "one")
    _git(place, "pack-refs", "--all")


def _alternates(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "lender", tmp_path)
    _git(tmp_path, "clone", "-q", "--shared", str(tmp_path / "lender"), str(place))
    _git(place, "remote", "remove", "origin")


def _shallow(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "origin", tmp_path)
    for text in ("two", "three"):
        _commit(tmp_path / "origin", text)
    _git(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path}/origin", str(place))


def _shallow_without_remote(place: Path, tmp_path: Path) -> None:
    _shallow(place, tmp_path)
    _git(place, "remote", "set-head", "origin", "--delete")
    _git(place, "remote", "remove", "origin")


def _partial(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "origin", tmp_path)
    _commit(tmp_path / "origin", "two", "other.txt")
    _git(tmp_path / "origin", "config", "uploadpack.allowFilter", "true")
    _git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{tmp_path}/origin", str(place))


def _worktree(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "main", tmp_path)
    _git(tmp_path / "main", "worktree", "add", "-q", str(place), "-b", "side")


def _bare_hub(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "first", tmp_path)
    place.parent.mkdir(exist_ok=True)
    _git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "first"), str(tmp_path / "hub"))
    _git(tmp_path / "hub", "worktree", "add", "-q", str(place), "-b", "side")


def _separate(place: Path, tmp_path: Path) -> None:
    place.mkdir()
    _git(place, "init", "-q", f"--separate-git-dir={tmp_path}/elsewhere")
    _commit(place, "one")


def _split_index(place: Path, tmp_path: Path) -> None:
    _packed_refs(place, tmp_path)
    _git(place, "update-index", "--split-index")


def _submodule_itself(place: Path, tmp_path: Path) -> None:
    _packed_refs(tmp_path / "library", tmp_path)
    _packed_refs(tmp_path / "outer", tmp_path)
    _git(tmp_path / "outer", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    os.symlink(tmp_path / "outer" / "lib", place)


_KINDS = [
    _sha256, _packed_refs, _alternates, _shallow, _partial, _worktree, _bare_hub, _separate, _split_index,
    _submodule_itself, _shallow_without_remote,
]  # fmt: skip


@pytest.mark.parametrize("make", _KINDS, ids=lambda make: make.__name__.strip("_"))
def test_kind_of_repository(make: Callable[[Path, Path], None], tmp_path: Path) -> None:
    place = tmp_path / "project"
    make(place, tmp_path)
    home = _git(place, "rev-parse", "--abbrev-ref", "HEAD")
    workspace = Workspace(place, store=tmp_path / "store")
    _git(place, "checkout", "-q", "-b", "topic")
    lost = _commit(place, "lost", "lost.txt")
    _git(place, "checkout", "-q", home)
    (place / "file.txt").write_text("stashed")
    _git(place, "stash", "-q")
    (place / "file.txt").write_text("staged")
    _git(place, "add", ".")
    staged = _git(place, "ls-files", "--stage")
    workspace.save()
    assert _packs(workspace)
    _git(place, "reset", "-q", "--hard")
    _git(place, "branch", "-q", "-D", "topic")
    _git(place, "stash", "clear")
    _forget(place)
    assert {loss.what for loss in workspace.git_losses().losses} == {"branch", "stash"}
    done = workspace.rescue_git("latest", index=True)
    assert not done.missing and done.index
    assert _git(place, "rev-parse", "rescued/topic") == lost
    assert _git(place, "show", "rescued/topic:lost.txt") == "lost"
    assert _git(place, "ls-files", "--stage") == staged
    assert _git(place, "show", ":file.txt") == "staged"
    assert _git(place, "stash", "list").count("\n") == 0 and _git(place, "stash", "show", "-p").count("+stashed")
    assert _git(place, "fsck") == ""
    assert workspace.verify().ok


def test_submodule_is_reported(tmp_path: Path) -> None:
    _packed_refs(tmp_path / "library", tmp_path)
    _packed_refs(tmp_path / "outer", tmp_path)
    _git(tmp_path / "outer", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    workspace = Workspace(tmp_path / "outer", store=tmp_path / "store")
    workspace.save()
    assert any("submodule lib" in problem for problem in workspace.git_losses().problems)


def test_removed_worktree_is_not_made_again(tmp_path: Path) -> None:
    _worktree(tmp_path / "project", tmp_path)
    workspace = Workspace(tmp_path / "project", store=tmp_path / "store")
    workspace.save()
    (tmp_path / "project" / ".git").unlink()
    with pytest.raises(Exception, match="worktree"):
        workspace.rescue_git()


# upkeep


def _held_bytes(workspace: Workspace) -> bytes:
    """Everything that the packs of all checkpoints contain, as git reads it."""
    found = b""
    for checkpoint in workspace.list(limit=None, safety=True):
        recorded = read_recorded(workspace._repository, checkpoint, workspace.path)
        for pack in recorded.data.packs:
            with tempfile.TemporaryDirectory() as folder:
                _git(Path(folder), "init", "-q", "--bare", f"--object-format={recorded.refs.object_format}", ".")
                extract(workspace._repository.objects, pack, Path(folder, "objects", "pack", "pack-1.pack"))
                _git(Path(folder), "index-pack", "objects/pack/pack-1.pack")
                command = ["git", "cat-file", "--batch", "--batch-all-objects"]
                found += subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
    return found


SECRET = "token-5f0c9a7be2d14c88"


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_purge_searches_what_is_held_of_git(tmp_path: Path, object_format: str) -> None:
    place = tmp_path / "project"
    place.mkdir()
    _git(place, "init", "-q", f"--object-format={object_format}")
    _commit(place, "one")
    _commit(place, f"key = {SECRET}\n", "leak.txt")
    kept = _commit(place, "three")
    _git(place, "rm", "-q", "leak.txt")
    _git(place, "commit", "-q", "-m", f"remove {SECRET}")
    (place / "leak.txt").write_text(f"key = {SECRET}\n")
    _git(place, "remote", "add", "origin", f"https://{SECRET}@example.com/x")
    workspace = Workspace(place, store=tmp_path / "store")
    workspace.save()
    workspace.save(allow_empty=True)
    assert SECRET.encode() in _held_bytes(workspace)
    assert "(git)" in next(iter(workspace.purge("leak.txt", dry_run=True).states.values()))
    purged = workspace.purge("leak.txt")
    assert not purged.plan.partly
    assert SECRET.encode() not in _held_bytes(workspace) and kept.encode() in _held_bytes(workspace)
    assert "purged" in workspace.git_losses("latest").not_held
    assert workspace.verify().ok
    _commit(place, "four", "four.txt")
    for number in range(9):  # the packs are made again
        _commit(place, f"more {number}", "more.txt")
        workspace.save(include=[])
    blob = _git(place, "rev-parse", f"{kept}:leak.txt")
    recorded = read_recorded(workspace._repository, "latest", place)
    assert blob in recorded.data.purged and len(recorded.data.packs) < 9
    assert f"key = {SECRET}".encode() not in _held_bytes(workspace)


@pytest.mark.parametrize("inner", ["", "app/"])
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_purge_of_a_path_reaches_its_history_in_git(tmp_path: Path, object_format: str, inner: str) -> None:
    place = tmp_path / "project"
    (place / inner / "conf").mkdir(parents=True)
    _git(place, "init", "-q", f"--object-format={object_format}")
    env = f"{inner}conf/env"
    for text in ("secret committed first\n", "secret committed second\n"):
        (place / env).write_text(text)
        _git(place, "add", ".")
        _git(place, "commit", "-q", "-m", "change the settings")
    _commit(place, "kept text\n", f"{inner}conf/env.example")
    (place / env).write_text("secret staged only\n")
    _git(place, "add", ".")
    (place / env).write_text("secret of the folder\n")
    workspace = Workspace(place / inner, store=tmp_path / "store")
    workspace.save()
    assert b"secret committed first" in _held_bytes(workspace) and b"secret staged" in _held_bytes(workspace)
    workspace.purge("conf/env")
    held = _held_bytes(workspace)
    assert b"secret " not in held and b"kept text" in held and workspace.verify().ok
    (place / inner / "other").write_text("x")
    workspace.save()
    assert b"secret " not in _held_bytes(workspace)


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_purge_of_a_path_of_a_split_index(tmp_path: Path, object_format: str) -> None:
    """An entry that replaces one of the shared file has no path."""
    place = tmp_path / "project"
    place.mkdir()
    _git(place, "init", "-q", f"--object-format={object_format}")
    for name in ("a", "env", "z"):
        (place / name).write_text(f"{name} committed\n")
    _git(place, "add", ".")
    _git(place, "commit", "-q", "-m", "one")
    _git(place, "update-index", "--split-index")
    for name in ("a", "env"):
        (place / name).write_text(f"{name} staged\n")
    _git(place, "add", "a", "env")
    (place / "env").write_text("of the folder\n")
    assert b"env" not in (place / ".git" / "index").read_bytes()
    workspace = Workspace(place, store=tmp_path / "store")
    workspace.save()
    held = _held_bytes(workspace)
    assert b"env staged" in held and b"a staged" in held
    workspace.purge("env")
    held = _held_bytes(workspace)
    assert b"env staged" not in held and b"env committed" not in held
    assert b"a staged" in held and b"z committed" in held and workspace.verify().ok


def test_purge_of_a_path_that_only_git_has(folder: Path, workspace: Workspace) -> None:
    (folder / "old.env").write_text("secret")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "add settings")
    (folder / "old.env").unlink()
    _git(folder, "commit", "-q", "-a", "-m", "remove them")
    workspace.save()
    with pytest.raises(NotFound):
        workspace.purge("never.env")
    purged = workspace.purge("old.env")
    assert purged.plan.paths == ["old.env"] and "(git)" in next(iter(purged.plan.states.values()))
    assert b"secret" not in _held_bytes(workspace)
    with pytest.raises(NotFound):
        workspace.purge("old.env")


def test_held_objects_are_verified_compacted_and_measured(folder: Path, workspace: Workspace) -> None:
    (folder / "large.bin").write_bytes(os.urandom(2_000_000))
    _commit(folder, "large")
    (folder / "large.bin").unlink()
    lost = _lose_branch(folder, workspace)
    assert workspace.usage().git_bytes > 2_000_000
    workspace.compact()
    assert workspace.verify().ok
    workspace.rescue_git()
    assert _git(folder, "rev-parse", "rescued/topic") == lost
    assert _git(folder, "fsck", "--strict") == ""


def test_damaged_pack_is_found_by_verify(folder: Path, workspace: Workspace) -> None:
    (folder / "large.bin").write_bytes(os.urandom(200_000))
    _commit(folder, "large")
    (folder / "large.bin").unlink()
    checkpoint = workspace.save()
    workspace.close()
    largest = max((workspace.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.chmod(0o600)
    largest.write_bytes(data)
    report = workspace.verify()
    assert not report.ok and any(checkpoint.id in problem.checkpoints for problem in report.problems)


def test_deleted_checkpoints_free_what_they_held(folder: Path, workspace: Workspace) -> None:
    _git(folder, "checkout", "-q", "-b", "topic")
    (folder / "large.bin").write_bytes(os.urandom(500_000))
    _commit(folder, "large")
    _git(folder, "checkout", "-q", "main")
    first = workspace.save()
    _git(folder, "branch", "-q", "-D", "topic")
    for number in range(9):  # until the packs are made again without the branch
        _commit(folder, f"commit {number}")
        workspace.save()
    assert workspace.usage().git_bytes > 500_000
    workspace.delete(first)
    for checkpoint in workspace.list(limit=None)[1:]:
        workspace.delete(checkpoint)
    workspace.merge()
    assert workspace.usage().git_bytes < 100_000 and not workspace.git_losses().not_held
    assert workspace.verify().ok


def test_merging_packs_loses_no_dropped_stash(folder: Path, workspace: Workspace) -> None:
    for number in range(7):
        _commit(folder, f"commit {number}")
        workspace.save()
    (folder / "file.txt").write_text("stashed")
    _git(folder, "stash", "-q")
    workspace.save()
    workspace.defer_git()
    _commit(folder, "last")
    checkpoint = workspace.save()
    _git(folder, "stash", "drop", "-q")
    _forget(folder)
    workspace.after_save()
    assert [each.ref for each in workspace.rescue_git(checkpoint).refs] == ["refs/stash"]
    assert _git(folder, "show", "stash@{0}:file.txt") == "stashed"


def test_hooks_answer_before_objects_are_held(folder: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": os.environ["PATH"]}
    opened = open_workspace(folder, environ)
    opened.save()
    assert opened.git_losses().not_held
    opened.after_save()
    assert not opened.git_losses().not_held


def test_save_while_another_holds_objects(
    folder: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that finds the lock taken leaves its objects to the process that has it, however late that is."""
    hold_all = git_hold.GitHolder._hold_all
    made: list[str] = []

    def save_at_the_end(self: git_hold.GitHolder, git: Path, *, is_limited: bool) -> bool:
        is_done = hold_all(self, git, is_limited=is_limited)
        if not made:
            made.append(_commit(folder, "two"))
            other = Workspace(folder, store=tmp_path / "store")
            other.save()
            other.after_save()
        return is_done

    monkeypatch.setattr(git_hold.GitHolder, "_hold_all", save_at_the_end)
    workspace.save()
    recorded = read_recorded(workspace._repository, "latest", folder)
    assert made[0] in recorded.data.tips and not recorded.not_held


def _craft(workspace: Workspace, **changes: Any) -> None:
    """Change what the newest checkpoint keeps of git, as somebody who gives away a store can."""
    repository, checkpoint = workspace._repository, workspace.get("latest")
    contents, objects = repository.contents(checkpoint), repository.objects
    with PackSink(objects) as sink:
        data = read_git_data(objects, contents.git_data)
        planted = TreeEntry(FILE_MODE, b"shared-index", sink.add(ObjectKind.BLOB, b"planted"))
        data = data._replace(**changes, files=(*data.files, planted))
        contents = contents._replace(git_data=write_git_data(sink, data))
        repository.replace(sink.writer, checkpoint, contents, write_commit(sink, checkpoint, contents))


@pytest.mark.parametrize("name", ["../planted", "hooks/planted", "planted", "sharedindex.0/../../planted"])
def test_crafted_name_of_a_shared_index(folder: Path, workspace: Workspace, name: str) -> None:
    workspace.save()
    _craft(workspace, shared_index_name=name)
    with contextlib.suppress(HoldfastError):
        workspace.rescue_git("latest", index=True)
    assert not list(folder.rglob("planted"))


@pytest.mark.parametrize("place", ["../elsewhere/.git", "inner/.git", "../project/inner/.git"])
def test_crafted_place_of_a_repository(folder: Path, workspace: Workspace, place: str) -> None:
    """Its configuration can name programs: a repository comes back at the folder or above it, or not at all."""
    for inner in (folder / "inner", folder.parent / "elsewhere"):
        inner.mkdir()
    workspace.save()
    _craft(workspace, place=place)
    with contextlib.suppress(HoldfastError):
        workspace.rescue_git("latest")
    assert not (folder / place).exists()


class TestOnNoList:
    """Commits that neither a ref nor the list of stashes names."""

    @pytest.mark.parametrize("command", ["rebase", "merge"])
    def test_work_that_git_put_aside(self, folder: Path, workspace: Workspace, command: str) -> None:
        """git keeps uncommitted work in a commit that only a file names, until a rebase or a merge has ended."""
        _git(folder, "checkout", "-q", "-b", "topic")
        _commit(folder, "on topic")
        _git(folder, "checkout", "-q", "main")
        (folder / "tracked").write_text("as it was")
        _git(folder, "add", ".")
        _commit(folder, "on main")
        (folder / "tracked").write_text("not committed")
        with pytest.raises(subprocess.CalledProcessError):
            _git(folder, command, "--autostash", "topic")
        assert (folder / "tracked").read_text() == "as it was"
        workspace.save()
        _git(folder, command, "--quit")  # keeps it as a stash
        _git(folder, "reset", "-q", "--hard", "main")
        _git(folder, "stash", "clear")
        _forget(folder)
        assert ("stash", "autostash") in [(loss.what, loss.name) for loss in workspace.git_losses().losses]
        workspace.rescue_git()
        assert "not committed" in _git(folder, "stash", "show", "-p", "stash@{0}")

    def test_detached_head_of_a_worktree(
        self, folder: Path, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(git_refs, "RACY_NS", -(10**11))  # the cache of the record is trusted
        workspace.save()
        place = tmp_path / "of-an-agent"
        _git(folder, "worktree", "add", "-q", "--detach", str(place))
        (folder / "another").write_text("file")
        workspace.save()
        made = _commit(place, "work of an agent")
        assert workspace.git_losses().losses == []
        (folder / "another").write_text("changed")
        workspace.save()
        _git(folder, "worktree", "remove", "--force", str(place))
        _forget(folder)
        lost = workspace.git_losses().losses
        assert [(loss.what, loss.name, loss.commit, loss.held) for loss in lost] == [
            ("HEAD", "worktrees/of-an-agent/HEAD", made, True)
        ]
        assert [each.ref for each in workspace.rescue_git().refs] == ["refs/heads/rescued/worktrees/of-an-agent/HEAD"]
        assert _git(folder, "show", "rescued/worktrees/of-an-agent/HEAD:file.txt") == "work of an agent"

    def test_head_of_a_worktree_keeps_its_commits(self, folder: Path, workspace: Workspace, tmp_path: Path) -> None:
        _git(folder, "checkout", "-q", "--detach")
        _commit(folder, "detached")
        workspace.save()
        _git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "other"), "HEAD")
        _git(folder, "checkout", "-q", "main")
        assert workspace.git_losses().losses == []


class TestRemotes:
    """What the store leaves to a remote, until the remote may have it no more."""

    @pytest.fixture
    def hub(self, folder: Path, tmp_path: Path) -> Path:
        """A remote that has `main`, and a branch that is nowhere else but here."""
        hub = tmp_path / "hub.git"
        _git(tmp_path, "init", "-q", "--bare", str(hub))
        _git(folder, "remote", "add", "origin", str(hub))
        _git(folder, "checkout", "-q", "-b", "topic")
        _commit(folder, "work on a topic")
        _git(folder, "push", "-q", "origin", "main", "topic")
        _git(folder, "checkout", "-q", "main")
        return hub

    def _lose(self, folder: Path) -> str:
        lost = _git(folder, "rev-parse", "topic")
        _git(folder, "branch", "-q", "-D", "topic")
        _forget(folder)
        with pytest.raises(subprocess.CalledProcessError):
            _git(folder, "cat-file", "-e", lost)
        return lost

    @pytest.mark.parametrize("has_new_files", [True, False])
    def test_branch_that_was_deleted_there(
        self, folder: Path, workspace: Workspace, hub: Path, has_new_files: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(git_refs, "RACY_NS", -(10**11))  # the cache of the record is trusted
        first = workspace.save()
        assert _packs(workspace) != []
        _git(hub, "branch", "-q", "-D", "topic")
        _git(folder, "fetch", "-q", "--prune")
        if has_new_files:
            (folder / "another").write_text("file")
        assert workspace.save().is_new == has_new_files
        assert first.id == workspace.list()[-1].id
        lost = self._lose(folder)
        assert [each.ref for each in workspace.rescue_git().refs] == ["refs/heads/rescued/topic"]
        assert _git(folder, "rev-parse", "rescued/topic") == lost
        assert _git(folder, "fsck", "--strict") == ""
        assert workspace.verify().ok

    def test_branch_that_was_replaced_there(
        self, folder: Path, workspace: Workspace, hub: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its old commit stays in `packed-refs`, where git does not look for it any more."""
        monkeypatch.setattr(git_refs, "RACY_NS", -(10**11))  # the cache of the record is trusted
        _git(folder, "pack-refs", "--all")
        workspace.save()
        _git(hub, "update-ref", "refs/heads/topic", "main")
        _git(folder, "fetch", "-q", "--force", "origin", "+refs/heads/*:refs/remotes/origin/*")
        assert not workspace.save().is_new
        lost = self._lose(folder)
        workspace.rescue_git()
        assert _git(folder, "rev-parse", "rescued/topic") == lost

    def test_fetch_that_only_adds_packs_nothing(self, folder: Path, workspace: Workspace, hub: Path) -> None:
        _git(folder, "checkout", "-q", "topic")
        for text in ("not pushed", "neither is this"):
            held = _commit(folder, text)
            workspace.save()
        before = _packs(workspace)
        assert len(before) == 2
        other = folder.parent / "other"
        _git(folder.parent, "clone", "-q", str(hub), str(other))
        _git(other, "checkout", "-q", "topic")
        _commit(other, "of somebody else", "theirs")
        _git(other, "push", "-q", "origin", "topic")
        _git(folder, "fetch", "-q")
        (folder / "another").write_text("file")
        workspace.save()
        assert _packs(workspace) == before
        recorded = read_recorded(workspace._repository, "latest", workspace.path).data
        assert held in recorded.tips and recorded.remotes == {
            _git(folder, "rev-parse", f"origin/{name}") for name in ("main", "topic")
        }

    def test_commit_that_nothing_has_any_more(self, folder: Path, workspace: Workspace, hub: Path) -> None:
        """What was pruned from the repository, too, cannot be compared: all is packed again."""
        _git(folder, "checkout", "-q", "topic")
        _commit(folder, "pushed on top")
        _git(folder, "push", "-q", "origin", "topic")
        _git(folder, "reset", "-q", "--hard", "HEAD~1")
        _git(folder, "checkout", "-q", "main")
        workspace.save()
        _git(hub, "branch", "-q", "-D", "topic")
        _git(folder, "fetch", "-q", "--prune")
        (folder / ".git" / "ORIG_HEAD").unlink(missing_ok=True)
        _forget(folder)
        (folder / "another").write_text("file")
        workspace.save()
        lost = self._lose(folder)
        workspace.rescue_git()
        assert _git(folder, "rev-parse", "rescued/topic") == lost


@pytest.mark.parametrize("held", [b"{}", b"\xff"])
def test_damage_in_an_older_checkpoint_hides_no_loss(folder: Path, workspace: Workspace, held: bytes) -> None:
    """What the store holds of the lost commit is then unknown; that it is lost is not."""
    _git(folder, "checkout", "-q", "-b", "topic")
    lost = _commit(folder, "work that is lost")
    _git(folder, "checkout", "-q", "main")
    older = workspace.save()
    repository, contents = workspace._repository, workspace._repository.contents(older)
    with PackSink(repository.objects) as sink:
        blob = sink.add(ObjectKind.BLOB, held)
        damaged = sink.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"held.json", blob)]))
        contents = contents._replace(git_data=damaged)
        repository.replace(sink.writer, older, contents, write_commit(sink, older, contents))
    _git(folder, "branch", "-q", "-D", "topic")
    _commit(folder, "two")
    workspace.save()
    found = workspace.git_losses()
    assert [(each.commit, each.held) for each in found.earlier] == [(lost, False)]


def test_failure_of_git_is_tried_again(folder: Path, tmp_path: Path) -> None:
    """As on a full disk: by a save after a while, or at once on request; then nothing is reported any more."""
    full, program = tmp_path / "full", tmp_path / "bin" / "git"
    program.parent.mkdir()
    fails = f'case "$*" in *pack-objects*) [ -e {full} ] && echo "fatal: No space left" >&2 && exit 128;; esac'
    program.write_text(f'#!/bin/sh\n{fails}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    workspace = Workspace(
        folder, store=tmp_path / "store", environ={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    )
    note = workspace.store / "holdfast" / "git-slow"
    full.touch()
    workspace.save()
    assert "No space left" in workspace.git_losses().not_held and not workspace.hold_git()
    full.unlink()
    (folder / "new").touch()
    workspace.save()
    assert "No space left" in workspace.git_losses().not_held, "so soon, no other save waits for it"
    os.utime(note, (time.time() - git_hold.AGAIN_S - 60,) * 2)
    (folder / "newer").touch()
    workspace.save()
    assert not workspace.git_losses().not_held and not note.exists()
    full.touch()
    _commit(folder, "two")
    workspace.save()
    full.unlink()
    assert workspace.hold_git() and not workspace.git_losses().not_held
