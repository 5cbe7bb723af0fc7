"""Processes of our own that go on when this one ends: nobody waits for them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

_children: list[int] = []


def start(module: str, arguments: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Run a module of this package with arguments as JSON, detached. If that is impossible, nothing is run."""
    _children[:] = [child for child in _children if not _has_ended(child)]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    # -P: a package named holdfast in the current folder is not ours
    command = [sys.executable, "-P", "-m", module, json.dumps(arguments)]
    with contextlib.suppress(OSError, NotImplementedError):
        _children.append(
            os.posix_spawn(sys.executable, command, {**os.environ, **environ}, file_actions=null, setsid=True)
        )


def give_way() -> None:
    """Have the kernel take this process for one that nobody waits for.

    Its share of the processor stays the same: one of low priority would be interrupted while it has the store's lock,
    and an agent would wait for it. On a busy computer that is many times as long as its work.
    """
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
