"""A checkpoint with all its parts read, for those who must not wait for a disk later."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.model import JSON, Checkpoint, Uncovered


@dataclass(frozen=True, slots=True)
class _Parts:
    """What would be read from the store when asked for."""

    read_state: dict[str, JSON]
    read_changes: list[str]
    read_uncovered: tuple[Uncovered, ...]

    def state(self, checkpoint: Checkpoint) -> dict[str, JSON]:
        return self.read_state

    def files_changed(self, checkpoint: Checkpoint) -> list[str]:
        return list(self.read_changes)

    def uncovered(self, checkpoint: Checkpoint) -> tuple[Uncovered, ...]:
        return self.read_uncovered


def loaded(checkpoint: Checkpoint) -> Checkpoint:
    """Read its state, its changed files and what it does not hold, now. What cannot be is met when it is asked for."""
    try:
        parts = _Parts(checkpoint.state, checkpoint.files_changed, checkpoint.uncovered)
    except (Damaged, Refused, Unavailable):
        return checkpoint
    return replace(checkpoint, _lazy=parts)
