"""`holdfast verify`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import progress, render, streams, values
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.cli.location_command import location_command
from holdfast.location import Capability


@location_command(Capability.VERIFY, refs=(0, 0))
@click.argument("location", required=False)
@pass_app
def verify(app: App, *, words: list[str], options: dict[str, Any]) -> int:
    """Read every byte of the store, and report damage.

    \b
    holdfast verify
    holdfast verify s3://bucket/runs/exp1
    holdfast verify sqlite:///state.db
    """
    with app.location(options) as location, progress.shown() as shown:
        report = location.verify(shown)
    if app.json:
        app.document(report.document)
    else:
        read = ", ".join(render.count(number, noun) for number, noun in report.read)
        verdict = render.paint("no damage", "green") if report.ok else render.paint("damaged", "red")
        size = "" if report.bytes_read is None else f", {render.size(report.bytes_read)}"
        streams.answer(f"{verdict}: read {read}{size}")
        for problem in report.problems:
            streams.answer(render.escape(f"    {problem}"))
        values.notes(report.notes)
    return Exit.DONE if report.ok else Exit.DAMAGED
