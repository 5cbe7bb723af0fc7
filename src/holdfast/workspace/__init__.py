"""Checkpoints of a folder: files and named state in one atomic record.

The folder is looked at by `capture`, written down by `stored`, and brought back by `restore`.

    workspace   `Workspace`, which is called; `verbs` and `keeping` are the rest of its methods
    engine      what saves, restores and recovers, put together
    capture/    the look at a folder, and the save
    restore/    the plan, the swap, the journal, recovery; what a folder would be without an agent's work
    stored/     how checkpoints are written down and found
    upkeep/     pruning, purging, verifying, and what takes space
    service/    the same for a program with an event loop
    place, trust, scope  where a workspace and its store may be; whose a store is; which paths are meant
    config, tables, quantities    the configuration; its tables; sizes and times as people write them
    given, plainly       what callers give, checked; what the system refuses, said plainly
    comparing, search, blame, why, glimpse    looking
    attribution          whom a save is attributed to: the first look of an actor is a boundary
    guard, bisect        running something under a checkpoint; at one checkpoint after the other
    export, importing    a checkpoint into a folder of its own; from another store
"""

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
