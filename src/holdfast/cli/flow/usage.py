"""`holdfast usage LOCATION`: where the bytes are, by session."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.cli import output, render
from holdfast.cli.app import App
from holdfast.cli.flow import telling
from holdfast.cli.flow.opening import Location, opened, session_of
from holdfast.cli.locations import Asked
from holdfast.flow import Session, Usage, Weight

_TENANTS = ("tenant", "sessions", "deleted", "checkpoints", "size")
_SESSIONS = ("session", "only it", "with forks", "checkpoints", "tenant")


class _Weighed(NamedTuple):
    tenant: str
    session: Session
    weight: Weight


def usage(app: App, place: Asked, limit: int) -> None:
    """Show what is stored, and which sessions take most. Sizes are not secret, so no key is needed."""
    with opened(place.location, None) as location:
        named = place.tenant or "" if place.session is not None else place.tenant
        tenants = {name: location.tenant(name).usage() for name in location.tenants(named)}
        weighed = [each for name in tenants for each in _weighed(location, name, place.session)]
    weighed.sort(key=lambda each: (-each.weight.own_bytes - each.weight.shared_bytes, each.tenant, each.session.latest))
    shown = weighed[:limit] if limit else weighed
    if app.json:
        app.document(_document(tenants, shown) | {"more_sessions": len(weighed) - len(shown)})
        return
    _print(tenants)
    if shown:
        output.answer()
        render.table(_SESSIONS, [_row(each) for each in shown])
    if len(weighed) > len(shown):
        output.note(f"There are {len(weighed) - len(shown):,} more sessions: -n 0 lists all")


def _weighed(location: Location, tenant: str, session: str | None) -> list[_Weighed]:
    states = location.tenant(tenant)
    only = None if session is None else session_of(location, states, session)
    sessions = {each.session_id: each for each in states.sessions(None) if only in (None, each.session_id)}
    return [_Weighed(tenant, sessions[each.session_id], each) for each in states.weigh(list(sessions))]


def _print(tenants: dict[str, Usage]) -> None:
    if list(tenants) == [""]:
        [found] = tenants.values()
        pairs = [
            ("states", render.size(found.total_bytes)),
            ("sessions", f"{found.sessions:,}"),
            ("deleted", f"{render.count(found.tombstones, 'session')}" if found.tombstones else ""),
            ("checkpoints", f"{found.checkpoints:,}"),
            ("parts", f"{found.parts:,}"),
        ]
        output.answer(render.fields(pairs))
        return
    numbers = [
        (telling.name(name) or '""', f"{each.sessions:,}", f"{each.tombstones:,}", f"{each.checkpoints:,}",
         render.size(each.total_bytes))
        for name, each in tenants.items()
    ]  # fmt: skip
    render.table(_TENANTS, numbers)


def _row(each: _Weighed) -> tuple[str, ...]:
    weight = each.weight
    return (
        telling.name(each.session.session_id),
        render.size(weight.own_bytes),
        render.size(weight.shared_bytes) if weight.shared_bytes else "",
        f"{each.session.checkpoints:,}",
        telling.name(each.tenant),
    )


def _document(tenants: dict[str, Usage], shown: list[_Weighed]) -> dict[str, Any]:
    sessions = [
        {
            "session_id": each.session.session_id,
            "tenant": each.tenant,
            "checkpoints": each.session.checkpoints,
            "own_bytes": each.weight.own_bytes,
            "shared_bytes": each.weight.shared_bytes,
        }
        for each in shown
    ]
    told = [{"tenant": name, **asdict(each), "total_bytes": each.total_bytes} for name, each in tenants.items()]
    return {"total_bytes": sum(each.total_bytes for each in tenants.values()), "tenants": told, "sessions": sessions}
