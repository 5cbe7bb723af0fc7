"""`holdfast mcp`."""

from __future__ import annotations

import signal

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.errors import Extra


@command()
@click.option("--actor", metavar="NAME", help="Who saves. [default: what the client calls itself]")
@click.option("--session", metavar="ID", help="The session that its checkpoints belong to.")
@pass_app
def mcp(app: App, *, actor: str | None, session: str | None) -> None:
    """Serve checkpoints to an agent as tools (MCP).

    Speaks the Model Context Protocol on stdin and stdout until they are closed. The workspace is chosen here, once, and
    not by the agent. Needs the extra: pip install 'holdfast[mcp]'

    \b
    holdfast -C ~/code/shop mcp
    """
    with Extra("mcp"):
        from holdfast.mcp.server import serve  # the optional package, and seconds of loading
    workspace = app.open(create=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that waits for stdin would outlast an exception
    serve(workspace, actor=actor, session=session)
