"""What a checkpoint service is told when it is made, and what it tells: its configuration and its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.errors import Refused


class CheckpointEvent(str, Enum):  # noqa: UP042  a text of its own value, as the predecessor's is
    """What a service tells those who asked with `on`; beside each, what the handler is given."""

    INITIALIZED = "initialized"  # {"workspace": the path}
    CREATED = "checkpoint_created"  # the Checkpoint
    RESTORED = "checkpoint_restored"  # the Restored
    DELETED = "checkpoint_deleted"  # the Checkpoint
    PRUNED = "checkpoints_pruned"  # the Pruned
    ERROR = "error"  # the exception, which is raised all the same

    CHECKPOINT_CREATED = CREATED  # other names of the same events
    CHECKPOINT_RESTORED = RESTORED
    CHECKPOINT_DELETED = DELETED
    CHECKPOINTS_PRUNED = PRUNED


def event_of(value: object) -> CheckpointEvent:
    """An event, or its text. Refused if there is none such."""
    try:
        return CheckpointEvent(value)
    except ValueError:
        known = ", ".join(repr(event.value) for event in CheckpointEvent)
        raise Refused(f"there is no event {value!r}", hint=f"Choose one of CheckpointEvent: {known}.") from None


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """How a service keeps checkpoints. Refused if a value makes no sense."""

    auto_checkpoint: bool = True
    """Whether protected tools are preceded by a checkpoint."""
    max_checkpoints: int | None = 100
    """How many are kept; older ones are pruned, and their disk is freed. None keeps all."""
    exclude_patterns: list[str] = field(default_factory=list)
    """What checkpoints leave out, as in a .gitignore."""
    enabled: bool = True
    """False switches everything off: nothing is opened, nothing is saved, protected tools are as they were."""

    def __post_init__(self) -> None:
        for name in ("auto_checkpoint", "enabled"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise Refused(f"{name} is {value!r}", hint="Give True or False.")
        most = self.max_checkpoints
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise Refused(f"max_checkpoints is {most!r}", hint="Give a whole number, 1 or more, or None for all.")
        patterns = self.exclude_patterns
        if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
            raise Refused(f"exclude_patterns is {patterns!r}", hint="Give a list of patterns.")
        object.__setattr__(self, "exclude_patterns", list(patterns))
