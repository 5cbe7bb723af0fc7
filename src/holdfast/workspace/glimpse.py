"""A glimpse of the checkpoints of the nearest workspace: opens nothing, recovers nothing, and never fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.model import Checkpoint
from holdfast.workspace import place
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.trust import check_private


def glimpse(
    start: Path, *, store: str | None, environ: Mapping[str, str], upward: bool = True, limit: int = 50
) -> list[Checkpoint]:
    """The newest checkpoints of a folder, or of the nearest above it that has any; none where that cannot be told.

    What the catalog says is taken as it is: this is for completing words, not for deciding anything.
    """
    real = Path(os.path.realpath(start))
    try:
        for folder in (real, *real.parents) if upward else (real,):
            repository = Repository(place.store_folder(folder, store=store, environ=environ))
            check_private(repository.folder, environ)
            if repository.exists and (repository.own / "catalog.db").exists():
                rows = repository.catalog.newest(limit=limit, session=None, safety=False)
                return [repository.checkpoint(row) for row in rows]
    except (HoldfastError, OSError, ValueError, sqlite3.Error):
        pass
    return []
