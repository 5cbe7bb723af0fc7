"""Flow stores, training runs and indexes: what their `Location` lists, in full, compared, and what takes space."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import HoldfastError, Refused, Unavailable
from holdfast.location import Column, Comparison, Table
from holdfast.web import location_process, states
from holdfast.web.answers import Answer, Query, go, json_response, query_of, site_of, wants_json
from holdfast.web.charts import Chart, Series, draw
from holdfast.web.jobs import WAIT_S, Job
from holdfast.web.places import NamedLocation
from holdfast.web.rendering import address, filled_columns
from holdfast.web.steps import FORKS_LOOKED_AT, step_rows

if TYPE_CHECKING:
    from holdfast.location import Item, Location

_PAGE = 50
_HITS = 20
_DOCUMENTS = 200
_STILL_S = 600.0  # without progress for longer, a run most likely was killed
_PLOTTED_MAX = 2_000
LARGE_BYTES = 128 << 10
"""Of states as they are encoded. What is larger is decoded in another process: a list of small numbers takes 40 times
as much memory meanwhile."""
_OPTIONS = ("session", "tenant", "namespace")


def show(request: Request) -> Answer:
    """The checkpoints of a location, or the sessions of a flow store."""
    query = query_of(request)
    with opened(request, query) as (place, location):
        page = location.list(query.count("limit", _PAGE, 500), query.get("before") or None)
        charts = _charts(request, place, location, query) if place.kind.name == "training" else []
        ends = _ends(location) if place.kind.name == "training" else []
        is_session = place.kind.name == "flow" and bool(query.get("session"))
        is_page = is_session and not wants_json(request)
        forks = location.forks(FORKS_LOOKED_AT) if is_page else []  # type: ignore[attr-defined]
    values = {
        "steps": step_rows(page.items, forks, is_last=page.next is None) if is_session else [],
        "place": place,
        "columns": filled_columns(page.columns, [item.cells for item in page.items]),
        "rows": [(_href(place, query, item), item) for item in page.items],
        "next": page.next,
        "notes": page.notes,
        "options": options_of(query),
        "session": query.get("session"),
        "tenant": query.get("tenant"),
        "charts": charts,
        "ends": ends,
        "query": {name: query.get(name) for name in ("from", "to")},
        "over": query.all("with"),
        "others": _others(request, place) if charts else [],
    }
    document = {"items": [item.document for item in page.items], "next": page.next, **page.extra}
    return Answer("session.html" if is_session else "location.html", values, lambda: document)


def checkpoint(request: Request) -> Answer | Response:
    """One checkpoint in full."""
    query = query_of(request)
    ref = query.get("ref") or None
    with opened(request, query) as (place, location):
        is_large = _measured(location, "encoded_bytes", ref) > LARGE_BYTES
        if is_large and wants_json(request):
            return _streamed(request, "checkpoint", query, ref=ref)
        newest = () if wants_json(request) else location.list(1).items
        details = None if is_large else location.get(ref)
    if details is not None:
        found = states.summarize(details)
    else:
        found = states.details_of(_asked(request, "checkpoint", query, ref=ref))
    values = {
        "place": place,
        "details": found,
        "is_newest": any(each.id == found.id for each in newest),
        "fields": found.fields,
        "options": options_of(query),
        "tree": found.state,
        "at": "",
        "ref": query.get("ref"),
        "start": 0,
    }
    return Answer("location_checkpoint.html", values, lambda: {"checkpoint": details.document if details else None})


def state(request: Request) -> Answer | Response:
    """Some children of a value of a state: a tree opens piece by piece."""
    query = query_of(request)
    ref, at = query.get("ref") or None, query.get("at")
    start = query.count("start", 0, 1 << 40) if query.get("start") else 0
    value = None
    with opened(request, query) as (place, location):
        is_large = _measured(location, "encoded_bytes", ref) > LARGE_BYTES
        if not is_large:
            value = states.value_at(location.get(ref).state, at)
    if is_large and wants_json(request):
        return _streamed(request, "state", query, ref=ref, at=at)
    if is_large:
        tree = states.view_of(_asked(request, "state", query, ref=ref, at=at, start=start))
    else:
        tree = states.view(value, at, start)
    values = {"place": place, "tree": tree, "options": options_of(query), "ref": ref or "", "at": at, "start": start}
    return Answer("location_state.html", values, lambda: {"value": value})


def compare(request: Request) -> Answer | Response:
    """What differs between two checkpoints."""
    query = query_of(request)
    a, b = query.get("a") or None, query.get("b") or None
    job, table, found = None, None, Comparison({})
    with opened(request, query) as (place, location):
        is_large = _measured(location, "compared_bytes", a, b) > LARGE_BYTES
        if place.kind.name == "training":
            job = _tensors_compared(request, place, location, a, b)
        elif not is_large:
            found = location.diff(a, b)
    if is_large and wants_json(request):
        return _streamed(request, "compare", query, a=a, b=b)
    shown = None
    if job is not None:
        job.wait(location_process.TIMEOUT_S if wants_json(request) else WAIT_S)
        if job.error is not None:
            raise job.error
        if job.result is not None:
            found = _comparison(job.result)
        elif wants_json(request):
            raise Unavailable("the comparison failed", hint="Try it on the command line.")
    if is_large:
        shown = states.changes_of(_asked(request, "compare", query, a=a, b=b))
    elif job is None or job.result is not None:
        shown = states.summarize_changes(found)
        table = found.table
    values = {
        "place": place,
        "job": job,
        "found": shown,
        "compared": table,
        "options": options_of(query),
        "a": query.get("a"),
        "b": query.get("b"),
        "here_again": address("l", place.key, "compare", fragment="1", a=a, b=b),
    }
    template = "location_compare_fragment.html" if query.get("fragment") else "location_compare.html"
    return Answer(template, values, lambda: found.document)


def _tensors_compared(request: Request, place: NamedLocation, location: Location, a: str | None, b: str | None) -> Job:
    """Compare all tensors of two checkpoints, in another process, once: the result is kept until one is saved anew."""
    about = [item.document for item in (*location.list(2).items, *(location.find(each) for each in (a, b) if each))]
    places = site_of(request).places

    def work(_: Job) -> Any:
        return places.ask("compare_tensors", place, a=a, b=b)

    return site_of(request).jobs.start("compare", place.key, a or "", b or "", work=work, about=repr(about))


def _comparison(told: dict[str, Any]) -> Comparison:
    columns, rows = told["table"]
    table = Table([Column(*each) for each in columns], [tuple(row) for row in rows])
    return Comparison(told["document"], table=table, notes=told["notes"], title=told["title"])


def _measured(location: Location, measure: str, *refs: str | None) -> int:
    """How many bytes of a flow store are decoded. Nothing else is loaded as a whole."""
    found: int = getattr(location, measure)(*refs) if hasattr(location, measure) else 0
    return found


def _asked(request: Request, what: str, query: Query, **more: Any) -> Any:
    places = site_of(request).places
    place = places.find(request.path_params["key"])
    options = places.options(place, options_of(query))
    return places.ask(what, place, options=options, as_json=False, **more)


def _streamed(request: Request, what: str, query: Query, **more: Any) -> Response:
    places = site_of(request).places
    place = places.find(request.path_params["key"])
    pieces = places.stream(what, place, options=places.options(place, options_of(query)), **more)
    return StreamingResponse(pieces, media_type="application/json")


def usage(request: Request) -> Answer:
    """What takes space."""
    query = query_of(request)
    with opened(request, query) as (place, location):
        found = location.usage(_PAGE)
    values = {"place": place, "found": found, "fields": [each for each in found.fields if each.value is not None]}
    document = {"items": list(found.items), "next": None, "more": found.more, **found.document}
    return Answer("location_usage.html", values, lambda: document)


def search(request: Request) -> Answer:
    """The chunks of an index that are nearest to a text, with their scores."""
    query = query_of(request)
    place = site_of(request).places.index(request.path_params["key"])
    text, channel = query.get("q"), query.get("channel")
    found: dict[str, Any] = {"channel": channel, "channels": [], "items": []}
    if text:
        limit = query.count("limit", _HITS, 1_000)
        found = site_of(request).places.ask("search", place, text=text, channel=channel or None, limit=limit)
    most = max((each["score"] for each in found["items"]), default=0.0)
    values = {"place": place, "q": text, "options": {}, "most": most, **found}
    return Answer("index_search.html", values, lambda: {"items": found["items"], "next": None})


def runs(request: Request) -> Answer:
    """What was applied to an index, with its impact; the run that goes on shows how far it is."""
    query = query_of(request)
    limit = query.count("limit", _PAGE, 500)
    before = query.count("before", 0, 1 << 60) if query.get("before") else None
    with opened(request, query) as (place, location):
        if place.kind.name != "index":
            raise Refused(f"{place.kind.title} has no runs", hint="Choose an index.")
        found = location.history(limit + 1, before)  # type: ignore[attr-defined]
    shown = found[:limit]
    values: dict[str, Any] = {
        "place": place,
        "options": {},
        "runs": [IndexApply(each) for each in shown],
        "next": shown[-1].number if len(found) > limit else None,
        "here_again": address("l", place.key, "runs", fragment="1"),
        "is_live": before is None,
    }
    document = {"items": [asdict(each) for each in shown], "next": values["next"]}
    return Answer("runs_fragment.html" if query.get("fragment") else "runs.html", values, lambda: document)


def documents(request: Request) -> Answer:
    """The documents of a generation of an index, by name."""
    query = query_of(request)
    limit = query.count("limit", _DOCUMENTS, 5_000)
    with opened(request, query) as (place, location):
        if place.kind.name != "index":
            raise Refused(f"{place.kind.title} has no documents", hint="Choose an index.")
        details = location.get(query.get("ref") or None)
        found, more = location.documents(details.id, limit, query.get("after"))  # type: ignore[attr-defined]
    values = {"place": place, "options": {}, "generation": details.id, "documents": found, "next": more}
    return Answer("documents.html", values, lambda: {"items": [each._asdict() for each in found], "next": more})


class IndexApply(NamedTuple):
    """An apply of an index as it is shown."""

    record: Any

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(self.record.began, UTC)

    @property
    def updated(self) -> datetime:
        return datetime.fromtimestamp(self.record.updated, UTC)

    @property
    def state(self) -> str:
        """`running`, `killed` or so (it made no progress for a while), `stopped`, or `done`."""
        if self.record.ended is None:
            is_recent = (datetime.now(UTC) - self.updated).total_seconds() < _STILL_S
            return "running" if is_recent else "not ended"
        return "stopped" if self.record.done.get("stopped") else "done"

    @property
    def percent(self) -> int:
        """How much of the plan is done."""
        plan, done = self.record.plan, self.record.done
        total = plan["to_embed"] + plan["documents"] + plan["deleted"]
        so_far = sum(done.get(name, 0) for name in ("embedded", "published", "deleted"))
        return min(100 * so_far // total, 100) if total else 0


def fork(request: Request, form: Query) -> Response:
    """Create a session of a flow store that begins with a checkpoint; nothing else changes."""
    with opened(request, form) as (place, location):
        if place.kind.name != "flow":
            raise Refused(f"{place.kind.title} has no sessions", hint="Choose a flow store.")
        told = location.fork(form.get("ref") or None, form.get("into"))  # type: ignore[attr-defined]
    if wants_json(request):
        return json_response({"session_id": told.session_id, "checkpoint_id": told.checkpoint_id})
    return go(address("l", place.key, session=told.session_id, tenant=form.get("tenant")))


@contextmanager
def opened(request: Request, query: Query) -> Iterator[tuple[NamedLocation, Location]]:
    place, location = site_of(request).places.location(request.path_params["key"], options_of(query))
    try:
        yield place, location
    finally:
        location.close()


def options_of(query: Query) -> dict[str, str]:
    """The options of a location that an address names."""
    return {name: query.get(name) for name in _OPTIONS if query.get(name)}


def _ends(location: Location) -> list[tuple[str, Item]]:
    """The best and the last checkpoint of a training run."""
    found = []
    for label, ref in (("best", "best"), ("last", "latest")):
        with suppress(HoldfastError):  # no metric was named as the one that counts, or nothing is saved yet
            found.append((label, location.find(ref)))
    return found


def _others(request: Request, place: NamedLocation) -> list[NamedLocation]:
    """What else is of the same kind."""
    places = site_of(request).places
    every = {each.key: each for each in [*places.named, *places.configured()]}
    return [each for each in every.values() if each.kind == place.kind and each.key != place.key]


def _href(place: NamedLocation, query: Query, item: Item) -> dict[str, str]:
    """What the address of an item needs: the session of a flow store, or a checkpoint."""
    if place.kind.name == "flow" and not query.get("session"):
        tenant = item.document.get("tenant") or ""
        return {"session": str(item.document.get("session_id", item.id)), "tenant": str(tenant)}
    return {**options_of(query), "ref": item.id}


# metrics


def _charts(request: Request, place: NamedLocation, location: Location, query: Query) -> list[Chart]:
    runs = {place.title: location.list(_PLOTTED_MAX).items}
    for key in query.all("with")[:3]:
        other, location_ = site_of(request).places.location(key)
        try:
            runs[other.title] = location_.list(_PLOTTED_MAX).items
        except HoldfastError:
            continue
        finally:
            location_.close()
    first, last = (_number(query.get(name)) for name in ("from", "to"))
    values: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run, items in runs.items():
        for item in reversed(items):
            step = float(item.document["step"])
            if (first is None or step >= first) and (last is None or step <= last):
                for name, value in _metrics(item.document["metrics"]):
                    values.setdefault(name, {}).setdefault(run, []).append((step, value))
    charts = []
    for name, by_run in list(values.items())[:12]:
        chart = draw(name, [Series(run, by_run.get(run, [])) for run in runs])
        if chart is not None:
            charts.append(chart)
    return charts


def _metrics(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)


def _number(text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        raise Refused(f"{text!r} is not a step", hint="Leave it out.") from None
    return found if math.isfinite(found) else None
