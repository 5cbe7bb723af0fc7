"""`holdfast show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.commands.cat import file_document, print_file
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.cli.words import stored_files
from holdfast.location import Capability, Details
from holdfast.workspace.location import WorkspaceLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.workspace.stored.files import StoredPath


@location_command(Capability.GET, refs=(0, 1), takes_paths=True, after_dashes="[-- PATHS...]")
@click.argument("refs", nargs=-1, metavar="[LOCATION] [REF[:PATH]] [PATH]...")
@pass_app
def show(app: App, *, words: list[str], options: dict[str, Any]) -> None:
    """Show one checkpoint in full.

    REF is a checkpoint [default: latest]. With a PATH, print that file from it, as `holdfast cat` does, or list that
    folder. In a flow store, also show the state; --json prints it in full.

    \b
    holdfast show latest
    holdfast show a14:src/app.py
    holdfast show a14 --state conversation > conversation.json
    holdfast show ./runs/exp1 best
    holdfast show sqlite:///state.db --session s1
    """
    named = options.pop("paths", [])
    with app.location(options) as location:
        if isinstance(location, WorkspaceLocation) and not options.keys() & {"state", "uncovered"}:
            if found := stored_files(app, location.workspace, words, named):
                _print_files(app, found)
                return
        elif len(words) > 1 or named:
            raise click.UsageError(f"got unexpected extra argument ({[*words[1:], *named][0]})")
        print_details(app, location.get(words[0] if words else None))


def _print_files(app: App, found: Sequence[StoredPath]) -> None:
    if app.json:
        app.document({"files": [file_document(each) for each in found]})
        return
    for each in found:
        if each.names is None:
            print_file(each)
        else:
            streams.answer("\n".join(map(render.escape, each.names)))


def print_details(app: App, found: Details) -> None:
    """Print one checkpoint."""
    if found.is_raw:
        values.notes(found.notes)
        streams.document(found.document)
    elif app.json:
        app.document({"checkpoint": found.document})
    else:
        streams.answer("\n".join(map(render.escape, found.lines)) if found.lines else values.fields(found.fields))
        if found.state is not None:
            streams.answer()
            streams.answer(values.state(found.state))
        streams.notes(render.listing(found.missing))
        values.notes(found.notes)
