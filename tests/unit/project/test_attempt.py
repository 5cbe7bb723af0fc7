"""An attempt goes on if it succeeds, and is as if it had never been if it fails."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from holdfast import Refused, Unavailable
from holdfast.project import CheckpointManager, CheckpointType, SyncCheckpointManager

if TYPE_CHECKING:
    from .conftest import Place


def app(place: Place) -> str:
    return (place.root / "src" / "app.ts").read_text()


def test_success_goes_on(place: Place, manager: SyncCheckpointManager) -> None:
    with manager.attempt("migrate the schema") as attempt:
        assert (attempt.outcome, attempt.ok) == ("under way", None)
        place.write("src/app.ts", "migrated\n")
    assert app(place) == "migrated\n"
    assert (attempt.outcome, attempt.ok, attempt.rolled_back) == ("succeeded", True, None)
    [made] = manager.list()
    assert (made.name, made.checkpoint_type, made.pinned) == (
        "before migrate the schema",
        CheckpointType.AUTOMATIC,
        False,
    )


def test_failure_rolls_back_and_is_raised_with_a_note(place: Place, manager: SyncCheckpointManager) -> None:
    attempt = manager.attempt("migrate the schema", state={"plan": 1})
    with pytest.raises(ZeroDivisionError) as failed, attempt:
        place.write("src/app.ts", "broken\n")
        place.write("made/since.txt")
        _ = 1 / 0
    assert app(place) == "not committed\n"
    assert not (place.root / "made").exists()
    assert (attempt.outcome, attempt.ok) == ("rolled back", False)
    assert attempt.rolled_back
    assert attempt.rolled_back.state == {"plan": 1}
    assert "migrate the schema: rolled back" in failed.value.__notes__[0]
    manager.undo()
    assert app(place) == "broken\n"


@pytest.mark.parametrize(
    ("error", "is_kept"), [(SystemExit(0), True), (SystemExit(1), False), (KeyboardInterrupt(), False)], ids=repr
)
def test_ending_the_program_counts_as_it_says(
    place: Place, manager: SyncCheckpointManager, error: BaseException, is_kept: bool
) -> None:
    with pytest.raises(type(error)), manager.attempt("x"):
        place.write("src/app.ts", "done\n")
        raise error
    assert (app(place) == "done\n") is is_kept


def test_attempt_with_many_checkpoints_can_be_rolled_back(place: Place, manager: SyncCheckpointManager) -> None:
    with pytest.raises(ZeroDivisionError), manager.attempt("a long one"):
        for number in range(8):
            place.write("src/app.ts", f"{number}\n")
            place.open().create_checkpoint(f"{number}", type="automatic")
        _ = 1 / 0
    assert app(place) == "not committed\n"


def test_attempts_within_attempts_go_back_one_by_one(place: Place, manager: SyncCheckpointManager) -> None:
    with manager.attempt("outer"):
        place.write("src/app.ts", "outer\n")
        with pytest.raises(ZeroDivisionError), manager.attempt("inner"):
            place.write("src/app.ts", "inner\n")
            _ = 1 / 0
        assert app(place) == "outer\n"
    assert app(place) == "outer\n"


def test_failed_rollback_is_reported_and_keeps_its_checkpoint(place: Place, manager: SyncCheckpointManager) -> None:
    attempt = manager.attempt("x")
    journal = place.store / "holdfast" / "rollback.json"
    with pytest.raises(ZeroDivisionError) as failed, attempt:
        place.write("src/app.ts", "broken\n")
        journal.write_text("{")
        _ = 1 / 0
    assert attempt.outcome == "failed, and could not be rolled back"
    assert "journal" in failed.value.__notes__[0]
    journal.unlink()
    [made] = manager.list()
    assert made.pinned
    manager.rollback(made.id)
    assert app(place) == "not committed\n"


def test_attempt_that_removes_the_project_can_be_rolled_back(place: Place, manager: SyncCheckpointManager) -> None:
    attempt = manager.attempt("clean up")
    with pytest.raises(ZeroDivisionError) as failed, attempt:
        shutil.rmtree(place.root)
        _ = 1 / 0
    assert (attempt.outcome, attempt.ok) == ("failed, and could not be rolled back", False)
    assert "No such file or directory" in failed.value.__notes__[0]
    assert attempt.checkpoint
    for refused in (lambda: manager.create_checkpoint("a"), lambda: manager.rollback(attempt.checkpoint.id)):
        with pytest.raises(Unavailable, match="No such file or directory"):
            refused()
    place.root.mkdir()
    manager.rollback(attempt.checkpoint.id)
    assert app(place) == "not committed\n"


def test_one_is_not_begun_twice_at_once(manager: SyncCheckpointManager) -> None:
    attempt = manager.attempt("x")
    with attempt, pytest.raises(Refused, match="under way"):
        attempt.__enter__()


def test_cancelled_async_attempt_is_rolled_back(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            begun = asyncio.Event()

            async def work() -> None:
                async with manager.attempt("x"):
                    place.write("src/app.ts", "half done\n")
                    begun.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert app(place) == "not committed\n"

    asyncio.run(main())


def test_repeatedly_cancelled_async_attempt_is_rolled_back(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:
            begun = asyncio.Event()

            async def work() -> None:
                async with manager.attempt("x"):
                    place.write("src/app.ts", "half done\n")
                    begun.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await begun.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0.001)
            assert task.cancelled()
            assert app(place) == "not committed\n"

    asyncio.run(main())


def test_async_attempt_cancelled_at_its_start_leaves_no_pin(place: Place) -> None:
    async def main() -> None:
        async with CheckpointManager(place.root, **place.options) as manager:

            async def work() -> None:
                async with manager.attempt("x"):
                    pytest.fail("it was cancelled before")

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await manager.list()
            assert [each.pinned for each in found] == [False]

    asyncio.run(main())
