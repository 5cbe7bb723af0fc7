"""`holdfast blame`."""

from __future__ import annotations

import os

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.model import BlamedLine, Origin, documents
from holdfast.model.documents import short
from holdfast.workspace.location import YOU
from holdfast.workspace.stored.attribution import USER


@command()
@click.argument("path")
@click.argument("ref", required=False)
@pass_app
def blame(app: App, *, path: str, ref: str | None) -> None:
    """Show who wrote each line of a file.

    Shows for each line the checkpoint that added it, and its author. PATH is read as it is now or, with REF, as it
    is in that checkpoint. A ^ marks lines that were already in the first checkpoint.

    \b
    holdfast blame src/app.py
    holdfast blame src/app.py a14
    """
    workspace = app.open()
    if ref is not None and _is_swapped(app, path, ref):
        path, ref = ref, path
    found = workspace.blame(app.path(workspace, path), ref)
    if app.json:
        about = documents.blame(found)
        app.items(about.pop("lines"), **about)
    elif found.is_text:
        _print(found.lines, found.path)
    else:
        name = f"{render.escape(found.path)}  (no text, or a long one: as a whole)"
        streams.answer("  ".join(filter(None, (*_origin(found.whole, found.path), name))))


def _is_swapped(app: App, path: str, ref: str) -> bool:
    """Whether the words are in the order of git and of `restore`: the checkpoint, then the path."""

    def is_there(word: str) -> bool:
        return os.path.lexists(os.path.join(app.directory or "", word))

    return is_there(ref) and not is_there(path)


def _print(lines: list[BlamedLine], path: str) -> None:
    rows = [(*_origin(line.origin, path), str(line.number), line.text.rstrip("\n")) for line in lines]
    widths = [max(len(row[at]) for row in rows) for at in range(4)] if rows else []
    for *cells, text in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=False)]
        place = cells[-1].rjust(widths[-1])
        shown = "  ".join(cell for cell, width in zip(padded, widths, strict=False) if width)
        streams.answer(f"{render.paint(shown, 'cyan')}  {place}  {render.escape(text, keep=chr(9))}".rstrip())


def _origin(origin: Origin, path: str) -> tuple[str, str, str]:
    """Return the checkpoint, the actor, and the path where the file was called otherwise."""
    if origin.checkpoint is None:
        return "not saved yet", _by(origin), ""
    mark = "^" if origin.is_older else ""
    name = render.escape(origin.path) if origin.path != path else ""
    return mark + short(origin.checkpoint.id), "" if origin.is_older else _by(origin), name


def _by(origin: Origin) -> str:
    return YOU if origin.actor == USER else render.escape(origin.actor)
