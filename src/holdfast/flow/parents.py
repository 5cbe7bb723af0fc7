"""Checkpoints that need their parents: values that they do not contain are found in earlier checkpoints.

Such a checkpoint says so in its `extra`, under `made_of_parents`: the name of each such value, and whether it must be
looked up in a parent (True) or is complete here (False). A checkpoint that a later one needs is not deleted (P1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Damaged, Refused
from holdfast.flow.codec import StateCodec
from holdfast.flow.model import CheckpointMetadata
from holdfast.flow.store import CheckpointRow, Place, SessionRow
from holdfast.serde import NotEncrypted

if TYPE_CHECKING:
    from holdfast.flow.states import States

MADE_OF_PARENTS = "made_of_parents"
_NAME = MADE_OF_PARENTS.encode()
_HINT = "Delete the later ones with it, or the session."


class Link(NamedTuple):
    """The parent of a checkpoint, and what it needs from it."""

    parent: Place
    marks: Mapping[str, bool]

    @property
    def lacks(self) -> set[str]:
        """The values that the checkpoint does not contain itself."""
        return {name for name, is_further in self.marks.items() if is_further is True}


def link(told: CheckpointMetadata) -> Link:
    marks = told.extra.get(MADE_OF_PARENTS)
    parent = Place(told.session_id, told.namespace, told.parent_id or "")
    return Link(parent, marks if isinstance(marks, Mapping) else {})


def needed(kept: Iterable[Place], links: Mapping[Place, Link]) -> set[Place]:
    """The parents that these checkpoints need, back to where every value is complete; each stays readable itself."""
    found: dict[Place, set[str]] = {}
    for place in kept:
        at, missing = links[place], links[place].lacks
        while missing and (parent := at.parent) in links:
            if missing <= found.get(parent, set()):
                break
            found.setdefault(parent, set()).update(missing)
            at = links[parent]
            missing = {name for name in missing if at.marks.get(name) is not False} | at.lacks
    return set(found)


def check_not_needed(states: States, gone: Iterable[Place]) -> list[SessionRow]:
    """Raise Refused if a checkpoint that stays needs one of these.

    Return the sessions, as read before, for which that is possible: what is saved into them meanwhile could need these.
    """
    going, seen = set(gone), []
    for session, namespace in {place[:2] for place in going}:
        known = states.store.session(session)
        rows = states.store.rows(session, namespace)
        said = {row.place: found for row in rows if (found := _said(states.codec, row))}
        if not said or known is None:
            continue
        links = {row.place: said.get(row.place) or Link(_parent(row), {}) for row in rows}
        if needed(links.keys() - going, links) & going:
            raise Refused(f"cannot delete: a later checkpoint of session {session!r} needs one of these", hint=_HINT)
        seen.append(known)
    return seen


def check_whole(told: CheckpointMetadata) -> None:
    """Raise Refused if a checkpoint needs its parents."""
    if link(told).lacks:
        raise Refused(
            f"cannot fork checkpoint {told.checkpoint_id!r} alone: it needs its parents",
            hint="Fork it with history=True.",
        )


def _said(codec: StateCodec, row: CheckpointRow) -> Link | None:
    """What a row needs of its parents; most need nothing. A damaged or foreign row needs nothing either, and can be
    deleted."""
    try:
        plain = codec.open_meta(row)
        return link(codec.metadata(row, plain)) if _NAME in plain else None
    except (Damaged, NotEncrypted):
        return None


def _parent(row: CheckpointRow) -> Place:
    return row.place._replace(checkpoint_id=row.parent_id or "")
