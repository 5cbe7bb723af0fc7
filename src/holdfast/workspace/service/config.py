"""Configuration and events of the checkpoint service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.errors import Refused
from holdfast.validation import check_flag, check_limit, check_patterns, checked_options


class CheckpointEvent(str, Enum):  # noqa: UP042  str() gives the value, as with the predecessor
    """Events for handlers registered with `on`; the comment is the argument of the handler."""

    INITIALIZED = "initialized"  # {"workspace": the path}
    CREATED = "checkpoint_created"  # the Checkpoint
    RESTORED = "checkpoint_restored"  # the Restored
    DELETED = "checkpoint_deleted"  # the Checkpoint
    PRUNED = "checkpoints_pruned"  # the Pruned
    ERROR = "error"  # the exception, which is also raised

    CHECKPOINT_CREATED = CREATED  # other names of the same events
    CHECKPOINT_RESTORED = RESTORED
    CHECKPOINT_DELETED = DELETED
    CHECKPOINTS_PRUNED = PRUNED


def event_of(value: object) -> CheckpointEvent:
    """Return the event with a value. Refused if there is none."""
    try:
        return CheckpointEvent(value)
    except ValueError:
        known = ", ".join(repr(event.value) for event in CheckpointEvent)
        raise Refused(f"there is no event {value!r}", hint=f"Choose one of CheckpointEvent: {known}.") from None


@checked_options
@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Options of a checkpoint service. Refused if a value is not valid."""

    auto_checkpoint: bool = True
    """Whether to save a checkpoint before each call of a protected tool."""
    max_checkpoints: int | None = 100
    """How many checkpoints to keep; older ones are pruned. None keeps all."""
    exclude_patterns: list[str] = field(default_factory=list)
    """Patterns of files to leave out, as in a .gitignore."""
    enabled: bool = True
    """False switches the service off: nothing is opened or saved, and tools are not wrapped."""

    def __post_init__(self) -> None:
        for name in ("auto_checkpoint", "enabled"):
            check_flag(getattr(self, name), name)
        check_limit(self.max_checkpoints, "max_checkpoints", least=1)
        object.__setattr__(self, "exclude_patterns", check_patterns(self.exclude_patterns))
