"""`holdfast ui`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli import streams
from holdfast.cli.command import Count, command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.errors import Extra, NotFound, Refused
from holdfast.location import FOLDER, is_url, kind_of

if TYPE_CHECKING:
    from holdfast.workspace import Workspace


@command()
@click.argument("locations", nargs=-1, metavar="[LOCATION]...")
@click.option("--port", type=Count(0, 65535), default=0, metavar="N", help="The port. [default: a free one]")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--read-only", is_flag=True, help="Refuse everything that changes something.")
@pass_app
def ui(app: App, *, locations: tuple[str, ...], port: int, no_open: bool, read_only: bool) -> int:
    """Show checkpoints in the browser: timeline, diffs, take back.

    Prints the address, with a token that lets you in, and serves the page on this computer only, until Ctrl-C. Without
    LOCATION it shows the workspace that you are in, and every other of this computer. Needs the extra:
    pip install 'holdfast[ui]'

    \b
    holdfast ui
    holdfast ui ~/code/shop sqlite:///state.db runs/exp1
    """
    with Extra("ui"):
        from holdfast.web.server import serve  # the optional packages
    named: list[str | Workspace] = [_named(each) for each in locations] or _here(app)
    try:
        serve(
            named,
            port=port,
            read_only=read_only,
            opens=not no_open,
            tell=lambda line: _tell(app, line),
            environ=os.environ,
            home=Path(os.path.realpath(os.path.expanduser("~"))),
        )
    except KeyboardInterrupt:  # how one ends it
        streams.note("Stopped.")
    return Exit.DONE


def _tell(app: App, address: str) -> None:
    if app.json:
        app.document({"address": address})
    else:
        streams.answer(address)
        streams.note("Ctrl-C ends it.")
    sys.stdout.flush()  # who waits for the address reads a pipe


def _here(app: App) -> list[str | Workspace]:
    """The workspace that the options name, or the nearest; none where there is none."""
    try:
        return [app.open()]
    except (NotFound, Refused):
        if app.directory or app.store:
            raise
        return []


def _named(word: str) -> str | Workspace:
    if is_url(word):
        kind_of(word)  # Refused if it is of no kind
        return word
    folder = os.path.realpath(os.path.expanduser(word))
    return App(folder).open() if kind_of(folder) == FOLDER else folder
