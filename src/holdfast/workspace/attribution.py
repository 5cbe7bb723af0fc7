"""Attribution: what an actor's first save finds was there before it looked, and so was not made by it."""

from __future__ import annotations

from holdfast.model import JSON
from holdfast.workspace.stored.windows import PERHAPS, USER

SAVED_BY = "saved_by"
"""In the metadata of a checkpoint that is not attributed to the actor who saved it: who that was."""


class FirstLooks:
    """Who has looked at a folder, as far as one program knows.

    A program that begins, or begins anew, does not know who edited the folder before: its actors' first looks are
    boundaries. What differs from the last checkpoint then belongs to the user.
    """

    def __init__(self) -> None:
        self._looked: set[str] = set()

    def attribute(self, actor: str | None) -> tuple[str | None, dict[str, JSON]]:
        """Return the actor of what a save finds, and what its metadata says of that."""
        if actor is None or actor == USER or actor in self._looked:
            return actor, {}
        return None, {SAVED_BY: actor, PERHAPS: [actor]}

    def note(self, actor: str | None) -> None:
        """Remember that an actor has looked. Call it once the save is done: one that fails is no boundary."""
        if actor is not None:
            self._looked.add(actor)
