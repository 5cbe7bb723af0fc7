"""Files that are replaced in one step, and reading files that other programs wrote."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

from holdfast.durable import platform
from holdfast.durable.disk import disk

_MOST_DOTS = 1000


def write_atomically(
    path: Path,
    data: bytes,
    *,
    sync: bool = True,
    via: Path | None = None,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
) -> None:
    """Replace a file in one step (P3): a crash leaves the old content or the new.

    Without `sync` a power loss may leave either, or garbage: only for files that contain a checksum and can be made
    again. What a crash leaves behind is `<name>.new` (or `via`, on the same file system), which the next call replaces.
    Only its owner can read the file, unless `mode` says otherwise. `owner`: set if this process may do so.
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
            disk().fsync(fd)  # P3: the content is durable before the name leads to it
    finally:
        os.close(fd)
    disk().rename(temporary, str(path))  # commit point
    if sync:
        sync_folder(path.parent)


def read_file(
    path: str | os.PathLike[str], *, max_bytes: int, dir_fd: int | None = None, follow_links: bool = True
) -> bytes:
    """Return the content of a regular file that another program wrote.

    Never waits for a pipe and never reads a device; raises OSError with a readable `strerror` if it is not a
    regular file or is larger than `max_bytes`.
    """
    flags = platform.READ_ONLY | platform.O_NONBLOCK | (0 if follow_links else platform.O_NOFOLLOW)
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        pieces, left = [], max_bytes + 1  # one more: it may grow while it is read
        while status.st_size <= max_bytes and left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(fd)
    if status.st_size > max_bytes or left <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {_size(max_bytes)}")
    return b"".join(pieces)


def parse_toml(data: bytes) -> dict[str, Any]:
    """Return the tables of a TOML text; raises ValueError with a readable message if it is not valid.

    The parser's memory grows with the square of the parts of a dotted key, so that a line of a few kilobytes could take
    all there is: lines with more dots than any key needs are refused before.
    """
    import tomllib  # start-up cost, only where there is something to read

    if any(line.count(b".") > _MOST_DOTS for line in data.splitlines()):
        raise ValueError(f"a line has more than {_MOST_DOTS:,} dots")
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_json(data: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError if it is not valid, or nested too deeply to be read."""
    import json  # start-up cost, only where there is something to read

    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count:,} bytes"


def private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, from its first instant: an opener for `open`."""
    return os.open(path, flags, 0o600)  # Python keeps it from other programs


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Make a folder that (unless `mode` says otherwise) only its owner can enter, and its missing parents."""
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
    """Make the names in a folder durable. Windows has no call for that, and writes them with the files."""
    if sys.platform == "win32":
        return
    fd = os.open(path, platform.READ_ONLY | platform.O_DIRECTORY)
    try:
        disk().fsync(fd)
    finally:
        os.close(fd)


def remove_tree(name: str, *, dir_fd: int | None = None) -> None:
    """Remove a folder and everything in it, never following a link. A folder that does not exist is no error."""
    flags = platform.READ_ONLY | platform.O_DIRECTORY | platform.O_NOFOLLOW
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
