"""Checkpoints of a project: its files, where git stands, the feature list, the progress file and the context in one.

manager = SyncCheckpointManager("project")  # CheckpointManager is the same for an event loop
good = manager.create_checkpoint("login works")
manager.rollback(good.id)
manager.undo()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.project.attempt import Attempt
    from holdfast.project.loop import CheckpointManager
    from holdfast.project.manager import SyncCheckpointManager
    from holdfast.project.nouns import (
        Adopted,
        Checkpoint,
        CheckpointType,
        FeatureState,
        Forked,
        GitState,
        RolledBack,
    )

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

_ROOMS = {"Attempt": "attempt", "CheckpointManager": "loop", "SyncCheckpointManager": "manager"}

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a name when it is first asked for: who has no event loop does not pay for it."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.project' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"holdfast.project.{_ROOMS.get(name, 'nouns')}"), name)
