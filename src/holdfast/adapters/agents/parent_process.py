"""The agent process that called a hook: whether it is alive says whether its tools may still run."""

from __future__ import annotations

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "busybox"})
_MAX_STEPS = 4


def owner_of(pid: int) -> str:
    """Identify the agent's process, given the parent of a hook; shells in between are skipped. Empty if unknown."""
    for _ in range(_MAX_STEPS):
        found = _stat(pid)
        if found is None or pid <= 1:
            return ""
        name, parent, started = found
        if name not in _SHELLS:
            return f"{pid}:{started}"
        pid = parent
    return ""


def is_within(pid: int, owner: str) -> bool:
    """Whether a process was started by another, directly or not."""
    while pid > 1 and (found := _stat(pid)) is not None:
        if f"{pid}:{found[2]}" == owner:
            return True
        pid = found[1]
    return False


def is_alive(owner: str) -> bool:
    """Whether the process is alive, and is not another one with a reused pid."""
    pid, _, started = owner.partition(":")
    found = _stat(int(pid)) if pid.isdigit() else None
    return found is not None and found[2] == started


def _stat(pid: int) -> tuple[str, int, str] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    words = rest.split()
    if len(words) < 20 or words[0] in (b"Z", b"X"):
        return None
    return name.decode("utf-8", "replace"), int(words[1]), words[19].decode()
