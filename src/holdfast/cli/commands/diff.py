"""`holdfast diff`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from holdfast.cli import documents, locations, output, render, training
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.errors import NotFound
from holdfast.model import CheckpointDiff, LineCount

_COLOURS = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


# The names are those of a folder, where A comes first; the metavars those of a location, which A and B come after.
@command(after_dashes="[-- PATHS...]")
@click.argument("a", default="latest", metavar="[LOCATION]")
@click.argument("b", required=False, metavar="[A]")
@click.argument("third", required=False, metavar="[B]")
@click.option("--stat", is_flag=True, help="Only count the lines added and removed in each file.")
@click.option("--name-only", is_flag=True, help="Only the paths.")
@click.option("--session", metavar="ID", help="With a location: the session.")
@locations.option_tenant
@locations.option_namespace
@locations.option_keys
@pass_app
@click.pass_context
def diff(
    ctx: click.Context,
    app: App,
    /,
    *,
    a: str,
    b: str | None,
    third: str | None,
    stat: bool,
    name_only: bool,
    **flow: Any,
) -> None:
    """Show what differs between two states.

    A is a checkpoint [default: latest]; B is another one, or, if it is left out, the folder as it is now. With a
    flow LOCATION, they are two states of a session: the last two, or A and the newest if only A is named.

    \b
    holdfast diff                    latest against now
    holdfast diff b3 b7 --stat
    holdfast diff latest~2 -- src/   paths come after --
    holdfast diff sqlite:///state.db c1 c2 --session s1
    """
    not_here = {"--stat": stat, "--name-only": name_only, "paths after --": ctx.meta.get(AFTER_DASHES)}
    if place := locations.asked(app, a, flow, not_here=not_here):
        from holdfast.cli.flow.diff import diff as diff_location

        diff_location(app, place, b, third)
        return
    locations.check_words(third, flow["session"])
    if run := training.run_of(app):
        training.diff(app, run, a, b)
        return
    workspace = app.open()
    try:
        found = workspace.diff(a, b, app.paths(workspace, ctx.meta.get(AFTER_DASHES, ())))
    except NotFound as error:
        if any(os.path.lexists(word) for word in (a, b or "")):
            raise NotFound(error.message, hint="Paths come after --, as in: holdfast diff latest -- src/") from None
        raise
    if app.json:
        app.document(documents.diff(found))
    else:
        _print(found, stat=stat, name_only=name_only)


def _print(found: CheckpointDiff, *, stat: bool, name_only: bool) -> None:
    if not found:
        output.note("No differences." if not found.uncompared else "No differences in what both hold.")
    elif name_only:
        _lines([render.escape(path) for path in _paths(found)])
    elif stat:
        _stat(found)
    else:
        _unified(found.diff_content)
    touched = render.count(len(found.touched_files), "path")
    render.note_list(found.touched_files, f"Only times or other metadata differ in {touched}")
    render.note_list(found.changed_folders, "came, went or changed mode", noun="folder")
    render.note_list(found.uncompared, "not compared", noun="path")


def _paths(found: CheckpointDiff) -> list[str]:
    renamed = [renamed.new for renamed in found.renamed_files]
    return sorted([*found.added_files, *found.modified_files, *found.deleted_files, *renamed])


def _stat(found: CheckpointDiff) -> None:
    old = {renamed.new: renamed.old for renamed in found.renamed_files}
    verbs = dict.fromkeys(found.added_files, "added") | dict.fromkeys(found.deleted_files, "deleted")
    rows = []
    for path in _paths(found):
        plus, minus = found.line_counts.get(path, LineCount(None, None))
        only_mode = path in found.modified_files and not (plus or minus)
        lines = "not shown" if plus is None or minus is None else "mode" if only_mode else f"+{plus} -{minus}"
        shown = f"{render.escape(old[path])} → {render.escape(path)}" if path in old else render.escape(path)
        rows.append((verbs.get(path, "renamed" if path in old else "modified"), lines, shown))
    if rows:
        render.table(("", "lines", "path"), rows)


def _unified(content: str) -> None:
    """Print a diff: the bytes themselves into a file or pipe, harmless and coloured on a terminal."""
    if not output.is_terminal(sys.stdout):
        output.raw(content)
        return
    for line in content.split("\n")[: -1 if content.endswith("\n") else None]:
        shown = render.escape(line, keep="\t")
        colour = next((colour for start, colour in _COLOURS if line.startswith(start)), None)
        output.answer(render.paint(shown, colour) if colour else shown)


def _lines(lines: list[str]) -> None:
    if lines:
        output.answer("\n".join(lines))
