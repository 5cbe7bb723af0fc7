"""Moving the user's branch back: only if asked for and confirmed, and never at the cost of a commit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Conflict, NotFound, Refused, Unavailable
from holdfast.project import Checkpoint, SyncCheckpointManager
from holdfast.scan.git_head import read_head

if TYPE_CHECKING:
    from .conftest import Place


@pytest.fixture
def moved(place: Place, manager: SyncCheckpointManager) -> Checkpoint:
    """A checkpoint, after which two commits were made that another branch has too."""
    made = manager.create_checkpoint("a")
    place.commit("second")
    place.write("third.txt")
    place.commit("third")
    place.git("branch", "kept")
    return made


def test_branch_and_files_go_back_to_the_checkpoint(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    kept = place.git("rev-parse", "kept")
    done = manager.rollback(moved.id, git="reset", confirm=True)
    assert place.git("rev-parse", "HEAD") == place.git("rev-parse", "main") == moved.git_state.commit_hash
    assert place.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert place.git("status", "--porcelain") == "M src/app.ts"
    assert place.git("rev-parse", "kept") == kept
    assert (done.git_moved, done.head_moved, done.ok) == (True, False, True)
    assert "git was moved" in done.message
    assert "holdfast: rollback" in place.git("reflog", "show", "main")
    place.git("fsck", "--strict")


def test_it_is_undone_the_branch_only_if_asked_for(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    third = place.git("rev-parse", "HEAD")
    manager.rollback(moved.id, git="reset", confirm=True)
    done = manager.undo()
    assert (place.root / "third.txt").exists()
    assert done.head_moved
    assert place.git("rev-parse", "HEAD") == moved.git_state.commit_hash
    manager.rollback(moved.id)
    manager.workspace.undo()
    place.git("reset", "-q", "--hard", third)
    manager.rollback(moved.id, git="reset", confirm=True)
    done = manager.undo(git="reset", confirm=True)
    assert done.git_moved
    assert place.git("rev-parse", "HEAD") == third
    assert place.git("status", "--porcelain") == ""


def test_a_commit_made_in_the_last_instant_is_not_taken_away(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def look_and_then_somebody_commits(git: object) -> object:
        head = read_head(git)
        if not made:
            made.append(place.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "just now"))
            place.git("update-ref", "refs/heads/main", made[0])
        return head

    monkeypatch.setattr("holdfast.project.git_reset.read_head", look_and_then_somebody_commits)
    with pytest.raises(Conflict, match="git would not move"):
        manager.rollback(moved.id, git="reset", confirm=True)
    assert place.git("rev-parse", "main") == made[0]


def test_without_confirmation_the_move_is_only_shown(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    before, files = place.git_bytes(), place.described()
    with pytest.raises(Refused, match="would move main from") as refused:
        manager.rollback(moved.id, git="reset")
    assert "confirm=True" in refused.value.hint
    assert (place.git_bytes(), place.described()) == (before, files)


def test_commits_that_nothing_else_leads_to_are_not_lost(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    place.commit("fourth")
    lost = place.git("rev-parse", "HEAD")
    before, files = place.git_bytes(), place.described()
    with pytest.raises(Refused, match=f"would lose commits .*{lost[:7]}"):
        manager.rollback(moved.id, git="reset", confirm=True)
    assert (place.git_bytes(), place.described()) == (before, files)
    place.git("tag", "-a", "-m", "kept by a tag", "v1")
    assert manager.rollback(moved.id, git="reset", confirm=True).git_moved


@pytest.mark.parametrize("by", ["alias", "stash"])
def test_alias_branch_and_stash_do_not_keep_commits(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint, by: str
) -> None:
    place.commit("fourth")
    if by == "alias":
        place.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    else:
        place.write("src/app.ts", "stashed\n")
        place.git("stash", "-q")
    with pytest.raises(Refused, match="would lose commits"):
        manager.rollback(moved.id, git="reset", confirm=True)


def test_symbolic_branch_keeps_the_commits_of_its_target(place: Place, manager: SyncCheckpointManager) -> None:
    place.git("branch", "-m", "main", "trunk")
    for name, named in (("main", "between"), ("between", "trunk")):
        place.git("symbolic-ref", f"refs/heads/{name}", f"refs/heads/{named}")
    place.git("symbolic-ref", "HEAD", "refs/heads/main")
    made = manager.create_checkpoint("a")
    place.commit("second")
    second = place.git("rev-parse", "trunk")
    with pytest.raises(Refused, match="would lose commits"):
        manager.rollback(made.id, git="reset", confirm=True)
    assert place.git("rev-parse", "trunk") == second
    place.git("branch", "kept")
    manager.rollback(made.id, git="reset", confirm=True)
    assert place.git("rev-parse", "trunk") == made.git_state.commit_hash


def test_a_commit_that_was_amended_since_is_not_lost_either(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    place.git("commit", "-q", "--amend", "-m", "amended")
    with pytest.raises(Refused, match="would lose commits"):
        manager.rollback(made.id, git="reset", confirm=True)


def test_content_that_is_only_staged_is_not_lost(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    place.write("src/app.ts", "only staged\n")
    place.git("add", "src/app.ts")
    assert manager.rollback(moved.id).ok
    with pytest.raises(Refused, match=r"staged .* src/app\.ts"):
        manager.rollback(moved.id, git="reset", confirm=True)
    manager.undo()
    assert manager.rollback(moved.id, git="reset", confirm=True).git_moved  # the folder has it, and so the undo


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_staged_content_is_not_lost(place: Place, manager: SyncCheckpointManager, moved: Checkpoint, mark: str) -> None:
    place.write("src/app.ts", "only staged\n")
    place.git("add", "src/app.ts")
    place.git("update-index", mark, "src/app.ts")
    place.write("src/app.ts", "something else\n")
    with pytest.raises(Refused, match=r"staged .* src/app\.ts"):
        manager.rollback(moved.id, git="reset", confirm=True)


def test_a_merge_under_way_is_ended_first(place: Place, manager: SyncCheckpointManager, moved: Checkpoint) -> None:
    (place.root / ".git" / "MERGE_HEAD").write_text(place.git("rev-parse", "HEAD"))
    with pytest.raises(Refused, match="a merge is in progress"):
        manager.rollback(moved.id, git="reset", confirm=True)


def test_another_branch_is_not_moved(place: Place, manager: SyncCheckpointManager, moved: Checkpoint) -> None:
    place.git("switch", "-q", "-c", "other")
    with pytest.raises(Refused, match="saved on main") as refused:
        manager.rollback(moved.id, git="reset", confirm=True)
    assert "git switch main" in refused.value.hint


def test_where_the_branch_is_there_already_git_is_not_touched(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    place.write("src/app.ts", "later\n")
    before = place.git_bytes()
    assert not manager.rollback(made.id, git="reset", confirm=True).git_moved
    assert place.git_bytes() == before


def test_a_checkpoint_without_a_branch_has_nothing_to_set_back(place: Place, manager: SyncCheckpointManager) -> None:
    place.git("checkout", "-q", "--detach")
    made = manager.create_checkpoint("a")
    with pytest.raises(Refused, match="no branch"):
        manager.rollback(made.id, git="reset", confirm=True)
    assert manager.rollback(made.id).ok


def test_without_git_it_is_refused(bare: Place) -> None:
    manager = bare.open()
    made = manager.create_checkpoint("a")
    with pytest.raises(Refused, match="not in a git repository"):
        manager.rollback(made.id, git="reset", confirm=True)


def test_without_the_git_program_it_is_unavailable(place: Place, moved: Checkpoint) -> None:
    manager = place.open(environ=place.environ | {"PATH": str(place.area)})
    with pytest.raises(Unavailable, match="git program"):
        manager.rollback(moved.id, git="reset", confirm=True)
    assert manager.rollback(moved.id).ok


def test_a_commit_that_is_gone_is_not_found(place: Place, manager: SyncCheckpointManager) -> None:
    place.commit("to be forgotten")
    made = manager.create_checkpoint("a")
    place.git("reset", "-q", "--soft", "HEAD~1")
    place.git("reflog", "expire", "--expire=now", "--all")
    place.git("gc", "-q", "--prune=now")
    (place.root / ".git" / "ORIG_HEAD").unlink(missing_ok=True)
    place.git("gc", "-q", "--prune=now")
    with pytest.raises(NotFound, match="no longer has the commit"):
        manager.rollback(made.id, git="reset", confirm=True)


def test_another_word_for_git_is_refused(manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    with pytest.raises(Refused, match="hard"):
        manager.rollback(made.id, git="hard")


def test_in_a_linked_worktree_its_branch_is_moved(place: Place) -> None:
    tree = place.area / "tree"
    place.git("worktree", "add", "-q", "-b", "side", str(tree))
    manager = SyncCheckpointManager(tree, **place.options)
    made = manager.create_checkpoint("a")
    place.git("commit", "-q", "--allow-empty", "-m", "on the side", cwd=tree)
    place.git("branch", "kept", "side")
    main = place.git("rev-parse", "main")
    assert manager.rollback(made.id, git="reset", confirm=True).git_moved
    assert place.git("rev-parse", "HEAD", cwd=tree) == made.git_state.commit_hash
    assert place.git("rev-parse", "main") == main


def test_hooks_and_variables_of_git_have_no_say(place: Place, moved: Checkpoint) -> None:
    hook = place.root / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    manager = place.open(environ=place.environ | {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"})
    assert manager.rollback(moved.id, git="reset", confirm=True).git_moved


def test_git_writes_are_synced_and_no_fsmonitor_runs(place: Place, moved: Checkpoint) -> None:
    log, monitor, program = (place.area / name for name in ("log", "monitor", "git"))
    monitor.write_text(f"#!/bin/sh\necho a monitor ran >> '{log}'\nexit 1\n")
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{log}'\nexec '{shutil.which('git')}' \"$@\"\n")
    for script in (monitor, program):
        script.chmod(0o755)
    place.git("config", "core.fsmonitor", str(monitor))
    manager = place.open(environ=place.environ | {"PATH": f"{place.area}:{place.environ['PATH']}"})
    assert manager.rollback(moved.id, git="reset", confirm=True).git_moved
    ran = log.read_text().splitlines()
    assert "a monitor ran" not in ran
    writing = [line for line in ran if " update-ref " in line or " reset " in line]
    assert len(writing) == 2 and all("-c core.fsync=all " in line for line in writing)


@pytest.fixture
def trap(place: Place) -> Path:
    """A program that leaves `sprung` behind."""
    program = place.area / "trap"
    program.write_text(f"#!/bin/sh\ntouch '{place.area / 'sprung'}'\nexit 1\n")
    program.chmod(0o755)
    return program


def test_what_a_partial_clone_lacks_is_not_fetched(place: Place, moved: Checkpoint, trap: Path) -> None:
    """P7: its settings name the program that would fetch it."""
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "ssh://nowhere.invalid/x"),
        ("remote.origin.promisor", "true"),
        ("core.sshCommand", str(trap)),
        ("protocol.ssh.allow", "always"),
        ("remote.origin.uploadpack", str(trap)),
    ):
        place.git("config", key, value)
    name = moved.git_state.commit_hash
    (place.root / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(NotFound, match="no longer has the commit"):
        place.open().rollback(moved.id, git="reset", confirm=True)
    assert not (place.area / "sprung").exists()


def test_no_program_that_a_submodule_names_is_run(place: Place, trap: Path) -> None:
    inner = place.area / "inner"
    inner.mkdir()
    place.git("init", "-q", cwd=inner)
    (inner / "file").write_text("one\n")
    place.git("add", "file", cwd=inner)
    place.git("commit", "-q", "-m", "first", cwd=inner)
    place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    place.commit("with a submodule")
    manager = place.open()
    made = manager.create_checkpoint("a")
    place.write("third.txt")
    place.commit("third")
    place.git("branch", "kept")
    for key in ("core.fsmonitor", "filter.trap.clean"):
        place.git("config", key, str(trap), cwd=place.root / "sub")
    attributes = place.root / ".git" / "modules" / "sub" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("* filter=trap\n")
    place.write("sub/file", "two\n")
    place.git("config", "submodule.recurse", "true")
    place.write("staged.txt")
    place.git("add", "staged.txt")
    assert manager.rollback(made.id, git="reset", confirm=True).git_moved
    assert not (place.area / "sprung").exists()


def test_locked_index_is_reported_and_retried_later(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    lock = place.root / ".git" / "index.lock"
    lock.touch()
    with pytest.raises(Unavailable, match="git reset"):
        manager.rollback(moved.id, git="reset", confirm=True)
    with pytest.raises(Unavailable):
        place.open().rollback_to_latest()
    made = place.open().create_checkpoint("what is there can be saved meanwhile")
    assert "index.lock" in made.notes[-1]
    lock.unlink()
    later = place.open()
    assert "was finished; git was moved" in later.recover()[0]
    assert place.git("status", "--porcelain") == "M src/app.ts"
    assert later.create_checkpoint("c").notes == ()


def test_a_branch_that_went_on_after_an_interruption_is_left(
    place: Place, manager: SyncCheckpointManager, moved: Checkpoint
) -> None:
    lock = place.root / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(Exception, match="would not move"):
        manager.rollback(moved.id, git="reset", confirm=True)
    lock.unlink()
    place.git("commit", "-q", "--allow-empty", "-m", "went on")
    on = place.git("rev-parse", "HEAD")
    later = place.open()
    assert "moved to another commit" in later.recover()[0]
    assert place.git("rev-parse", "HEAD") == on
    assert later.recover() == later.recovered


def test_files_with_filters_and_line_ends_are_clean_afterwards(place: Place, manager: SyncCheckpointManager) -> None:
    """The index is set as git sets it: a file that a clean filter or `eol` changes does not look modified."""
    place.git("config", "filter.upper.clean", "tr a-z A-Z")
    place.git("config", "filter.upper.smudge", "tr A-Z a-z")
    place.write(".gitattributes", "*.dat filter=upper\n*.txt text eol=crlf\n")
    place.write("a.dat", "abc\n")
    place.write("b.txt", "one\r\n")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "with filters")
    made = manager.create_checkpoint("a")
    place.write("a.dat", "abcd\n")
    place.write("b.txt", "two\r\n")
    place.git("commit", "-q", "-a", "-m", "later")
    place.git("tag", "kept")
    assert manager.rollback(made.id, git="reset", confirm=True).git_moved
    assert place.git("diff-files", "--name-only") == ""  # as the index is, before `status` looks again
    assert place.git("status", "--porcelain") == ""
    assert (place.root / "a.dat").read_text() == "abc\n"
