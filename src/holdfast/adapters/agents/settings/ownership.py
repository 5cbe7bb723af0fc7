"""Whose the files are that `install` writes: under sudo they stay, or become, those of the user it is done for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.folders import own_folder

Owner = tuple[int, int]
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def owner_at(path: Path) -> Owner:
    """Whose a file at a path is to be: as what is there, else as the nearest folder above."""
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(place)
            return found.st_uid, found.st_gid
    return os.geteuid(), os.getegid()


def give(path: Path, owner: Owner) -> None:
    """Let a file or folder that we made belong to somebody; who is not root may not, and need not."""
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
    """Make a folder of the hooks, and those above it, as those of whose folder they are made in."""
    for place in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        owner = owner_at(place)
        durable.make_folder(place)
        give(place, owner)


def give_ours(environ: Mapping[str, str]) -> None:
    """Let what root wrote in the hooks' own folder belong to the user whose home it is in.

    All of it, each time: also what an earlier call left to root.
    """
    own = Path(os.path.abspath(own_folder(environ)))
    home = Path(environ.get("HOME") or own.parent.parent)
    owner = owner_at(home if own.is_relative_to(home) else own.parent.parent)
    if os.geteuid() != 0 or owner[0] == 0:
        return
    for folder in (own.parent, own):
        give(folder, owner)
    for folder_name, folders, files in os.walk(own):
        for name in (*folders, *files):
            give(Path(folder_name) / name, owner)
