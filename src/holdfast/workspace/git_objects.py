"""Holding objects of the user's git in a process of its own, where that takes longer than a save may.

Run as a module, with a JSON object as its argument, like thinning.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from holdfast import durable
from holdfast.errors import HoldfastError
from holdfast.workspace import background
from holdfast.workspace.capture.git_hold import AGAIN_S, SLOW
from holdfast.workspace.upkeep.growth import Saved, start_detached

_STARTED = b"started\n"


def start_holding(saved: Saved) -> None:
    """Start it, unless that was done a short while ago."""
    note = saved.store / "holdfast" / SLOW
    try:
        if note.read_bytes() == _STARTED and 0 <= saved.now - note.stat().st_mtime < AGAIN_S:
            return
        durable.write_atomically(note, _STARTED, via=note.with_suffix(".tmp"), sync=False)
    except OSError:
        return  # nothing was too slow, or the disk refuses
    start_detached(saved, "holdfast.workspace.git_objects")


def hold(path: str, store: str, *, allow_home: bool, trust_store: bool) -> None:
    """Hold what the checkpoints of a store name, however long it takes."""
    from holdfast.workspace.config import read_settings
    from holdfast.workspace.workspace import Workspace

    limit = read_settings(path).git_objects_max_bytes
    workspace = Workspace(
        path,
        store=store,
        create=False,
        allow_home=allow_home,
        trust_store=trust_store,
        git_objects_max_bytes=limit,
    )
    workspace.hold_git()


def _main() -> None:
    os.chdir("/")
    background.give_way()
    with contextlib.suppress(HoldfastError, OSError):  # the checkpoints say what they do not hold
        hold(**json.loads(sys.argv[1]))


if __name__ == "__main__":
    _main()
