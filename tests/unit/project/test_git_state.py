"""The state of the user's git is recorded, and git is only read (P6)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.project import GitState, SyncCheckpointManager

if TYPE_CHECKING:
    from .conftest import Place


def made(place: Place, root: Path | None = None) -> GitState:
    return SyncCheckpointManager(root or place.root, **place.options).create_checkpoint("a").git_state


def test_without_git_everything_works_and_is_said(bare: Place) -> None:
    bare.write("a.txt")
    state = made(bare)
    assert (state, state.note) == (GitState(), "not in a git repository")
    assert not state


def test_what_is_staged_changed_deleted_and_new_is_dirty(place: Place) -> None:
    place.write("staged.txt")
    place.git("add", "staged.txt")
    (place.root / "claude-progress.txt").unlink()
    place.write("folder/one.txt")
    place.write("folder/two.txt")
    place.write("ignored.log")
    place.write(".gitignore", "*.log\n")
    said = place.git("status", "--porcelain").splitlines()
    assert made(place).dirty_files == sorted(line.split()[-1] for line in said)


def test_an_unborn_branch_has_no_commit(bare: Place) -> None:
    bare.git("init", "-q")
    bare.write("staged.txt")
    bare.git("add", "staged.txt")
    bare.write("new.txt")
    state = made(bare)
    assert state == GitState("", "main", ["new.txt", "staged.txt"])
    assert str(state) == "no commit yet on main"


def test_a_detached_head_has_no_branch(place: Place) -> None:
    place.git("checkout", "-q", "--detach")
    state = made(place)
    assert (state.commit_hash, state.branch) == (place.git("rev-parse", "HEAD"), "")
    assert str(state).endswith(", detached")


def test_refs_are_read_where_git_packs_them(place: Place) -> None:
    place.git("pack-refs", "--all")
    assert not (place.root / ".git" / "refs" / "heads" / "main").exists()
    assert made(place).commit_hash == place.git("rev-parse", "HEAD")


def test_a_branch_with_a_slash_is_named_whole(place: Place) -> None:
    place.git("switch", "-q", "-c", "feature/deep")
    assert made(place).branch == "feature/deep"


def test_in_a_linked_worktree_its_own_head_counts(place: Place) -> None:
    tree = place.area / "tree"
    place.git("worktree", "add", "-q", "-b", "side", str(tree))
    (tree / "new.txt").write_text("x")
    assert made(place, tree) == GitState(place.git("rev-parse", "HEAD"), "side", ["new.txt"])


def test_in_a_folder_of_a_repository_paths_are_from_there(place: Place) -> None:
    place.write("src/deep/new.txt")
    assert made(place, place.root / "src") == GitState(place.git("rev-parse", "HEAD"), "main", ["app.ts", "deep/"])


def test_a_folder_that_git_does_not_know_is_dirty_itself(place: Place) -> None:
    place.write("unknown/deep/new.txt")
    assert made(place, place.root / "unknown" / "deep").dirty_files == ["./"]


def test_a_sha256_repository_is_read_as_far_as_it_can_be(bare: Place) -> None:
    bare.git("init", "-q", "--object-format=sha256")
    commit = bare.commit("first")
    state = made(bare)
    assert (state.commit_hash, state.branch) == (commit, "main")
    assert len(commit) == 64


@pytest.mark.parametrize("harm", ["head", "no refs", "a file", "nowhere", "index", "loop"])
def test_a_damaged_repository_is_reported_and_harms_nothing(place: Place, harm: str) -> None:
    git = place.root / ".git"
    if harm == "head":
        (git / "HEAD").write_bytes(b"\xff\x00nonsense")
    elif harm == "no refs":
        shutil.rmtree(git / "refs")
    elif harm == "index":
        (git / "index").write_bytes(b"DIRC nonsense")
    elif harm == "loop":
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "refs" / "heads" / "main").write_text("ref: refs/heads/main\n")
    else:
        shutil.rmtree(git)
        git.write_text("nonsense" if harm == "a file" else "gitdir: /nowhere\n")
    manager = place.open()
    checkpoint = manager.create_checkpoint("a")
    assert harm == "loop" or checkpoint.git_state.note
    place.write("src/app.ts", "changed\n")
    assert manager.rollback(checkpoint.id).ok
    assert (place.root / "src" / "app.ts").read_text() == "not committed\n"


def test_a_bare_repository_is_reported(bare: Place) -> None:
    bare.git("init", "-q", "--bare")
    assert "bare" in made(bare).note


def test_no_variable_of_git_redirects_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place.area / "other"
    other.mkdir()
    place.git("init", "-q", "-b", "elsewhere", cwd=other)
    expected = made(place)
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / "objects"),
        "GIT_CEILING_DIRECTORIES": str(place.area),
    }.items():
        monkeypatch.setenv(name, value)
    found = SyncCheckpointManager(place.root, store=place.store, home=place.home).create_checkpoint("b")
    assert found.git_state == expected


def test_nothing_that_git_is_configured_to_run_is_run(place: Place) -> None:
    trap, sprung = place.area / "trap", place.area / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\ncat\n")
    trap.chmod(0o755)
    place.write(".gitattributes", "* filter=trap\n")
    for key in ("core.fsmonitor", "filter.trap.clean", "filter.trap.smudge", "core.sshCommand"):
        place.git("config", key, str(trap))
    place.git("config", "core.hooksPath", str(place.area))
    place.write("src/app.ts", "another size of it\n")
    manager = place.open()
    manager.rollback(manager.create_checkpoint("a").id)
    assert not sprung.exists()


def test_user_git_is_byte_identical(place: Place) -> None:
    os.utime(place.root / "src" / "app.ts", ns=(1, 1))  # an index that git itself would refresh
    before = place.git_bytes()
    manager = place.open()
    first = manager.create_checkpoint("a")
    place.write("src/app.ts", "changed\n")
    place.write("new.txt")
    manager.rollback(first.id)
    manager.undo()
    with pytest.raises(ZeroDivisionError), manager.attempt("divide"):
        place.write("src/app.ts", "broken\n")
        _ = 1 / 0
    manager.adopt(manager.fork(first.id, place.area / "fork").directory)
    assert place.git_bytes() == before


def test_a_name_that_is_no_text_is_told_all_the_same(place: Place) -> None:
    (Path(os.fsdecode(os.fsencode(place.root) + b"/odd\xff.txt"))).write_text("x")
    assert "odd\udcff.txt" in made(place).dirty_files
    assert place.open().list()[0].git_state.dirty_files[0] == "odd\udcff.txt"
