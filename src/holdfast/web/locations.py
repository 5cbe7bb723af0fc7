"""Flow stores, training runs and indexes: what their `Location` lists, in full, compared, and what takes space."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.location import Column, Comparison, Table
from holdfast.web.answers import Answer, Query, go, json_response, query_of, site_of, wants_json
from holdfast.web.charts import Chart, Series, draw
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
_CHILDREN_MAX = 100
_TEXT_MAX_CHARS = 2_000
_CHANGES_MAX = 500
_OPTIONS = ("session", "tenant", "namespace")


class StateNode(NamedTuple):
    """A value of a state, closed: its children are asked for when it is opened."""

    name: str
    at: str
    """Its place: the numbers of the children on the way to it."""
    text: str
    children: int


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


def checkpoint(request: Request) -> Answer:
    """One checkpoint in full."""
    query = query_of(request)
    with opened(request, query) as (place, location):
        details = location.get(query.get("ref") or None)
        newest = () if wants_json(request) else location.list(1).items
    values = {
        "place": place,
        "details": details,
        "is_newest": any(each.id == details.id for each in newest),
        "fields": [each for each in details.fields if each.value not in (None, "", (), [], {})],
        "options": options_of(query),
        "nodes": list(children(details.state, "", 0)) if details.state is not None else [],
        "more": max(_length(details.state) - _CHILDREN_MAX, 0),
        "at": "",
        "ref": query.get("ref"),
        "start": 0,
    }
    return Answer("location_checkpoint.html", values, lambda: {"checkpoint": details.document})


def state(request: Request) -> Answer:
    """Some children of a value of a state: a tree opens piece by piece."""
    query = query_of(request)
    start = query.count("start", 0, 1 << 40) if query.get("start") else 0
    with opened(request, query) as (place, location):
        value = _at(location.get(query.get("ref") or None).state, query.get("at"))
    values = {
        "place": place,
        "nodes": list(children(value, query.get("at"), start)),
        "more": max(_length(value) - start - _CHILDREN_MAX, 0),
        "options": options_of(query),
        "ref": query.get("ref"),
        "at": query.get("at"),
        "start": start,
    }
    return Answer("location_state.html", values, lambda: {"value": value})


def compare(request: Request) -> Answer:
    """What differs between two checkpoints."""
    query = query_of(request)
    place = site_of(request).places.find(request.path_params["key"])
    a, b = query.get("a") or None, query.get("b") or None
    if place.kind.name == "training":
        found = _tensors_compared(site_of(request).places.ask("compare", place, a=a, b=b))
    else:
        with opened(request, query) as (place, location):
            found = location.diff(a, b)
    changes = [(each.path, each.kind, short_text(each.before), short_text(each.after)) for each in found.changes]
    values = {
        "place": place,
        "found": found,
        "changes": changes[:_CHANGES_MAX],
        "more": max(len(changes) - _CHANGES_MAX, 0),
        "options": options_of(query),
        "a": query.get("a"),
        "b": query.get("b"),
    }
    return Answer("location_compare.html", values, lambda: found.document)


def _tensors_compared(told: dict[str, Any]) -> Comparison:
    columns, rows = told["table"]
    table = Table([Column(*each) for each in columns], [tuple(row) for row in rows])
    return Comparison(told["document"], table=table, notes=told["notes"], title=told["title"])


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


# states


def children(value: Any, at: str, start: int) -> Iterator[StateNode]:
    """Some children of a value, each closed."""
    if isinstance(value, dict):
        pairs: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list | tuple):
        pairs = iter(enumerate(value))
    else:
        yield StateNode("", at, short_text(value), 0)
        return
    for number, (name, each) in enumerate(islice(pairs, start, start + _CHILDREN_MAX), start):
        yield StateNode(str(name), f"{at}.{number}" if at else str(number), short_text(each), _length(each))


def short_text(value: Any) -> str:
    """A value in one line: its content, or how much there is of it."""
    if isinstance(value, dict):
        return f"{{{len(value):,}}}"
    if isinstance(value, list | tuple):
        return f"[{len(value):,}]"
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= _TEXT_MAX_CHARS else f"{text[:_TEXT_MAX_CHARS]} … {len(text):,} characters"


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | tuple) else 0


def _at(value: Any, at: str) -> Any:
    """The value at a place. NotFound if the state has no such place."""
    for step in at.split(".") if at else []:
        found: Sequence[Any] = ()
        if step.isascii() and step.isdecimal() and len(step) < 12:
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            found = list(islice(inner, int(step), int(step) + 1))
        if not found:
            raise NotFound("the state has no such place", hint="Load the page again.")
        value = found[0]
    return value
