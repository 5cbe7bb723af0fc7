"""What is at a place that a command of folders was given: a training run, a flow location, an index."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.harmless import without_password

FLOW = ("sqlite", "postgresql", "postgres", "redis", "rediss", "unix", "memory")
"""The schemes of flow locations."""
OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file")
"""Those of training runs that are in no folder."""
_INDEX = ".holdfast-index"
_FOR_FLOW = "`log`, `show`, `diff`, `copy`, `prune`, `usage` and `verify` take one after their name"
_FOR_RUNS = "`log`, `show`, `diff`, `verify`, `prune` and `training`"


def of_word(word: str) -> tuple[str, str] | None:
    """What a word is that names no folder, and which commands are for that; None of any other word."""
    scheme, found, _ = word.partition("://")
    if found and scheme in FLOW:
        shown = without_password(word)
        return f"{shown} is a flow location", f"{_FOR_FLOW}: holdfast log {shown}"
    if found and scheme in OBJECT_STORES:
        return f"{word} is a training run", f"Training runs go with {_FOR_RUNS}: holdfast -C {word} log"
    return None


def of_folder(folder: Path) -> tuple[str, str] | None:
    """What a folder without a store is, and which commands are for that; None of any other folder."""
    if os.path.isdir(folder / ".holdfast") and os.path.isfile(folder / "last"):
        return f"{folder} is a training run", f"Training runs go with {_FOR_RUNS}: holdfast -C {folder} log"
    if folder.name.startswith("step-") and os.path.isdir(folder.parent / ".holdfast"):
        run = folder.parent
        return (
            f"{folder} is a checkpoint of a training run",
            f"Name the run: holdfast -C {run} show {folder.name[5:].lstrip('0') or 0}",
        )
    if folder.name == _INDEX:
        return f"{folder} is the folder of an index", f"Use holdfast -C {folder.parent} index status"
    return None
