"""Comparing what is in the folder with what was to be there."""

from __future__ import annotations

import os
import stat

from holdfast.scan.handles import Handles, split
from holdfast.shadowgit import Kind, object_id
from holdfast.workspace.stored.tree import Entry

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def difference(handles: Handles, path: str, after: Entry | None, *, is_ours: bool) -> str:
    """What is not as it was to be at a path; empty if all is. The content is read only of what `is_ours`."""
    try:
        status = _status(handles, path)
    except OSError:
        return "" if after is None else "gone again after it was restored"
    if after is None:
        return "there again after it was removed"
    again = "changed again after it was restored"
    if stat.S_IFMT(status.st_mode) != after.kind:
        return again
    if not after.is_link and status.st_mode != after.attr.mode:
        return "its mode could not be restored"
    if after.is_file and is_ours and not _has_content(handles, path, after, status.st_size):
        return again
    if status.st_mtime_ns != after.attr.mtime_ns:  # beyond what this file system counts, or somebody was here
        return again if after.is_file and not is_ours else "its time could not be restored"
    return ""


def has_no_holes(handles: Handles, path: str) -> bool:
    """Whether all of a file takes room on the disk."""
    status = _status(handles, path)
    return status.st_blocks * 512 >= status.st_size


def _status(handles: Handles, path: str) -> os.stat_result:
    parent, name = split(path)
    return os.stat(name or ".", dir_fd=handles.open(parent), follow_symlinks=False)


def _has_content(handles: Handles, path: str, entry: Entry, size: int) -> bool:
    parent, name = split(path)
    if entry.attr.parts_bytes is not None:
        return size == entry.attr.parts_bytes  # its bytes were checked as they were written
    try:
        fd = os.open(name, _FLAGS, dir_fd=handles.open(parent))
    except OSError:
        return True  # not readable for its owner, as it was
    try:
        return object_id(Kind.BLOB, os.pread(fd, size + 1, 0)) == entry.oid
    finally:
        os.close(fd)
