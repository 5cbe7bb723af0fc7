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
TURN_NUMBER = "turn_number"
"""In the metadata of a checkpoint: the number of the turn in this workspace."""
PROMPT = "prompt"
"""In the metadata of a checkpoint: the first line of what the user asked for."""
UNDONE_TURN = "undone_turn"
"""In the metadata of the target of an undo: the turn that it undid; without it, everything since a checkpoint."""
PERHAPS = "perhaps"
"""In the metadata of a checkpoint: who else may have made the changes that are attributed to its actor."""
SAVED_BY = "saved_by"
"""In the metadata of a checkpoint that is not attributed to the actor who saved it: who saved it."""
SEARCHED_BEYOND = 200
"""How many checkpoints further back a turn may still go on, past those of others."""


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
    """Return whose the changes of a checkpoint are. What a restore found is the user's, even if an agent restored."""
    return USER if checkpoint.operation is not None or not checkpoint.actor else checkpoint.actor


def is_by(actor: str, agent: str | None) -> bool:
    """Whether an actor is the given agent or one of its sub-agents; without an agent, anybody but the user."""
    if agent is None:
        return actor != USER
    return actor == agent or actor.startswith(f"{agent}/")


class TurnKey(NamedTuple):
    """What the checkpoints of one turn have in common."""

    agent: str
    session: str | None
    turn: JSON
    """None: nobody told the turns apart, and only checkpoints in a row belong together."""


def turn_key(checkpoint: Checkpoint) -> TurnKey | None:
    """Return the turn that a checkpoint belongs to, with its sub-agents; None if the changes are the user's."""
    actor = actor_of(checkpoint)
    if actor == USER:
        return None
    turn = checkpoint.metadata.get(TURN) or checkpoint.metadata.get(PROMPT)
    return TurnKey(_agent_of(actor), checkpoint.session, turn)


class Undone(NamedTuple):
    """Whose changes an undo takes back."""

    agent: str | None = None
    """An agent with its sub-agents, or one of these; None: everybody but the user."""
    turn: TurnKey | None = None
    """Only what was done in this turn; None: everything."""
    unsaved_by: str | None = None
    """Who made the changes that no checkpoint has yet; None: the user."""

    def covers(self, checkpoint: Checkpoint) -> bool:
        """Whether the changes of a checkpoint are taken back."""
        return is_by(actor_of(checkpoint), self.agent) and self.turn in (None, turn_key(checkpoint))


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
    from holdfast.model.documents import short  # start-up cost, for errors only

    found = []
    for checkpoint, before in _back(repository, agent):
        found.append(checkpoint)
        if checkpoint.id == since.id:
            return found
        if before is not None and since.sequence < checkpoint.sequence and not repository.has(before):
            raise Refused(
                f"{short(before)} is deleted, so changes before {short(checkpoint.id)} cannot be attributed",
                hint=f"Use a later checkpoint; {short(checkpoint.id)} is the earliest possible.",
            )
    raise Refused(
        f"{short(since.id)} is not in the history of the folder as it is",
        hint="It was restored since.",
        remedy=Remedy("list_all"),
    )


def attributed_runs(checkpoints: Sequence[Checkpoint], undone: Undone) -> list[AttributedRun]:
    """Group the changes of checkpoints, and those since the newest, by whether they are undone; newest first."""
    found: list[AttributedRun] = []
    unsaved = undone.unsaved_by or USER
    changes: list[tuple[Checkpoint | None, str, bool]] = [(None, unsaved, is_by(unsaved, undone.agent))]
    changes += [(each, actor_of(each), undone.covers(each)) for each in checkpoints[:-1]]
    for (newer, actor, is_agents), older in zip(changes, checkpoints, strict=True):
        last = found[-1] if found else None
        if last is not None and last.is_agents == is_agents:
            actors = last.actors if actor in last.actors else (*last.actors, actor)
            found[-1] = last._replace(older=older, actors=actors)
        else:
            found.append(AttributedRun(is_agents, (actor,), older, newer))
    return found


def doubts(checkpoints: Sequence[Checkpoint], undone: Undone) -> dict[str, str]:
    """Return the checkpoints whose changes are undone and which others may have made, and who."""
    found = {}
    for each in checkpoints[:-1]:
        said = each.metadata.get(PERHAPS)
        others = [who for who in said if isinstance(who, str)] if isinstance(said, list) else []
        agent = undone.turn.agent if undone.turn and undone.agent is None else undone.agent
        if undone.covers(each) and (named := [who for who in others if not is_by(who, agent)]):
            found[each.id] = " and ".join(named)
    return found


class TurnInTrail(NamedTuple):
    """A turn that the folder went through."""

    key: TurnKey
    since: Checkpoint
    """The checkpoint before it."""
    members: tuple[Checkpoint, ...]
    """Newest first."""


def turn_in_trail(repository: Repository, agent: str | None, key: TurnKey | None = None) -> TurnInTrail | None:
    """Find a turn of an agent (None: of any) in what the folder went through; without a key, the latest one that was
    not undone. None if that has no turn in its metadata, or if there is none. NotFound if all are undone.

    Others may have saved meanwhile, and a sub-agent may have gone on in later turns. Refused if the checkpoint before
    the turn is deleted.
    """
    gone: set[TurnKey] = set()
    members: list[Checkpoint] = []
    since: Checkpoint | None = None
    missing = ""
    beyond = 0
    for checkpoint, before in _back(repository, agent):
        if (undone := _undone_turn(checkpoint)) is not None:
            gone.add(undone)
        own = turn_key(checkpoint) if is_by(actor_of(checkpoint), agent) else None
        if members and since is None:
            since = checkpoint
        if key is None and own is not None and own not in gone:
            if own.turn is None:
                return None
            key = own
        beyond += 1
        if key is not None and own == key:
            members.append(checkpoint)
            since, beyond = None, 0
            missing = before or ""
        elif members and beyond > SEARCHED_BEYOND:
            break
    if key is None and gone:
        whose = "an agent" if agent is None else repr(agent)
        raise NotFound(f"every turn of {whose} is undone already", remedy=Remedy("turns_undone"))
    if key is None or not members:
        return None
    if since is None and missing:
        raise Refused(
            f"{missing}, the checkpoint before this turn, is deleted, so the turn cannot be undone",
            hint="Old automatic checkpoints are thinned.",
            remedy=Remedy("list"),
        )
    return TurnInTrail(key, since or members[-1], tuple(members))


def _undone_turn(checkpoint: Checkpoint) -> TurnKey | None:
    told = checkpoint.metadata.get(UNDONE_TURN)
    return TurnKey(*told) if isinstance(told, list) and len(told) == len(TurnKey._fields) else None


def beginning(repository: Repository, agent: str | None, *, whole_session: bool = False) -> Checkpoint:
    """Return the checkpoint before an agent's latest turn: before all with the session and turn of its latest one.

    Without a turn in the metadata, before its session; without a session either, before its latest checkpoints in a
    row. NotFound if it has none.
    """
    first: Checkpoint | None = None
    before: Checkpoint | None = None
    others: set[str] = set()
    for checkpoint, _ in _back(repository, agent):
        before = before or (checkpoint if first else None)
        actor = actor_of(checkpoint)
        others |= {_agent_of(actor)} - {USER}
        if first is not None and (first.session is None or _agent_of(actor) == _agent_of(actor_of(first))):
            if not is_by(actor, agent) or _period(checkpoint, whole_session) != _period(first, whole_session):
                break
        elif first is not None:
            continue  # changes of the user, or of another agent
        if is_by(actor, agent):
            first, before = checkpoint, None
    if first is None:
        who = "no agent" if agent is None else f"no agent {agent!r}"
        did = f"These did: {', '.join(sorted(others))}." if others else ""
        remedy = None if others else Remedy("no_agent")
        raise NotFound(f"{who} changed this folder, or its changes are already undone", hint=did, remedy=remedy)
    return before or first  # the very first checkpoint: what it found was there before anybody


def _agent_of(actor: str) -> str:
    return actor.partition("/")[0]


def _period(checkpoint: Checkpoint, whole_session: bool) -> tuple[object, object]:
    metadata = checkpoint.metadata
    return checkpoint.session, None if whole_session else metadata.get(TURN) or metadata.get(PROMPT)


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
    whose, turn = undone.metadata.get("agent"), _undone_turn(undone)
    since = undone.operation.target if undone.operation else ""
    if turn is None and (whose is None or (agent is not None and is_by(agent, whose))):
        return True
    covered = Undone(whose, turn)
    at = _get(repository, undone.parent)
    while at is not None and at.id != since:
        if is_by(actor_of(at), agent) and not covered.covers(at):
            return False
        if _undone_turn(at) is not None:  # an undo of an earlier turn, which would be passed over
            return False
        at = _get(repository, at.parent)
    return at is not None


def _get(repository: Repository, checkpoint_id: str | None) -> Checkpoint | None:
    row = repository.catalog.by_id(checkpoint_id) if checkpoint_id else None
    return repository.checkpoint(row) if row else None
