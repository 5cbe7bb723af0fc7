"""Finding the checkpoint to rewind to: by number of steps, by step, by turn."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import NotFound, Refused
from holdfast.model import JSON, Checkpoint
from holdfast.validation import check_count, check_int
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.upkeep.type_policies import BEFORE
from holdfast.workspace.workspace import Workspace

TURN = "turn"
"""In the metadata: the turn of the conversation."""


def with_turn(metadata: Mapping[str, JSON] | None, turn: int | None) -> Mapping[str, JSON] | None:
    """Add the turn to metadata. Refused if the metadata has another."""
    if turn is None:
        return metadata
    check_int(turn, "turn")
    if metadata is not None and not isinstance(metadata, Mapping):
        return metadata  # `save` refuses it
    said = dict(metadata or {})
    if said.setdefault(TURN, turn) != turn:
        raise Refused(f"turn is {turn}, but {said[TURN]!r} in the metadata", hint="Give it once.")
    return said


def find_step(workspace: Workspace, step: int, session: str | None) -> Checkpoint:
    """Return the newest checkpoint of a step. NotFound if there is none."""
    for checkpoint in workspace.list(None, session=session):
        if checkpoint.step == step:
            return checkpoint
    raise NotFound(f"there is no checkpoint of step {step}", hint="See list().")


def find_turn(workspace: Workspace, turn: int, session: str | None) -> Checkpoint:
    """Return the first checkpoint of a turn; if the turn was repeated, of its last repetition."""
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
    """Return the checkpoint `steps` steps before the present one.

    `past`: whether the folder has changed since its head, so that the head itself is one step back. None: it has if the
    head was saved before a tool ran. NotFound if there are not enough checkpoints.
    """
    check_count(steps, "steps", least=1)
    every = {checkpoint.id: checkpoint for checkpoint in workspace.list(None, safety=True)}
    at = workspace.head()
    if at is not None and at.operation is not None:  # after an undo the head is a safety checkpoint
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
    """Return the save before a checkpoint; if that is deleted, the one before it."""
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
