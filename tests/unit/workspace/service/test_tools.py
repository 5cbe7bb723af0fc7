"""Checkpoints before tools, events, and how many are kept."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Checkpoint, NotFound, Refused, Restored, Unavailable
from holdfast.model import Pruned
from holdfast.workspace import CheckpointConfig, CheckpointEvent, CheckpointService

from .scenes import Scene, content, make, play

if TYPE_CHECKING:
    from unit.workspace.conftest import Project

OFF = [CheckpointConfig(auto_checkpoint=False), CheckpointConfig(enabled=False)]


class TestProtecting:
    def test_async_tool_is_preceded_by_a_checkpoint(self, project: Project) -> None:
        file = project.write("a", b"before")

        async def edit(value: bytes, *, twice: bool = False) -> int:
            """Edit it."""
            return file.write_bytes(value * (2 if twice else 1))

        async def scene(service: CheckpointService) -> None:
            tool = service.protect(edit)
            assert inspect.iscoroutinefunction(tool)
            assert (tool.__name__, tool.__doc__) == ("edit", "Edit it.")
            assert inspect.signature(tool) == inspect.signature(edit)
            assert await tool(b"after", twice=True) == 10
            [saved] = await service.list()
            assert (saved.message, saved.metadata) == ("before edit", {"before": "edit", "protection": True})
            await service.restore(saved.id)

        play(project, scene)
        assert content(project) == {"a": b"before"}

    def test_there_is_one_before_a_sync_tool_too(self, project: Project) -> None:
        file = project.write("a", b"before")
        service = make(project)
        tool = service.protect(file.write_bytes, message="about to write")
        assert tool(b"after") == 5
        asyncio.run(service.close())
        [saved] = service.workspace.list()
        assert saved.message == "about to write"
        service.workspace.restore(saved.id)
        assert file.read_bytes() == b"before"

    def test_a_sync_tool_in_a_thread_leaves_the_loop_free(self, project: Project) -> None:
        file = project.write("a", b"before")

        async def scene(service: CheckpointService) -> None:
            tool = service.protect(lambda: file.write_bytes(b"after"))
            lock = service.workspace._repository.lock
            lock.acquire()
            running = asyncio.ensure_future(asyncio.to_thread(tool))
            await asyncio.sleep(0.01)
            assert file.read_bytes() == b"before"
            lock.release()
            await running
            assert file.read_bytes() == b"after"

        play(project, scene)

    def test_a_sync_tool_may_be_called_in_the_loop(self, project: Project) -> None:
        file = project.write("a", b"before")

        async def scene(service: CheckpointService) -> None:
            service.protect(file.write_bytes)(b"after")
            assert [each.message for each in await service.list()] == ["before write_bytes"]

        play(project, scene)

    def test_generators_are_preceded_by_a_checkpoint_when_they_begin(self, project: Project) -> None:
        file = project.write("a", b"before")

        def plain() -> Iterator[int]:
            got = yield file.write_bytes(b"1")
            yield got

        async def other() -> AsyncIterator[int]:
            yield file.write_bytes(b"22")

        async def scene(service: CheckpointService) -> None:
            tool = service.protect(plain)
            assert inspect.isgeneratorfunction(tool)
            running = tool()
            assert await service.list() == []
            assert (next(running), running.send(7)) == (1, 7)  # type: ignore[attr-defined]
            other_tool = service.protect(other)
            assert inspect.isasyncgenfunction(other_tool)
            assert [item async for item in other_tool()] == [2]
            assert [each.message for each in await service.list()] == ["before other", "before plain"]

        play(project, scene)

    def test_async_generator_gets_send_throw_and_close(self, project: Project) -> None:
        told: list[object] = []

        async def tool() -> AsyncGenerator[object, object]:
            try:
                told.append((yield "first"))
                try:
                    yield "second"
                except KeyError as error:
                    told.append(error)
                yield "third"
            finally:
                told.append("closed")

        async def scene(service: CheckpointService) -> None:
            running = service.protect(tool)()
            assert await anext(running) == "first"
            assert await running.asend("sent") == "second"
            assert await running.athrow(thrown := KeyError()) == "third"
            assert told == ["sent", thrown]
            await running.aclose()
            assert told[2:] == ["closed"]

        play(project, scene)

    def test_objects_methods_and_partials_are_tools(self, project: Project) -> None:
        class Editor:
            async def __call__(self, value: bytes) -> None:
                project.write("a", value)

            def edit(self, value: bytes) -> None:
                project.write("a", value)

        async def scene(service: CheckpointService) -> None:
            await service.protect(Editor())(b"1")
            service.protect(Editor().edit)(b"2")
            await service.protect(functools.partial(Editor(), b"3"))()
            assert [each.message for each in await service.list()] == [
                "before Editor",
                "before edit",
                "before Editor",
            ]

        play(project, scene)
        assert content(project) == {"a": b"3"}

    def test_a_tool_does_not_run_if_the_checkpoint_cannot_be_made(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            project.root.rename(project.area / "elsewhere")
            ran: list[bool] = []
            tool = service.protect(lambda: ran.append(True))
            with pytest.raises(Unavailable):
                tool()
            with pytest.raises(Unavailable):
                await asyncio.to_thread(tool)
            assert not ran

        play(project, scene)

    def test_the_error_of_a_tool_is_raised_as_it_is(self, project: Project) -> None:
        async def fail() -> None:
            raise KeyError("mine")

        async def scene(service: CheckpointService) -> None:
            with pytest.raises(KeyError, match="mine"):
                await service.protect(fail)()

        play(project, scene)

    def test_what_cannot_be_called_is_refused(self, project: Project) -> None:
        with pytest.raises(Refused, match="cannot be called"):
            make(project).protect("tool")  # type: ignore[type-var]

    def test_a_tool_that_changes_nothing_costs_no_checkpoint(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            for _ in range(3):
                service.protect(len)([])
            assert len(await service.list()) == 1

        play(project, scene)

    @pytest.mark.parametrize("config", OFF, ids=["auto_checkpoint", "enabled"])
    def test_switched_off_it_costs_nothing(self, project: Project, config: CheckpointConfig) -> None:
        project.write("a")
        before = set(threading.enumerate())  # a service that another test left open may have one
        service = make(project, config=config)

        def tool() -> None: ...

        assert service.protect(tool) is tool
        assert service.auto_checkpoint(tool) is tool
        assert service.auto_checkpoint("message")(tool) is tool
        with service.auto_checkpoint("block"):
            pass

        async def scene() -> None:
            async with service.auto_checkpoint():
                pass

        asyncio.run(scene())
        assert not service.is_initialized
        new = set(threading.enumerate()) - before
        assert not [each for each in new if each.name.startswith("holdfast-service")]


class TestAutoCheckpoint:
    def test_it_decorates_with_and_without_a_message(self, project: Project) -> None:
        service = make(project)

        @service.auto_checkpoint
        def first() -> None:
            project.write("a", b"1")

        @service.auto_checkpoint("the second")
        async def second() -> None:
            project.write("a", b"2")

        async def scene() -> None:
            first()
            await second()
            await service.close()

        asyncio.run(scene())
        assert [each.message for each in service.workspace.list()] == ["the second", "before first"]

    def test_a_block_is_preceded_by_a_checkpoint(self, project: Project) -> None:
        file = project.write("a", b"1")
        service = make(project)
        with service.auto_checkpoint():
            file.write_bytes(b"2")

        async def scene() -> None:
            async with service.auto_checkpoint("second block"):
                file.write_bytes(b"3")
            await service.close()

        asyncio.run(scene())
        assert [each.message for each in service.workspace.list()] == ["second block", "before changes"]

    def test_a_block_that_fails_is_not_taken_back_by_itself(self, project: Project) -> None:
        file = project.write("a", b"1")
        service = make(project)
        with pytest.raises(ValueError, match="mine"), service.auto_checkpoint("block"):
            file.write_bytes(b"2")
            raise ValueError("mine")
        asyncio.run(service.close())
        assert file.read_bytes() == b"2"

    def test_one_step_back_is_what_was_there_before_the_last_tool(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            project.write("a", b"0")
            tool = service.protect(project.write)
            for value in (b"1", b"2", b"3"):
                tool("a", value)
            for value in (b"2", b"1", b"0"):
                await service.rewind()
                assert content(project) == {"a": value}
            with pytest.raises(NotFound):
                await service.rewind()

        play(project, scene)

    def test_one_step_back_after_a_restart_is_the_same(self, project: Project) -> None:
        async def before(service: CheckpointService) -> None:
            project.write("a", b"0")
            service.protect(project.write)("a", b"1")
            service.protect(project.write)("a", b"2")

        async def after(service: CheckpointService) -> None:
            await service.rewind()
            assert content(project) == {"a": b"1"}

        play(project, before)
        play(project, after)

    def test_a_tool_after_a_save_is_one_step(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            project.write("a", b"0")
            await service.save("first")
            project.write("a", b"1")
            await service.save("second")
            service.protect(project.write)("a", b"2")  # its checkpoint is the second
            await service.rewind()
            assert content(project) == {"a": b"1"}
            await service.rewind()
            assert content(project) == {"a": b"0"}

        play(project, scene)


class TestEvents:
    def test_each_event_is_told_with_its_noun(self, project: Project) -> None:
        project.write("a")
        told: list[tuple[str, object]] = []

        async def scene() -> None:
            service = make(project)
            for event in CheckpointEvent:
                service.on(event, functools.partial(lambda name, value: told.append((name, value)), event.name))
            first = await service.save("one")
            await service.save("nothing changed, so nothing is made")
            await service.restore(first.id)
            await service.delete(first.id)
            with pytest.raises(NotFound):
                await service.get(first.id)
            await service.close()

        asyncio.run(scene())
        assert [name for name, _ in told] == ["INITIALIZED", "CREATED", "RESTORED", "DELETED", "ERROR"]
        assert told[0][1] == {"workspace": str(project.root)}
        kinds = [Checkpoint, Restored, Checkpoint, NotFound]
        assert [type(value) for _, value in told[1:]] == kinds

    def test_async_handlers_are_awaited(self, project: Project) -> None:
        project.write("a")
        told: list[str] = []

        async def handler(checkpoint: Checkpoint) -> None:
            await asyncio.sleep(0)
            told.append(checkpoint.message)

        async def scene(service: CheckpointService) -> None:
            service.on("checkpoint_created", handler)
            await service.save("one")
            assert told == ["one"]
            project.write("a", b"2")
            service.protect(len)([])  # without a coroutine to await in, it is awaited in the loop later
            await asyncio.sleep(0.01)
            assert told == ["one", "before len"]
            project.write("a", b"3")
            await asyncio.to_thread(service.protect(max), [1])
            await asyncio.sleep(0.01)
            assert told == ["one", "before len", "before max"]

        service = play(project, scene)
        assert service.is_initialized

    def test_async_handlers_are_awaited_where_there_is_no_loop(self, project: Project) -> None:
        project.write("a")
        service, told = make(project), []

        async def handler(checkpoint: Checkpoint) -> None:
            await asyncio.sleep(0)
            told.append(checkpoint.message)

        service.on(CheckpointEvent.CREATED, handler)
        service.protect(len)([])
        assert told == ["before len"]
        asyncio.run(service.close())

    def test_a_handler_that_fails_breaks_nothing(self, project: Project, caplog: pytest.LogCaptureFixture) -> None:
        project.write("a")
        told: list[object] = []

        def sync_failure(_: object) -> None:
            raise ValueError("sync failure")

        async def async_failure(_: object) -> None:
            raise ValueError("async failure")

        async def scene(service: CheckpointService) -> None:
            for handler in (sync_failure, async_failure, told.append):
                service.on(CheckpointEvent.CREATED, handler)
            assert await service.list() == []
            saved = await service.save("one")
            assert [each.id for each in await service.list()] == [saved.id]

        play(project, scene)
        assert len(told) == 1
        assert "sync failure" in caplog.text
        assert "async failure" in caplog.text

    def test_a_handler_is_told_no_more_once_it_is_off(self, project: Project) -> None:
        project.write("a")
        told: list[object] = []

        async def scene(service: CheckpointService) -> None:
            off = service.on(CheckpointEvent.CREATED, told.append)
            await service.save(step=1)
            off()
            await service.save(step=2)

        play(project, scene)
        assert len(told) == 1

    def test_a_handler_may_use_and_close_the_service(self, project: Project) -> None:
        project.write("a")
        found: list[list[Checkpoint]] = []

        async def scene(service: CheckpointService) -> None:
            async def handler(_: object) -> None:
                found.append(await service.list())
                await service.close()

            service.on(CheckpointEvent.CREATED, handler)
            await service.save("one")

        play(project, scene)
        assert [each.message for each in found[0]] == ["one"]

    @pytest.mark.parametrize("wrong", [("nothing", print), (3, print), (CheckpointEvent.ERROR, "handler")])
    def test_what_makes_no_sense_is_refused(self, project: Project, wrong: tuple[Any, Any]) -> None:
        with pytest.raises(Refused):
            make(project).on(*wrong)


class TestHowMany:
    def saves(self, project: Project, number: int, **options: Any) -> Scene:
        async def scene(service: CheckpointService) -> None:
            for each in range(number):
                project.write("a", random.Random(each).randbytes(100_000))
                await service.save(f"save {each}", **options)

        return scene

    def test_no_more_than_so_many_are_kept_and_the_disk_is_freed(self, project: Project) -> None:
        pruned: list[Pruned] = []

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.PRUNED, pruned.append)
            await self.saves(project, 12)(service)
            assert [each.message for each in await service.list()] == ["save 11", "save 10", "save 9"]

        service = play(project, scene, max_checkpoints=3)
        assert sum(len(each.removed) for each in pruned) == 9
        on_disk = sum(path.stat().st_size for path in service.workspace.store.rglob("*") if path.is_file())
        assert on_disk < 900_000

    def test_pinned_and_named_ones_are_never_taken(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saves(project, 1, pinned=True)(service)
            project.write("b")
            await service.save("named", name="good")
            await self.saves(project, 6)(service)
            kept = {each.message for each in await service.list()}
            assert kept == {"save 0", "named", "save 5", "save 4"}

        play(project, scene, config=CheckpointConfig(max_checkpoints=2))

    def test_what_an_undo_needs_is_never_taken(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saves(project, 3)(service)
            project.write("a", b"unsaved")
            await service.restore()
            await self.saves(project, 6)(service)
            await service.undo()

        play(project, scene, max_checkpoints=2)
        assert content(project) == {"a": b"unsaved"}

    def test_with_none_all_are_kept(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saves(project, 3)(service)
            assert service._policy is None
            assert len(await service.list()) == 3

        play(project, scene, config=CheckpointConfig(max_checkpoints=None))

    def test_folder_configuration_is_the_default_for_how_many(self, project: Project) -> None:
        project.write("holdfast.toml", b"[retention]\nkeep_last = 2\n")

        async def two(service: CheckpointService) -> None:
            await self.saves(project, 4)(service)
            assert len(await service.list()) == 2

        async def more(service: CheckpointService) -> None:
            await self.saves(project, 4)(service)
            assert len(await service.list()) == 3

        play(project, two)
        play(project, more, max_checkpoints=3)

    def test_a_save_does_not_fail_because_pruning_did(
        self, project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[object] = []

        def fail(*_: object, **__: object) -> None:
            raise Unavailable("the disk is full")

        async def scene(service: CheckpointService) -> None:
            monkeypatch.setattr(service.workspace, "prune", fail)
            service.on(CheckpointEvent.ERROR, told.append)
            await self.saves(project, 2)(service)
            assert len(await service.list()) == 2

        play(project, scene, max_checkpoints=1)
        assert [type(error) for error in told] == [Unavailable]
        assert "the disk is full" in caplog.text
