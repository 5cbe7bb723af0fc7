"""`holdfast log LOCATION`: the sessions, or the checkpoints of one."""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from holdfast.cli import output, render
from holdfast.cli.app import App, typed
from holdfast.cli.flow import telling
from holdfast.cli.flow.opening import Location, keys_of, opened, session_of
from holdfast.cli.locations import Asked
from holdfast.errors import Damaged
from holdfast.flow import CheckpointMetadata, Session, States
from holdfast.flow.store import Row
from holdfast.harmless import escape_path

_SESSIONS = ("session", "checkpoints", "last saved", "size", "tenant")
_CHECKPOINTS = ("checkpoint", "step", "node", "when", "tags", "namespace")


class _Broken(NamedTuple):
    """A row that cannot be read."""

    row: Row
    why: str


def log(app: App, place: Asked, limit: int, before: str | None) -> None:
    """List sessions, the one saved into last first; or, with one named, its checkpoints, newest first."""
    cursor = _cursor(before)
    with opened(place.location, keys_of(place) if place.session is not None else None) as location:
        if place.session is None:
            if place.namespace is not None:
                raise click.UsageError("--namespace needs --session")
            _sessions(app, place, location, limit, cursor)
        else:
            _checkpoints(app, place, location, limit, cursor)


def _cursor(before: str | None) -> int | None:
    if before is None:
        return None
    if not before.isdecimal():
        raise click.UsageError(f"--before takes the number that the last page ended with, not {before!r}")
    return int(before)


def _sessions(app: App, place: Asked, location: Location, limit: int, before: int | None) -> None:
    found = [
        (location.tenant(tenant), each)
        for tenant in location.tenants(place.tenant)
        for each in location.tenant(tenant).sessions(limit + 1 if limit else None, before=before)
    ]
    found.sort(key=lambda pair: -pair[1].latest)
    shown, cursor = _page(found, limit)
    sizes = {
        (states.store.tenant, weight.session_id): weight.own_bytes + weight.shared_bytes
        for states in {id(states): states for states, _ in shown}.values()
        for weight in states.weigh([each.session_id for own, each in shown if own is states])
    }
    rows = [(states.store.tenant, each, sizes.get((states.store.tenant, each.session_id), 0)) for states, each in shown]
    if app.json:
        app.document({"sessions": [_document(*row) for row in rows], "next": cursor})
        return
    if not rows:
        output.note("There are no older ones." if before is not None else "There are no sessions yet.")
        return
    render.table(_SESSIONS, [_row(*row) for row in rows])
    _tell_more(place, limit, cursor)


def _page(found: list[tuple[States, Session]], limit: int) -> tuple[list[tuple[States, Session]], int | None]:
    """A page, and where the next one begins. Tenants of one Redis count for themselves: equal numbers stay together."""
    if not limit or len(found) <= limit:
        return found, None
    last = found[limit - 1][1].latest
    shown = [pair for pair in found if pair[1].latest >= last]
    return shown, last if len(shown) < len(found) else None


def _document(tenant: str, session: Session, size: int) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "tenant": tenant,
        "checkpoints": session.checkpoints,
        "latest": session.latest,
        "saved_at": session.saved_at.isoformat(),
        "bytes": size,
    }


def _row(tenant: str, session: Session, size: int) -> tuple[str, ...]:
    when = render.ago if output.is_terminal(sys.stdout) else render.local
    counted = f"{session.checkpoints:,}"
    return telling.name(session.session_id), counted, when(session.saved_at), render.size(size), telling.name(tenant)


def _checkpoints(app: App, place: Asked, location: Location, limit: int, before: int | None) -> None:
    states = location.tenant(place.tenant or "")
    session = session_of(location, states, place.session or "")
    most = limit + 1 if limit else None
    found = states.store.rows(session, place.namespace, before=before, limit=most)
    shown = found[:limit] if limit else found
    cursor = shown[-1].sequence if len(found) > len(shown) else None
    told = [_told(states, row) for row in shown]
    if app.json:
        app.document({"checkpoints": [_checkpoint_document(states, each) for each in told], "next": cursor})
        return
    if not shown:
        output.note("There are no older ones." if before is not None else "It has no checkpoints there.")
        return
    render.table(_CHECKPOINTS, [_checkpoint(each) for each in told])
    _tell_more(place, limit, cursor)


def _told(states: States, row: Row) -> CheckpointMetadata | _Broken:
    """What is told of a row; one that cannot be read does not hide the others."""
    try:
        return states.sealer.metadata(row)
    except Damaged as error:
        return _Broken(row, error.message)


def _checkpoint_document(states: States, told: CheckpointMetadata | _Broken) -> dict[str, object]:
    if isinstance(told, CheckpointMetadata):
        return telling.metadata(states, told)
    place = told.row.place
    return {
        "checkpoint_id": place.checkpoint_id,
        "session_id": place.session,
        "tenant": states.store.tenant,
        "namespace": place.namespace,
        "sequence": told.row.sequence,
        "error": told.why,
    }


def _checkpoint(told: CheckpointMetadata | _Broken) -> tuple[str, ...]:
    if not isinstance(told, CheckpointMetadata):
        place = told.row.place
        return telling.name(place.checkpoint_id), "", "damaged", "", "", telling.name(place.namespace)
    return (
        telling.name(told.checkpoint_id),
        str(told.step),
        telling.name(str(told.node_name)),
        telling.when(told.timestamp),
        ", ".join(map(telling.name, told.tags)),
        telling.name(told.namespace),
    )


def _tell_more(place: Asked, limit: int, cursor: int | None) -> None:
    if cursor is None:
        return
    given = (("--session", place.session), ("--tenant", place.tenant), ("--namespace", place.namespace))
    same = [word for option, value in given if value is not None for word in (option, escape_path(value))]
    words = ("log", place.location, *same, "-n", str(limit), "--before", str(cursor))
    output.note(f"There are more: {typed(*words)}")
