"""Going back with the checkpoint service: to an id, a step, a turn; files, conversation, or both."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import NotFound, Refused
from holdfast.workspace import CheckpointService

from .scenes import Scene, content, play

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


class TestRestoring:
    def test_files_and_conversation_come_back_together(self, project: Project) -> None:
        file = project.write("a", b"1")
        conversation = [{"role": "user", "content": "hello"}]

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one", state=conversation)
            file.write_bytes(b"2")
            project.write("new")
            restored = await service.restore(saved.id)
            assert restored.state == {"conversation": conversation}
            assert restored.ok

        play(project, scene)
        assert content(project) == {"a": b"1"}

    def test_either_comes_back_alone(self, project: Project) -> None:
        file = project.write("a", b"1")

        async def scene(service: CheckpointService) -> None:
            await service.save("one", state={"conversation": ["hello"], "plan": {"done": 1}})
            file.write_bytes(b"2")
            restored = await service.restore(files=False)
            assert restored.state == {"conversation": ["hello"], "plan": {"done": 1}}
            assert (restored.written, restored.undo_id, file.read_bytes()) == ([], "", b"2")
            restored = await service.restore(conversation=False)
            assert (restored.state, file.read_bytes()) == ({}, b"1")

        play(project, scene)

    def test_the_conversation_of_now_is_kept_for_an_undo(self, project: Project) -> None:
        file = project.write("a", b"1")

        async def scene(service: CheckpointService) -> None:
            await service.save("one", state=["hello"])
            file.write_bytes(b"2")
            await service.restore(state=["hello", "and more"])
            undone = await service.undo()
            assert (undone.state, file.read_bytes()) == ({"conversation": ["hello", "and more"]}, b"2")
            assert ((await service.redo()).state, file.read_bytes()) == ({"conversation": ["hello"]}, b"1")

        play(project, scene)

    def test_the_conversation_is_saved_as_it_was_when_asked(self, project: Project) -> None:
        project.write("a")
        conversation = [{"content": ["hello"]}]

        async def scene(service: CheckpointService) -> None:
            saving = asyncio.ensure_future(service.save("one", state=conversation))
            await asyncio.sleep(0)
            conversation[0]["content"].append("later")
            conversation.append({"content": []})
            assert (await service.get((await saving).id)).state == {"conversation": [{"content": ["hello"]}]}

        play(project, scene)

    def test_an_unknown_id_destroys_nothing(self, project: Project) -> None:
        """The predecessor cleaned the folder first, and looked for the checkpoint then."""
        project.write("a", b"1")

        async def scene(service: CheckpointService) -> None:
            await service.save("one")
            project.write("a", b"2")
            project.write("unsaved")
            for wrong in ("deadbeef", "", "latest~7", "a | b"):
                with pytest.raises(NotFound):
                    await service.restore(wrong)

        play(project, scene)
        assert content(project) == {"a": b"2", "unsaved": b"content\n"}

    def test_what_was_not_saved_can_be_had_again(self, project: Project) -> None:
        project.write("a", b"1")

        async def scene(service: CheckpointService) -> None:
            await service.save("one")
            project.write("a", b"unsaved")
            project.write("new", b"unsaved")
            await service.restore()
            assert content(project) == {"a": b"1"}
            await service.undo()

        play(project, scene)
        assert content(project) == {"a": b"unsaved", "new": b"unsaved"}

    def test_newer_checkpoints_stay_listed_and_can_be_restored(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            for number in (1, 2, 3):
                project.write("a", b"%d" % number)
                await service.save(f"save {number}", step=number)
            listed = await service.list()
            await service.restore(step=1)
            assert await service.list() == listed
            await service.restore(listed[0].id)
            assert content(project) == {"a": b"3"}

        play(project, scene)

    def test_the_newest_of_a_step_wins(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            for number in (1, 2, 3):
                project.write("a", b"%d" % number)
                await service.save(step=5, session=f"s{number}")
            await service.restore(step=5)
            assert content(project) == {"a": b"3"}
            await service.restore(step=5, session="s2")
            assert content(project) == {"a": b"2"}

        play(project, scene)

    def test_a_turn_is_restored_to_where_it_began(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            for turn, value in ((1, b"1a"), (1, b"1b"), (2, b"2a"), (2, b"2b"), (2, b"2c")):
                project.write("a", value)
                await service.save(turn=turn)
            await service.restore(turn=2)
            assert content(project) == {"a": b"2a"}
            await service.restore(turn=1)
            project.write("a", b"2 once more")
            await service.save(turn=2)
            project.write("a", b"2 and on")
            await service.save(turn=2)
            await service.restore(turn=2)
            assert content(project) == {"a": b"2 once more"}

        play(project, scene)

    @pytest.mark.parametrize("named", [{"step": 99}, {"turn": 99}, {"step": 1, "session": "other"}])
    def test_an_unknown_step_or_turn_is_not_found(self, project: Project, named: dict[str, Any]) -> None:
        project.write("a")

        async def scene(service: CheckpointService) -> None:
            await service.save(step=1, session="s")
            with pytest.raises(NotFound, match=r"99|step 1"):
                await service.restore(**named)

        play(project, scene)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"checkpoint_id": "latest", "step": 1},
            {"step": 1, "turn": 1},
            {"files": False, "conversation": False},
            {"files": False, "paths": ["a"]},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, project: Project, wrong: dict[str, Any]) -> None:
        async def scene(service: CheckpointService) -> None:
            with pytest.raises(Refused):
                await service.restore(**wrong)

        play(project, scene)

    def test_a_preview_says_what_a_restore_would_do(self, project: Project) -> None:
        project.write("a", b"1")

        async def scene(service: CheckpointService) -> None:
            await service.save("one")
            project.write("a", b"2")
            project.write("b")
            plan = await service.preview()
            assert (plan.replaced, plan.removed) == (["a"], ["b"])

        play(project, scene)
        assert set(content(project)) == {"a", "b"}


class TestRewinding:
    def saved(self, project: Project, values: bytes) -> Scene:
        async def scene(service: CheckpointService) -> None:
            for value in values:
                project.write("a", bytes([value]))
                await service.save(chr(value))

        return scene

    def test_after_one_save_there_is_nowhere_to_go(self, project: Project) -> None:
        """The predecessor wiped the folder."""

        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"1")(service)
            with pytest.raises(NotFound, match="cannot rewind 1"):
                await service.rewind(1)

        play(project, scene)
        assert content(project) == {"a": b"1"}

    @pytest.mark.parametrize(("steps", "value"), [(1, b"3"), (2, b"2"), (3, b"1")])
    def test_it_goes_so_many_checkpoints_back(self, project: Project, steps: int, value: bytes) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"1234")(service)
            await service.rewind(steps)

        play(project, scene)
        assert content(project) == {"a": value}

    def test_each_goes_on_from_where_the_last_one_went(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"123")(service)
            for value in (b"2", b"1"):
                await service.rewind()
                assert content(project) == {"a": value}
            with pytest.raises(NotFound):
                await service.rewind()

        play(project, scene)

    def test_it_follows_what_the_folder_went_through(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"123")(service)
            await service.rewind(2)
            await self.saved(project, b"4")(service)
            await service.rewind()

        play(project, scene)
        assert content(project) == {"a": b"1"}

    def test_it_goes_back_to_a_state_that_was_there_twice(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"121")(service)
            await service.rewind()
            assert content(project) == {"a": b"2"}
            await service.rewind()
            assert content(project) == {"a": b"1"}

        play(project, scene)

    def test_after_an_undo_it_goes_on_from_what_the_undo_brought(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"123")(service)
            await service.rewind()
            await service.undo()
            assert content(project) == {"a": b"3"}
            await service.rewind()
            assert content(project) == {"a": b"2"}

        play(project, scene)

    def test_it_passes_over_what_was_deleted(self, project: Project) -> None:
        async def scene(service: CheckpointService) -> None:
            await self.saved(project, b"123")(service)
            await service.delete((await service.list())[1].id)
            await service.rewind()

        play(project, scene)
        assert content(project) == {"a": b"1"}

    @pytest.mark.parametrize("steps", [0, -1, True, "1", 1.5])
    def test_a_number_of_steps_that_makes_no_sense_is_refused(self, project: Project, steps: Any) -> None:
        async def scene(service: CheckpointService) -> None:
            with pytest.raises(Refused, match="steps"):
                await service.rewind(steps)

        play(project, scene)


def test_broken_configuration_allows_restore_and_prunes_nothing(project):
    project.write("file", b"good\n")

    async def scene() -> None:
        async with CheckpointService(project.root, project.store, home=project.home, environ={}) as service:
            saved = await service.save("good")
        os.mkfifo(project.root / "holdfast.toml")
        project.write("file", b"bad\n")
        async with CheckpointService(project.root, project.store, home=project.home, environ={}) as service:
            with pytest.raises(Refused, match=r"holdfast\.toml cannot be read"):
                await service.save("more")
            assert [each.id for each in await service.list()] == [saved.id]
            await service.restore(saved.id)
            assert (project.root / "file").read_bytes() == b"good\n"
            assert service._policy is None
            (project.root / "holdfast.toml").unlink(missing_ok=True)
            project.write("file", b"better\n")
            assert (await service.save("mended")).message == "mended"
            assert service._policy is not None

    asyncio.run(scene())
