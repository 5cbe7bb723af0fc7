"""The checkpoint service: what it keeps, what it finds, and who may call it when."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import NotFound, Refused
from holdfast.workspace import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointService,
)

from .scenes import content, make, play

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


async def _nothing(service: CheckpointService) -> None:
    """A scene in which nothing happens."""


def test_list_returns_all(project: Project) -> None:
    async def scene(service: CheckpointService) -> None:
        for number in range(60):
            await service.save(f"{number}", allow_empty=True)
        found = await service.list()
        assert [each.message for each in found] == [str(number) for number in range(59, -1, -1)]
        assert [each.message for each in await service.list(2, before=found[1])] == ["57", "56"]

    play(project, scene)


def test_an_unknown_option_is_refused(project: Project) -> None:
    async def scene(service: CheckpointService) -> None:
        with pytest.raises(Refused, match="save_before has no option 'sesion'"):
            await service.save_before("tool", None, sesion="s")
        with pytest.raises(Refused, match="turns has no option 'sesion'"):
            service.workspace.turns(sesion="s")
        assert await service.list() == []

    play(project, scene)


def test_what_save_returns_names_the_checkpoint(project: Project) -> None:
    async def scene(service: CheckpointService) -> None:
        project.write("a.txt", b"one\n")
        first = await service.save("one")
        project.write("a.txt", b"two\n")
        second = await service.save("two")
        assert (await service.diff(first, second)).modified_files == ["a.txt"]
        assert (await service.get(first)).message == "one"
        assert (await service.preview(first)).replaced == ["a.txt"]
        assert (await service.restore(first)).checkpoint == first.id
        assert (await service.delete(second)).id == second.id

    play(project, scene)


class TestConfig:
    def test_it_has_the_documented_values(self) -> None:
        config = CheckpointConfig()
        assert (config.auto_checkpoint, config.max_checkpoints, config.exclude_patterns) == (True, 100, [])
        assert config.enabled

    @pytest.mark.parametrize(
        "wrong",
        [
            {"max_checkpoints": 0},
            {"max_checkpoints": -1},
            {"max_checkpoints": True},
            {"max_checkpoints": "many"},
            {"auto_checkpoint": "yes"},
            {"enabled": 1},
            {"exclude_patterns": "*.log"},
            {"exclude_patterns": [1]},
            {"exclude_patterns": None},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(Refused, match=next(iter(wrong))):
            CheckpointConfig(**wrong)

    def test_keyword_of_the_service_overrides_the_config(self, tmp_path: Path) -> None:
        config = CheckpointConfig(max_checkpoints=5, exclude_patterns=["*.log"])
        service = CheckpointService(tmp_path, config=config, max_checkpoints=7, auto_checkpoint=False)
        assert service.config == CheckpointConfig(False, 7, ["*.log"])

    def test_config_copies_the_list_it_was_given(self) -> None:
        patterns = ["*.log"]
        config = CheckpointConfig(exclude_patterns=patterns)
        patterns.append("*")
        assert config.exclude_patterns == ["*.log"]

    def test_the_events_are_known_by_both_their_names(self) -> None:
        assert CheckpointEvent.CHECKPOINT_CREATED is CheckpointEvent.CREATED
        assert CheckpointEvent("checkpoint_restored") is CheckpointEvent.RESTORED
        assert CheckpointEvent.ERROR == "error"

    def test_an_unknown_event_is_answered_with_texts_that_are_known(self, project: Project) -> None:
        with pytest.raises(Refused, match="there is no event 'created'") as refused:
            make(project).on("created", print)
        for event in CheckpointEvent:
            assert f"'{event.value}'" in refused.value.hint


class TestOpening:
    def test_nothing_is_read_or_written_before_it_is_initialized(self, project: Project) -> None:
        service = make(project)
        assert not service.is_initialized
        assert set(project.area.iterdir()) == {project.root, project.home}
        with pytest.raises(Refused, match="not initialized"):
            _ = service.workspace

    def test_it_is_opened_once(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            first = service.workspace
            assert await service.initialize()
            assert service.workspace is first
            assert service.is_initialized

        play(project, scene)

    def test_the_first_call_opens_it_too(self, project: Project) -> None:
        project.write("a")

        async def scene() -> None:
            service = make(project)
            assert (await service.save("one")).message == "one"
            await service.close()

        asyncio.run(scene())

    def test_nothing_is_listed_before_something_is_saved(self, project: Project) -> None:
        """The predecessor listed an empty checkpoint of its own, and restoring that wiped the folder."""
        project.write("precious")

        async def scene(service: CheckpointService) -> None:
            assert await service.list() == []
            for attempt in (service.restore(), service.rewind(), service.restore("latest"), service.diff()):
                with pytest.raises(NotFound):
                    await attempt

        play(project, scene)
        assert content(project) == {"precious": b"content\n"}

    def test_the_home_folder_is_refused(self, project: Project) -> None:
        async def scene() -> None:
            service = CheckpointService(project.home, home=project.home, environ={})
            with pytest.raises(Refused, match="home folder"):
                await service.initialize()

        asyncio.run(scene())

    def test_a_folder_that_is_not_there_is_not_found(self, project: Project) -> None:
        async def scene() -> None:
            with pytest.raises(NotFound):
                await CheckpointService(project.area / "no", project.store, home=project.home).initialize()

        asyncio.run(scene())

    def test_switched_off_it_does_nothing(self, project: Project) -> None:
        project.write("a")

        async def scene() -> None:
            service = make(project, enabled=False)
            assert not await service.initialize()
            with pytest.raises(Refused, match="switched off"):
                await service.save("one")

        asyncio.run(scene())
        assert not (project.area / "stores").exists()

    def test_several_folders_share_a_storage_folder(self, project: Project) -> None:
        other = project.area / "other"
        other.mkdir()
        project.write("a")
        (other / "b").write_bytes(b"b")

        async def scene() -> None:
            first, second = make(project), CheckpointService(other, project.area / "stores", home=project.home)
            await first.save("mine")
            await second.save("other")
            assert [each.message for each in await first.list()] == ["mine"]
            assert [each.message for each in await second.list()] == ["other"]

        asyncio.run(scene())

    def test_a_storage_folder_that_is_a_store_is_that_store(self, project: Project) -> None:
        project.write("a")
        saved = project.open().save("by the workspace")

        async def scene(service: CheckpointService) -> None:
            assert [each.id for each in await service.list()] == [saved.id]

        play(project, scene, storage_dir=project.store)

    def test_every_spelling_of_a_folder_is_the_same_folder(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project.write("a")
        (project.area / "link").symlink_to(project.root)
        monkeypatch.chdir(project.root)

        async def scene() -> None:
            for spelling in (".", f"{project.root}/", project.area / "link"):
                service = CheckpointService(spelling, project.area / "stores", home=project.home, environ={})
                await service.save("one", allow_empty=True)
            assert len(await make(project).list()) == 3

        asyncio.run(scene())


class TestSaving:
    def test_a_checkpoint_has_the_documented_attributes(self, project: Project) -> None:
        project.write("src/a.py")

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("first", metadata={"model": "m"}, step=3, session="s")
            assert isinstance(saved, Checkpoint)
            assert (saved.message, saved.metadata, saved.step, saved.session) == ("first", {"model": "m"}, 3, "s")
            assert saved.files_changed == ["src/a.py"]
            assert saved.timestamp.tzinfo is not None
            assert await service.get(saved.id) == saved

        play(project, scene)

    def test_with_nothing_changed_the_same_checkpoint_is_returned(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            one = await service.save("one")
            assert await service.save("again") == one
            assert (await service.save("again", allow_empty=True)).id != one.id
            assert len(await service.list()) == 2

        play(project, scene)

    def test_a_step_or_a_turn_can_be_found_though_nothing_changed(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            for number in (1, 2):
                await service.save(step=number)
                await service.save(turn=number)
            assert (await service.restore(step=2)).checkpoint == (await service.list())[1].id
            assert (await service.restore(turn=2)).checkpoint == (await service.list())[0].id

        play(project, scene)

    @pytest.mark.parametrize("message", ["a | b | c", "two\nlines", "\x1b[31mred", "", "x" * 1_000_000, "é\ud800"])
    def test_any_message_comes_back_as_it_was(self, project: Project, message: str) -> None:
        """With a `|` in one message the predecessor listed nothing at all."""
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            saved = await service.save(message)
            assert [each.message for each in await service.list()] == [message]
            assert (await service.get(saved.id)).message == message

        play(project, scene)

    def test_after_a_restart_everything_is_there(self, project: Project) -> None:
        project.write("a")
        kept: list[Checkpoint] = []

        async def before(service: CheckpointService) -> None:
            kept.append(await service.save("one", step=1))

        async def after(service: CheckpointService) -> None:
            assert await service.list() == kept
            assert await service.get(kept[0].id) == kept[0]
            assert (await service.restore(step=1)).checkpoint == kept[0].id

        play(project, before)
        play(project, after)

    def test_concurrent_saves_run_in_order(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            saves = (service.save(f"save {number}", step=number) for number in range(8))
            made = await asyncio.gather(*saves)
            assert [each.step for each in sorted(made, key=lambda each: each.sequence)] == list(range(8))

        play(project, scene)

    def test_two_services_of_one_folder_lose_no_save(self, project: Project) -> None:
        project.write("a")

        async def scene() -> None:
            services = [make(project) for _ in range(3)]
            made = await asyncio.gather(*(each.save(step=number) for each in services for number in range(3)))
            assert len({each.id for each in made}) == len(await services[0].list()) == 9

        asyncio.run(scene())

    def test_excluded_files_are_left_out_and_left_alone(self, project: Project) -> None:
        project.write("a.txt")
        project.write("run.log", b"1")

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one")
            assert saved.files_changed == ["a.txt"]
            project.write("run.log", b"2")
            await service.restore(saved.id)

        play(project, scene, config=CheckpointConfig(exclude_patterns=["*.log"]))
        assert content(project)["run.log"] == b"2"

    @pytest.mark.parametrize(
        "wrong", [{"step": "one"}, {"turn": "one"}, {"turn": True}, {"metadata": 3}, {"name": "~"}]
    )
    def test_what_makes_no_sense_is_refused(self, project: Project, wrong: dict[str, Any]) -> None:
        async def scene(service: CheckpointService) -> None:
            with pytest.raises(Refused):
                await service.save("x", **wrong)

        play(project, scene)

    def test_a_turn_that_is_said_twice_differently_is_refused(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            with pytest.raises(Refused, match="turn"):
                await service.save(turn=1, metadata={"turn": 2})

        play(project, scene)

    def test_a_save_that_fails_yields_no_checkpoint_and_is_told(self, project: Project) -> None:
        project.write("a")
        told: list[object] = []

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.ERROR, told.append)
            with pytest.raises(Refused, match="state conversation"):
                await service.save("x", state=[object()])
            assert await service.list() == []

        play(project, scene)
        assert [type(error) for error in told] == [Refused]


class TestLooking:
    def test_a_diff_has_the_documented_attributes(self, project: Project) -> None:
        for name in ("same", "changed", "gone"):
            project.write(name, b"line\n")

        async def scene(service: CheckpointService) -> None:
            first = await service.save("one")
            project.write("changed", b"line\nanother\n")
            project.write("new")
            (project.root / "gone").unlink()
            second = await service.save("two")
            diff = await service.diff(first.id, second.id)
            assert isinstance(diff, CheckpointDiff)
            assert (diff.from_id, diff.to_id) == (first.id, second.id)
            assert (diff.added_files, diff.modified_files, diff.deleted_files) == (["new"], ["changed"], ["gone"])
            assert "+another" in diff.diff_content
            assert not await service.diff()
            project.write("new", b"now\n")
            assert (await service.diff()).modified_files == ["new"]
            assert (await service.diff(first.id)).added_files == ["new"]

        play(project, scene)

    def test_listing_is_newest_first_and_limited(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            for number in range(4):
                await service.save(step=number, session="s" if number % 2 else "t")
            assert [each.step for each in await service.list()] == [3, 2, 1, 0]
            assert [each.step for each in await service.list(limit=2)] == [3, 2]
            assert [each.step for each in await service.list(session="s")] == [3, 1]

        play(project, scene)

    def test_one_checkpoint_is_deleted_and_the_others_stay(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            made = [await service.save(step=number) for number in range(3)]
            assert (await service.delete(made[1].id)).id == made[1].id
            assert {each.id for each in await service.list()} == {made[0].id, made[2].id}
            for attempt in (service.get, service.delete, service.restore):
                with pytest.raises(NotFound):
                    await attempt(made[1].id)

        play(project, scene)

    def test_what_get_returns_needs_no_disk_any_more(self, project: Project) -> None:
        project.write("a")
        found: list[Checkpoint] = []

        async def scene(service: CheckpointService) -> None:
            found.append(await service.get((await service.save("one", state=[1])).id))
            await service.delete(found[0].id)

        play(project, scene)
        assert (found[0].files_changed, found[0].state, found[0].uncovered) == (["a"], {"conversation": [1]}, ())

    def test_a_look_does_not_wait_for_a_save(self, project: Project) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one")
            workspace = service.workspace
            with workspace._repository.lock:  # as a long save of another process has it
                waiting = asyncio.ensure_future(service.save(step=2))
                assert await asyncio.wait_for(service.list(), 10) == [saved]
                assert not waiting.done()
            await waiting

        play(project, scene)


class TestLetGo:
    def test_a_save_goes_on_when_nobody_waits_for_it(self, project: Project) -> None:
        project.write("a")
        told: list[Checkpoint] = []

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.CREATED, told.append)
            with service.workspace._repository.lock:
                saving = asyncio.ensure_future(service.save("nobody waits"))
                await asyncio.sleep(0.01)
                saving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await saving
                assert not told

        service = play(project, scene)
        assert [each.message for each in service.workspace.list()] == ["nobody waits"]
        assert [each.message for each in told] == ["nobody waits"]

    def test_a_failure_that_nobody_waits_for_is_logged(
        self, project: Project, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scene(service: CheckpointService) -> None:
            with service.workspace._repository.lock:
                failing = asyncio.ensure_future(service.save(state=[object()]))
                await asyncio.sleep(0.01)
                failing.cancel()

        play(project, scene)
        assert "nobody waits for" in caplog.text

    def test_what_was_asked_for_is_done_after_the_loop_has_ended(self, project: Project) -> None:
        project.write("a")
        service = make(project)

        async def scene() -> threading.Thread:
            await service.initialize()
            lock = service.workspace._repository.lock
            lock.acquire()
            tasks = [asyncio.ensure_future(service.save(step=number)) for number in range(2)]
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in tasks)
            release = threading.Thread(target=lambda: (time.sleep(0.05), lock.release()))
            release.start()
            return release

        asyncio.run(scene()).join()
        asyncio.run(service.close())
        assert [each.step for each in service.workspace.list()] == [1, 0]

    def test_a_closed_service_takes_nothing_more(self, project: Project) -> None:
        async def scene() -> None:
            service = make(project)
            await service.initialize()
            await service.close()
            await service.close()
            for attempt in (service.save("x"), service.list()):
                with pytest.raises(Refused, match="closed"):
                    await attempt

        asyncio.run(scene())

    def test_closing_waits_for_what_was_begun(self, project: Project) -> None:
        project.write("a")
        before = set(threading.enumerate())  # a service that another test left open may have one

        async def scene() -> None:
            service = make(project)
            saving = [asyncio.ensure_future(service.save(step=number)) for number in range(3)]
            await asyncio.sleep(0)
            await service.close()
            assert [task.done() for task in saving] == [True] * 3
            new = set(threading.enumerate()) - before
            assert not [thread for thread in new if thread.name.startswith("holdfast-service")]

        asyncio.run(scene())

    def test_it_is_used_in_one_loop_after_the_other(self, project: Project) -> None:
        project.write("a")
        service = make(project)
        for number in range(2):
            assert asyncio.run(service.save(step=number)).step == number
        asyncio.run(service.close())

    def test_a_forked_child_uses_it_too(self, project: Project) -> None:
        project.write("a")
        service = make(project)
        asyncio.run(service.save("parent"))
        child = os.fork()
        if not child:
            try:
                asyncio.run(service.save("child", step=1))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [each.message for each in asyncio.run(service.list())] == ["child", "parent"]
        asyncio.run(service.close())
