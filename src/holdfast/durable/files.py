"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from holdfast.durable.disk import disk


def write_atomically(
    path: Path,
    data: bytes,
    *,
    sync: bool = True,
    via: Path | None = None,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
) -> None:
    """Replace a file by one step (P3): a crash leaves the old content or the new.

    Without `sync` a power loss may leave either, or garbage: only for what carries its own checksum and can be made
    again. What a crash leaves behind is `<name>.new` (or `via`, on the same file system), which the next call replaces.
    Only its owner can read the file, unless `mode` says otherwise. `owner`: whose it is to be, if we may say so.
    """
    temporary = f"{path}.new" if via is None else str(via)
    try:
        os.lstat(temporary)
    except FileNotFoundError:
        pass
    else:
        disk().unlink(temporary)
    fd = disk().create(temporary)
    try:
        disk().write(fd, data)
        if owner is not None and owner != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
            with contextlib.suppress(PermissionError):
                disk().chown(fd, *owner)
        if mode is not None:
            disk().chmod(fd, mode)
        if sync:
            disk().fsync(fd)
    finally:
        os.close(fd)
    disk().rename(temporary, str(path))
    if sync:
        sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Make a folder that (unless `mode` says otherwise) only its owner can enter, and its parents, if need be."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent, mode=mode)
    try:
        disk().mkdir(str(path), mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk().fsync(fd)
    finally:
        os.close(fd)


def remove_tree(name: str, *, dir_fd: int | None = None) -> None:
    """Remove a folder and everything in it, never following a link; what is gone already is no error."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        if found and not os.fstat(fd).st_mode & stat.S_IWUSR:
            disk().chmod(fd, 0o700)
        for child, is_folder in found:
            if is_folder:
                remove_tree(child, dir_fd=fd)
            else:
                disk().unlink(child, dir_fd=fd)
    finally:
        os.close(fd)
    disk().rmdir(name, dir_fd=dir_fd)
