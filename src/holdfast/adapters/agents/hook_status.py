"""Whether hooks of coding agents are alive in a workspace, in short; `doctor` says more."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.agents.names import AGENT_NAMES, data_folder
from holdfast.adapters.agents.parent_process import session_folder
from holdfast.workspace.stored.attribution import USER

if TYPE_CHECKING:
    from holdfast.adapters.agents.attribution import AgentSessions
    from holdfast.adapters.agents.base import SettingsPaths

    Words = Callable[[str], Sequence[str]]


class HookState(NamedTuple):
    """The hooks of one agent here."""

    agent: str
    is_installed: bool
    fired_at: float | None
    """When its last event came, in seconds since 1970; None if there was none."""
    problems: tuple[str, ...]


class HookStatus(NamedTuple):
    """The hooks of all agents that are installed, or have sent events here."""

    hooks: tuple[HookState, ...]
    working: str
    """Who has a tool call open now, and so made what is not saved yet; `user` if nobody has."""


def read_hook_status(
    store: Path, home: Path, environ: Mapping[str, str], places: "Callable[[], tuple[SettingsPaths, Words]]"
) -> HookStatus:
    """Read the settings of the agents that are used on this computer, and their sessions in a workspace. `places` is
    called only if there is such an agent: where the settings are, and the command that they are to run."""
    folder = session_folder(store)
    used = [name for name in AGENT_NAMES if data_folder(name, home, environ).is_dir()]
    if not used and not folder.exists():
        return HookStatus((), USER)
    from holdfast.adapters.agents.base import find_agent  # start-up cost, only where an agent is used
    from holdfast.adapters.agents.doctor import examine
    from holdfast.adapters.agents.session_file import read_sessions

    around, words = places()
    sessions = read_sessions(folder)
    found = []
    for name in AGENT_NAMES:
        fired = sessions.fired.get(name)
        if fired is None and name not in used:
            continue
        report = examine(find_agent(name), around, words(name), sessions)
        if report.installed or fired:
            untrusted = report.trusted is False and not report.problems
            problems = ("its hooks are not trusted yet: start it, and accept them",) if untrusted else report.problems
            at = fired.at if fired else None
            found.append(HookState(name, bool(report.installed), at, problems))
    return HookStatus(tuple(found), _working(sessions))


def _working(sessions: "AgentSessions") -> str:
    newest = sorted(sessions.sessions.values(), key=lambda each: each.at, reverse=True)
    return next((session.open[-1].actor for session in newest if session.open), USER)
