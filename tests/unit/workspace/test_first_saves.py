"""The first look of an actor is a boundary, whichever way it saves."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.project import SyncCheckpointManager
from holdfast.workspace import CheckpointService


@pytest.fixture
def mine(project, ws):
    """A folder that the user edited since the last checkpoint, which is returned."""
    project.write("theirs", b"theirs\n")
    start = ws.save("start")
    project.write("mine", b"mine\n")
    return start


def check(project, ws, start) -> None:
    """The user's file stays, and the agent's, made after its first look, goes."""
    assert ws.restore(start.id, keep_mine=True).ok
    assert (project.root / "mine").exists() and not (project.root / "agents").exists()


def test_a_service_does_not_give_an_actor_what_it_finds_first(project, ws, mine):
    async def scene() -> None:
        async with CheckpointService(project.root, ws.store, home=project.home, environ={}) as service:
            first = await service.save("begins", actor="bot", metadata={"note": 1})
            assert (first.actor, first.metadata["saved_by"], first.metadata["note"]) == (None, "bot", 1)
            project.write("agents", b"agent\n")
            assert (await service.save("done", actor="bot")).actor == "bot"

    asyncio.run(scene())
    check(project, ws, mine)


def test_a_second_actor_does_not_get_what_the_first_made(project, ws, mine):
    async def scene() -> None:
        async with CheckpointService(project.root, ws.store, home=project.home, environ={}) as service:
            await service.save("begins", actor="bot")
            project.write("theirs", b"changed\n")
            assert (await service.save("joins", actor="other")).actor is None

    asyncio.run(scene())


def test_a_project_does_not_give_an_actor_what_it_finds_first(project, ws, mine):
    manager = SyncCheckpointManager(project.root, store=ws.store, home=project.home, environ={})
    with manager.attempt("a task", actor="bot") as attempt:
        assert attempt.checkpoint is not None and manager.workspace.get(attempt.checkpoint.id).actor is None
        project.write("agents", b"agent\n")
    made = manager.create_checkpoint("done", actor="bot")
    assert manager.workspace.get(made.id).actor == "bot"
    check(project, ws, mine)


def test_a_guard_does_not_give_an_actor_what_it_finds_first(project, ws, mine):
    with ws.guard("a step", actor="bot") as before:
        assert (before.actor, before.metadata["saved_by"]) == (None, "bot")
        project.write("agents", b"agent\n")
    with ws.guard("the next", actor="bot") as after:
        assert after.actor == "bot"
    check(project, ws, mine)


def test_a_save_that_fails_is_no_first_look(project, ws, mine):
    ws.first_saves.attribute("bot")
    assert ws.first_saves.attribute("bot")[0] is None
    ws.first_saves.note("bot")
    assert ws.first_saves.attribute("bot") == ("bot", {})
    assert ws.first_saves.attribute("user") == ("user", {})
