"""`holdfast copy FROM TO`: everything of one location, in another, unchanged."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from holdfast.cli import output, progress, render
from holdfast.cli.app import App
from holdfast.cli.exits import Exit
from holdfast.cli.flow import telling
from holdfast.cli.flow.opening import Location, keys_of, opened, session_of
from holdfast.cli.locations import Asked
from holdfast.errors import NotFound, Refused
from holdfast.flow import Copied
from holdfast.harmless import without_password
from holdfast.serde import Keys, read_keys


class _Planned(NamedTuple):
    """What there is to be copied of a tenant."""

    tenant: str
    session: str | None
    """Only that one."""
    sessions: int
    checkpoints: int
    bytes: int
    tombstones: int
    there: int
    """How many of the sessions the other location has, too."""


def copy(app: App, place: Asked, target: str, *, to_keys: str | None, to_plaintext: bool, dry_run: bool) -> int:
    """Copy all tenants or one, all sessions or one; what is at the target already stays as it is."""
    if _same(place.location, target):
        raise Refused("both locations are the same", hint="Name another one to copy to.")
    keys = keys_of(place)
    with opened(place.location, keys) as source:
        wanted = place.tenant or "" if place.session is not None else place.tenant
        plan = _plan(source, place, wanted, target)
        if not app.json:
            _show(plan, place, target, answer=dry_run)
        if dry_run:
            if app.json:
                app.document({"plan": _documents(plan), "copied": None})
            return Exit.DONE
        with opened(target, _keys(keys, to_keys, to_plaintext), create=True) as there, progress.shown() as shown:
            done = {
                each.tenant: source.tenant(each.tenant).copy_to(
                    there.tenant(each.tenant), session_id=each.session, progress=shown, go_on=True
                )
                for each in plan
            }
    return _tell(app, plan, done)


def _same(one: str, other: str) -> bool:
    paths = [os.path.realpath(each.partition(":///")[2].partition("?")[0]) for each in (one, other)]
    is_file = one.startswith("sqlite:") and other.startswith("sqlite:")
    return one == other or (is_file and paths[0] == paths[1])


def _keys(keys: Keys | None, to_keys: str | None, to_plaintext: bool) -> Keys | None:
    """What is sealed stays sealed, with the same keys where no others are named, unless somebody says otherwise."""
    if to_plaintext and to_keys is not None:
        raise Refused("--to-keys and --to-plaintext do not go together", hint="Pass one of them.")
    if to_plaintext:
        return None
    return read_keys(to_keys) if to_keys is not None else keys


def _plan(source: Location, place: Asked, tenant: str | None, target: str) -> list[_Planned]:
    """What would be copied. The target is only looked at, and need not be there yet."""
    planned = []
    for name in source.tenants(tenant):
        states = source.tenant(name)
        only = None if place.session is None else _named(source, name, place.session)
        sessions = [each for each in states.sessions(None) if only in (None, each.session_id)]
        weights = states.weigh([each.session_id for each in sessions])
        planned.append(
            _Planned(
                tenant=name,
                session=only,
                sessions=len(sessions),
                checkpoints=sum(each.checkpoints for each in sessions),
                bytes=sum(each.own_bytes + each.shared_bytes for each in weights),
                tombstones=sum(only in (None, each) for each in states.store.tombstones()),
                there=_there(target, name, [each.session_id for each in sessions]),
            )
        )
    return planned


def _named(source: Location, tenant: str, session: str) -> str:
    """The session that was named; one that was deleted is copied, too: as a tombstone."""
    states = source.tenant(tenant)
    return session if session in states.store.tombstones() else session_of(source, states, session)


def _there(target: str, tenant: str, sessions: list[str]) -> int:
    try:
        with opened(target, None) as place:
            store = place.tenant(tenant).store
            return sum(store.session(each) is not None for each in sessions)
    except NotFound:
        return 0


def _show(plan: list[_Planned], place: Asked, target: str, *, answer: bool) -> None:
    say = output.answer if answer else output.note
    ends = (render.escape(without_password(each)) for each in (place.location, target))
    say(f"To be copied: {' → '.join(ends)}")
    for each in plan:
        whose = f"tenant {telling.name(each.tenant)}: " if each.tenant else ""
        held = f"{render.count(each.checkpoints, 'checkpoint')} of {render.count(each.sessions, 'session')}"
        there = f"; {render.count(each.there, 'session is', 'sessions are')} there already" if each.there else ""
        dead = f"; {render.count(each.tombstones, 'deleted session')}" if each.tombstones else ""
        say(f"    {whose}{held}, {render.size(each.bytes)}{dead}{there}")


def _documents(plan: list[_Planned]) -> list[dict[str, Any]]:
    return [each._asdict() for each in plan]


def _tell(app: App, plan: list[_Planned], done: dict[str, Copied]) -> int:
    if app.json:
        app.document({"plan": _documents(plan), "copied": [_copied(tenant, each) for tenant, each in done.items()]})
    else:
        numbers = [(each.checkpoints, each.skipped, each.tombstones) for each in done.values()]
        new, old, dead = map(sum, zip(*numbers, strict=True))
        there = f"; {old:,} there already" if old else ""
        buried = f"; {render.count(dead, 'deleted session')} marked as deleted there, too" if dead else ""
        output.answer(f"{render.count(new, 'checkpoint')} copied{there}{buried}")
        for tenant, each in done.items():
            whose = f"tenant {telling.name(tenant)}: " if tenant else ""
            left = {(session,): why for session, why in each.conflicts.items()} | dict(each.damaged)
            for names, why in left.items():
                what = " / ".join(telling.name(name) for name in names if name)
                output.note(f"{whose}{what} was not copied: {render.escape(why)}")
    if any(each.damaged for each in done.values()):
        return Exit.DAMAGED
    return Exit.CONFLICT if any(each.conflicts for each in done.values()) else Exit.DONE


def _copied(tenant: str, done: Copied) -> dict[str, Any]:
    names = ("session_id", "namespace", "checkpoint_id")
    damaged = [dict(zip(names, place, strict=True)) | {"error": why} for place, why in done.damaged.items()]
    return {
        "tenant": tenant,
        "sessions": done.sessions,
        "checkpoints": done.checkpoints,
        "skipped": done.skipped,
        "tombstones": done.tombstones,
        "conflicts": dict(done.conflicts),
        "damaged": damaged,
    }
