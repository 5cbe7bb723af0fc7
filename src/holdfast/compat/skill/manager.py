"""The skill's `CheckpointManager` and its values, over `holdfast.project`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from holdfast import project
from holdfast.model import JSON

REPLACEMENTS = {
    "Checkpoint": "holdfast.project.Checkpoint",
    "CheckpointManager": "holdfast.project.CheckpointManager",
    "CheckpointType": "holdfast.project.CheckpointType",
    "FeatureState": "holdfast.project.FeatureState",
    "GitSnapshot": "holdfast.project.CheckpointManager (`create_checkpoint` records `git_state`)",
    "GitState": "holdfast.project.GitState",
    "StateSnapshot": "holdfast.project.CheckpointManager (`create_checkpoint` records `feature_state`)",
}
"""What to import instead of each name: the modules that have them deprecate them."""
_Path = str | os.PathLike[str]


class CheckpointType(Enum):
    """Why a checkpoint was saved, which decides how long it is kept."""

    AUTOMATIC = "automatic"  # before risky operations; the last 5 are kept
    MANUAL = "manual"  # on request; kept until deleted
    FEATURE = "feature"  # after a feature is complete; kept for good
    SESSION = "session"  # at the start of a session; the last 3 are kept


@dataclass
class GitState:
    """The user's git when a checkpoint was saved."""

    commit_hash: str
    branch: str
    dirty_files: list[str] = field(default_factory=list)


@dataclass
class FeatureState:
    """The feature list when a checkpoint was saved."""

    current: str | None
    completed: list[str]
    snapshot_path: str
    """Where git finds its content: `git --git-dir=STORE show SNAPSHOT_PATH`."""


@dataclass
class Checkpoint:
    """One saved state of a project."""

    id: str
    name: str
    description: str
    timestamp: str
    checkpoint_type: CheckpointType
    git_state: GitState
    feature_state: FeatureState
    context: dict[str, JSON] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "timestamp": self.timestamp,
            "checkpoint_type": self.checkpoint_type.value,
            "git_state": vars(self.git_state) | {"dirty_files": list(self.git_state.dirty_files)},
            "feature_state": vars(self.feature_state) | {"completed": list(self.feature_state.completed)},
            "context": dict(self.context),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Read the result of `to_dict`, of this class or of the skill's own. Refused for anything else."""
        return translated(project.Checkpoint.from_dict(data))


class CheckpointManager:
    """Saves, lists, rolls back and deletes the checkpoints of a project. Raises the errors of the library."""

    def __init__(self, project_dir: _Path) -> None:
        self.project_dir = Path(project_dir).expanduser()
        self._manager = project.CheckpointManager(self.project_dir)

    async def create_checkpoint(
        self,
        name: str,
        description: str = "",
        checkpoint_type: CheckpointType | str = CheckpointType.MANUAL,
        context: Mapping[str, JSON] | None = None,
    ) -> Checkpoint:
        """Save the project: files, git state, feature list, progress file and context."""
        saved = await self._manager.create_checkpoint(name, description, type=_value(checkpoint_type), context=context)
        return translated(saved)

    async def list_checkpoints(self, checkpoint_type: CheckpointType | str | None = None) -> list[Checkpoint]:
        """Checkpoints, newest first, perhaps of one type."""
        kind = None if checkpoint_type is None else _value(checkpoint_type)
        return [translated(each) for each in await self._manager.list(type=kind)]

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by id, by name, or by `checkpoint-YYYYMMDD-HHMMSS`, the second in which it was saved."""
        return translated(await self._manager.get(checkpoint_id))

    async def rollback(self, checkpoint_id: str | Checkpoint) -> project.RolledBack:
        """Restore files, feature list and progress file, all or nothing; the branch does not move. See `undo`."""
        return await self._manager.rollback(_id_of(checkpoint_id))

    restore_checkpoint = rollback  # as a sister of the skill calls it

    async def rollback_to_latest(self) -> project.RolledBack:
        """Roll back to the newest checkpoint. NotFound if there is none."""
        return await self._manager.rollback_to_latest()

    async def undo(self) -> project.RolledBack:
        """Undo the last rollback. The skill has no such method."""
        return await self._manager.undo()

    async def delete_checkpoint(self, checkpoint_id: str | Checkpoint) -> Checkpoint:
        """Delete a checkpoint. Refused for one of a feature, which is permanent."""
        return translated(await self._manager.delete(_id_of(checkpoint_id)))

    async def close(self) -> None:
        """Wait for calls that were made, and accept no more."""
        await self._manager.close()


def translated(saved: project.Checkpoint) -> Checkpoint:
    """A checkpoint of the project as the skill's class."""
    git, features = saved.git_state, saved.feature_state
    return Checkpoint(
        saved.id,
        saved.name,
        saved.description,
        saved.timestamp,
        CheckpointType(saved.checkpoint_type.value),
        GitState(git.commit_hash, git.branch, list(git.dirty_files)),
        FeatureState(features.current, list(features.completed), features.snapshot_path),
        dict(saved.context),
    )


def _value(kind: CheckpointType | str) -> str:
    return kind.value if isinstance(kind, CheckpointType) else kind


def _id_of(checkpoint: str | Checkpoint) -> str:
    return checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
