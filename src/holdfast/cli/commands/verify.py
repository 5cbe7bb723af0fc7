"""`holdfast verify`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import documents, locations, output, progress, render, training
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.exits import Exit
from holdfast.model import Problem


@command()
@click.argument("location", required=False)
@click.option("--session", metavar="ID", help="With a location: only that session.")
@locations.option_tenant
@locations.option_keys
@pass_app
def verify(app: App, /, *, location: str | None, **flow: Any) -> int:
    """Read every byte of the store, and name what is damaged.

    In a training run it reads every checkpoint. With a flow LOCATION it reads every state of all tenants.
    """
    locations.check_location(location)
    if place := locations.asked(app, location, flow, not_here={}):
        from holdfast.cli.flow.verify import verify as verify_location

        return verify_location(app, place)
    locations.check_words(None, flow["session"])
    if run := training.run_of(app):
        return training.verify(app, run)
    workspace = app.open()
    with progress.shown() as shown:
        report = workspace.verify(progress=shown)
    if app.json:
        app.document(documents.report(report))
    else:
        read = f"{render.count(report.checkpoints, 'checkpoint')}, {render.count(report.objects, 'object')}"
        verdict = render.paint("sound", "green") if report.ok else render.paint("damaged", "red")
        output.answer(f"{verdict}: read {read}, {render.size(report.bytes_read)}")
        for problem in report.problems:
            output.answer(_line(problem))
        if not report.ok:
            output.note("Checkpoints that are not named are sound. Saving again does not repair what is damaged here;")
            output.note("a backup of the store, or of its damaged files, brings the rest back.")
    return Exit.DONE if report.ok else Exit.DAMAGED


def _line(problem: Problem) -> str:
    touched = ", ".join(map(documents.short, problem.checkpoints))
    line = render.escape(f"{problem.what}: {problem.detail}")
    return f"    {line}" + (f"  (touches {touched})" if touched else "")
