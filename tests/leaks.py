"""File descriptors that are still open, for tests that want them closed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_below(folder: Path) -> int:
    """How many descriptors of this process lead into a folder."""
    places = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one by which they were listed
            places.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sum(place.startswith(str(folder)) for place in places)
