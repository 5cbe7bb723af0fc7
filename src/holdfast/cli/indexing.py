"""What `holdfast index` shows: plans, progress, results."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, render
from holdfast.cli.app import App, typed
from holdfast.errors import HoldfastError, NotFound, Refused

if TYPE_CHECKING:
    from holdfast.indexing.applying import Applied
    from holdfast.indexing.checking import IndexReport
    from holdfast.indexing.plan import IndexPlan
    from holdfast.indexing.run import IndexStatus
    from holdfast.indexing.store import Hit

_LINE_EVERY_S = 10.0
_SNIPPET_CHARS = 160
_OPTIONS = {
    "accept_loss=True": "--accept-loss",
    "allow_empty=True": "--allow-empty",
    "retry_failed=True": "--retry-failed",
    "in_place=True": "--in-place",
    "max_embeds": "--max-embeds",
    "max_usd": "--max-usd",
    "verify(repair=True)": "holdfast index verify --repair",
}
OnProgress = Callable[["Applied"], None]


@contextmanager
def worded() -> Iterator[None]:
    """Have the hints of the library name options of the command."""
    try:
        yield
    except HoldfastError as error:
        error.hint = _worded(error.hint)
        raise


def _worded(said: str) -> str:
    for argument, option in _OPTIONS.items():
        said = said.replace(argument, option)
    return said


def show_plan(plan: IndexPlan, say: Callable[[str], None]) -> None:
    """Print what a plan does and costs."""
    if plan.is_empty:
        say(f"Nothing to do: {render.count(plan.unchanged, 'document')} up to date")
    else:
        say(render.fields(_plan_fields(plan)))
    for change in plan.settings:
        unknown = "" if change.is_known else "; it is not a setting that is known, and so counts"
        say(f"  {render.escape(change.name)} was {_value(change.old)} and is {_value(change.new)}{unknown}")
    for channel in plan.channels:
        for decision in channel.decisions:
            say(f"  {render.escape(f'{channel.channel}: {decision.action}: {decision.reason}')}")
    for finding in plan.findings:
        say(f"  {render.escape(_worded(finding))}")
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
        yield "swap", "built beside the live index, which answers until the new one is whole"
    elif plan.in_place and plan.counts["rechunked"]:
        yield "swap", "none: the live index gets its new chunks document by document, and has some of both meanwhile"


def ask(app: App, plan: IndexPlan, limits: Mapping[str, Any], *, yes: bool) -> None:
    """Ask before money is spent that no limit covers. Refused where nobody can answer."""
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
    output.answer(", ".join(parts))
    if done.stopped:
        output.note(render.escape(f"Stopped: {done.stopped}. The next apply goes on."))
    poisoned = [each for each in done.failures if each.key]
    for title, found in (
        ("changed meanwhile, and are for the next plan", dict.fromkeys(done.moved, "")),
        ("cannot be indexed", {each.document: each.reason for each in done.failures if not each.key}),
        ("failed; try them again with --retry-failed", {each.document: each.reason for each in poisoned}),
    ):
        if found:
            output.note(f"{render.count(len(found), 'document')} {title}")
            output.notes(render.listing(found))


def tell_status(app: App, status: IndexStatus) -> None:
    """Print how an index stands."""
    if app.json:
        app.document({"status": asdict(status)})
        return
    if status.generation is None and status.building is None:
        output.answer(f"Nothing is indexed yet; next: {typed('index', 'apply')}")
        return
    sent = f"{render.count(status.texts, 'text')}, {status.tokens:,} tokens"
    building = f"{status.building}; goes on with: {typed('index', 'apply')}"
    failed = {each.document: each.reason for each in status.failures}
    output.answer(
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
    output.notes(render.listing(failed))


def tell_report(app: App, report: IndexReport) -> None:
    """Print what is wrong with an index."""
    if app.json:
        app.document({"report": asdict(report) | {"ok": report.ok}})
        return
    if report.repaired:
        output.note(f"{render.count(report.repaired, 'point')} repaired")
    if report.ok:
        output.answer(f"All {render.count(report.points, 'point')} are as the ledger says")
        return
    for finding in report.findings:
        output.answer(render.escape(finding))
    for title, found in (
        ("missing", report.missing),
        ("misshapen", report.misshapen),
        ("changed", report.changed),
    ):
        if found:
            output.answer(f"{len(found):,} {title}, of")
            for line in render.listing(sorted({document for _, document in found})):
                output.answer(line)
    if report.orphans:
        output.answer(f"{render.count(len(report.orphans), 'point')} that no document has")
    output.note(f"hint:  {typed('index', 'verify', '--repair')}")


def tell_hits(app: App, hits: list[Hit]) -> None:
    """Print the answers of a search."""
    if app.json:
        app.document({"hits": [asdict(each) for each in hits]})
        return
    if not hits:
        output.answer("Nothing is found")
    for each in hits:
        place = render.paint(f"{render.escape(each.document)}#{each.ordinal}", "cyan")
        output.answer(f"{each.score:.3f}  {place}")
        line = " ".join(each.text.split())
        output.answer(f"       {render.escape(line[:_SNIPPET_CHARS])}{'…' if len(line) > _SNIPPET_CHARS else ''}")


# progress


@contextmanager
def shown(plan: IndexPlan) -> Iterator[OnProgress | None]:
    """What an apply tells its progress: a bar on a terminal, else a line now and then."""
    if plan.is_empty:
        yield None
    elif output.is_terminal(sys.stderr):
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
            output.note(progress_line(self._plan, done, now - self._start))
            output.flush()


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
        return "at a price that nobody said"
    if usd == 0:
        return "free"
    return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:.6f}".rstrip("0")


def _value(value: object) -> str:
    return render.escape(repr(value))
