"""What every back end refuses to commit, in the same words."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.flow.store import Anything, Row


def check(
    row: Row, *, is_deleted: bool, is_taken: bool, newest: str | None, expected_parent: str | Anything | None
) -> None:
    """Raise what stands in the way of a commit."""
    if is_deleted:
        raise deleted(row.place.session)
    if is_taken:
        raise Conflict(
            f"session {row.place.session!r} has another checkpoint {row.place.checkpoint_id!r}",
            hint="Give each checkpoint an id of its own, or pass replace=True.",
        )
    if not isinstance(expected_parent, Anything) and newest != expected_parent:
        raise Conflict(
            f"the newest checkpoint of session {row.place.session!r} is {newest!r}, not {expected_parent!r}",
            hint="Load it, and save on top of it.",
        )


def deleted(session: str) -> Conflict:
    return Conflict(f"session {session!r} was deleted", hint="Use a new session id, or reopen it.")


def exists(session: str) -> Conflict:
    return Conflict(f"session {session!r} exists, or was deleted", hint="Fork into a new one.")
