"""Checkpoints of a folder: files and named state in one atomic record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.model import Checkpoint, CheckpointDiff
    from holdfast.workspace.service.config import CheckpointConfig, CheckpointEvent
    from holdfast.workspace.service.service import CheckpointService
    from holdfast.workspace.stored.spelling import Tagged

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointDiff",
    "CheckpointEvent",
    "CheckpointService",
    "Tagged",
    "Workspace",
]

_ROOMS = {
    "Checkpoint": "holdfast.model",
    "CheckpointDiff": "holdfast.model",
    "CheckpointConfig": "holdfast.workspace.service.config",
    "CheckpointEvent": "holdfast.workspace.service.config",
    "CheckpointService": "holdfast.workspace.service.service",
    "Tagged": "holdfast.workspace.stored.spelling",
}

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load the service when it is first asked for: who has no event loop does not pay for it."""
        if name not in _ROOMS:
            raise AttributeError(f"module 'holdfast.workspace' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_ROOMS[name]), name)
