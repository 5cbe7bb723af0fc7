"""`holdfast slash`: what the commands inside of agents run. Prints everything to stdout, which the agent shows."""

from __future__ import annotations

import os
import sys

import click

from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, command_of
from holdfast.cli import streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.errors import Refused

_MAX_BYTES = 1 << 16


@command(hidden=True)
@click.argument("agent", type=click.Choice(AGENT_NAMES))
@click.argument("name", type=click.Choice([each.name for each in SLASH_COMMANDS]))
@click.argument("text", default="")
@pass_app
def slash(app: App, *, agent: str, name: str, text: str) -> int:
    """Run a command that was typed inside of an agent. TEXT is what follows its name; - reads it from stdin.

    For agents, not for people: see `holdfast install`. Succeeds always, so that the agent shows what it prints.
    """
    from holdfast.cli.main import main  # which imports this file

    if text == "-":
        text = os.fsdecode(sys.stdin.buffer.read(_MAX_BYTES))
    os.dup2(1, 2)
    if name == "restore" and not text.strip():
        streams.answer("Type the checkpoint after the command, as in: restore a14. The latest checkpoints:\n")
    try:
        words = command_of(agent, name, text)
    except Refused as error:
        streams.answer(f"error: {error.message}. {error.hint}")
        return 0
    streams.flush()
    main(["--no-pager", "--color=never", *words])
    return 0
