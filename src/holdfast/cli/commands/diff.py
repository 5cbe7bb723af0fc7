"""`holdfast diff`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.cli.words import refs_and_paths, unknown_word
from holdfast.errors import NotFound
from holdfast.location import Capability
from holdfast.workspace.location import WorkspaceLocation

if TYPE_CHECKING:
    from holdfast.location import Changed, Comparison, Location

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_VALUE_CHARS = 200


@location_command(Capability.DIFF, refs=(0, 2), takes_paths=True, after_dashes="[-- PATHS...]")
@click.argument("refs", nargs=-1, metavar="[LOCATION] [A [B]] [PATH]...")
@pass_app
def diff(app: App, *, words: list[str], options: dict[str, Any]) -> None:
    """Show what changed between two checkpoints, or since one.

    In a folder, A is a checkpoint [default: latest]; B is another one or, if it is left out, the folder as it is now.
    In other locations A and B are two checkpoints: the last two, or A and the newest if only A is named.

    \b
    holdfast diff                    latest against now
    holdfast diff a3 a7 --stat       also a3..a7
    holdfast diff latest~2 src/      some paths; -- before them if one is also a checkpoint
    holdfast diff @yesterday
    holdfast diff ./runs/exp1 1000 2000
    holdfast diff sqlite:///state.db c1 c2 --session s1
    """
    named = options.pop("paths", None)
    with app.location(options) as location:
        found = _compare(app, location, words, named)
    if app.json:
        app.document(found.document)
        return
    if found.title:
        streams.note(render.escape(found.title))
    if found.patch:
        _unified(found.patch)
    if found.table:
        if len(found.table.columns) == 1:
            for row in found.table.rows:
                streams.answer(render.escape(row[0]))
        else:
            values.table(found.table.columns, found.table.rows)
    if found.summary:
        number, noun, lines = found.summary
        streams.answer(f"{render.count(number, noun)} changed, {values.line_count(lines)}")
    for change in found.changes:
        _change(change)
    for title, items in found.notes:
        if items:
            render.note_list(items, title)
        else:
            streams.note(title)


def _compare(app: App, location: Location, words: list[str], after_dashes: list[str] | None) -> Comparison:
    if not isinstance(location, WorkspaceLocation):
        a, b = [*words, None, None][:2]
        return location.diff(a, b)
    workspace = location.workspace
    refs, paths = refs_and_paths(app, workspace, words, after_dashes, most=2)
    location.paths = app.paths(workspace, paths)
    try:
        a, b = [*refs, None, None][:2]
        return location.diff(a, b)
    except NotFound as error:
        raise (error if after_dashes else unknown_word(app, workspace, paths, error)) from None


def _change(change: Changed) -> None:
    from holdfast.cli import readable  # start-up cost, for states only

    sign, colour = _SIGNS[change.kind]
    path = render.escape(change.path) or "the whole state"
    sides = [(change.kind != "added", change.before), (change.kind != "removed", change.after)]
    shown = [readable.inline(value, _VALUE_CHARS) for is_there, value in sides if is_there]
    streams.answer(render.paint(f"{sign} {path}: {' → '.join(shown)}", colour))


def _unified(content: str) -> None:
    """Print a diff: the bytes themselves into a file or pipe, escaped on a terminal, or where colour is asked for."""
    if not streams.is_terminal(sys.stdout) and not streams.has_colour(sys.stdout):
        streams.raw(content)
        return
    for line in content.split("\n")[: -1 if content.endswith("\n") else None]:
        streams.answer(render.diff_line(line))
