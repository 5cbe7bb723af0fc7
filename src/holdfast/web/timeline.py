"""The timeline of a workspace: turns of agents, saves of people, and restores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from starlette.requests import Request

from holdfast.errors import HoldfastError, NotFound
from holdfast.model import Checkpoint
from holdfast.web.answers import Answer, Query, query_of, site_of
from holdfast.web.graph import GraphRow, Lane, draw
from holdfast.web.live import newest_id
from holdfast.web.take_back import COMPUTED, banner, restore_title
from holdfast.workspace import Workspace
from holdfast.workspace.check import CHECK
from holdfast.workspace.location import WorkspaceLocation, message
from holdfast.workspace.stored.attribution import USER
from holdfast.workspace.stored.history import Summary, Turn

PAGE = 50
_BUCKETS = 96
_PATHS_SHOWN = 4
FILTERS = ("actor", "session", "path", "text")


class TimelineRow(NamedTuple):
    """A turn, a save or a restore."""

    turn: Turn
    summary: Summary
    title: str
    is_restore: bool
    is_head: bool
    """Whether the folder was last equal to it."""
    lanes: list[Lane]

    @property
    def newest(self) -> Checkpoint | None:
        """None: the turn changed nothing."""
        return self.turn.checkpoints[0] if self.turn.checkpoints else None

    @property
    def key(self) -> str:
        """What stays the same while a turn goes on."""
        return self.turn.checkpoints[-1].id if self.turn.checkpoints else f"turn-{self.turn.number}"

    @property
    def check(self) -> str:
        """`green`, `red`, or empty if its newest checkpoint was not checked."""
        return verdict(self.newest)

    @property
    def who(self) -> str:
        return "you" if self.turn.actor == USER else self.turn.actor

    @property
    def shown_paths(self) -> Sequence[Any]:
        return self.summary.paths[:_PATHS_SHOWN]


class Bar(NamedTuple):
    """A part of the rail: some successive checkpoints."""

    ref: str
    """The newest of them."""
    when: str
    saves: int
    by_agents: int
    is_here: bool


class Rail(NamedTuple):
    """Everything that was saved, as bars, newest first."""

    bars: list[Bar]
    most: int
    total: int


def verdict(checkpoint: Checkpoint | None) -> str:
    """Whether the check of a checkpoint passed: `green`, `red`, or empty without one."""
    known = checkpoint.metadata.get(CHECK) if checkpoint else None
    passed = known.get("passed") if isinstance(known, dict) else None
    return "" if passed is None else "green" if passed else "red"


def show(request: Request) -> Answer:
    """A page of the timeline; with `fragment`, only its rows."""
    place, workspace = site_of(request).places.workspace(request.path_params["key"])
    query = query_of(request)
    filters = _filters(query)
    limit, before, up_to = query.count("limit", PAGE, 200), query.get("before") or None, query.get("at") or None
    is_filtered = any(query.get(name) for name in FILTERS)

    def document() -> dict[str, Any]:
        options = {"grouped": True, **{name: value for name, value in filters.items() if name != "paths"}}
        options |= {"paths": filters["paths"], "up_to": up_to}
        page = WorkspaceLocation(workspace, options).list(limit, before)
        return {"items": [item.document for item in page.items], "next": page.next, **page.extra}

    def values() -> dict[str, Any]:
        newest = newest_id(workspace)  # before the rest: what is saved meanwhile is new to the page
        found = workspace.turns(limit, before=before, up_to=up_to, safety=not is_filtered, **filters)
        shown = [at for at, turn in enumerate(found.turns) if not _is_computed(turn)]
        rows = _rows(workspace, [found.turns[at] for at in shown], [found.summaries[at] for at in shown])
        rail = _rail(workspace, rows)
        return {
            "place": place,
            "newest": newest,
            "rows": rows,
            "next": found.next,
            "query": {name: query.get(name) for name in FILTERS},
            "is_filtered": is_filtered,
            "is_first": before is None and up_to is None,
            "rail": rail,
            "banner": banner(request, workspace, place.key),
            "days": _days(rows),
        }

    if str(request.scope["path"]).endswith(".json"):
        return Answer("", {}, document)
    template = "timeline_rows.html" if query.get("fragment") else "timeline.html"
    return Answer(template, values(), document)


def _filters(query: Query) -> dict[str, Any]:
    actor = query.get("actor") or None
    path = query.get("path")
    return {
        "actor": USER if actor == "you" else actor,
        "session": query.get("session") or None,
        "paths": [path] if path else None,
        "grep": f"(?i){re.escape(query.get('text'))}" if query.get("text") else None,
    }


def _rows(workspace: Workspace, turns: Sequence[Turn], summaries: Sequence[Summary]) -> list[TimelineRow]:
    head = workspace.head()
    lanes = draw([_step(workspace, turn) for turn in turns])
    rows = []
    for turn, summary, row in zip(turns, summaries, lanes, strict=True):
        newest = turn.checkpoints[0] if turn.checkpoints else None
        is_restore = newest is not None and newest.operation is not None
        title = turn.prompt or (message(newest) if newest else "A turn without a prompt")
        if newest is not None and is_restore:
            title = restore_title(workspace, newest)
        is_head = head is not None and any(each.id == head.id for each in turn.checkpoints)
        rows.append(TimelineRow(turn, summary, title, is_restore, is_head, row))
    return rows


def _is_computed(turn: Turn) -> bool:
    operation = turn.checkpoints[0].operation if turn.checkpoints else None
    return operation is not None and operation.verb in COMPUTED


def _step(workspace: Workspace, turn: Turn) -> GraphRow:
    if not turn.checkpoints or turn.checkpoints[0].operation is not None:
        return GraphRow((), ())
    ids = {each.id for each in turn.checkpoints}
    parents = set()
    for each in turn.checkpoints:
        if each.parent is None or each.parent in ids:
            continue
        try:
            parent = workspace.shown_parent(each)
            while parent is not None and parent.operation is not None:  # the rows of these have no place in the graph
                parent = workspace.shown_parent(parent)
        except (HoldfastError, NotFound):
            continue
        if parent is not None and parent.id not in ids:
            parents.add(parent.id)
    return GraphRow(ids, parents)


def _days(rows: Sequence[TimelineRow]) -> dict[str, datetime]:
    """By the key of the first row of a day, its time."""
    found: dict[str, datetime] = {}
    last = None
    for row in rows:
        local = row.turn.when.astimezone().date()
        if local != last:
            found[row.key], last = row.turn.when, local
    return found


def _rail(workspace: Workspace, rows: Sequence[TimelineRow]) -> Rail:
    every = workspace.overview()
    shown = {each.id for row in rows for each in row.turn.checkpoints}
    size = max(-(-len(every) // _BUCKETS), 1)
    bars = []
    for start in range(0, len(every), size):
        part = every[start : start + size]
        agents = sum(actor != USER for _, _, actor in part)
        is_here = any(each in shown for each, _, _ in part)
        bars.append(Bar(part[-1][0], part[-1][1][:16].replace("T", " "), len(part), agents, is_here))
    bars.reverse()
    return Rail(bars, max((bar.saves for bar in bars), default=0), len(every))
