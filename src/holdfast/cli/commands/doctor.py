"""`holdfast doctor`."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click

from holdfast.adapters.agents.attribution import AgentSessions, LastEvent
from holdfast.adapters.agents.base import find_agent
from holdfast.adapters.agents.doctor import AgentReport, examine
from holdfast.adapters.agents.hook_log import log_file
from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.parent_process import session_folder
from holdfast.adapters.agents.session_file import read_sessions
from holdfast.cli import render, streams
from holdfast.cli.agent_name import AgentName
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.cli.install_output import command_words, places
from holdfast.errors import HoldfastError
from holdfast.scan.sweep import describe

_LOG_LINES = 3
_FINE = "as installed"


@command()
@click.argument("agents", metavar="[AGENT...]", nargs=-1, type=AgentName())
@pass_app
def doctor(app: App, *, agents: tuple[str, ...]) -> int:
    """Check whether the hooks of coding agents work here.

    For each agent: whether the hooks are installed, trusted and have run in this workspace, whether its commands are as
    they were installed, and what the hooks do not cover.
    Exits with 8 if something keeps installed hooks from working.

    \b
    holdfast doctor
    holdfast doctor codex
    """
    around = places(app)
    sessions = _sessions(app)
    found = [examine(find_agent(name), around, command_words(name), sessions) for name in agents or AGENT_NAMES]
    log = _last_lines()
    if app.json:
        app.items(map(_document, found), log=log, scan=describe())
    else:
        for each in found:
            _show(each, whole=bool(agents))
        if log:
            streams.note(f"The last lines of {render.escape(str(log_file(os.environ)))}:")
            streams.notes(f"    {render.escape(line)}" for line in log)
        scan = describe()
        streams.note(f"Scanner: {'native module' if scan == 'native' else scan}")
    return Exit.DONE if all(each.is_well for each in found) else Exit.INCOMPLETE


def _sessions(app: App) -> AgentSessions:
    try:
        return read_sessions(session_folder(app.open().store))
    except HoldfastError:
        return AgentSessions()  # no checkpoints here yet: nothing has fired


def _show(each: AgentReport, *, whole: bool) -> None:
    if not each.installed and not whole:
        hint = f"; install with: {typed('install', each.agent)}" if each.is_used else ""
        streams.answer(f"{each.title}: no hooks installed{hint}")
        _show_problems(each)
        return
    where = ", ".join(f"{path} ({scope})" for scope, path in each.installed.items())
    pairs = [
        ("installed", render.escape(where) or "no"),
        ("trusted", {True: "yes", False: "no", None: "not needed"}[each.trusted]),
        ("last run", _fired(each.fired)),
        ("commands", _commands(each)),
    ]
    streams.answer(render.paint(each.title, "bold"))
    streams.answer("\n".join(f"  {line}" for line in render.fields(pairs).splitlines()))
    _show_problems(each)
    if not each.installed:
        streams.answer(f"  Nothing is saved; install with: {typed('install', each.agent)}")
    elif not each.problems:
        for line in each.not_covered:
            streams.answer(f"  not covered: {line}")


def _show_problems(each: AgentReport) -> None:
    for line in each.problems:
        streams.answer(f"  {render.paint('problem', 'red')}: {render.escape(line)}")


def _moment(seconds: float) -> datetime:
    """A time as it is noted; one beyond the calendar becomes its end."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)


def _commands(each: AgentReport) -> str:
    """Where the commands are, and which are not as they were installed."""
    if not each.commands:
        return "none"
    folder = os.path.commonpath([os.path.dirname(path) for path in each.commands])
    odd = [f"{os.path.relpath(path, folder)} {state}" for path, state in each.commands.items() if state != _FINE]
    count = render.count(len(each.commands), "file")
    option = ["--plugin"] if any(path.endswith("plugin.json") for path in each.commands) else []
    is_fixable = any(state in ("missing", "old") for state in each.commands.values())  # edited ones are left alone
    again = f"; install again with: {typed('install', each.agent, *option)}" if is_fixable else ""
    return render.escape(f"{count} in {folder}, {', '.join(odd) or _FINE}{again}")


def _fired(fired: LastEvent | None) -> str:
    if fired is None:
        return "never in this workspace"
    moment = _moment(fired.at)
    version = f", version {fired.version}" if fired.version else ""
    return render.escape(f"{render.ago(moment)} ({fired.event}{version}); {render.count(fired.count, 'event')} so far")


def _document(each: AgentReport) -> dict[str, object]:
    fired = each.fired and {
        "at": _moment(each.fired.at).isoformat(),
        "event": each.fired.event,
        "version": each.fired.version or None,
        "count": each.fired.count,
    }
    return {
        "agent": each.agent,
        "used": each.is_used,
        "installed": each.installed,
        "trusted": each.trusted,
        "fired": fired,
        "commands": each.commands,
        "problems": list(each.problems),
        "not_covered": list(each.not_covered),
    }


def _last_lines() -> list[str]:
    try:
        return log_file(os.environ).read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return []
