"""Checkpoints of a folder: files and named state in one atomic record.

The folder is looked at by `capture`, written down by `stored`, and brought back by `restore`.

    workspace   `Workspace`, the public class
    requests    the arguments of a save and of a restore, checked
    engine      the scanner, the saver and the restorer of one workspace, loaded on first use
    location    a folder as a `Location`, for commands and pages
    capture/    the scan of a folder, and the save
    restore/    the plan, the swap, the journal, recovery
    undo_agent/  what a folder would contain without an agent's changes
    stored/     how checkpoints are stored and found
    upkeep/     prune, purge, verify, usage
    notes/      who wrote the lines of a commit, as git notes
    service/    `CheckpointService`: the same for a program with an event loop
    store_paths, store_trust, pathspec  where a workspace and its store may be; who owns a store; which paths are meant
    moved_folder, stores  the store of a folder that was moved; every store of this user
    config, config_file           the configuration; its keys, checked by msgspec
    secrets     keys and passwords in what was saved
    git_losses, git_rescue  what the user's git lost; bringing it back
    git_settings  which settings of a removed repository come back
    search, blame, why, status  reading checkpoints; where things stand
    guard, bisect, dependencies  run something under a checkpoint; at one after the other, with what is installed
    check       the command that says whether a checkpoint is good
    background  what follows a save in a process of its own: thinning, holding objects of git, checks
    export, import_checkpoint    a checkpoint into a folder of its own; from another store
    imports     checkpoints that other tools made
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    from holdfast.errors import Unavailable

    raise Unavailable(
        "on Windows, folders can be saved inside WSL only", hint="Install Holdfast in WSL and run it there."
    )

from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.model import Checkpoint, CheckpointDiff
    from holdfast.workspace.service.config import CheckpointConfig, CheckpointEvent
    from holdfast.workspace.service.service import CheckpointService
    from holdfast.workspace.stored.tagged_json import Tagged

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointDiff",
    "CheckpointEvent",
    "CheckpointService",
    "Tagged",
    "Workspace",
]

_LAZY = {
    "Checkpoint": "holdfast.model",
    "CheckpointDiff": "holdfast.model",
    "CheckpointConfig": "holdfast.workspace.service.config",
    "CheckpointEvent": "holdfast.workspace.service.config",
    "CheckpointService": "holdfast.workspace.service.service",
    "Tagged": "holdfast.workspace.stored.tagged_json",
}

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> object:
        """Load a name on first use: a program without an event loop does not load the service (start-up cost)."""
        if name not in _LAZY:
            raise AttributeError(f"module 'holdfast.workspace' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
