"""The first page: every workspace of this computer, and the locations that were named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.requests import Request

from holdfast.adapters.agents.parent_process import session_folder
from holdfast.adapters.agents.session_file import read_sessions
from holdfast.errors import HoldfastError
from holdfast.location import FOLDER
from holdfast.web.answers import Answer, site_of
from holdfast.web.places import NamedLocation
from holdfast.workspace.stores import StoreInfo


class HookLife(NamedTuple):
    """When the hooks of an agent last ran in a workspace."""

    agent: str
    at: datetime


class WorkspaceRow(NamedTuple):
    """A row of the first page."""

    place: NamedLocation
    store: StoreInfo
    hooks: list[HookLife]


def show(request: Request) -> Answer:
    """All locations, last used first."""
    places = site_of(request).places
    rows = [WorkspaceRow(place, store, _hooks(store)) for place, store in places.stores()]
    known = {row.place.key for row in rows}
    every = {place.key: place for place in [*places.configured(), *places.named]}
    others = [_described(place) for key, place in every.items() if place.kind != FOLDER or key not in known]
    total = sum(row.store.store_bytes for row in rows)
    folders = [*(row.place for row in rows), *places.named]
    values = {
        "rows": rows,
        "others": others,
        "total": total,
        "project_keys": {each.address: each.key for each in folders if each.kind == FOLDER},
    }

    def document() -> dict[str, Any]:
        items = [row.store.document() for row in rows]
        return {"items": items, "next": None, "store_bytes": total, "locations": [each[1] for each in others]}

    return Answer("home.html", values, document)


def _hooks(store: StoreInfo) -> list[HookLife]:
    try:
        fired = read_sessions(session_folder(store.store)).fired
    except (OSError, HoldfastError):
        return []
    found = [HookLife(agent, datetime.fromtimestamp(event.at, UTC)) for agent, event in fired.items()]
    return sorted(found, key=lambda each: each.at, reverse=True)


def _described(place: NamedLocation) -> tuple[NamedLocation, dict[str, Any]]:
    return place, {"kind": place.kind.name, "address": place.shown, "project": place.project or None}
