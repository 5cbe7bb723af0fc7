"""Undoing only what an agent did, as asked for. What it takes to do it is loaded when it is."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import Refused
from holdfast.model import Checkpoint


class Reversal(NamedTuple):
    """Whose work is to be undone, and since when."""

    since: Checkpoint
    agent: str | None = None
    unsaved_by: str | None = None


def make_reversal(since: Checkpoint, *, keep_mine: bool, agent: str | None, unsaved_by: str | None) -> Reversal | None:
    """Whose work a restore is to undo; None if it is an ordinary one. Refused if that makes no sense."""
    for what, value in (("agent", agent), ("unsaved_by", unsaved_by)):
        if value is not None and (not isinstance(value, str) or not value):
            raise Refused(f"{what} is not a name", hint="Give the actor of its checkpoints; see `holdfast log`.")
        if value is not None and not keep_mine:
            raise Refused(f"{what} is given, and everything is to be restored", hint="Pass keep_mine=True with it.")
    return Reversal(since, agent, unsaved_by) if keep_mine else None
