"""Going back along a trail: by steps from where the folder stands, to a step, to the beginning of a turn."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import NotFound, Refused
from holdfast.model import JSON, Checkpoint
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.workspace import Workspace

BEFORE = "before"
"""In the metadata of a checkpoint that was made before a tool ran: which."""
TURN = "turn"
"""In the metadata: the turn of the conversation."""


def with_turn(metadata: Mapping[str, JSON] | None, turn: int | None) -> Mapping[str, JSON] | None:
    """The metadata of a checkpoint of a turn. Refused where the two contradict each other."""
    if turn is None:
        return metadata
    if not isinstance(turn, int) or isinstance(turn, bool):
        raise Refused("turn is not a whole number", hint=f"It is of type {type(turn).__name__}.")
    if metadata is not None and not isinstance(metadata, Mapping):
        return metadata  # for the workspace to refuse
    said = dict(metadata or {})
    if said.setdefault(TURN, turn) != turn:
        raise Refused(f"the turn is {turn}, and {said[TURN]!r} in the metadata", hint="Say it once.")
    return said


def find_step(workspace: Workspace, step: int, session: str | None) -> Checkpoint:
    """The newest checkpoint of a step."""
    for checkpoint in workspace.list(None, session=session):
        if checkpoint.step == step:
            return checkpoint
    raise NotFound(f"there is no checkpoint of step {step}", hint="See list().")


def find_turn(workspace: Workspace, turn: int, session: str | None) -> Checkpoint:
    """Where a turn began: the first checkpoint of it. If it was gone through several times, of the last time."""
    found = workspace.list(None, session=session)
    every = {checkpoint.id: checkpoint for checkpoint in found}
    newest = next((checkpoint for checkpoint in found if checkpoint.metadata.get(TURN) == turn), None)
    if newest is None:
        raise NotFound(f"there is no checkpoint of turn {turn}", hint="See list().")
    first = newest
    while (parent := every.get(first.parent or "")) is not None and parent.metadata.get(TURN) == turn:
        first = parent
    return first


def find_back(workspace: Workspace, steps: int, *, past: bool | None = None) -> Checkpoint:
    """The checkpoint so many steps back from where the folder stands.

    `past` says whether the folder has gone on from its head, so that the head itself is one step back; None leaves it
    to the head: one that was made before a tool ran is where that step began. NotFound if the trail is too short.
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise Refused(f"steps is {steps!r}", hint="Steps must be >= 1.")
    every = {checkpoint.id: checkpoint for checkpoint in workspace.list(None, safety=True)}
    at = workspace.head()
    if at is not None and at.operation is not None:  # after an undo the folder is as a safety checkpoint has it
        parent = _before(at, every)
        past, at = parent is not None and bool(workspace.diff(at.id, parent.id)), parent
    elif at is not None and past is None:
        past = BEFORE in at.metadata and next(iter(every)) == at.id  # and nothing was restored since
    trail: list[Checkpoint] = []
    while at is not None and len(trail) <= steps:
        trail.append(at)
        at = _before(at, every)
    there = trail if past else trail[1:]
    if len(there) < steps:
        raise NotFound(f"cannot rewind {steps} steps, there are {len(there)}", hint="See list().")
    return there[steps - 1]


def _before(checkpoint: Checkpoint, every: Mapping[str, Checkpoint]) -> Checkpoint | None:
    """The save that a checkpoint came after; where that is deleted, the one made before that."""
    parent = checkpoint.parent
    while parent is not None:
        found = every.get(parent)
        if found is None:
            number = sequence_of(parent) or 0
            older = (other for other in every.values() if other.sequence < number and other.operation is None)
            return max(older, key=lambda other: other.sequence, default=None)
        if found.operation is None:
            return found
        parent = found.parent
    return None
