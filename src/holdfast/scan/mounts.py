"""What the system says is mounted inside a folder."""

from __future__ import annotations

import os


def mounts_below(root: bytes) -> frozenset[str]:
    """Mount points inside the workspace, also those of the same device (bind mounts)."""
    found = set()
    prefix = root.rstrip(b"/") + b"/"
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            for line in table:
                where = line.split(b" ", 5)[4].decode("unicode_escape").encode("latin-1")
                if where.startswith(prefix):
                    found.add(os.fsdecode(where[len(prefix) :]))
    except (OSError, IndexError, UnicodeDecodeError):
        pass  # no such table: a mount of another device is still known by its number
    return frozenset(found)
