"""`holdfast show`."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli import documents, locations, output, render, saved, training
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.listing import reason
from holdfast.model import Checkpoint


@command()
@click.argument("ref", default="latest", metavar="[LOCATION]")
@click.argument("checkpoint", required=False, metavar="[REF]")
@click.option("--state", metavar="NAME", help="Print that state as JSON, and nothing else.")
@click.option("--uncovered", is_flag=True, help="List every path that it does not hold.")
@click.option("--session", metavar="ID", help="With a location: the session.")
@locations.option_tenant
@locations.option_namespace
@locations.option_keys
@pass_app
def show(app: App, /, *, ref: str, checkpoint: str | None, state: str | None, uncovered: bool, **flow: Any) -> None:
    """Show one checkpoint in full.

    REF is a checkpoint [default: latest]. With a flow LOCATION it shows the state, too; --json prints all of it.

    \b
    holdfast show latest
    holdfast show b14 --state conversation > conversation.json
    holdfast show sqlite:///state.db --session s1
    """
    if place := locations.asked(app, ref, flow, not_here={"--state": state, "--uncovered": uncovered}):
        from holdfast.cli.flow.show import show as show_location

        show_location(app, place, checkpoint)
        return
    locations.check_words(checkpoint, flow["session"])
    if run := training.run_of(app):
        training.show(app, run, ref)
        return
    workspace = app.open()
    if state is not None:
        _print_state(workspace.state(ref, state), state)
        return
    found = workspace.get(ref)
    if app.json:
        app.document({"checkpoint": documents.whole_checkpoint(found)})
    elif uncovered:
        output.answer("\n".join(saved.reasons(list(found.uncovered), cap=None)) or "It holds everything.")
    else:
        _print(found)


def _print_state(value: object, name: str) -> None:
    """Print a state as it is stored; that it has tags is said beside, since JSON may look so by itself."""
    from holdfast.workspace import Tagged

    if isinstance(value, Tagged):
        output.note(render.escape(f"State {name} has values that JSON lacks; each has a tag, such as $tuple."))
        value = value.form
    output.document(value)


def _print(found: Checkpoint) -> None:
    changed, uncovered, operation = found.files_changed, found.uncovered, found.operation
    pairs = [
        ("checkpoint", render.paint(found.id, "cyan")),
        ("name", _text(found.name)),
        ("when", f"{render.local(found.timestamp)} ({render.ago(found.timestamp)})"),
        ("message", _text(found.message)),
        ("session", _text(found.session)),
        ("actor", _text(found.actor)),
        ("step", "" if found.step is None else str(found.step)),
        ("metadata", json.dumps(dict(found.metadata)) if found.metadata else ""),
        ("state", ", ".join(map(render.escape, sorted(found.state)))),
        ("parent", found.parent or ""),
        ("pinned", "yes" if found.pinned else ""),
        ("safety", reason(operation) if operation else ""),
        ("complete", "yes" if found.complete else render.paint("no", "red")),
        ("quiet", "" if found.quiet else "no: files changed while they were read"),
        ("not held", saved.summary(uncovered)),
        ("commit", found.commit),
        ("changed", "\n".join([render.count(len(changed), "file"), *render.listing(changed, indent="")])),
    ]
    output.answer(render.fields(pairs))
    failures = [entry for entry in uncovered if entry.reason.is_failure]
    output.notes(saved.reasons(failures))


def _text(value: str | None) -> str:
    return "\n".join(render.escape(line) for line in (value or "").split("\n"))
