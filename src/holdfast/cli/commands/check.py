"""`holdfast check`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from holdfast.adapters.agents.parent_process import find_enclosing_tool
from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound, Refused, Remedy
from holdfast.model import documents
from holdfast.model.checkpoint import TYPE
from holdfast.model.documents import short

if TYPE_CHECKING:
    from holdfast.model import Checkpoint
    from holdfast.workspace import Workspace
    from holdfast.workspace.check import CheckResult


@command()
@click.argument("ref", required=False)
@click.option("--allow", is_flag=True, help="Allow the command to run here; ask first.")
@click.option("--revoke", is_flag=True, help="Allow no command any more.")
@click.option("-y", "--yes", is_flag=True, help="With --allow: do not ask.")
@pass_app
def check(app: App, *, ref: str | None, allow: bool, revoke: bool, yes: bool) -> int:
    """Run the check command on a checkpoint; mark it green or red.

    The command is `check` in the configuration, such as check = "pytest -q". It also runs after each turn of an agent,
    in the background. Without REF, the folder is saved first, if it changed. It runs in a scratch copy of the files,
    with installed dependencies linked, and is ended after check_timeout. Exit status 0 is green, 125 neither, any other
    red.

    The command runs nowhere before you allow it, once for each folder; if its text changes, again.

    \b
    holdfast check --allow
    holdfast check
    holdfast restore last-green
    """
    workspace = app.open()
    if revoke:
        if allow or ref is not None:
            raise click.UsageError("--revoke cannot be combined with other options")
        workspace.allow_check(None)
        return _told(app, "No command is allowed to run here any more.")
    if workspace.check_command is None:
        raise NotFound("no check command is configured", remedy=Remedy("configure_check"))
    if allow:
        if ref is not None:
            raise click.UsageError("--allow does not take a checkpoint")
        _allow(app, workspace, workspace.check_command, yes=yes)
        return _told(app, f"Allowed: {render.escape(workspace.check_command)}. Run it now with: {typed('check')}")
    checkpoint = workspace.get(ref) if ref is not None else _save(workspace)
    result = workspace.check(checkpoint.id, output=None if app.json else _print)
    return _show(app, workspace, checkpoint, result)


def _print(data: bytes) -> None:
    """Print what the command says, on stderr: stdout is for the answer."""
    streams.write_note(data.decode("utf-8", "replace"))


def _allow(app: App, workspace: Workspace, words: str, *, yes: bool) -> None:
    if find_enclosing_tool(workspace.store, os.getpid()):
        raise Refused("an agent's tool cannot allow a command", hint="Run this yourself, in a terminal.")
    streams.note(f"The configuration of {render.escape(str(workspace.path))} says: check = {render.escape(words)!r}")
    streams.note("It runs with your rights after each turn of an agent, and may run code that agents wrote. You are")
    streams.note("asked again only if the text of the command changes.")
    app.confirm("Allow it?", yes=yes)
    workspace.allow_check(words)


def _save(workspace: Workspace) -> Checkpoint:
    around = find_enclosing_tool(workspace.store, os.getpid())
    actor, session = (around[1].actor, around[0].session or None) if around else (None, None)
    turn = {"turn": around[1].turn} if around and around[1].turn else {}
    metadata = {TYPE: "automatic", **turn}
    return workspace.save("before check", metadata=metadata, actor=actor, session=session)


def _show(app: App, workspace: Workspace, checkpoint: Checkpoint, result: CheckResult) -> int:
    if app.json:
        marked = workspace.get(checkpoint.id)
        app.document({"checkpoint": documents.checkpoint(marked), "check": result._asdict()})
    else:
        name, why = short(checkpoint.id), f": {result.reason}" if result.reason else ""
        if result.passed is None:
            streams.answer(f"{name} is not marked{why}")
        else:
            word = render.paint("green", "green") if result.passed else render.paint("red", "red")
            streams.answer(f"{name} is {word}{why}  ({result.seconds:.1f} s)")
    return Exit.DONE if result.passed else Exit.INCOMPLETE


def _told(app: App, text: str) -> int:
    if app.json:
        app.document({"checkpoint": None, "check": None})
    else:
        streams.answer(text)
    return Exit.DONE
