"""What follows a save in a process of its own, which goes on when this one ends: nobody waits for it.

Run as a module: `python -m holdfast.workspace.background JOB JSON`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

_children: list[int] = []


def start(job: str, arguments: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Do one of `_JOBS` with arguments as JSON, detached. If that is impossible, nothing is run."""
    _children[:] = [child for child in _children if not _has_ended(child)]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    # -P: a package named holdfast in the current folder is not ours
    command = [sys.executable, "-P", "-m", "holdfast.workspace.background", job, json.dumps(arguments)]
    with contextlib.suppress(OSError, NotImplementedError):
        _children.append(
            os.posix_spawn(sys.executable, command, {**os.environ, **environ}, file_actions=null, setsid=True)
        )


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def thin(path: str, **opening: Any) -> None:
    """Thin a store as the configuration of its folder says; if that is invalid, not at all (P1)."""
    from holdfast.workspace.config import read_settings
    from holdfast.workspace.workspace import Workspace

    settings = read_settings(path)
    if settings.thinning is False:
        return
    policy = None if settings.thinning is True else settings.thinning
    Workspace(path, create=False, **opening).thin(policy, keep=settings.retention)


def hold_git(path: str, **opening: Any) -> None:
    """Hold what the checkpoints of a store name of the user's git, however long it takes."""
    from holdfast.workspace.config import read_settings
    from holdfast.workspace.workspace import Workspace

    limit = read_settings(path).git_objects_max_bytes
    Workspace(path, create=False, git_objects_max_bytes=limit, **opening).hold_git()


def check(path: str, **opening: Any) -> None:
    """Run the checks that are wanted, as the configuration of the folder says now."""
    from holdfast.workspace.config import read_settings
    from holdfast.workspace.workspace import Workspace

    options = read_settings(path).options()
    Workspace(path, create=False, on_unknown="tagged", **opening, **options).run_wanted_checks()


_JOBS: Mapping[str, Callable[..., None]] = {"thin": thin, "hold_git": hold_git, "check": check}


def _main() -> None:
    from holdfast.durable import platform
    from holdfast.errors import HoldfastError

    os.chdir("/")
    platform.give_way()
    with contextlib.suppress(HoldfastError, OSError):  # `status` and the checkpoints say what was not done
        _JOBS[sys.argv[1]](**json.loads(sys.argv[2]))


if __name__ == "__main__":
    _main()
