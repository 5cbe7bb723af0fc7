"""The agent process that called a hook: whether it is alive says whether its tools may still run."""

from __future__ import annotations

from pathlib import Path

from holdfast.durable.platform import process_stat

TYPE_CHECKING = False  # as type checkers know it, without the cost of `typing`
if TYPE_CHECKING:
    from holdfast.adapters.agents.attribution import AgentSession, OpenToolCall

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


def session_folder(store: Path) -> Path:
    """The folder of the session file in a store; none if no agent's hook ever ran there."""
    return store / "holdfast" / "agents"


def find_enclosing_tool(store: Path, pid: int) -> tuple[AgentSession, OpenToolCall, list[str]] | None:
    """Find the tool call that a process runs in: the latest open one of the session that started the process; and who
    else has one open, and may have changed something meanwhile."""
    if not (folder := session_folder(store)).exists():
        return None
    from holdfast.adapters.agents.session_file import read_sessions  # start-up cost: only where agents work

    sessions = read_sessions(folder).sessions.values()
    for session in sorted(sessions, key=lambda each: each.at, reverse=True):
        if session.open and is_within(pid, session.owner):
            tool = session.open[-1]
            actors = {call.actor for each in sessions for call in each.open}
            return session, tool, sorted(actors - {tool.actor})
    return None


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
    found = process_stat(pid)
    return found[:3] if found is not None and found[3] else None
