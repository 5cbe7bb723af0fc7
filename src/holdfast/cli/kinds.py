"""What a command for folders was given instead: a location of another kind."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.escaping import without_password

_INDEX = ".holdfast-index"
_FOR_LOCATIONS = "`log`, `show`, `diff`, `verify`, `usage`, `prune`, `rm` and `pin` work on it"


def of_word(word: str) -> tuple[str, str] | None:
    """What a URL is, and which commands are for that; None for any other word."""
    if "://" not in word:
        return None
    from holdfast.location import kind_of  # start-up cost, for errors only

    try:
        kind = kind_of(word)
    except HoldfastError:
        return None
    shown = without_password(word)
    return f"{shown} is {kind.title}", f"{_FOR_LOCATIONS}: holdfast log {shown}"


def of_folder(folder: Path) -> tuple[str, str] | None:
    """What a folder without a store is, and which commands are for that; None for any other folder."""
    from holdfast.location import FOLDER, kind_of  # as above

    kind = kind_of(os.fspath(folder))
    if kind != FOLDER:
        return f"{folder} is {kind.title}", f"{_FOR_LOCATIONS}: holdfast log {folder}"
    if folder.name.startswith("step-") and os.path.isdir(folder.parent / ".holdfast"):
        run = folder.parent
        return (
            f"{folder} is a checkpoint of a training run",
            f"Name the run: holdfast show {run} {folder.name[5:].lstrip('0') or 0}",
        )
    if folder.name == _INDEX:
        return f"{folder} is the folder of an index", f"Use holdfast -C {folder.parent} index status"
    return None
