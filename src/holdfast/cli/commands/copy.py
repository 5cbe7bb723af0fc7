"""`holdfast copy`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli import progress, render, streams, values
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound, Refused
from holdfast.escaping import without_password
from holdfast.location import kind_of

if TYPE_CHECKING:
    from holdfast.flow import Copied
    from holdfast.flow.location import TenantStates
    from holdfast.serde import Keys


class _From(NamedTuple):
    """What is to be copied."""

    url: str
    session: str | None
    tenant: str | None
    keys: str | None


@command()
@click.argument("location", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--session", metavar="ID", help="Only this session. [default: all]")
@click.option("--tenant", metavar="NAME", help="Only this tenant. [default: all; with --session, the unnamed one]")
@click.option(
    "--keys",
    metavar="FILE",
    envvar="HOLDFAST_FLOW_KEYS",
    help="The keys that open FROM. [default: $HOLDFAST_FLOW_KEYS]",
)
@click.option("--to-keys", metavar="FILE", help="The keys to encrypt TO with. [default: those of FROM]")
@click.option("--to-plaintext", is_flag=True, help="Write TO without encryption.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@pass_app
def copy(
    app: App, /, *, location: str, target: str, to_keys: str | None, to_plaintext: bool, dry_run: bool, **flow: Any
) -> int:
    """Copy the states of a flow store to another, unchanged.

    Copies states, metadata, pending writes, order and times as they are, between any two kinds of store. FROM is not
    changed; what TO already has stays. A session that was deleted in FROM is marked as deleted in TO, too. A
    session that was deleted in TO, or has other checkpoints under the same ids there, is skipped and listed. To
    continue after an interruption, run it again.

    \b
    holdfast copy sqlite:///state.db postgresql://localhost/states
    holdfast copy sqlite:///state.db sqlite:///encrypted.db --to-keys keys.json
    """
    for word in (location, target):
        if not _is_flow(word):
            raise click.UsageError(
                f"{word!r} is no flow store, and copy is for flow stores, such as sqlite:///state.db"
            )
    if app.directory or app.store:
        raise click.UsageError("-C and --store are for folders, and copy is for flow stores")
    return _copy(app, _From(location, **flow), target, to_keys=to_keys, to_plaintext=to_plaintext, dry_run=dry_run)


def _is_flow(word: str) -> bool:
    try:
        return kind_of(word).name == "flow"
    except Refused:
        return False


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


def _copy(app: App, place: _From, target: str, *, to_keys: str | None, to_plaintext: bool, dry_run: bool) -> int:
    """Copy all tenants or one, all sessions or one; what is at the target already stays as it is."""
    from holdfast.flow.location import opened  # start-up cost, for flow stores only
    from holdfast.serde import read_keys

    if _same(place.url, target):
        raise Refused("both locations are the same", hint="Name another one to copy to.")
    keys = read_keys(place.keys) if place.keys else None
    with opened(place.url, keys) as source:
        wanted = place.tenant or "" if place.session is not None else place.tenant
        plan = _plan(source, place, wanted, target)
        if not app.json:
            _show(plan, place, target, answer=dry_run)
        if dry_run:
            if app.json:
                app.items((each._asdict() for each in plan), copied=None)
            return Exit.DONE
        with opened(target, _keys(keys, to_keys, to_plaintext), create=True) as there, progress.shown() as shown:
            done = {
                each.tenant: source[each.tenant].copy_to(
                    there[each.tenant], session_id=each.session, progress=shown, go_on=True
                )
                for each in plan
            }
    return _tell(app, plan, done)


def _same(one: str, other: str) -> bool:
    paths = [os.path.realpath(each.partition(":///")[2].partition("?")[0]) for each in (one, other)]
    is_file = one.startswith("sqlite:") and other.startswith("sqlite:")
    return one == other or (is_file and paths[0] == paths[1])


def _keys(keys: Keys | None, to_keys: str | None, to_plaintext: bool) -> Keys | None:
    """Encrypted states stay encrypted, with the same keys by default; --to-plaintext decrypts them."""
    if to_plaintext and to_keys is not None:
        raise Refused("--to-keys and --to-plaintext do not go together", hint="Pass one of them.")
    if to_plaintext:
        return None
    from holdfast.serde import read_keys  # as above

    return read_keys(to_keys) if to_keys is not None else keys


def _plan(source: TenantStates, place: _From, tenant: str | None, target: str) -> list[_Planned]:
    """What would be copied. The target is only looked at, and need not be there yet."""
    planned = []
    for name in source.names(tenant):
        states = source[name]
        only = None if place.session is None else _named(source, name, place.session)
        sessions = [each for each in states.sessions(None) if only in (None, each.session_id)]
        weights = states.sizes([each.session_id for each in sessions])
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


def _named(source: TenantStates, tenant: str, session: str) -> str:
    """The session that was named; one that was deleted is copied, too: as a tombstone."""
    states = source[tenant]
    return session if session in states.store.tombstones() else source.session(tenant, session)


def _there(target: str, tenant: str, sessions: list[str]) -> int:
    from holdfast.flow.location import opened  # as above

    try:
        with opened(target, None) as place:
            store = place[tenant].store
            return sum(store.session(each) is not None for each in sessions)
    except NotFound:
        return 0


def _show(plan: list[_Planned], place: _From, target: str, *, answer: bool) -> None:
    say = streams.answer if answer else streams.note
    ends = (render.escape(without_password(each)) for each in (place.url, target))
    say(f"To be copied: {' → '.join(ends)}")
    for each in plan:
        whose = f"tenant {values.name(each.tenant)}: " if each.tenant else ""
        held = f"{render.count(each.checkpoints, 'checkpoint')} of {render.count(each.sessions, 'session')}"
        there = f"; {render.count(each.there, 'session is', 'sessions are')} there already" if each.there else ""
        dead = f"; {render.count(each.tombstones, 'deleted session')}" if each.tombstones else ""
        say(f"    {whose}{held}, {render.size(each.bytes)}{dead}{there}")


def _tell(app: App, plan: list[_Planned], done: dict[str, Copied]) -> int:
    if app.json:
        copied = [_copied(tenant, each) for tenant, each in done.items()]
        app.items((each._asdict() for each in plan), copied=copied)
    else:
        numbers = [(each.checkpoints, each.skipped, each.tombstones) for each in done.values()]
        new, old, dead = map(sum, zip(*numbers, strict=True))
        there = f"; {old:,} there already" if old else ""
        buried = f"; {render.count(dead, 'deleted session')} marked as deleted there, too" if dead else ""
        streams.answer(f"{render.count(new, 'checkpoint')} copied{there}{buried}")
        for tenant, each in done.items():
            whose = f"tenant {values.name(tenant)}: " if tenant else ""
            left = {(session,): why for session, why in each.conflicts.items()} | dict(each.damaged)
            for names, why in left.items():
                what = " / ".join(values.name(name) for name in names if name)
                streams.note(f"{whose}{what} was not copied: {render.escape(why)}")
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
