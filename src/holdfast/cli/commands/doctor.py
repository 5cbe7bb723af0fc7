"""`holdfast doctor`."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click

from holdfast.adapters.agents.doctor import Examined, examine
from holdfast.adapters.agents.ledger import ledger_folder, read_windows
from holdfast.adapters.agents.log import log_file
from holdfast.adapters.agents.registry import NAMES, find_agent
from holdfast.adapters.agents.windows import Fired, Windows
from holdfast.cli import output, render
from holdfast.cli.app import App, pass_app, typed
from holdfast.cli.command import command
from holdfast.cli.exits import Exit
from holdfast.cli.installing import command_words, places
from holdfast.errors import HoldfastError

_LOG_LINES = 3


@command()
@click.argument("agents", metavar="[AGENT...]", nargs=-1, type=click.Choice(NAMES))
@pass_app
def doctor(app: App, *, agents: tuple[str, ...]) -> int:
    """Tell whether the hooks of coding agents work here.

    Agent by agent: whether they are installed, trusted, and have fired in this workspace, and what they do not cover.
    Exits with 8 if something keeps installed hooks from working.

    \b
    holdfast doctor
    holdfast doctor codex
    """
    around = places(app)
    windows = _windows(app)
    found = [examine(find_agent(name), around, command_words(name), windows) for name in agents or NAMES]
    log = _last_lines()
    if app.json:
        app.document({"agents": [_document(each) for each in found], "log": log})
    else:
        for each in found:
            _show(each, whole=bool(agents))
        if log:
            output.note(f"The last lines of {render.escape(str(log_file(os.environ)))}:")
            output.notes(f"    {render.escape(line)}" for line in log)
    return Exit.DONE if all(each.is_well for each in found) else Exit.INCOMPLETE


def _windows(app: App) -> Windows:
    try:
        return read_windows(ledger_folder(app.open().store))
    except HoldfastError:
        return Windows()  # no checkpoints here yet: nothing has fired


def _show(each: Examined, *, whole: bool) -> None:
    if not each.installed and not whole:
        hint = f"; install with: {typed('install', each.agent)}" if each.is_used else ""
        output.answer(f"{each.title}: no hooks installed{hint}")
        _show_problems(each)
        return
    where = ", ".join(f"{path} ({scope})" for scope, path in each.installed.items())
    pairs = [
        ("installed", render.escape(where) or "no"),
        ("trusted", {True: "yes", False: "no", None: "not needed"}[each.trusted]),
        ("fired", _fired(each.fired)),
    ]
    output.answer(render.paint(each.title, "bold"))
    output.answer("\n".join(f"  {line}" for line in render.fields(pairs).splitlines()))
    _show_problems(each)
    for line in each.not_covered:
        output.answer(f"  not covered: {line}")


def _show_problems(each: Examined) -> None:
    for line in each.problems:
        output.answer(f"  {render.paint('problem', 'red')}: {render.escape(line)}")


def _moment(seconds: float) -> datetime:
    """A time as it is noted; what no calendar holds, the end of the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC)


def _fired(fired: Fired | None) -> str:
    if fired is None:
        return "never, in this workspace"
    moment = _moment(fired.at)
    version = f", version {fired.version}" if fired.version else ""
    return render.escape(f"{render.ago(moment)} ({fired.event}{version}); {render.count(fired.count, 'event')} so far")


def _document(each: Examined) -> dict[str, object]:
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
        "problems": list(each.problems),
        "not_covered": list(each.not_covered),
    }


def _last_lines() -> list[str]:
    try:
        return log_file(os.environ).read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return []
