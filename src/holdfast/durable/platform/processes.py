"""What Linux tells of other processes: locks, open files, rights; and threads with a working directory of their own."""

from __future__ import annotations

import contextlib
import os
import sys

_STATUS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapEff")
"""Lines of /proc/PID/status. A sandbox of the kernel shows in one: Landlock needs NoNewPrivs, or a capability."""
_NAMESPACES = ("mnt", "user", "pid", "net")
_LIMITS = ("FSIZE", "AS", "DATA", "CPU", "RSS")
"""Not the number of open files: agents raise their own, and a command needs few."""
_LABEL = "attr/current"  # of AppArmor or SELinux
_CLONE_FS = 0x200


# ---- Locks and files ----


def lock_owner(fd: int) -> str:
    """The number of the process that has the lock of an open file; empty if the system does not tell."""
    number = f":{os.fstat(fd).st_ino} "
    try:
        with open("/proc/locks") as table:
            owners = [line.split()[4] for line in table if "FLOCK" in line and number in line]
    except OSError:
        return ""
    return owners[0] if owners and owners[0] != "-1" else ""


def open_files() -> dict[str, list[str]]:
    """Descriptors of other processes, by file name, as far as the system shows them: those of other users to root only.

    `readlink` never waits for a dead network server; `stat` may.
    """
    found: dict[str, list[str]] = {}
    try:
        processes = os.listdir("/proc")
    except OSError:
        return {}
    for process in filter(str.isdigit, processes):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if int(process) == os.getpid():
                continue
            for number in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    name = os.readlink(f"/proc/{process}/fd/{number}").rpartition("/")[2]
                    found.setdefault(name, []).append(f"/proc/{process}/fd/{number}")
    return found


def can_write(descriptor: str, wanted: os.stat_result) -> bool:
    """Whether a descriptor of `open_files` is open for writing to this file."""
    try:
        if not os.path.samestat(os.stat(descriptor), wanted):
            return False
        with open(descriptor.replace("/fd/", "/fdinfo/"), encoding="ascii") as text:
            flags = next((line.split()[1] for line in text if line.startswith("flags:")), "0")
    except OSError:
        return False
    return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))


# ---- Rights ----


def rights_of(pid: int) -> object:
    """What a process may do and sees of the system: its users, sandbox, namespaces, root and limits.

    Equal to those of another process if both can do the same. OSError or ValueError if the system does not tell.
    """
    if sys.platform != "linux":
        raise OSError("the system does not tell the rights of a process")
    import resource

    process = f"/proc/{pid}"
    lines = _lines(process)
    status = [lines.get(name) for name in _STATUS]
    namespaces = [os.readlink(f"{process}/ns/{name}") for name in _NAMESPACES]
    root = os.stat(f"{process}/root")
    limits = [resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS]
    return status, _label(process), namespaces, (root.st_dev, root.st_ino), limits


def umask_of(pid: int) -> int:
    """The umask of a process. OSError if the system does not tell."""
    umask = _lines(f"/proc/{pid}").get("Umask")
    if umask is None:
        raise OSError("the system does not tell the umask of a process")
    return int(umask, 8)


def _lines(process: str) -> dict[str, str]:
    with open(f"{process}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _label(process: str) -> bytes:
    try:
        with open(f"{process}/{_LABEL}", "rb") as file:
            return file.read()
    except OSError:  # the kernel has none
        return b""


# ---- Threads ----


def separate_thread() -> bool:
    """Give this thread a working directory and a umask of its own; False where the system does not allow it."""
    import ctypes  # start-up cost: only the helper needs it

    try:
        return bool(ctypes.CDLL(None).unshare(_CLONE_FS) == 0)
    except AttributeError:
        return False
