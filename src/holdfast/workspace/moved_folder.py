"""Finding the store of a folder that was moved or renamed: by files that are still the same, not by its name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.scan.cache import Folder, load
from holdfast.workspace.store_paths import left_behind


def find_moved(workspace: Path, environ: Mapping[str, str]) -> tuple[str, Path] | None:
    """Return where a folder was before, and its store; None unless that is certain.

    It is certain if nothing is at the old place, the folder is the same inode, and something in it has not changed
    since the last scan, its change time included. An inode alone proves nothing: a new folder gets that of a deleted
    one.
    """
    for was, store in left_behind(workspace, environ).items():
        try:
            found = load((store / "holdfast" / "scan.cache").read_bytes())
            if found is not None and _is_same(found[1], workspace):
                return was, store
        except (OSError, ValueError):
            continue  # no cache, or none that can be read: it proves nothing
    return None


def find_new_place(was: str, store: Path) -> str:
    """Return where a folder that is not at its place any more is now, if it or a folder above it was only renamed;
    empty if that is not certain. Looks beside the lowest folder on its way that still exists, nowhere else."""
    above, rest = os.path.dirname(was), [os.path.basename(was)]
    while not os.path.isdir(above) and os.path.dirname(above) != above:
        above, name = os.path.split(above)
        rest.insert(0, name)
    try:
        found = load((store / "holdfast" / "scan.cache").read_bytes())
        beside = [entry.name for entry in os.scandir(above) if entry.is_dir(follow_symlinks=False)]
    except (OSError, ValueError):
        return ""
    for name in beside if found is not None else ():
        place = Path(above, name, *rest[1:])
        with contextlib.suppress(OSError):
            if found is not None and _is_same(found[1], place):
                return os.fspath(place)
    return ""


def _is_same(folders: Mapping[str, Folder], workspace: Path) -> bool:
    top = folders.get("")
    if top is None or top.key[1] != os.stat(workspace).st_ino:
        return False
    for name in top.names:
        place, status = top.place(name), _status(workspace / name)
        if place is not None and status is not None and top.has_status(place, status):
            return True
    for name in top.folders:
        below, status = folders.get(name), _status(workspace / name)
        if below is not None and status is not None:
            now = (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
            if below.key[1:] == now:
                return True
    return False


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
