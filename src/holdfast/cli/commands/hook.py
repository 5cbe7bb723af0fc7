"""`holdfast hook`: what agents call. The program deals with it before click is loaded (`cli/start.py`)."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app


@command(hidden=True)
@click.argument("agent")
@click.argument("event", required=False)
@pass_app
def hook(app: App, *, agent: str, event: str | None) -> None:
    """Take an event of an agent, as JSON on stdin. For agents, not for people: see `holdfast install`."""
    from holdfast.adapters.agents.client import run
    from holdfast.cli.start import load_runner

    run([agent, event] if event else [agent], load_runner)
