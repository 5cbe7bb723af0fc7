"""Opening the workspace of a service: what the folder's own configuration says, and what the program adds to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.workspace import place
from holdfast.workspace.config import Settings
from holdfast.workspace.service.config import CheckpointConfig
from holdfast.workspace.workspace import Workspace


def open_workspace(
    folder: Path,
    storage: Path | None,
    config: CheckpointConfig,
    settings: Settings,
    *,
    watch: bool | None,
    **options: Any,
) -> Workspace:
    """Open it, or make its store. `storage` is a folder of stores, or one store."""
    options = settings.options() | options
    options["exclude_patterns"] = [*settings.exclude_patterns, *config.exclude_patterns]
    options["watch"] = settings.watch if watch is None else watch
    return Workspace(folder, store=_store(folder, storage), **options)


def _store(workspace: Path, storage: Path | None) -> Path | None:
    """The store of a workspace in a folder of stores; that folder itself where it is a store."""
    if storage is None or (storage / "holdfast").is_dir():
        return storage
    return place.store_folder(workspace.resolve(), store=None, environ={"HOLDFAST_STORE_ROOT": os.fspath(storage)})
