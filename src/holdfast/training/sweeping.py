"""What writers that died left in a folder of checkpoints, and what was replaced: removed, unless others are in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.durable import disk, remove_tree, sync_folder
from holdfast.errors import HoldfastError
from holdfast.training.reading import read_manifest
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, step_name
from holdfast.training.stored.manifest import Manifest

SAVING = "saving"
REMOVING = "removing"
REPLACED = "replaced-"
_LITTER = re.compile(rf"{SAVING}(-({LAST}|{re.escape(BEST)}|pins))?|({REMOVING}-|{REPLACED})step-[0-9]+")


def sweep(folder: Path, private: Path) -> None:
    """Remove what is half written or half removed. The lock is held, so nobody is at it."""
    for name in filter(_LITTER.fullmatch, os.listdir(private)):
        path, step = private / name, folder / name.removeprefix(REPLACED)
        if name.startswith(REPLACED) and not os.path.lexists(step):  # who put it there died in between
            disk().rename(str(path), str(step))
            sync_folder(folder)
        elif not path.is_dir() or path.is_symlink():
            disk().unlink(str(path))
        elif (manifest := _replaced(path)) is not None and strangers(path, manifest):  # P1: a file of somebody else
            disk().rename(str(path), str(aside(folder / step_name(manifest.step), "replaced")))
            sync_folder(folder)
        else:
            remove_tree(str(path))


def strangers(path: Path, manifest: Manifest) -> list[str]:
    """What lies in a checkpoint's folder and is not of it."""
    ours = {*manifest.files, MANIFEST}
    return sorted(name for name in os.listdir(path) if name not in ours)


def aside(path: Path, word: str) -> Path:
    """A name beside a checkpoint that nothing has."""
    number = 1
    while os.path.lexists(found := path.with_name(f"{path.name}.{word}-{number}")):
        number += 1
    return found


def _replaced(path: Path) -> Manifest | None:
    """What a folder was, if it was a whole checkpoint."""
    try:
        return read_manifest(path)
    except HoldfastError:
        return None
