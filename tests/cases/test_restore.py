"""Restore semantics: undo and redo, previews that are kept to, parts of a checkpoint, interruptions."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable

import pytest

from holdfast import Checkpoint, Conflict, NotFound, Refused
from holdfast.model import Reason

from .capture import differences
from .harness import Case, every_step, require_same
from .people import by_everyone, by_somebody


def test_new_file_goes_and_can_be_brought_back(case: Case) -> None:
    """Case 126."""
    checkpoint = case.save()
    case.write("new/file.txt", b"made since")
    result = case.restore(checkpoint)
    assert "new/file.txt" in result.removed
    case.undo()
    assert case.read("new/file.txt") == b"made since"


def test_a_file_made_after_the_checkpoint_stays_when_asked(case: Case) -> None:
    """Case 126."""
    checkpoint = case.save()
    case.write("new/file.txt", b"made since")
    case.write("README.md", b"edited")
    result = case.restore(checkpoint, keep_new=True)
    assert result.removed == []
    assert "new/file.txt" in result.kept
    assert case.read("new/file.txt") == b"made since"
    assert case.read("README.md") == b"# A project\n\nNot committed.\n"


def test_new_entry_in_place_of_an_old_one_makes_way(case: Case) -> None:
    """Case 126."""
    case.write("thing", b"a file")
    checkpoint = case.save()
    case.path("thing").unlink()
    case.write("thing/inside", b"made since")
    case.restore(checkpoint, keep_new=True)


def test_undo_and_redo_go_back_and_forth_any_number_of_times(case: Case) -> None:
    """Case 145."""
    pictures = []
    checkpoints = []
    for number in range(4):
        case.write("file", b"state %d" % number)
        case.write(f"only-{number}", b"1")
        checkpoints.append(case.save(f"state {number}"))
        pictures.append(case.capture())
    case.write("file", b"not saved at all")
    case.path("only-2").unlink()
    walked = [case.capture()]
    for checkpoint in (checkpoints[0], checkpoints[2], checkpoints[1]):
        case.restore(checkpoint)
        walked.append(case.capture())
    for picture in reversed(walked[:-1]):
        case.undo()
        require_same(picture, case.capture(), "I2", "undo")
    with pytest.raises(NotFound):
        case.undo()
    for picture in walked[1:]:
        case.redo()
        require_same(picture, case.capture(), "I2", "redo")
    with pytest.raises(NotFound):
        case.redo()


def test_undo_works_after_later_saves_and_in_another_process(case: Case) -> None:
    """Case 145."""
    checkpoint = case.save("first")
    case.write("lost.txt", b"never saved by hand")
    case.write("README.md", b"edited")
    before = case.capture()
    case.restore(checkpoint)
    for number in range(5):
        case.write("later.txt", b"%d" % number)
        case.save(f"later {number}")
    case.write("later.txt", b"and not saved")
    at_last = case.capture()
    case.reopen()
    case.undo()
    undone = case.capture()
    assert differences(before, undone).keys() <= {"later.txt", "."}
    assert case.read("lost.txt") == b"never saved by hand"
    case.reopen()
    case.redo()
    require_same(at_last, case.capture(), "I2", "redo after later saves")


def test_nothing_to_undo_is_said(case: Case) -> None:
    """Case 145."""
    with pytest.raises(NotFound):
        case.undo()
    case.save()
    with pytest.raises(NotFound):
        case.undo()
    with pytest.raises(NotFound):
        case.redo()


def test_the_place_to_undo_to_is_a_checkpoint_like_any_other(case: Case) -> None:
    """Case 145."""
    checkpoint = case.save()
    case.write("lost.txt", b"never saved by hand")
    before = case.capture()
    result = case.restore(checkpoint)
    assert result.undo_id not in [each.id for each in case.ws.list()]
    assert result.undo_id in [each.id for each in case.ws.list(safety=True, limit=None)]
    case.restore(result.undo_id)
    require_same(before, case.capture(), "I2", "restore of the safety checkpoint")


def test_a_preview_tells_exactly_what_the_restore_does(case: Case) -> None:
    """Case 147."""
    case.write(".gitignore", b"*.log\n")
    case.write("gone", b"1")
    case.write("changed", b"2")
    case.write("mode", b"3", mode=0o644)
    checkpoint = case.save()
    case.path("gone").unlink()
    case.write("changed", b"edited")
    case.path("mode").chmod(0o600)
    case.write("new", b"4")
    case.write("new.log", b"5")
    plan = case.preview(checkpoint.id)
    assert [name for name in plan.written if name] == ["gone"]
    assert {"changed", "mode"} <= set(plan.replaced)
    assert plan.removed == ["new"]
    assert list(plan.kept) == ["new.log"]
    assert case.preview(checkpoint.id).digest == plan.digest
    assert case.restore(checkpoint, plan=plan).ok
    assert not case.preview(checkpoint.id)


CHANGES: dict[str, Callable[[Case], object]] = {
    "a new file": lambda case: case.write("another", b"1"),
    "an edit": lambda case: case.write("changed", b"edited again"),
    "an edit of the same size": lambda case: case.write("changed", b"EDITED"),
    "a mode": lambda case: case.path("changed").chmod(0o600),
    "a time": lambda case: os.utime(case.path("changed"), ns=(1, 1)),
    "a removal": lambda case: case.path("changed").unlink(),
    "a link": lambda case: (case.path("changed").unlink(), case.path("changed").symlink_to("x")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_restore_is_refused_if_the_folder_changed_since_preview(case: Case, change: Callable[[Case], object]) -> None:
    """Case 147."""
    case.write("changed", b"2")
    checkpoint = case.save()
    case.write("changed", b"edited")
    plan = case.preview(checkpoint.id)
    change(case)
    with pytest.raises(Conflict) as refused:
        case.restore(checkpoint, plan=plan)
    assert refused.value.hint
    assert case.restore(checkpoint).ok


def test_plan_of_another_checkpoint_or_paths_is_refused(case: Case) -> None:
    """Case 147."""
    case.write("file", b"1")
    first = case.save("first")
    case.write("file", b"2")
    second = case.save("second")
    case.write("file", b"3")
    plan = case.preview(first.id)
    for ref, paths in ((second, None), (first, ["src"])):
        with pytest.raises((Conflict, Refused)):
            case.restore(ref, paths, plan=plan)


@pytest.fixture
def parts() -> dict[str, bytes]:
    """Files in several folders."""
    return {"a/one.txt": b"1", "a/two.py": b"2", "a/deep/three.txt": b"3", "b/four.txt": b"4", "five.txt": b"5"}


def edited_parts(case: Case, parts: dict[str, bytes]) -> Checkpoint:
    """Save files and edit them all."""
    for name, data in parts.items():
        case.write(name, data)
    checkpoint = case.save()
    for name in parts:
        case.write(name, b"edited")
    case.write("a/new.txt", b"made since")
    case.write("b/new.txt", b"made since")
    return checkpoint


@pytest.mark.parametrize(
    ("paths", "scope"),
    [
        (["a/one.txt"], ["a/one.txt"]),
        (["a"], ["a/one.txt", "a/two.py", "a/deep/three.txt", "a/new.txt"]),
        (["a/"], ["a/one.txt", "a/two.py", "a/deep/three.txt", "a/new.txt"]),
        (["./a/deep", "five.txt"], ["a/deep/three.txt", "five.txt"]),
        # as git's pathspecs: a star crosses slashes, and needs one where the pattern has one
        (["*.txt"], ["a/one.txt", "a/deep/three.txt", "b/four.txt", "five.txt", "a/new.txt", "b/new.txt"]),
        (["a/*.txt"], ["a/one.txt", "a/deep/three.txt", "a/new.txt"]),
        (["**/*.txt"], ["a/one.txt", "a/deep/three.txt", "b/four.txt", "a/new.txt", "b/new.txt"]),
        (["b/new.txt"], ["b/new.txt"]),
    ],
)
def test_a_part_is_restored_and_its_neighbours_left_alone(
    case: Case, parts: dict[str, bytes], paths: list[str], scope: list[str]
) -> None:
    """Case 148."""
    checkpoint = edited_parts(case, parts)
    result = case.restore(checkpoint, paths, scope=[*scope, *(path.strip("./") for path in paths if "*" not in path)])
    assert result.ok
    for name, data in parts.items():
        assert case.read(name) == (data if name in scope else b"edited"), name
    for name in ("a/new.txt", "b/new.txt"):
        assert case.path(name).exists() == (name not in scope), name


def test_an_absolute_path_in_the_workspace_is_a_path_of_it(case: Case, parts: dict[str, bytes]) -> None:
    """Case 148."""
    checkpoint = edited_parts(case, parts)
    result = case.restore(checkpoint, [str(case.path("a/one.txt"))])
    assert result.written == ["a/one.txt"]


@pytest.mark.parametrize("path", ["../outside/file.txt", "/etc/passwd", "a/../../outside", "nowhere.txt"])
def test_a_path_outside_or_unknown_is_refused(case: Case, parts: dict[str, bytes], path: str) -> None:
    """Case 148."""
    checkpoint = edited_parts(case, parts)
    with pytest.raises((NotFound, Refused)):
        case.restore(checkpoint, [path])


@by_everyone
def test_the_folders_above_a_restored_file_are_made_as_they_were(case: Case) -> None:
    """Case 148."""
    case.write("a/b/c/file", b"1")
    case.write("a/b/other", b"2")
    for folder, mode in (("a/b/c", 0o700), ("a/b", 0o750), ("a", 0o711)):
        case.path(folder).chmod(mode)
    checkpoint = case.save()
    shutil.rmtree(case.path("a"))
    result = case.restore(checkpoint, ["a/b/c/file"])
    assert result.ok
    assert [case.path(folder).stat().st_mode & 0o7777 for folder in ("a", "a/b", "a/b/c")] == [0o711, 0o750, 0o700]
    assert not case.path("a/b/other").exists()


def test_one_hard_link_is_restored_without_touching_the_other(case: Case) -> None:
    """Case 148."""
    case.write("one", b"shared")
    os.link(case.path("one"), case.path("two"))
    checkpoint = case.save()
    for name in ("one", "two"):
        case.path(name).unlink()
        case.write(name, name.encode())
    with case.watched("restore"):
        case.ws.restore(checkpoint.id, ["one"])
    assert (case.read("one"), case.read("two")) == (b"shared", b"two")


def test_a_checkpoint_can_be_taken_out_with_plain_git(case: Case) -> None:
    """Case 150."""
    case.write("run.sh", b"#!/bin/sh\n", mode=0o755)
    case.path("link").symlink_to("run.sh")
    checkpoint = case.save()
    archive = case.git_store("archive", "--format=tar", f"{checkpoint.id}:files")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        held = {member.name: member for member in tar.getmembers()}
        source = tar.extractfile("README.md")
        assert source is not None
        assert source.read() == case.read("README.md")
    assert held["run.sh"].mode & 0o100
    assert held["link"].linkname == "run.sh"


@by_somebody
def test_partial_checkpoint_deletes_nothing_it_lacks(case: Case) -> None:
    """Case 151."""
    case.write("closed", b"cannot be read", mode=0o000)
    checkpoint = case.save("partial")
    assert not checkpoint.complete
    assert not case.ws.get("latest").complete
    assert not case.ws.list()[0].complete
    case.write("new", b"made since")
    case.path("closed").unlink()
    result = case.restore(checkpoint)
    assert "closed" in result.missing


def test_oldest_checkpoint_can_be_restored(case: Case) -> None:
    """Case 152."""
    first = case.save("oldest")
    for number in range(60):
        case.write("file", b"%d" % number)
        case.ws.save(f"number {number}")
    for _ in range(3):
        case.write("file", os.urandom(5))
        assert case.restore(first).ok
        assert case.ws.get(first.id).id == first.id
    assert len(case.ws.list(limit=None)) == 61


def test_what_is_listed_can_be_restored_whatever_was_deleted(case: Case) -> None:
    """Case 153."""
    checkpoints = []
    for number in range(10):
        case.write("file", b"%d" % number)
        case.write(f"own-{number}", os.urandom(500))
        checkpoints.append(case.save(f"number {number}", state={"turn": number}))
    for checkpoint in checkpoints[::2]:
        case.ws.delete(checkpoint.id)
    case.ws.merge()
    listed = case.ws.list(limit=None)
    assert [each.id for each in listed] == [each.id for each in reversed(checkpoints[1::2])]
    for each in listed:
        assert case.restore(each).ok
        assert each.state == {"turn": int(each.message.split()[1])}
    for checkpoint in checkpoints[::2]:
        with pytest.raises(NotFound):
            case.ws.get(checkpoint.id)


def test_undo_works_after_all_checkpoints_are_deleted(case: Case) -> None:
    """Case 153."""
    checkpoint = case.save("first")
    case.write("lost.txt", b"never saved by hand")
    case.restore(checkpoint)
    case.ws.delete(checkpoint.id)
    case.ws.merge()
    case.undo()
    assert case.read("lost.txt") == b"never saved by hand"


def test_state_comes_back_with_the_files_it_was_saved_with(case: Case) -> None:
    """Case 158."""
    first_state = {
        "conversation": [{"role": "user", "content": "ünï\x00code \N{GRINNING FACE}"}],
        "todos": [],
        "plan": None,
        "numbers": [0, -1, 1.5, 1e300, 2**80, True],
        "odd keys": {"": {"": {}}},
    }
    first = case.save("first", state=first_state)
    case.write("file", b"1")
    second = case.save("second", state={"conversation": [*first_state["conversation"], {"role": "assistant"}]})
    assert case.restore(first).state == first_state
    assert case.restore(second).state["conversation"][-1] == {"role": "assistant"}
    case.reopen()
    assert case.ws.get(first.id).state == first_state


def test_state_that_changes_alone_is_saved(case: Case) -> None:
    """Case 158."""
    first = case.save("first", state={"turn": 1})
    second = case.save("second", state={"turn": 2})
    assert second.id != first.id
    assert case.save("third", state={"turn": 2}).id == second.id
    assert case.restore(first).state == {"turn": 1}


def test_an_undo_brings_back_the_state_that_was_there_before(case: Case) -> None:
    """Case 158."""
    first = case.save("first", state={"turn": 1})
    case.write("file", b"1")
    case.save("second", state={"turn": 2})
    with case.watched("restore"):
        case.ws.restore(first.id, state={"turn": 2, "not": "saved"})
    assert case.undo().state == {"turn": 2, "not": "saved"}
    assert case.redo().state == {"turn": 1}


def test_interrupted_restore_is_taken_back_or_finished(case: Case) -> None:
    """Case 160."""
    for number in range(20):
        case.write(f"files/{number}", b"original %d" % number)
    checkpoint = case.save()
    for number in range(20):
        case.write(f"files/{number}", b"edited")
    case.write("new", b"made since")
    before = case.capture()
    moment, done = 0, False
    while not done:
        seen = 0

        def break_off(_stage: str, _done: int, _total: int, moment: int = moment) -> None:
            nonlocal seen
            seen += 1
            if seen == moment + 1:
                raise KeyboardInterrupt

        with case.watched(f"a restore broken off at moment {moment}"):
            try:
                case.ws.restore(checkpoint.id, progress=break_off)
                done = True
            except KeyboardInterrupt:
                moment += 1
        case.reopen()
        case.ws.list()
        now = case.capture()
        if differences(before, now):
            require_same(case.saved[checkpoint.id], now, "I2", f"broken off at moment {moment}: neither old nor new")
            case.undo()
            require_same(before, case.capture(), "I2", "undo of a restore that was broken off")
    assert moment > 10, "a restore that says nothing cannot be broken off"
    assert case.restore(checkpoint).ok


def test_a_save_that_the_user_breaks_off_leaves_nothing(case: Case) -> None:
    """Case 160."""
    first = case.save("first")
    for number in range(10):
        case.write(f"files/{number}", os.urandom(1000))
    ticks, finished = 0, False
    while not finished:  # how often progress is reported depends on how young the files are
        seen = 0
        case.write("file", os.urandom(10))

        def break_off(_stage: str, _done: int, _total: int, tick: int = ticks) -> None:
            nonlocal seen
            seen += 1
            if seen == tick + 1:
                raise KeyboardInterrupt

        with case.watched("save"), contextlib.suppress(KeyboardInterrupt):
            case.ws.save("broken off", progress=break_off)
            finished = True
        if not finished:
            assert [each.id for each in case.ws.list()] == [first.id]
            ticks += 1
    assert ticks >= 2, "a save that reports no progress cannot be broken off"
    case.save("the next one works")


def test_every_restore_is_proved_by_looking_again(case: Case) -> None:
    """Case 161."""
    case.write("file", b"original")
    checkpoint = case.save()
    case.write("file", b"edited")
    spoiled = False

    def spoil() -> None:
        nonlocal spoiled
        path = case.path("file")
        if not spoiled and path.exists() and path.read_bytes() == b"original":
            path.write_bytes(b"spoiled as soon as it was there")
            spoiled = True

    with case.watched("restore"), every_step(spoil):
        result = case.ws.restore(checkpoint.id)
    assert spoiled
    assert "file" in result.failed


@pytest.mark.parametrize("reason", [Reason.DEPENDENCIES, Reason.GIT_DIRECTORY])
def test_unrestorable_path_is_missing(case: Case, reason: Reason) -> None:
    """Case 161."""
    case.write("web/node_modules/x.js", b"1")
    case.write("web/app.js", b"2")
    checkpoint = case.save()
    assert reason in [each.reason for each in checkpoint.uncovered]
    if reason is Reason.DEPENDENCIES:
        shutil.rmtree(case.path("web/node_modules"))
        name = "web/node_modules"
    else:
        shutil.rmtree(case.path(".git"))
        name = ".git"
    assert list(case.restore(checkpoint).missing) == [name]
