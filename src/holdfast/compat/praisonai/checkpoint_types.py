"""The values of PraisonAI's checkpoint service, with its fields, defaults and order of arguments."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

MAX_FILE_SIZE = 2 * 1024 * 1024
REPLACEMENTS = {
    "Checkpoint": "holdfast.Checkpoint",
    "CheckpointConfig": "holdfast.workspace.CheckpointConfig",
    "CheckpointDiff": "holdfast.CheckpointDiff",
    "CheckpointEvent": "holdfast.workspace.CheckpointEvent",
    "CheckpointResult": "holdfast.Checkpoint (`save` returns it, and raises its errors)",
    "CheckpointService": "holdfast.workspace.CheckpointService",
    "FileDiff": "holdfast.CheckpointDiff (its added_files, modified_files and deleted_files)",
}
"""What to import instead of each name: the modules that have them deprecate them."""
_EXCLUDED = (".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log")


class CheckpointEvent(str, Enum):  # noqa: UP042  str() gives the value, as with PraisonAI
    """Events for handlers registered with `on`; the comment is the argument of the handler."""

    INITIALIZED = "initialized"  # {"workspace": the path}
    CHECKPOINT_CREATED = "checkpoint_created"  # the Checkpoint
    CHECKPOINT_RESTORED = "checkpoint_restored"  # the Checkpoint
    CHECKPOINTS_PRUNED = "checkpoints_pruned"  # {"action": "pruned", "removed_count": how many}
    ERROR = "error"  # {"error": the message}


@dataclass
class CheckpointConfig:
    """Options of the service. `~` in the folders is expanded."""

    workspace_dir: str
    storage_dir: str | None = None
    """None: `~/.praisonai/checkpoints`, or where PRAISONAI_HOME says."""
    enabled: bool = True
    auto_checkpoint: bool = True
    max_checkpoints: int = 100
    """Older checkpoints than these are pruned once they are a week old; before that, `rewind` still reaches them."""
    user_name: str = field(default_factory=lambda: os.environ.get("PRAISONAI_GIT_USER_NAME", "PraisonAI Checkpoints"))
    user_email: str = field(
        default_factory=lambda: os.environ.get("PRAISONAI_GIT_USER_EMAIL", "checkpoints@praison.ai")
    )
    max_file_size: int = MAX_FILE_SIZE
    """Accepted, and not applied: files of every size are saved."""
    exclude_patterns: list[str] = field(default_factory=lambda: list(_EXCLUDED))

    def __post_init__(self) -> None:
        self.workspace_dir = os.path.expanduser(self.workspace_dir)
        self.storage_dir = os.path.expanduser(self.storage_dir or os.path.join(_data_folder(), "checkpoints"))

    def get_checkpoint_dir(self) -> str:
        """The folder for this workspace below `storage_dir`, named by a hash of the workspace's real path."""
        real = os.path.realpath(self.workspace_dir)  # `.` and a path with a trailing slash are the same workspace
        return os.path.join(self.storage_dir or "", hashlib.sha256(os.fsencode(real)).hexdigest()[:12])


def _data_folder() -> str:
    """PraisonAI's folder: PRAISONAI_HOME, else the first that exists, else `~/.praisonai`."""
    if chosen := os.environ.get("PRAISONAI_HOME"):
        return os.path.expanduser(chosen)
    usual = os.path.expanduser("~/.praisonai")
    data = os.environ.get("XDG_DATA_HOME", "")
    others = [os.path.expanduser("~/.praison")]
    found = next((folder for folder in (usual, *others) if os.path.isdir(folder)), None)
    return found or (os.path.join(data, "praisonai") if data else usual)


@dataclass
class Checkpoint:
    """One checkpoint. `insertions` and `deletions` stay 0, as with PraisonAI: `diff` counts lines."""

    id: str
    short_id: str
    message: str
    timestamp: datetime
    files_changed: int = 0
    insertions: int = 0
    deletions: int = 0
    step: int | None = None

    @classmethod
    def from_git_commit(cls, commit_hash: str, message: str, timestamp: str | datetime) -> Checkpoint:
        """Make one from a commit; the time may be text in ISO 8601."""
        when = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        return cls(id=commit_hash, short_id=commit_hash[:8], message=message, timestamp=when)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "short_id": self.short_id,
            "message": self.message,
            "timestamp": self.timestamp.isoformat(),
            "files_changed": self.files_changed,
            "insertions": self.insertions,
            "deletions": self.deletions,
            "step": self.step,
        }


@dataclass
class FileDiff:
    """How one file changed: `status` is `added`, `modified` or `deleted`."""

    path: str
    absolute_path: str
    status: str
    additions: int = 0
    deletions: int = 0
    before_content: str | None = None
    after_content: str | None = None

    def to_dict(self) -> dict[str, Any]:
        names = ("path", "absolute_path", "status", "additions", "deletions")
        return {name: getattr(self, name) for name in names}


@dataclass
class CheckpointDiff:
    """What differs between two checkpoints, or (`to_checkpoint` is None) between one and the folder."""

    from_checkpoint: str
    to_checkpoint: str | None
    files: list[FileDiff] = field(default_factory=list)
    total_additions: int = 0
    total_deletions: int = 0
    error: str | None = None
    """Why there is no answer; None if `files` is one. PraisonAI has no such field."""

    def __post_init__(self) -> None:
        self.total_additions = sum(file.additions for file in self.files)
        self.total_deletions = sum(file.deletions for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        return {
            "from_checkpoint": self.from_checkpoint,
            "to_checkpoint": self.to_checkpoint,
            "files": [file.to_dict() for file in self.files],
            "total_additions": self.total_additions,
            "total_deletions": self.total_deletions,
        }


@dataclass
class CheckpointResult:
    """What a call did: a checkpoint, or an error."""

    success: bool
    checkpoint: Checkpoint | None = None
    error: str | None = None

    @classmethod
    def ok(cls, checkpoint: Checkpoint) -> CheckpointResult:
        return cls(success=True, checkpoint=checkpoint)

    @classmethod
    def fail(cls, error: str) -> CheckpointResult:
        return cls(success=False, error=error)
