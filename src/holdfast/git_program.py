"""Running the git program so that no setting, hook or variable of the user has a say in it (P6, P7).

Only what is given here is in its environment. It fetches nothing, asks nothing, and takes no optional lock.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.errors import Unavailable

SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.commitGraph": "true",
    "pack.packSizeLimit": "0",
    "pack.windowMemory": "256m",
    "pack.writeReverseIndex": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
"""These win over the settings of the repository that git works in."""


class GitDone(NamedTuple):
    """How a git command ended."""

    code: int
    output: bytes
    error: str
    """The last line of what it said on stderr; empty if it said nothing."""


def run_git(
    git: str,
    command: Sequence[str],
    *,
    git_dir: Path,
    input_data: bytes | None = None,
    stdout: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    umask: int = 0o077,
) -> GitDone:
    """Run a git command in a git directory. `environ` adds variables; `stdout` takes the output instead of memory.

    Only its owner can read what it writes, unless `umask` says otherwise (-1: that of this process).
    Unavailable if the program cannot be run. TimeoutError if it takes longer than `timeout_s`: it is killed then.
    """
    settings = [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
    try:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [git, *settings, *command],
            input=b"" if input_data is None else input_data,
            stdout=stdout if stdout is not None else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(git_dir) | dict(environ or {}),
            cwd=git_dir,
            umask=umask,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"git {command[0]} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise Unavailable(f"{git} cannot be run: {error.strerror}", hint="Check that git works.") from error
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return GitDone(done.returncode, done.stdout or b"", said[-1] if said else "")


def environment(git_dir: Path) -> dict[str, str]:
    """Return the whole environment of a git command."""
    return {
        "PATH": os.defpath,
        "LC_ALL": "C",
        "HOME": os.devnull,
        "GIT_DIR": os.fspath(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # an older git fetches what is missing unless no way to do so is left
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
