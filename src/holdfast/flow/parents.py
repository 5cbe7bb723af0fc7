"""Checkpoints that are made of their parents: what they do not hold themselves is found by going back.

Whoever saves such a checkpoint says so in its `extra`, under `made_of_parents`: each thing that may be found further
back by its name, and whether it has to be (True) or is whole here (False). What a later one is made of is not taken
from under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Damaged, Refused
from holdfast.flow.model import CheckpointMetadata
from holdfast.flow.sealing import Sealer
from holdfast.flow.store import Place, Row, SessionRow
from holdfast.serde import NotSealed

if TYPE_CHECKING:
    from holdfast.flow.states import States

MADE_OF_PARENTS = "made_of_parents"
_NAME = MADE_OF_PARENTS.encode()
_HINT = "Delete the later ones with it, or the session."


class Link(NamedTuple):
    """What a checkpoint stands on, and what it says of that."""

    parent: Place
    marks: Mapping[str, bool]

    @property
    def lacks(self) -> set[str]:
        """What the checkpoint does not hold itself."""
        return {name for name, is_further in self.marks.items() if is_further is True}


def link(told: CheckpointMetadata) -> Link:
    marks = told.extra.get(MADE_OF_PARENTS)
    parent = Place(told.session_id, told.namespace, told.parent_id or "")
    return Link(parent, marks if isinstance(marks, Mapping) else {})


def needed(kept: Iterable[Place], links: Mapping[Place, Link]) -> set[Place]:
    """The parents that these checkpoints are made of, back to where all is whole: those that stay are not torn, too."""
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
    """Refused if a checkpoint that stays is made of one of these.

    The sessions, as they were before, of which that can be: what is saved into them now could be made of these, too.
    """
    going, seen = set(gone), []
    for session, namespace in {place[:2] for place in going}:
        known = states.store.session(session)
        rows = states.store.rows(session, namespace)
        said = {row.place: found for row in rows if (found := _said(states.sealer, row))}
        if not said or known is None:
            continue
        links = {row.place: said.get(row.place) or Link(_parent(row), {}) for row in rows}
        if needed(links.keys() - going, links) & going:
            raise Refused(f"a later checkpoint of session {session!r} is made of one of these", hint=_HINT)
        seen.append(known)
    return seen


def check_whole(told: CheckpointMetadata) -> None:
    """Refused if a checkpoint is nothing without its parents."""
    if link(told).lacks:
        raise Refused(f"checkpoint {told.checkpoint_id!r} is made of its parents", hint="Fork it with history=True.")


def _said(sealer: Sealer, row: Row) -> Link | None:
    """What a row says of its parents; most say nothing. One that is damaged, or that anybody may have put there, does
    not either, and may be deleted."""
    try:
        plain = sealer.open_meta(row)
        return link(sealer.metadata(row, plain)) if _NAME in plain else None
    except (Damaged, NotSealed):
        return None


def _parent(row: Row) -> Place:
    return row.place._replace(checkpoint_id=row.parent_id or "")
