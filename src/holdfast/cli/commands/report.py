"""`holdfast report`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdfast import durable
from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.errors import Conflict, Extra


@command()
@click.argument("session")
@click.option("-o", "--output", metavar="FILE", required=True, help="The file to make.")
@pass_app
def report(app: App, *, session: str, output: str) -> None:
    """Write a session into one HTML file, with secrets redacted.

    Prompts, conversation and changes of every turn of a session, in a file that needs nothing else. Keys and passwords
    of known forms are redacted everywhere in it, and the file lists what was. Read it before you send it. Needs the
    extra: pip install 'holdfast[ui]'

    \b
    holdfast report 4f1c2a9e -o session.html
    """
    with Extra("ui"):
        from holdfast.web.report import document, make_report  # the optional packages
    target = Path(os.path.abspath(os.path.expanduser(output)))
    if os.path.lexists(target):
        raise Conflict(f"{target} exists", hint="Choose another name.")
    made = make_report(app.open(), session)
    durable.write_atomically(target, made.html.encode("utf-8", "backslashreplace"))
    if app.json:
        app.document(document(made, str(target)))
        return
    streams.answer(f"{render.escape(str(target))}: {render.count(made.turns, 'turn')}")
    for each in made.redacted:
        streams.note(f"redacted: {each.kind} {render.escape(each.masked)}, first in {render.escape(each.where)}")
