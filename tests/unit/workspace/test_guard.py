"""A guarded step that fails is rolled back, and the error goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast import Refused, Workspace
from holdfast.durable import Lock
from holdfast.retention import Policy


class Broken(Exception):
    """Something that the step raises."""


@pytest.fixture
def before(project) -> None:
    project.write("a", b"before\n")


def is_before(project) -> bool:
    return (project.root / "a").read_bytes() == b"before\n" and not (project.root / "new").exists()


def spoil(project) -> None:
    project.write("a", b"spoilt\n")
    project.write("new")


@pytest.mark.usefixtures("before")
def test_what_succeeds_is_left_as_it_is(project, ws: Workspace) -> None:
    with ws.guard("step", session="s1", state={"n": 1}) as checkpoint:
        spoil(project)
    assert (project.root / "a").read_bytes() == b"spoilt\n"
    assert (checkpoint.message, checkpoint.session, checkpoint.state) == ("step", "s1", {"n": 1})
    assert len(ws.list(safety=True)) == 1


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("watch", [False, True])
def test_a_step_that_removes_the_folder_itself_is_taken_back(project, watch: bool) -> None:
    project.write("folder/inner")
    project.root.chmod(0o750)
    guard = (ws := project.open(watch=watch)).guard("step")
    with pytest.raises(Broken), guard:
        shutil.rmtree(project.root)
        raise Broken
    assert is_before(project) and (project.root / "folder" / "inner").read_bytes() == b"content\n"
    assert project.root.stat().st_mode & 0o777 == 0o750
    assert guard.restored is not None and guard.restored.ok
    ws.undo()
    assert os.listdir(project.root) == []


@pytest.mark.usefixtures("before")
def test_what_took_the_place_of_the_folder_is_left_alone(project, ws: Workspace) -> None:
    with pytest.raises(Broken) as caught, ws.guard("step"):
        project.root.rename(project.area / "elsewhere")
        project.root.symlink_to("nowhere")
        raise Broken
    [note] = caught.value.__notes__
    assert "could not be restored" in note
    assert os.readlink(project.root) == "nowhere"
    assert (project.area / "elsewhere" / "a").read_bytes() == b"before\n"


@pytest.mark.usefixtures("before")
def test_what_raises_is_taken_back_and_the_error_says_so(project, ws: Workspace) -> None:
    guard = ws.guard("step")
    with pytest.raises(Broken) as caught, guard:
        spoil(project)
        raise Broken
    assert is_before(project)
    assert guard.checkpoint is not None
    assert guard.restored is not None
    assert guard.restored.ok
    [note] = caught.value.__notes__
    assert guard.checkpoint.id in note
    assert "1 removed" in note


@pytest.mark.usefixtures("before")
def test_what_was_done_until_then_can_be_had_again(project, ws: Workspace) -> None:
    with pytest.raises(Broken), ws.guard():
        spoil(project)
        raise Broken
    ws.undo()
    assert (project.root / "a").read_bytes() == b"spoilt\n"


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit(3), SystemExit("no"), asyncio.CancelledError])
def test_being_stopped_counts_as_failing(project, ws: Workspace, error: BaseException) -> None:
    with pytest.raises(type(error) if isinstance(error, BaseException) else error), ws.guard():
        spoil(project)
        raise error
    assert is_before(project)


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize("code", [0, None])
def test_an_exit_that_says_success_is_none(project, ws: Workspace, code: int | None) -> None:
    with pytest.raises(SystemExit), ws.guard():
        spoil(project)
        sys.exit(code)
    assert not is_before(project)


@pytest.mark.usefixtures("before")
def test_a_decorated_function_saves_anew_at_each_call(project, ws: Workspace) -> None:
    @ws.guard("step")
    def work(text: bytes, *, fail: bool) -> bytes:
        project.write("a", text)
        if fail:
            raise Broken
        return text

    assert work(b"second\n", fail=False) == b"second\n"
    with pytest.raises(Broken):
        work(b"third\n", fail=True)
    assert (project.root / "a").read_bytes() == b"second\n"


@pytest.mark.usefixtures("before")
def test_a_coroutine_function_is_guarded_until_it_ends(project, ws: Workspace) -> None:
    @ws.guard("step")
    async def work() -> None:
        await asyncio.sleep(0)
        spoil(project)
        raise Broken

    with pytest.raises(Broken):
        asyncio.run(work())
    assert is_before(project)


@pytest.mark.usefixtures("before")
def test_async_with_guards_too(project, ws: Workspace) -> None:
    async def work() -> None:
        async with ws.guard("step") as checkpoint:
            assert checkpoint.message == "step"
            spoil(project)
            raise Broken

    with pytest.raises(Broken):
        asyncio.run(work())
    assert is_before(project)


@pytest.mark.usefixtures("before")
def test_step_cancelled_repeatedly_is_still_taken_back(project, ws: Workspace) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            async with ws.guard("step"):
                spoil(project)
                begun.set()
                await asyncio.sleep(600)

        task = asyncio.create_task(work())
        await begun.wait()
        with ws._repository.lock:  # it cannot be rolled back meanwhile
            for _ in range(3):
                task.cancel()
                await asyncio.wait([task], timeout=0.01)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_before(project)

    asyncio.run(main())


@pytest.mark.usefixtures("before")
def test_step_cancelled_at_its_start_does_nothing(project, ws: Workspace) -> None:
    guard = ws.guard("step")

    async def work() -> None:
        async with guard:
            spoil(project)

    async def main() -> None:
        with ws._repository.lock:  # it cannot save meanwhile
            task = asyncio.create_task(work())
            await asyncio.wait([task], timeout=0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert is_before(project)
    assert [each.message for each in ws.list()] == ["step"]
    assert not os.listdir(project.store / "holdfast" / "held")


def test_a_generator_is_refused_rather_than_guarded_for_nothing(ws: Workspace) -> None:
    def work() -> Iterator[int]:
        yield 1

    with pytest.raises(Refused, match="generator"):
        ws.guard()(work)


@pytest.mark.usefixtures("before")
def test_a_restore_that_fails_is_noted_on_the_error_itself(project, ws: Workspace) -> None:
    with pytest.raises(Broken) as caught, ws.guard() as checkpoint:
        spoil(project)
        ws.delete(checkpoint.id)
        raise Broken
    assert "could not be restored" in caught.value.__notes__[0]


@pytest.mark.usefixtures("before")
def test_a_save_that_fails_keeps_the_step_from_being_done(project, ws: Workspace) -> None:
    with pytest.raises(Refused), ws.guard(state={"x": object()}):
        spoil(project)
    assert is_before(project)


@pytest.mark.usefixtures("before")
def test_step_is_taken_back_though_others_prune(project, ws: Workspace) -> None:
    other = project.open()
    with pytest.raises(Broken) as caught, ws.guard("step") as checkpoint:
        for number in range(5):
            project.write("a", b"%d" % number)
            other.save(f"{number}")
        kept = other.prune(Policy(keep_last=1), dry_run=False).kept
        assert kept[checkpoint.id] == "held by a running step"
        raise Broken
    assert "was restored" in caught.value.__notes__[0]
    assert is_before(project)
    assert not os.listdir(project.store / "holdfast" / "held")


@pytest.mark.usefixtures("before")
def test_two_steps_may_go_back_to_one_checkpoint(project, ws: Workspace) -> None:
    with ws.guard() as first, project.open().guard() as second:
        assert first.id == second.id
    project.write("a", b"more")
    ws.save()
    assert first.id in {each.id for each in ws.prune(Policy(keep_last=0), dry_run=False).removed}


@pytest.mark.usefixtures("before")
def test_what_a_step_that_was_killed_held_is_held_no_longer(project, ws: Workspace) -> None:
    child = os.fork()
    if not child:
        with project.open().guard():
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    held = project.store / "holdfast" / "held"
    assert len(os.listdir(held)) == 1
    first = ws.get("latest").id
    project.write("a", b"more")
    ws.save()
    assert os.listdir(held) == []
    assert [each.id for each in ws.prune(Policy(keep_last=0), dry_run=False).removed] == [first]


@pytest.mark.usefixtures("before")
def test_a_hold_begins_while_nobody_can_prune_or_sweep(project, ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    free: list[bool] = []
    acquire = Lock.acquire

    def acquire_and_ask(self: Lock, *, wait: bool = True) -> bool:
        if "held" in self._path.parts and not free:
            other = Lock(project.store / "holdfast" / "lock")
            free.append(acquire(other, wait=False))
        return acquire(self, wait=wait)

    checkpoint = ws.save()
    monkeypatch.setattr(Lock, "acquire", acquire_and_ask)
    with ws.hold(checkpoint.id):
        assert free == [False]
        project.write("a", b"more")
        ws.save()
        kept = project.open().prune(Policy(keep_last=0), dry_run=False).kept
        assert kept[checkpoint.id] == "held by a running step"


@pytest.mark.usefixtures("before")
def test_async_step_unpins_its_checkpoint_at_the_end(project, ws: Workspace) -> None:
    async def scene() -> None:
        async with ws.guard():
            assert len(os.listdir(project.store / "holdfast" / "held")) == 1

    asyncio.run(scene())
    assert os.listdir(project.store / "holdfast" / "held") == []


def _git(folder, *words: str, check: bool = True) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=check, capture_output=True)


@pytest.fixture
def diverged(project) -> None:
    """A branch `side`, checked out, that conflicts with `main`."""
    _git(project.root, "init", "-q")
    for branch, text in (("main", b"1\n"), ("side", b"2\n"), ("main", b"3\n"), ("side", b"4\n")):
        _git(project.root, "checkout", "-q", "-B" if text < b"3" else "-q", branch)
        project.write("a", text)
        _git(project.root, "add", "a")
        _git(project.root, "commit", "-q", "-m", "x")


@pytest.mark.usefixtures("diverged")
@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick"])
def test_a_step_that_leaves_git_in_the_middle_says_so(project, ws: Workspace, operation: str) -> None:
    with pytest.raises(Broken) as raised, ws.guard("step"):
        _git(project.root, operation, "main", check=False)
        raise Broken
    (note,) = raised.value.__notes__
    assert f"git is in the middle of a {operation}, which the step began" in note
    assert f"`git {operation} --abort`" in note and "`Workspace.undo()`" in note
    _git(project.root, operation, "--abort")
    assert (project.root / "a").read_bytes() == b"4\n"


@pytest.mark.usefixtures("diverged")
def test_a_step_that_goes_on_with_a_rebase_is_told_as_moved(project, ws: Workspace) -> None:
    _git(project.root, "rebase", "main", check=False)
    with pytest.raises(Broken) as raised, ws.guard("step"):
        _git(project.root, "rebase", "--skip", check=False)
        raise Broken
    assert "which the step began" not in raised.value.__notes__[0]
    with pytest.raises(Broken) as raised, ws.guard("step"):
        _git(project.root, "rebase", "--abort", check=False)
        _git(project.root, "commit", "-q", "--allow-empty", "-m", "x")
        raise Broken
    assert "git moved from" in raised.value.__notes__[0]


@pytest.mark.usefixtures("diverged")
def test_a_step_that_leaves_git_alone_says_nothing_of_it(project, ws: Workspace) -> None:
    with pytest.raises(Broken) as raised, ws.guard("step"):
        project.write("a", b"spoilt\n")
        raise Broken
    assert "git is" not in raised.value.__notes__[0] and "git moved" not in raised.value.__notes__[0]
