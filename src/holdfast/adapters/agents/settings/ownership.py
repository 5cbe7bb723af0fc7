"""The owner of the files that `install` writes: under sudo, the user it is run for, not root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.protocol import state_folder

Owner = tuple[int, int]
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def owner_at(path: Path) -> Owner:
    """The owner for a file at a path: that of the existing file, else of the nearest parent folder."""
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(place)
            return found.st_uid, found.st_gid
    return os.geteuid(), os.getegid()


def give(path: Path, owner: Owner) -> None:
    """Change the owner of a new file or folder; only root can, and only root needs to."""
    with suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(path, _FLAGS)
        try:
            found = os.fstat(fd)
            if (found.st_uid, found.st_gid) != owner:
                with suppress(PermissionError):
                    durable.disk().chown(fd, *owner)
        finally:
            os.close(fd)


def make_ours(folder: Path) -> None:
    """Create a folder and its parents, each with the owner of the folder it is in."""
    for place in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        owner = owner_at(place)
        durable.make_folder(place)
        give(place, owner)


def give_ours(environ: Mapping[str, str]) -> None:
    """Give what root wrote in the state folder to the user whose home folder it is in.

    All of it, each time, to repair what an earlier call left to root.
    """
    own = Path(os.path.abspath(state_folder(environ)))
    home = Path(environ.get("HOME") or own.parent.parent)
    owner = owner_at(home if own.is_relative_to(home) else own.parent.parent)
    if os.geteuid() != 0 or owner[0] == 0:
        return
    for folder in (own.parent, own):
        give(folder, owner)
    for folder_name, folders, files in os.walk(own):
        for name in (*folders, *files):
            give(Path(folder_name) / name, owner)
