"""The manager for an event loop does what the other does, beside the loop."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Checkpoint, NotFound, Refused, Workspace
from holdfast.project import CheckpointManager, CheckpointType, SyncCheckpointManager

if TYPE_CHECKING:
    from .conftest import Place


def test_it_offers_what_the_other_offers_with_the_same_arguments() -> None:
    for name, function in inspect.getmembers(SyncCheckpointManager, inspect.isfunction):
        if name.startswith("_") or name in ("close", "unpin"):
            continue
        twin = inspect.signature(getattr(CheckpointManager, name))
        assert list(twin.parameters) == list(inspect.signature(function).parameters), name
    made, twin_made = (inspect.signature(each) for each in (SyncCheckpointManager, CheckpointManager))
    assert made.parameters == twin_made.parameters


def test_everything_that_can_be_asked_for(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            first = await manager.create_checkpoint(name="a", description="b", state={"plan": 1}, context={"n": 1})
            place.write("src/app.ts", "later\n")
            second = await manager.create_checkpoint("b", type=CheckpointType.FEATURE)
            assert [each.id for each in await manager.list()] == [second.id, first.id]
            assert await manager.get("a") == first
            assert await manager.state(first.id) == {"plan": 1}
            assert (await manager.diff(first.id, second.id)).modified_files == ["src/app.ts"]
            assert (await manager.preview(first.id)).replaced == ["src/app.ts"]
            assert (await manager.rollback(first.id)).state == {"plan": 1}
            assert (await manager.undo()).ok
            assert (await manager.rollback_to_latest()).checkpoint.id == second.id
            assert (await manager.verify()).ok
            forked = await manager.fork(first.id, place.area / "fork")
            assert (await manager.adopt(forked.directory)).ok
            assert (await manager.delete(first.id)).id == first.id
            assert await manager.recover() == ()
            with pytest.raises(NotFound):
                await manager.rollback("missing")

    asyncio.run(main())


def test_what_is_given_may_change_once_the_call_is_made(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            conversation, context = ["hello"], {"turns": [1]}
            task = asyncio.ensure_future(
                manager.create_checkpoint("a", state={"conversation": conversation}, context=context)
            )
            await asyncio.sleep(0)
            conversation.append("later")
            context["turns"].append(2)
            made = await task
            assert await manager.state(made.id) == {"conversation": ["hello"]}
            assert made.context == {"turns": [1]}

    asyncio.run(main())


def test_nothing_of_it_is_done_in_the_loop(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the workspace is made in another thread than the loop's."""
    seen: set[int] = set()
    before = SyncCheckpointManager.workspace.fget
    assert before is not None

    def watched(self: SyncCheckpointManager) -> object:
        seen.add(threading.get_ident())
        return before(self)

    monkeypatch.setattr(SyncCheckpointManager, "workspace", property(watched))

    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            made = await manager.create_checkpoint("a")
            await manager.rollback(made.id)
            async with manager.attempt("x"):
                await manager.list()

    asyncio.run(main())
    assert seen
    assert threading.get_ident() not in seen


def test_the_loop_goes_on_while_a_project_is_saved(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that lasts until the loop has gone round some times: one that held it up would wait in vain."""
    has_gone_round, save = threading.Event(), Workspace.save

    def save_late(self: Workspace, *given: Any, **named: Any) -> Checkpoint:
        assert has_gone_round.wait(60), "the loop stands still"
        return save(self, *given, **named)

    monkeypatch.setattr(Workspace, "save", save_late)

    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            task = asyncio.ensure_future(manager.create_checkpoint("a"))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert not task.done()
            has_gone_round.set()
            await task

    asyncio.run(main())


def test_calls_made_at_once_are_all_done(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            made = await asyncio.gather(*(manager.create_checkpoint(f"{number}") for number in range(8)))
            assert len({each.id for each in made}) == 8

    asyncio.run(main())


def test_several_processes_may_use_one_project(place: Place) -> None:
    code = (
        "import sys\nfrom holdfast.project import SyncCheckpointManager\n"
        f"manager = SyncCheckpointManager({str(place.root)!r}, store={str(place.store)!r}, home={str(place.home)!r})\n"
        "for number in range(4):\n"
        "    made = manager.create_checkpoint(f'{sys.argv[1]} {number}')\n"
        "    manager.rollback(made.id)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(each)], env=place.environ | _path()) for each in (1, 2)
    ]
    deadline = time.monotonic() + 120
    assert [each.wait(timeout=max(1, deadline - time.monotonic())) for each in running] == [0, 0]
    manager = place.open()
    assert len(manager.list()) == 8
    assert manager.verify().ok


def test_importing_it_loads_neither_the_loop_nor_git() -> None:
    code = "import sys, holdfast.project\nfrom holdfast.project import SyncCheckpointManager\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"asyncio", "pygit2", "click", "rich"}


def _path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}


def test_an_unknown_option_is_refused(bare: Place) -> None:
    with pytest.raises(Refused, match="CheckpointManager has no option 'feature_lists'"):
        CheckpointManager(bare.root, feature_lists="x.json")  # type: ignore[call-arg]
