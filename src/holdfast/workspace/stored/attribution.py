"""Attribution: what differs between a checkpoint and its parent is attributed to the actor of the checkpoint."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import NotFound, Refused, Remedy
from holdfast.model import JSON, Checkpoint
from holdfast.workspace.stored.repository import WITHOUT, Repository

USER = "user"
TURN = "turn"
"""In the metadata of a checkpoint: the turn of the conversation."""
PERHAPS = "perhaps"
"""In the metadata of a checkpoint: who else may have made the changes that are attributed to its actor."""
SAVED_BY = "saved_by"
"""In the metadata of a checkpoint that is not attributed to the actor who saved it: who saved it."""


class FirstSaves:
    """Which actors have saved in this process; their first saves are not attributed to them.

    A program that starts does not know who edited the folder before. So what an actor's first save finds was there
    before the actor worked, and is attributed to the user.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def attribute(self, actor: str | None) -> tuple[str | None, dict[str, JSON]]:
        """Return the actor for a save that is about to be made, and the metadata that says why."""
        if actor is None or actor == USER or actor in self._seen:
            return actor, {}
        return None, {SAVED_BY: actor, PERHAPS: [actor]}

    def note(self, actor: str | None) -> None:
        """Remember that an actor has saved. Call this after the save: one that failed does not count."""
        if actor is not None:
            self._seen.add(actor)


def actor_of(checkpoint: Checkpoint) -> str:
    """Return whose the changes of a checkpoint are. What a restore found is the user's, whoever restored."""
    return USER if checkpoint.operation is not None or not checkpoint.actor else checkpoint.actor


def is_by(actor: str, agent: str | None) -> bool:
    """Whether an actor is the given agent or one of its sub-agents; without an agent, anybody but the user."""
    if agent is None:
        return actor != USER
    return actor == agent or actor.startswith(f"{agent}/")


class AttributedRun(NamedTuple):
    """Successive checkpoints whose changes are all the agent's, or all of others."""

    is_agents: bool
    actors: tuple[str, ...]
    older: Checkpoint
    newer: Checkpoint | None
    """None stands for the folder as it is now."""


def trail(repository: Repository, since: Checkpoint, agent: str | None) -> list[Checkpoint]:
    """Return the checkpoints that the folder went through since `since`, which is the last of them; newest first.

    Refused if the folder does not come from there, or if a checkpoint in between is deleted: its changes cannot be
    attributed then.
    """
    found = []
    for checkpoint, before in _back(repository, agent):
        found.append(checkpoint)
        if checkpoint.id == since.id:
            return found
        if before is not None and since.sequence < checkpoint.sequence and not repository.has(before):
            raise Refused(
                f"{before} is deleted, so changes before {checkpoint.id} cannot be attributed",
                hint=f"Use a later checkpoint; {checkpoint.id} is the earliest possible.",
            )
    raise Refused(f"the folder does not come from {since.id}", hint="It was restored since.", remedy=Remedy("list_all"))


def attributed_runs(
    checkpoints: Sequence[Checkpoint], agent: str | None, unsaved_by: str | None
) -> list[AttributedRun]:
    """Group the changes of checkpoints, and those since the newest, by whether they are the agent's; newest first."""
    found: list[AttributedRun] = []
    changes = [(None, unsaved_by or USER), *((each, actor_of(each)) for each in checkpoints[:-1])]
    for (newer, actor), older in zip(changes, checkpoints, strict=True):
        last = found[-1] if found else None
        if last is not None and last.is_agents == is_by(actor, agent):
            actors = last.actors if actor in last.actors else (*last.actors, actor)
            found[-1] = last._replace(older=older, actors=actors)
        else:
            found.append(AttributedRun(is_by(actor, agent), (actor,), older, newer))
    return found


def doubts(checkpoints: Sequence[Checkpoint], agent: str | None) -> dict[str, str]:
    """Return the agent's checkpoints whose changes others may have made, and who."""
    found = {}
    for each in checkpoints[:-1]:
        said = each.metadata.get(PERHAPS)
        others = [who for who in said if isinstance(who, str)] if isinstance(said, list) else []
        if is_by(actor_of(each), agent) and (named := [who for who in others if not is_by(who, agent)]):
            found[each.id] = " and ".join(named)
    return found


def beginning(repository: Repository, agent: str | None, *, whole_session: bool = False) -> Checkpoint:
    """Return the checkpoint before an agent's latest turn: before all with the session and turn of its latest one.

    Without a turn in the metadata, before its session; without a session either, before its latest checkpoints in a
    row. NotFound if it has none.
    """
    first: Checkpoint | None = None
    before: Checkpoint | None = None
    for checkpoint, _ in _back(repository, agent):
        before = before or (checkpoint if first else None)
        actor = actor_of(checkpoint)
        if first is not None and (first.session is None or _agent_of(actor) == _agent_of(actor_of(first))):
            if not is_by(actor, agent) or _period(checkpoint, whole_session) != _period(first, whole_session):
                break
        elif first is not None:
            continue  # changes of the user, or of another agent
        if is_by(actor, agent):
            first, before = checkpoint, None
    if first is None:
        whose = "any agent" if agent is None else f"the agent {agent!r}"
        raise NotFound(f"the folder comes from no checkpoint of {whose}", remedy=Remedy("list"))
    return before or first  # the very first checkpoint: what it found was there before anybody


def _agent_of(actor: str) -> str:
    return actor.partition("/")[0]


def _period(checkpoint: Checkpoint, whole_session: bool) -> tuple[object, object]:
    return checkpoint.session, None if whole_session else checkpoint.metadata.get(TURN)


def _back(repository: Repository, agent: str | None) -> Iterator[tuple[Checkpoint, str | None]]:
    """Yield the checkpoints that the folder went through, newest first, each with the id of its predecessor.

    Skips changes that were undone already: nothing is left of them.
    """
    at = repository.head()
    while at is not None:
        before = at.parent
        if at.operation is not None and at.operation.verb == WITHOUT and _has_undone(repository, at, agent):
            before = at.operation.target
        yield at, before
        at = _get(repository, before)


def _has_undone(repository: Repository, undone: Checkpoint, agent: str | None) -> bool:
    """Whether an undo of an agent's changes covered all changes of `agent` (None: of every agent)."""
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
