"""What a restore would do and did.

No dataclasses: loading `dataclasses` and making these classes would be a tenth of what a restore of a few files costs.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from typing import TYPE_CHECKING, NamedTuple

from holdfast.model.checkpoint import JSON

if TYPE_CHECKING:
    from holdfast.model.changes import Overlap


class TurnRef(NamedTuple):
    """A turn of an agent."""

    agent: str
    session: str | None
    turn: JSON
    """Its id."""
    number: int | None
    """Its number in the workspace; None if it has none."""
    prompt: str
    """The first line of what the user asked for; empty if it is not known."""


class Plan(NamedTuple):
    """What a restore would do. Nothing else is touched."""

    checkpoint: str
    paths: tuple[str, ...] | None
    keep_new: bool
    written: list[str]
    """Absent now, would be brought back."""
    replaced: list[str]
    """Different now, would become as they were (content, type or metadata)."""
    removed: list[str]
    """Made since; would be removed, after they are saved."""
    retimed: list[str]
    """Folders of which only the time would be set back."""
    kept: dict[str, str]
    """Left alone though the checkpoint does not have them, and why."""
    blocked: dict[str, str]
    """Would be restored but cannot, and why: the restore would report them as failed."""
    missing: dict[str, str]
    """Existed when the checkpoint was made, is gone now, and is not in the checkpoint: cannot be restored."""
    bytes_to_write: int
    digest: str
    """Changes when the folder or the target does. Pass the plan to `restore` to restore exactly this, or nothing."""
    conflicts: dict[str, "Overlap"]
    """Of `keep_mine`: what would be left as it is, because somebody else changed the same since."""
    doubts: dict[str, str]
    """Of `keep_mine`: checkpoints whose changes are undone as the agent's, and who else may have had a hand in them."""
    keep_mine: bool = False
    """Only what an agent did is undone, and `checkpoint` is where that begins."""
    agent: str | None = None
    """Of `keep_mine`: the agent that is meant; None for all of them."""
    unsaved_by: str | None = None
    """Of `keep_mine`: who did what no checkpoint has yet; None for the user."""
    branches: tuple[str, str] | None = None
    """The user's git branch when the checkpoint was saved and now, where these differ. A restore changes no branch."""
    turn: TurnRef | None = None
    """Of `preview_turn`: the turn that would be undone; `checkpoint` is the one before it."""
    hunks: tuple[str, ...] = ()
    """Of `preview_revert`: the ids of the hunks that would be taken back; `checkpoint` is where the changes begin."""

    def __bool__(self) -> bool:
        return bool(self.written or self.replaced or self.removed or self.retimed)


class Restored(NamedTuple):
    """What a restore did."""

    checkpoint: str
    undo_id: str
    """The safety checkpoint: what was there before."""
    written: list[str]
    """Brought back or made as they were."""
    removed: list[str]
    kept: dict[str, str]
    failed: dict[str, str]
    missing: dict[str, str]
    state: dict[str, JSON]
    conflicts: dict[str, "Overlap"]
    """What an agent did and is left as it is, because somebody else changed the same since."""
    stale_outputs: list[str]
    """Ignored files and folders, 20 at most, that are newer than what was replaced and may have been built from it."""

    @property
    def ok(self) -> bool:
        """Whether everything was done (P4)."""
        return not self.failed and not self.conflicts
