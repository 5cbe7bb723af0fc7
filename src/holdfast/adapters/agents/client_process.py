"""Whether the helper may act for another process: only for one that could do the same itself, in the same way.

A process in a sandbox or a container must not get out of it through the helper, and a limit that a process runs under
must hold for what is done in its name.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping

_STATUS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapEff")
"""Lines of /proc/PID/status that must be equal. Sandboxes of the kernel show in one of them: Landlock needs NoNewPrivs,
or a capability."""
_NAMESPACES = ("mnt", "user", "pid", "net")
_LIMITS = (
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_CPU,
    resource.RLIMIT_RSS,
)
"""Not the number of open files: agents raise their own, and a command needs few."""
_LABEL = "attr/current"  # of AppArmor or SELinux
_VARIABLES = ("TZ", "TZDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "HOLDFAST_NATIVE", "TMPDIR", "TEMP", "TMP")
"""Variables that C code, or a module once it is used, has read: they cannot be other ones later."""


def acts_alike(pid: int, environ: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a process has the same rights, limits and view of the system as this one. `environ` is its environment,
    `own` the one that this process was started with."""
    if sys.platform != "linux":
        return False  # there is no helper
    try:
        if any(environ.get(name) != own.get(name) for name in _VARIABLES):
            return False
        there, here = f"/proc/{pid}", "/proc/self"
        if _status(there) != _status(here) or _label(there) != _label(here):
            return False
        if any(os.readlink(f"{there}/ns/{name}") != os.readlink(f"{here}/ns/{name}") for name in _NAMESPACES):
            return False
        if not os.path.samestat(os.stat(f"{there}/root"), os.stat(f"{here}/root")):
            return False
        return all(resource.prlimit(pid, limit) == resource.getrlimit(limit) for limit in _LIMITS)
    except (OSError, ValueError):  # it is gone, or may not be looked at
        return False


def umask_of(pid: int) -> int:
    """The umask of a process. OSError if the system does not tell."""
    umask = _lines(f"/proc/{pid}").get("Umask")
    if umask is None:
        raise OSError("the system does not tell the umask of a process")
    return int(umask, 8)


def _status(process: str) -> list[str | None]:
    lines = _lines(process)
    return [lines.get(name) for name in _STATUS]


def _lines(process: str) -> dict[str, str]:
    with open(f"{process}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _label(process: str) -> bytes:
    try:
        with open(f"{process}/{_LABEL}", "rb") as file:
            return file.read()
    except OSError:  # the kernel has none
        return b""
