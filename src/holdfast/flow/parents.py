"""Checkpoints that are made of their parents: what they do not hold themselves is found by going back.

Whoever saves such a checkpoint says so in its `extra`, under `made_of_parents`: each thing that may be found further
back by its name, and whether it has to be (True) or is whole here (False). What a later one is made of is not taken
from under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.errors import Refused
from holdfast.flow.model import CheckpointMetadata
from holdfast.flow.store import Place

if TYPE_CHECKING:
    from holdfast.flow.states import States

MADE_OF_PARENTS = "made_of_parents"
_HINT = "Delete the later ones with it, or the session."


def lacks(told: CheckpointMetadata) -> set[str]:
    """What a checkpoint does not hold itself."""
    return {name for name, is_further in _marks(told).items() if is_further is True}


def needed(kept: Iterable[Place], told: Mapping[Place, CheckpointMetadata]) -> set[Place]:
    """The parents that these checkpoints are made of, back to where all is whole: those that stay are not torn, too."""
    found: dict[Place, set[str]] = {}
    for place in kept:
        at, missing = told[place], lacks(told[place])
        while missing and (parent := _parent(at)) in told:
            if missing <= found.get(parent, set()):
                break
            found.setdefault(parent, set()).update(missing)
            at = told[parent]
            missing = {name for name in missing if _marks(at).get(name) is not False} | lacks(at)
    return set(found)


def check_not_needed(states: States, gone: Iterable[Place]) -> None:
    """Refused if a checkpoint that stays is made of one of these."""
    going = set(gone)
    for session, namespace in {place[:2] for place in going}:
        newest = states.metadata(session, 1, namespace=namespace)
        if not newest or not _marks(newest[0]):
            continue
        told = {_place(each): each for each in states.metadata(session, None, namespace=namespace)}
        if needed([place for place in told if place not in going], told) & going:
            raise Refused(f"a later checkpoint of session {session!r} is made of one of these", hint=_HINT)


def check_whole(told: CheckpointMetadata) -> None:
    """Refused if a checkpoint is nothing without its parents."""
    if lacks(told):
        raise Refused(f"checkpoint {told.checkpoint_id!r} is made of its parents", hint="Fork it with history=True.")


def _marks(told: CheckpointMetadata) -> Mapping[str, bool]:
    marks = told.extra.get(MADE_OF_PARENTS)
    return marks if isinstance(marks, Mapping) else {}


def _place(told: CheckpointMetadata) -> Place:
    return Place(told.session_id, told.namespace, told.checkpoint_id)


def _parent(told: CheckpointMetadata) -> Place:
    return _place(told)._replace(checkpoint_id=told.parent_id or "")
