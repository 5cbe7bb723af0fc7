"""Checkpoints of a project: files, git state, feature list, progress file and context in one.

manager = SyncCheckpointManager("project")  # CheckpointManager is the same for asyncio
good = manager.create_checkpoint("login works")
manager.rollback(good.id)
manager.undo()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.project.aio import CheckpointManager
    from holdfast.project.attempt import Attempt
    from holdfast.project.manager import SyncCheckpointManager
    from holdfast.project.types import Adopted, Checkpoint, CheckpointType, FeatureState, Forked, GitState, RolledBack

__all__ = [
    "Adopted",
    "Attempt",
    "Checkpoint",
    "CheckpointManager",
    "CheckpointType",
    "FeatureState",
    "Forked",
    "GitState",
    "RolledBack",
    "SyncCheckpointManager",
]

_MODULES = {"Attempt": "attempt", "CheckpointManager": "aio", "SyncCheckpointManager": "manager"}

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Import a name on first use, so that a program without an event loop does not load asyncio."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.project' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"holdfast.project.{_MODULES.get(name, 'types')}"), name)
