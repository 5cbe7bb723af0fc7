"""Listing checkpoints for shell completion: recovers nothing, and never fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.model import Checkpoint
from holdfast.workspace import store_paths
from holdfast.workspace.store_trust import check_private
from holdfast.workspace.stored.repository import Repository


def glimpse(
    start: Path, *, store: str | None, environ: Mapping[str, str], upward: bool = True, limit: int = 50
) -> list[Checkpoint]:
    """Return the newest checkpoints of a folder, or of the nearest one above it that has any; none on any error.

    Reads the catalog without a check against the refs: good enough for completion.
    """
    real = Path(os.path.realpath(start))
    try:
        for folder in (real, *real.parents) if upward else (real,):
            repository = Repository(store_paths.store_folder(folder, store=store, environ=environ))
            check_private(repository.folder, environ)
            if repository.exists and (repository.own / "catalog.db").exists():
                rows = repository.catalog.newest(limit=limit, session=None, safety=False)
                return [repository.checkpoint(row) for row in rows]
    except (HoldfastError, OSError, ValueError, sqlite3.Error):
        pass
    return []
