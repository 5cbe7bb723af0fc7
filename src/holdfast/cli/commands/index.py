"""`holdfast index`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams
from holdfast.cli.command import Command, CommandGroup, Count, Number
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound, Refused

if TYPE_CHECKING:
    from holdfast.indexing import IndexRun
    from holdfast.indexing.apply import Applied
    from holdfast.indexing.ledger import RunRecord
    from holdfast.indexing.plan import IndexPlan
    from holdfast.indexing.run import IndexStatus
    from holdfast.indexing.vector_store import Hit
    from holdfast.indexing.verify import IndexReport


_IN_PLACE = "Chunk documents again within the live index instead of a new one: less space, no rollback."


@click.group(cls=CommandGroup)
def index() -> None:
    """Turn documents into an index that can be searched.

    The [index] table of holdfast.toml says what to index, and how. A plan shows the cost before it calls a model; an
    apply that was killed continues where it stopped. Needs the extra: pip install 'holdfast[index]'

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
        streams.answer(f"{render.escape(path.name)} describes an index now; next: {typed('index', 'apply')}")


@index.command(cls=Command)
@click.option("--retry-failed", is_flag=True, help="Retry what failed before.")
@click.option("--in-place", is_flag=True, help=_IN_PLACE)
@pass_app
def plan(app: App, *, retry_failed: bool, in_place: bool) -> None:
    """Show what an apply would do and cost. No model is called.

    With --json it prints the plan, which `apply --plan FILE` carries out if nothing has changed since.
    """
    with _open(app, create=False) as run:
        made = run.plan(retry_failed=retry_failed, in_place=in_place)
    if app.json:
        app.document({"plan": made.to_dict()})
    else:
        show_plan(made, streams.answer)


@index.command(cls=Command)
@click.option("--plan", "file", metavar="FILE", help="The plan to carry out, as `plan --json` printed it.")
@click.option("--max-usd", type=Number(min=0), metavar="DOLLARS", help="Stop before it spends more than this.")
@click.option("--max-embeds", type=Count(min=0), metavar="N", help="Stop before it sends more than N texts to models.")
@click.option("--retry-failed", is_flag=True, help="Retry what failed before.")
@click.option("--in-place", is_flag=True, help=_IN_PLACE)
@click.option("--accept-loss", is_flag=True, help="Continue even if answers may get worse.")
@click.option("--allow-empty", is_flag=True, help="Empty the index if the source has no documents left.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, whatever it costs.")
@pass_app
def apply(app: App, /, *, file: str | None, yes: bool, retry_failed: bool, in_place: bool, **limits: Any) -> None:
    """Bring the index up to date.

    Asks first if a model costs money or its price is unknown, unless you set a limit. Whatever stops it, what you paid
    for is kept, and the next apply continues.

    \b
    holdfast index apply
    holdfast index apply --max-usd 5
    """
    if file and (retry_failed or in_place):
        option = "--retry-failed" if retry_failed else "--in-place"
        raise click.UsageError(f"{option} cannot be combined with --plan")
    with _open(app) as run:
        made = read_plan(Path(file).expanduser()) if file else run.plan(retry_failed=retry_failed, in_place=in_place)
        if not app.json:
            show_plan(made, streams.note)
        if not made.is_empty:
            ask(app, made, limits, yes=yes)
        with shown(made) as on_progress:
            done = run.apply(made, **limits, on_progress=on_progress)
    tell_applied(app, made, done)
    if not done.ok:
        raise click.exceptions.Exit(Exit.INCOMPLETE)


@index.command(cls=Command)
@pass_app
def status(app: App) -> None:
    """Show the state of the index, from the ledger alone."""
    with _open(app, create=False) as run:
        found = run.status()
    tell_status(app, found)


@index.command(cls=Command)
@click.option(
    "-n", "--limit", type=Count(min=1, max=1000), metavar="N", default=20, show_default=True, help="How many."
)
@pass_app
def history(app: App, *, limit: int) -> None:
    """List what was applied, with its impact, newest first.

    An apply that goes on shows how far it is; one that was killed has no end.
    """
    with _open(app, create=False) as run:
        found = run.history(limit)
    if app.json:
        app.items(map(asdict, found))
    elif not found:
        streams.answer(f"Nothing was applied yet; next: {typed('index', 'apply')}")
    for each in [] if app.json else found:
        streams.answer(f"{clock_of(each.began)}  {each.impact}: {progress_of(each)}")
        for line in each.plan["settings"]:
            streams.answer(f"       {render.escape(line)}")


@index.command(cls=Command)
@click.option("--repair", is_flag=True, help="Repair what can be repaired without a model.")
@pass_app
def verify(app: App, *, repair: bool) -> None:
    """Compare every point of the index with the ledger."""
    with _open(app, create=repair) as run:
        report = run.verify(repair=repair)
    tell_report(app, report)
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
        streams.answer(f"Generation {number} is live; the next rollback brings {before.generation} back")


@index.command(cls=Command)
@click.argument("document")
@pass_app
def explain(app: App, *, document: str) -> None:
    """Say why a document would be indexed again.

    Documents are named as in the source, such as docs/a.md; one that is neither there nor in the index is an error.
    """
    with _open(app, create=False) as run:
        why = run.explain(document)
    if app.json:
        app.document({"document": document, "why": why})
    elif not why:
        streams.answer(f"{render.escape(document)} is up to date")
    else:
        for line in why:
            streams.answer(render.escape(line))


@index.command(cls=Command)
@click.argument("query")
@click.option("-n", "--limit", type=Count(min=1, max=1000), metavar="N", default=5, show_default=True, help="How many.")
@click.option("--channel", metavar="NAME", help="The model to ask, where there are several.")
@pass_app
def search(app: App, *, query: str, limit: int, channel: str | None) -> None:
    """Find the chunks nearest to a text."""
    with _open(app, create=False) as run:
        hits = run.search(channel or run.channels[0], query, limit=limit)
    tell_hits(app, hits)


@contextmanager
def _open(app: App, *, create: bool = True) -> Iterator[IndexRun]:
    from holdfast.adapters.index import open_index  # start-up cost, for an index only

    with open_index(app.folder(), create=create) as run:
        yield run


_LINE_EVERY_S = 10.0
_SNIPPET_CHARS = 160
OnProgress = Callable[["Applied"], None]


def show_plan(plan: IndexPlan, say: Callable[[str], None]) -> None:
    """Print what a plan does and costs."""
    if plan.is_empty:
        say(f"Nothing to do: {render.count(plan.unchanged, 'document')} up to date")
    else:
        say(render.fields(_plan_fields(plan)))
    for change in plan.settings:
        unknown = "" if change.is_known else "; an unknown setting counts as a change"
        say(f"  {render.escape(change.name)} was {_value(change.old)} and is {_value(change.new)}{unknown}")
    for channel in plan.channels:
        for decision in channel.decisions:
            say(f"  {render.escape(f'{channel.channel}: {decision.action}: {decision.reason}')}")
    for finding in plan.findings:
        say(f"  {render.escape(finding)}")
    if plan.failures:
        say(f"Cannot be indexed: {render.count(len(plan.failures), 'document')}")
        for line in render.listing({each.document: each.reason for each in plan.failures}):
            say(line)


def _plan_fields(plan: IndexPlan) -> Iterator[tuple[str, str]]:
    kinds = [f"{number:,} {kind}" for kind, number in plan.counts.items() if number]
    yield "documents", ", ".join(kinds)
    yield "chunks", f"{plan.chunks:,}, {plan.reused:,} vectors reused, {plan.to_embed:,} to embed"
    if plan.texts:
        probes = sum(each.probe_texts for each in plan.channels)
        known = f" ({probes:,} to recognise the model)" if probes else ""
        yield "to send", f"{render.count(plan.texts, 'text')}{known}, about {plan.tokens:,} tokens, {_usd(plan.usd)}"
    if plan.seconds and plan.seconds >= 1:
        yield "time", f"about {duration(plan.seconds)}"
    if written := sum(each.write_bytes or 0 for each in plan.channels):
        yield "to write", render.size(written)
    for each in plan.channels:
        if each.overlap is not None:
            yield "answers", f"{each.overlap:.1%} of the nearest neighbours of {render.escape(each.channel)} stay"
    is_first = plan.counts["new"] == len(plan.documents) and not (plan.unchanged or plan.deleted)
    if plan.builds_beside and not is_first:
        yield "swap", "a new index is built; the live one answers until it is complete"
    elif plan.in_place and plan.counts["rechunked"]:
        yield (
            "swap",
            "none: documents are replaced one by one in the live index, which has old and new chunks until then",
        )


def ask(app: App, plan: IndexPlan, limits: Mapping[str, Any], *, yes: bool) -> None:
    """Ask before money is spent that no limit covers. Refused without a terminal."""
    is_free = not plan.texts or plan.usd == 0
    if not is_free and limits["max_usd"] is None and limits["max_embeds"] is None:
        app.confirm(f"Send {render.count(plan.texts, 'text')} for {_usd(plan.usd)}?", yes=yes)


def read_plan(path: Path) -> IndexPlan:
    """A plan from a file that `plan --json` wrote."""
    from holdfast.indexing import IndexPlan

    try:
        said = json.loads(path.read_bytes())
    except FileNotFoundError:
        made_by = typed("index", "plan", "--json")
        raise NotFound(f"there is no file {path}", hint=f"Make it: {made_by} > plan.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"{path} cannot be read as a plan: {error}", hint="Make a new one.") from None
    return IndexPlan.from_dict(said.get("plan", said) if isinstance(said, dict) else said)


def tell_applied(app: App, plan: IndexPlan, done: Applied) -> None:
    """Print what an apply did."""
    if app.json:
        app.document({"plan": plan.to_dict(), "applied": asdict(done) | {"ok": done.ok}})
        return
    parts = [f"{render.count(done.published, 'document')} published"]
    if done.deleted:
        parts.append(f"{done.deleted:,} taken out")
    parts.append(f"{render.count(done.embedded, 'chunk')} embedded")
    if done.usd:
        parts.append(_usd(done.usd))
    streams.answer(", ".join(parts))
    if done.stopped:
        streams.note(render.escape(f"Stopped: {done.stopped}. The next apply continues."))
    poisoned = [each for each in done.failures if each.key]
    for title, found in (
        ("changed since the plan; plan again for them", dict.fromkeys(done.moved, "")),
        ("cannot be indexed", {each.document: each.reason for each in done.failures if not each.key}),
        ("failed; try them again with --retry-failed", {each.document: each.reason for each in poisoned}),
    ):
        if found:
            streams.note(f"{render.count(len(found), 'document')} {title}")
            streams.notes(render.listing(found))


def clock_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def progress_of(record: RunRecord) -> str:
    """How far a run is, or came."""
    plan, done = record.plan, record.done
    parts = [f"{done.get('published', 0):,} of {render.count(plan['documents'], 'document')}"]
    if plan["deleted"]:
        parts.append(f"{done.get('deleted', 0):,} of {plan['deleted']:,} taken out")
    if plan["to_embed"]:
        parts.append(f"{done.get('embedded', 0):,} of {render.count(plan['to_embed'], 'chunk')} embedded")
    if done.get("usd"):
        parts.append(_usd(done["usd"]))
    if record.ended is None:
        parts.append(f"not ended, last progress {clock_of(record.updated)}")
    elif done.get("stopped"):
        parts.append(render.escape(f"stopped: {done['stopped']}"))
    return ", ".join(parts)


def tell_status(app: App, status: IndexStatus) -> None:
    """Print how an index stands."""
    if app.json:
        app.document({"status": asdict(status)})
        return
    if status.generation is None and status.building is None:
        streams.answer(f"Nothing is indexed yet; next: {typed('index', 'apply')}")
        return
    sent = f"{render.count(status.texts, 'text')}, {status.tokens:,} tokens"
    building = f"{status.building}; continue with: {typed('index', 'apply')}"
    failed = {each.document: each.reason for each in status.failures}
    streams.answer(
        render.fields(
            [
                ("documents", f"{status.documents:,} in {render.count(status.points, 'chunk')}"),
                ("generation", "none is live yet" if status.generation is None else str(status.generation)),
                ("building", "" if status.building is None else building),
                ("interrupted", render.count(len(status.interrupted), "document") if status.interrupted else ""),
                ("failed", render.count(len(failed), "document") if failed else ""),
                ("sent so far", f"{sent}, {_usd(status.usd)}" if status.usd else sent),
                ("rollback", "possible" if status.can_roll_back else ""),
            ]
        )
    )
    streams.notes(render.listing(failed))


def tell_report(app: App, report: IndexReport) -> None:
    """Print what is wrong with an index."""
    if app.json:
        app.document({"report": asdict(report) | {"ok": report.ok}})
        return
    if report.repaired:
        streams.note(f"{render.count(report.repaired, 'point')} repaired")
    if report.ok:
        streams.answer(f"All {render.count(report.points, 'point')} match the ledger")
        return
    for finding in report.findings:
        streams.answer(render.escape(finding))
    for title, found in (
        ("missing", report.missing),
        ("misshapen", report.misshapen),
        ("changed", report.changed),
    ):
        if found:
            streams.answer(f"{len(found):,} {title}, of")
            for line in render.listing(sorted({document for _, document in found})):
                streams.answer(line)
    if report.orphans:
        streams.answer(f"{render.count(len(report.orphans), 'point')} that no document has")
    streams.note(f"hint:  {typed('index', 'verify', '--repair')}")


def tell_hits(app: App, hits: list[Hit]) -> None:
    """Print the answers of a search."""
    if app.json:
        app.items(map(asdict, hits))
        return
    if not hits:
        streams.answer("No matches")
    for each in hits:
        place = render.paint(f"{render.escape(each.document)}#{each.ordinal}", "cyan")
        streams.answer(f"{each.score:.3f}  {place}")
        line = " ".join(each.text.split())
        streams.answer(f"       {render.escape(line[:_SNIPPET_CHARS])}{'…' if len(line) > _SNIPPET_CHARS else ''}")


# progress


@contextmanager
def shown(plan: IndexPlan) -> Iterator[OnProgress | None]:
    """What an apply tells its progress: a bar on a terminal, else a line now and then."""
    if plan.is_empty:
        yield None
    elif streams.is_terminal(sys.stderr):
        with _bar(plan) as on_progress:
            yield on_progress
    else:
        yield _Lines(plan)


class _Lines:
    """Writes a line now and then: for logs, and whatever reads a pipe."""

    def __init__(self, plan: IndexPlan) -> None:
        self._plan = plan
        self._start = self._told = time.monotonic()

    def __call__(self, done: Applied) -> None:
        now = time.monotonic()
        if now - self._told >= _LINE_EVERY_S:
            self._told = now
            streams.note(progress_line(self._plan, done, now - self._start))
            streams.flush()


@contextmanager
def _bar(plan: IndexPlan) -> Iterator[OnProgress]:
    from rich.console import Console  # start-up cost, paid only on a terminal
    from rich.progress import BarColumn, Progress, TextColumn

    start = time.monotonic()
    with Progress(BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_total(plan) or None)

        def on_progress(done: Applied) -> None:
            line = progress_line(plan, done, time.monotonic() - start)
            bar.update(task, completed=done.published + done.embedded, description=line)

        yield on_progress


def progress_line(plan: IndexPlan, done: Applied, seconds: float) -> str:
    """How far an apply is: documents, chunks, rate, cost, time left."""
    parts = [f"{done.published:,}/{len(plan.documents):,} documents"]
    if plan.to_embed:
        parts.append(f"{done.embedded:,}/{plan.to_embed:,} chunks")
    if seconds > 0 and done.embedded:
        parts.append(f"{done.embedded / seconds:,.0f} chunks/s")
    if done.usd:
        parts.append(_usd(done.usd))
    finished = done.published + done.embedded
    if seconds > 0 and finished:
        parts.append(f"{duration(max(0.0, _total(plan) - finished) * seconds / finished)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time for people: `3 s`, `2 min`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _total(plan: IndexPlan) -> int:
    return len(plan.documents) + plan.to_embed


def _usd(usd: float | None) -> str:
    if usd is None:
        return "at an unknown price (set usd_per_mtok)"
    if usd == 0:
        return "free"
    return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:.6f}".rstrip("0")


def _value(value: object) -> str:
    return render.escape(repr(value))
