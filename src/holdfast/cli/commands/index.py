"""`holdfast index`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import indexing, output, render
from holdfast.cli.app import App, pass_app, typed
from holdfast.cli.command import Command, Group
from holdfast.cli.exits import Exit

if TYPE_CHECKING:
    from holdfast.indexing import IndexRun


_IN_PLACE = "Cut documents anew within the live index, not beside it: less room, no rollback."


@click.group(cls=Group)
def index() -> None:
    """Turn documents into an index that can be searched.

    What is indexed, and how, is in the [index] table of holdfast.toml. A plan says what that costs before a model is
    called; an apply that was killed continues where it stopped. Needs the extra: pip install 'holdfast[index]'

    \b
    holdfast index init
    holdfast index plan --json
    holdfast index apply --max-usd 5
    holdfast index search "where are leases renewed"
    """


@index.command(cls=Command)
@pass_app
def init(app: App) -> None:
    """Write an [index] table to start from into holdfast.toml."""
    from holdfast.adapters.index import write_example

    path = write_example(app.folder())
    if app.json:
        app.document({"file": str(path)})
    else:
        output.answer(f"{render.escape(path.name)} describes an index now; next: {typed('index', 'apply')}")


@index.command(cls=Command)
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("--in-place", is_flag=True, help=_IN_PLACE)
@pass_app
def plan(app: App, *, retry_failed: bool, in_place: bool) -> None:
    """Show what an apply would do and cost. No model is called.

    With --json it prints the plan, which `apply --plan FILE` carries out if nothing has changed since.
    """
    with _open(app, only_looks=True) as run:
        made = run.plan(retry_failed=retry_failed, in_place=in_place)
    if app.json:
        app.document({"plan": made.to_dict()})
    else:
        indexing.show_plan(made, output.answer)


@index.command(cls=Command)
@click.option("--plan", "file", metavar="FILE", help="The plan to carry out, as `plan --json` printed it.")
@click.option("--max-usd", type=click.FloatRange(min=0), metavar="DOLLARS", help="Stop before more is spent.")
@click.option("--max-embeds", type=click.IntRange(min=0), metavar="N", help="Stop before more texts are sent.")
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("--in-place", is_flag=True, help=_IN_PLACE)
@click.option("--accept-loss", is_flag=True, help="Continue even if answers may get worse.")
@click.option("--allow-empty", is_flag=True, help="Empty the index if there is no document any more.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, whatever it costs.")
@pass_app
def apply(app: App, /, *, file: str | None, yes: bool, retry_failed: bool, in_place: bool, **limits: Any) -> None:
    """Bring the index up to date.

    It asks first if a model costs money, or its price is unknown, and no limit was given. Whatever stops it, what was
    paid for is kept, and the next apply continues.

    \b
    holdfast index apply
    holdfast index apply --max-usd 5
    """
    if file and (retry_failed or in_place):
        option = "--retry-failed" if retry_failed else "--in-place"
        raise click.UsageError(f"{option} is for making a plan, and --plan names one that is made")
    with _open(app) as run:
        made = indexing.read_plan(Path(file)) if file else run.plan(retry_failed=retry_failed, in_place=in_place)
        if not app.json:
            indexing.show_plan(made, output.note)
        if not made.is_empty:
            indexing.ask(app, made, limits, yes=yes)
        with indexing.shown(made) as on_progress:
            done = run.apply(made, **limits, on_progress=on_progress)
    indexing.tell_applied(app, made, done)
    if not done.ok:
        raise click.exceptions.Exit(Exit.INCOMPLETE)


@index.command(cls=Command)
@pass_app
def status(app: App) -> None:
    """Show the state of the index, from the ledger alone."""
    with _open(app, only_looks=True) as run:
        found = run.status()
    indexing.tell_status(app, found)


@index.command(cls=Command)
@click.option("--repair", is_flag=True, help="Repair what can be repaired without a model.")
@pass_app
def verify(app: App, *, repair: bool) -> None:
    """Compare every point of the index with the ledger."""
    with _open(app, only_looks=not repair) as run:
        report = run.verify(repair=repair)
    indexing.tell_report(app, report)
    if not report.ok:
        raise click.exceptions.Exit(Exit.DAMAGED)


@index.command(cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def rollback(app: App, *, yes: bool) -> None:
    """Make the generation before the live one live again."""
    with _open(app) as run:
        before = run.status()
        if before.can_roll_back:
            app.confirm(f"Go back from generation {before.generation}?", yes=yes)
        number = run.rollback()
    if app.json:
        app.document({"generation": number, "before": before.generation})
    else:
        output.answer(f"Generation {number} is live; the next rollback brings {before.generation} back")


@index.command(cls=Command)
@click.argument("document")
@pass_app
def explain(app: App, *, document: str) -> None:
    """Say why a document would be indexed again.

    Documents are named as in the source, such as docs/a.md; one that is neither there nor in the index is an error.
    """
    with _open(app, only_looks=True) as run:
        why = run.explain(document)
    if app.json:
        app.document({"document": document, "why": why})
    elif not why:
        output.answer(f"{render.escape(document)} is up to date")
    else:
        for line in why:
            output.answer(render.escape(line))


@index.command(cls=Command)
@click.argument("query")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1, max=1000), metavar="N", default=5, show_default=True, help="How many."
)
@click.option("--channel", metavar="NAME", help="The model to ask, where there are several.")
@pass_app
def search(app: App, *, query: str, limit: int, channel: str | None) -> None:
    """Find the chunks nearest to a text."""
    with _open(app, only_looks=True) as run:
        hits = run.search(channel or run.channels[0], query, limit=limit)
    indexing.tell_hits(app, hits)


@contextmanager
def _open(app: App, *, only_looks: bool = False) -> Iterator[IndexRun]:
    from holdfast.adapters.index import open_index  # start-up cost, for an index only

    with indexing.worded(), open_index(app.folder(), only_looks=only_looks) as run:
        yield run
