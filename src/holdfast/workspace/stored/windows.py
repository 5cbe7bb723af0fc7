"""Who did what: checkpoints as the closes of windows. What differs between one and its parent was done by its actor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import NotFound, Refused
from holdfast.model import Checkpoint
from holdfast.workspace.stored.repository import WITHOUT, Repository

USER = "user"
TURN = "turn"
"""In the metadata of a checkpoint: the turn of the conversation."""
PERHAPS = "perhaps"
"""In the metadata of a checkpoint: who else may have done what its actor is said to have done."""


def actor_of(checkpoint: Checkpoint) -> str:
    """Who did what is new in a checkpoint. What a restore found is the user's, whoever asked for the restore."""
    return USER if checkpoint.operation is not None or not checkpoint.actor else checkpoint.actor


def is_by(actor: str, agent: str | None) -> bool:
    """Whether an actor is the one that is meant: an agent, with its sub-agents; without one, anybody but the user."""
    if agent is None:
        return actor != USER
    return actor == agent or actor.startswith(f"{agent}/")


class Run(NamedTuple):
    """Windows that follow each other and are all the agent's, or all of others."""

    is_agents: bool
    actors: tuple[str, ...]
    older: Checkpoint
    newer: Checkpoint | None
    """None: the folder as it is now."""


def trail(repository: Repository, since: Checkpoint, agent: str | None) -> list[Checkpoint]:
    """The checkpoints that the folder went through since one, which is the last of them; newest first.

    Refused if it did not come from there, or a checkpoint on the way is deleted: who did what cannot be told then.
    """
    found = []
    for checkpoint, before in _back(repository, agent):
        found.append(checkpoint)
        if checkpoint.id == since.id:
            return found
        if before is not None and since.sequence < checkpoint.sequence and not repository.has(before):
            raise Refused(
                f"{before} is deleted, and who did what before {checkpoint.id} cannot be told without it",
                hint=f"Give a later one: {checkpoint.id} is the earliest from which it can.",
            )
    raise Refused(f"the folder does not come from {since.id}", hint="It was restored since. See `holdfast log --all`.")


def runs(checkpoints: Sequence[Checkpoint], agent: str | None, unsaved_by: str | None) -> list[Run]:
    """The windows between checkpoints (newest first) and from the newest to now, put together; newest first."""
    found: list[Run] = []
    closes = [(None, unsaved_by or USER), *((each, actor_of(each)) for each in checkpoints[:-1])]
    for (newer, actor), older in zip(closes, checkpoints, strict=True):
        last = found[-1] if found else None
        if last is not None and last.is_agents == is_by(actor, agent):
            actors = last.actors if actor in last.actors else (*last.actors, actor)
            found[-1] = last._replace(older=older, actors=actors)
        else:
            found.append(Run(is_by(actor, agent), (actor,), older, newer))
    return found


def doubts(checkpoints: Sequence[Checkpoint], agent: str | None) -> dict[str, str]:
    """Windows of the agent that somebody else may have had a hand in, and who."""
    found = {}
    for each in checkpoints[:-1]:
        said = each.metadata.get(PERHAPS)
        others = [who for who in said if isinstance(who, str)] if isinstance(said, list) else []
        if is_by(actor_of(each), agent) and (named := [who for who in others if not is_by(who, agent)]):
            found[each.id] = " and ".join(named)
    return found


def beginning(repository: Repository, agent: str | None, *, whole_session: bool = False) -> Checkpoint:
    """The checkpoint from which an agent's latest turn set out: of the session and turn of its latest window.

    Where no turn is told, its session; where no session is told either, its windows in a row. NotFound if it has none.
    """
    first: Checkpoint | None = None
    before: Checkpoint | None = None
    for checkpoint, _ in _back(repository, agent):
        before = before or (checkpoint if first else None)
        actor = actor_of(checkpoint)
        if first is not None and (first.session is None or _who(actor) == _who(actor_of(first))):
            if not is_by(actor, agent) or _period(checkpoint, whole_session) != _period(first, whole_session):
                break
        elif first is not None:
            continue  # the user's, or another agent's
        if is_by(actor, agent):
            first, before = checkpoint, None
    if first is None:
        what = "no agent has saved anything" if agent is None else f"the agent {agent!r} has saved nothing"
        raise NotFound(f"{what} that the folder comes from", hint="See `holdfast log`.")
    return before or first  # what the first checkpoint of all found was there before anybody


def _who(actor: str) -> str:
    return actor.partition("/")[0]


def _period(checkpoint: Checkpoint, whole_session: bool) -> tuple[object, object]:
    return checkpoint.session, None if whole_session else checkpoint.metadata.get(TURN)


def _back(repository: Repository, agent: str | None) -> Iterator[tuple[Checkpoint, str | None]]:
    """What the folder went through, newest first, each with the id of what it came from.

    Of what was undone already nothing is left, and it is passed over.
    """
    at = repository.head()
    while at is not None:
        before = at.parent
        if at.operation is not None and at.operation.verb == WITHOUT and _has_undone(repository, at, agent):
            before = at.operation.target
        yield at, before
        at = _get(repository, before)


def _has_undone(repository: Repository, undone: Checkpoint, agent: str | None) -> bool:
    """Whether undoing what it says has undone an agent (None: all that were at work)."""
    whose, since = undone.metadata.get("agent"), undone.operation.target if undone.operation else ""
    if whose is None or (agent is not None and is_by(agent, whose)):
        return True
    at = _get(repository, undone.parent)
    while at is not None and at.id != since:
        if is_by(actor_of(at), agent) and not is_by(actor_of(at), whose):
            return False
        at = _get(repository, at.parent)
    return at is not None


def _get(repository: Repository, checkpoint_id: str | None) -> Checkpoint | None:
    row = repository.catalog.by_id(checkpoint_id) if checkpoint_id else None
    return repository.checkpoint(row) if row else None
