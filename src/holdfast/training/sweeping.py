"""What writers that died left in a folder of checkpoints, and what was replaced: removed, unless others are in it."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from holdfast.durable import disk, remove_tree, sync_folder
from holdfast.errors import HoldfastError
from holdfast.training.reading import read_manifest
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, step_name
from holdfast.training.stored.manifest import Manifest

_log = logging.getLogger("holdfast")

SAVING = "saving"
REMOVING = "removing"
REPLACED = "replaced-"
_OURS = re.compile(r"model[-.][\w.-]*safetensors(\.index\.json)?|state\.json|manifest\.json")
"""The files that a save puts into its stage."""
_HEADS = (b'{\n  "schema_version": ', b'{"schema_version": ')
"""How markers and pins begin."""
_LITTER = re.compile(rf"{SAVING}(-({LAST}|{re.escape(BEST)}|pins))?|({REMOVING}-|{REPLACED})step-[0-9]+")


def sweep(folder: Path, private: Path) -> None:
    """Remove what is half written or half removed. The lock is held, so nobody is at it.

    What has such a name and is not ours, or holds something that is not, gets another name (P1).
    """
    for name in filter(_LITTER.fullmatch, os.listdir(private)):
        path, step = private / name, folder / name.removeprefix(REPLACED)
        is_folder = path.is_dir() and not path.is_symlink()
        manifest = _replaced(path) if is_folder else None
        if name.startswith(REPLACED) and not os.path.lexists(step):  # who put it there died in between
            disk().rename(str(path), str(step))
            sync_folder(folder)
        elif manifest is not None and strangers(path, manifest):
            _put_aside(path, aside(folder / step_name(manifest.step), "replaced"))
        elif not is_folder and _is_half_written(path):
            disk().unlink(str(path))
        elif is_folder and (manifest is not None or _is_half_of_a_checkpoint(path)):
            remove_tree(str(path))
        else:
            _put_aside(path, aside(path, "replaced"))


def _is_half_of_a_checkpoint(path: Path) -> bool:
    with os.scandir(path) as entries:
        return all(_OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False) for entry in entries)


def _is_half_written(path: Path) -> bool:
    """Whether a file is a marker or the pins, or the beginning of them; a power loss leaves zeros for the rest."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with path.open("rb") as file:
        found = file.read(len(max(_HEADS, key=len))).rstrip(b"\0")
    return any(found.startswith(head[: len(found)]) for head in _HEADS)


def _put_aside(path: Path, target: Path) -> None:
    _log.warning("kept, because Holdfast did not write all of it: %s", target)
    disk().rename(str(path), str(target))
    sync_folder(path.parent)
    sync_folder(target.parent)


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
