"""A picture of everything under a folder, path by path, and what differs between two pictures.

The walk is by folder handle and free of recursion, so that neither depth nor the length of a path limits it.
Links are never followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

BLOCK = 64 * 1024
SPARSE_FROM_BYTES = 1 << 20

Picture = dict[str, "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """All that a checkpoint promises to bring back of one path."""

    kind: str
    content: str | None
    """Digest of a file's bytes, target of a link, number of a device; None where it cannot be read."""
    size: int
    mode: int
    mtime_ns: int
    owner: tuple[int, int]
    xattrs: tuple[tuple[str, bytes], ...]
    sparse: bool
    links: tuple[str, ...] = ()
    """The other names, inside the folder, of the same inode."""
    identity: tuple[int, int] = field(default=(0, 0), compare=False)


def capture(folder: Path, *, skip: frozenset[str] = frozenset()) -> Picture:
    """Picture every path under `folder`, itself included as `.`; what a folder named `.git` holds is left out.

    `skip` names paths that are left out with all that they hold.
    """
    return _picture(folder, skip=skip, enter_git=False)


def capture_repositories(folder: Path) -> dict[str, Picture]:
    """Picture the whole of every `.git` folder under `folder`."""
    return {name: _picture(folder / name, skip=frozenset(), enter_git=True) for name in _git_folders(folder)}


def _git_folders(folder: Path) -> Iterator[str]:
    """Find every `.git` folder, looking at names alone: this is done before and after every call of the engine."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    waiting = [""]
    try:
        while waiting:
            parent = waiting.pop()
            try:
                handle = open_folder(top, parent)
            except PermissionError:
                continue
            with os.scandir(handle) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            os.close(handle)
            yield from (parent + name for name in names if name == ".git")
            waiting += [f"{parent}{name}/" for name in names if name != ".git"]
    finally:
        os.close(top)


def differences(old: Picture, new: Picture) -> dict[str, str]:
    """Say of every path that is not the same in both what differs."""
    return {
        name: _what_differs(old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _what_differs(old: Entry | None, new: Entry | None) -> str:
    if old is None:
        return "is new"
    if new is None:
        return "is gone"
    changed = [f.name for f in fields(Entry) if f.compare and getattr(old, f.name) != getattr(new, f.name)]
    return ", ".join(f"{name} {getattr(old, name)!r} -> {getattr(new, name)!r}" for name in changed)


def _picture(folder: Path, *, skip: frozenset[str], enter_git: bool) -> Picture:
    picture = dict(_walk(folder, skip, enter_git))
    names: dict[tuple[int, int], list[str]] = {}
    for name, entry in picture.items():
        if entry.kind != "folder":
            names.setdefault(entry.identity, []).append(name)
    for group in names.values():
        for name in group if len(group) > 1 else ():
            picture[name] = replace(picture[name], links=tuple(sorted(set(group) - {name})))
    return picture


def _walk(folder: Path, skip: frozenset[str], enter_git: bool) -> Iterator[tuple[str, Entry]]:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield ".", _entry(top, ".")
        waiting = [""]
        while waiting:
            parent = waiting.pop()
            try:
                handle = open_folder(top, parent)
            except PermissionError:
                continue
            try:
                for name in sorted(os.listdir(handle)):
                    path = parent + name
                    if path in skip:
                        continue
                    entry = _entry(handle, name)
                    yield path, entry
                    if entry.kind == "folder" and (enter_git or name != ".git"):
                        waiting.append(path + "/")
            finally:
                os.close(handle)
    finally:
        os.close(top)


def open_folder(top: int, path: str) -> int:
    """Open a folder below the handle `top`, however long its path; the caller closes it."""
    handle = os.dup(top)
    parts = path.encode(errors="surrogateescape").split(b"/")
    while parts:
        take, length = 1, len(parts[0])
        while take < len(parts) and length + 1 + len(parts[take]) < 4000:
            length += 1 + len(parts[take])
            take += 1
        step, parts = b"/".join(parts[:take]) or b".", parts[take:]
        try:
            deeper = os.open(step, os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
        finally:
            os.close(handle)
        handle = deeper
    return handle


def _entry(handle: int, name: str) -> Entry:
    info = os.lstat(name, dir_fd=handle)
    kind = _kind(info.st_mode)
    return Entry(
        kind=kind,
        content=_content(handle, name, kind, info),
        size=info.st_size if kind in ("file", "link") else 0,
        mode=stat.S_IMODE(info.st_mode),
        mtime_ns=info.st_mtime_ns,
        owner=(info.st_uid, info.st_gid),
        xattrs=_xattrs(handle, name),
        sparse=kind == "file" and info.st_size >= SPARSE_FROM_BYTES and info.st_blocks * 512 < info.st_size // 2,
        identity=(info.st_dev, info.st_ino),
    )


def _kind(mode: int) -> str:
    for test, kind in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
    ):
        if test(mode):
            return kind
    return "block device"


def _content(handle: int, name: str, kind: str, info: os.stat_result) -> str | None:
    if kind == "link":
        return os.readlink(name, dir_fd=handle)
    if kind.endswith("device"):
        return f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
    if kind != "file":
        return ""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except PermissionError:
        return None
    try:
        return _digest(file, info.st_size)
    finally:
        os.close(file)


def _digest(file: int, size: int) -> str:
    """Hash what is not zero, with its place, so that a hole and written zeros are the same and holes cost nothing."""
    digest = hashlib.sha256(b"%d" % size)
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(file, offset, os.SEEK_DATA) // BLOCK * BLOCK
        except OSError:  # ENXIO: only a hole is left
            break
        block = os.pread(file, BLOCK, offset)
        if block.count(0) != len(block):
            digest.update(b"%d:" % offset + block)
        offset += BLOCK
    return digest.hexdigest()


def _xattrs(handle: int, name: str) -> tuple[tuple[str, bytes], ...]:
    path = f"/proc/self/fd/{handle}/{name}"
    names = sorted(os.listxattr(path, follow_symlinks=False))
    try:
        return tuple((each, os.getxattr(path, each, follow_symlinks=False)) for each in names)
    except PermissionError:
        return tuple((each, b"") for each in names)
