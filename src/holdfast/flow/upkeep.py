"""Upkeep: pruning, expiry, verification, and the sizes of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import retention
from holdfast.errors import HoldfastError
from holdfast.flow import parents
from holdfast.flow.codec import StateCodec
from holdfast.flow.model import CheckpointMetadata, PrunedStates, SessionSize, moment
from holdfast.flow.packs import unpacked
from holdfast.flow.store import CheckpointRow, Place, SessionRow, SizeRow, Stale, names_in, size_of
from holdfast.model import Problem, Progress, VerifyReport
from holdfast.serde import NoKey

if TYPE_CHECKING:
    from holdfast.flow.states import States


PINNED = "pinned"


def prune(
    states: States,
    policy: retention.Policy,
    session_id: str | None,
    *,
    namespace: str | None,
    dry_run: bool,
    shown: PrunedStates | None,
) -> PrunedStates:
    """Plan with the shared planner, then delete: with `shown`, only what that plan named and may still go."""
    seen = {} if dry_run else _sessions(states, session_id)
    rows = {str(row.sequence): row for row in states.store.rows(session_id, namespace)}
    told = {key: states.codec.metadata(row) for key, row in rows.items()}
    heads = _heads(rows)
    records = [_record(row, told[key], policy, key in heads) for key, row in rows.items()]
    measured = _measure(states, rows) if policy.max_bytes is not None else None
    plan = retention.plan(records, policy, datetime.fromtimestamp(states.now(), UTC), bytes_without=measured)
    known = None if shown is None else {each.sequence for each in shown.removed}
    agreed = {key for key in plan.removed if known is None or int(key) in known}
    needed = _needed(told, agreed)
    removed = [key for key in plan.removed if key in agreed - needed]
    freed, stayed = 0, set[str]()
    if not dry_run and removed:
        before = states.store.usage()
        states.forget()
        stayed = _delete(states, {key: rows[key] for key in removed}, _needing_parents(told, seen))
        removed = [key for key in removed if key not in stayed]
        after = states.store.usage()
        freed = before.part_bytes + before.row_bytes - after.part_bytes - after.row_bytes
    kept = {int(key): why for key, why in plan.kept.items()}
    kept |= {int(key): "not in the plan that was shown" for key in plan.removed if key not in agreed}
    kept |= {int(key): "a later one needs it" for key in agreed & needed}
    kept |= {int(key): "its session was saved into meanwhile" for key in stayed}
    return PrunedStates([told[key] for key in removed], kept, freed, is_done=not dry_run)


def _sessions(states: States, session_id: str | None) -> dict[str, SessionRow]:
    """The sessions as they are now."""
    if session_id is None:
        return {row.session: row for row in states.store.sessions()}
    row = states.store.session(session_id)
    return {} if row is None else {session_id: row}


def _needing_parents(told: dict[str, CheckpointMetadata], seen: dict[str, SessionRow]) -> dict[str, SessionRow | None]:
    """The sessions with checkpoints that need their parents."""
    return {each.session_id: seen.get(each.session_id) for each in told.values() if parents.link(each).marks}


def _delete(states: States, going: dict[str, CheckpointRow], needing_parents: dict[str, SessionRow | None]) -> set[str]:
    """Delete in one step; return those that stayed.

    In a session whose checkpoints need their parents, a new checkpoint could need what is deleted: such a session has
    a step of its own, which is skipped if something was saved into it.
    """
    stayed: set[str] = set()
    plain: list[Place] = []
    by_session: dict[str, dict[str, Place]] = {}
    families = {row.place.session: row.family for row in going.values()}
    for key, row in going.items():
        place = row.place
        if place.session in needing_parents:
            by_session.setdefault(place.session, {})[key] = place
        else:
            plain.append(place)
    if plain:
        states.store.delete(plain, families=families)
    for session, own in by_session.items():
        seen = needing_parents[session]
        try:
            if seen is None:
                raise Stale
            states.store.delete(own.values(), if_are=[seen])
        except Stale:
            stayed |= own.keys()
    return stayed


def _needed(told: dict[str, CheckpointMetadata], gone: set[str]) -> set[str]:
    """Those that checkpoints which stay need."""
    by_place = {Place(each.session_id, each.namespace, each.checkpoint_id): key for key, each in told.items()}
    kept = [place for place, key in by_place.items() if key not in gone]
    links = {place: parents.link(told[key]) for place, key in by_place.items()}
    return {by_place[place] for place in parents.needed(kept, links)}


def _measure(states: States, rows: dict[str, CheckpointRow]) -> Callable[[Sequence[str]], int]:
    """A function that returns the bytes of rows and parts that remain without some rows."""
    whole = {key: row for key in rows if (row := states.store.find(*rows[key].place)) is not None}
    needed = {key: {(row.family, name) for name in states.names_of(row)} for key, row in whole.items()}
    sizes: dict[tuple[int, bytes], int] = {}
    for family in {row.family for row in whole.values()}:
        names = [name for own, name in set().union(*needed.values()) if own == family]
        sizes |= {(family, part[0]): size_of(part) for part in unpacked(states.store.parts(family, names))}

    def bytes_without(gone: Sequence[str]) -> int:
        kept = whole.keys() - set(gone)
        parts: set[tuple[int, bytes]] = set().union(*(needed[key] for key in kept))
        own = sum(len(whole[key].meta) + len(whole[key].refs) + len(whole[key].shape) for key in kept)
        return own + sum(sizes.get(part, 0) for part in parts)

    return bytes_without


def _heads(rows: dict[str, CheckpointRow]) -> set[str]:
    """The newest of each namespace of each session."""
    newest: dict[tuple[str, str], int] = {}
    for row in rows.values():
        key = row.place[:2]
        newest[key] = max(newest.get(key, 0), row.sequence)
    return {str(sequence) for sequence in newest.values()}


def _record(row: CheckpointRow, told: CheckpointMetadata, policy: retention.Policy, is_head: bool) -> retention.Record:
    score = told.extra.get("score")
    return retention.Record(
        id=str(row.sequence),
        sequence=row.sequence,
        timestamp=moment(row.saved_at),
        kind=next((tag for tag in told.tags if tag in policy.by_kind), ""),
        session=f"{row.place.session}\0{row.place.namespace}",
        protected=PINNED if PINNED in told.tags else "the newest of its session" if is_head else "",
        score=score if isinstance(score, int | float) else None,
    )


def expire(states: States) -> list[str]:
    """Delete the sessions that are older than `ttl`, except those that are saved into meanwhile; return their ids."""
    if states.ttl is None:
        return []
    now = datetime.fromtimestamp(states.now(), UTC)
    rows = {row.session: row for row in states.store.sessions()}
    records = [
        retention.Record(id=name, sequence=row.latest, timestamp=moment(row.saved_at)) for name, row in rows.items()
    ]
    newest = max((record.sequence for record in records), default=0) + 1
    records.append(retention.Record(id="", sequence=newest, timestamp=now))  # the planner keeps the newest: this moment
    gone = []
    for name in retention.plan(records, retention.Policy(keep_for=states.ttl), now).removed:
        states.begin_anew(name)
        states.store.delete_session(name, tombstone=False, if_is=rows[name])
        if states.store.session(name) is None:
            gone.append(name)
    return gone


def verify(states: States, session_id: str | None, progress: Progress | None) -> VerifyReport:
    """Open every checkpoint, every part of it, and every write."""
    problems: list[Problem] = []
    checkpoints = read = 0
    states.forget()
    states.forget_parts()
    opaque = states.codec.opaque()
    rows = states.store.rows(session_id, None)
    for number, light in enumerate(rows):
        if progress is not None:
            progress("reading", number, len(rows))
        row = states.store.find(*light.place)
        if row is None:
            continue
        checkpoints += 1
        try:
            read += _read(states, row, opaque)
        except KeyError:
            if states.store.find(*row.place) == row:  # not deleted or replaced meanwhile
                problems.append(_problem(row.place, "a part is missing"))
        except HoldfastError as error:
            if isinstance(error, NoKey) and states.codec.envelope.keys is None:
                raise  # everything is encrypted: that is no damage
            problems.append(_problem(row.place, str(error)))
    return VerifyReport(problems, checkpoints, states.store.usage().parts, read)


def _problem(place: Place, detail: str) -> Problem:
    return Problem("checkpoint", f"{_named(place)}: {detail}", (place.checkpoint_id,))


def _read(states: States, row: CheckpointRow, opaque: StateCodec) -> int:
    """Decode all of a checkpoint; return its size. KeyError if a part is missing."""
    meta, state = states.bytes_of(row)
    writes = [opaque.open_write_bytes(row.place, write) for write in states.store.writes([row.place])[row.place]]
    for write in writes:
        opaque.serde.decode(write)  # the only check of a write
    return len(meta) + len(state) + sum(map(len, writes))


def _named(place: Place) -> str:
    return "/".join(filter(None, place))


def sizes(states: States, sessions: Sequence[str]) -> list[SessionSize]:
    """The sizes of sessions, in this order."""
    rows = states.store.sizes(sessions)
    forked = {row.family for row in rows if row.family_sessions > 1}
    families = {family: _Family(states, family) for family in forked}
    return [
        families[row.family].weight(row)
        if row.family in families
        else SessionSize(row.session, row.row_bytes + row.family_bytes, 0)
        for row in rows
    ]


class _Family:
    """Sessions that share parts: which of them needs which."""

    def __init__(self, states: States, family: int) -> None:
        members = [row.session for row in states.store.sessions() if row.family == family]
        self._needed = {session: _parts_of(states, session, family) for session in members}
        self._sharers = Counter(name for names in self._needed.values() for name in names)
        parts = unpacked(states.store.parts(family, list(self._sharers)))
        self._sizes = {part[0]: size_of(part) for part in parts}

    def weight(self, row: SizeRow) -> SessionSize:
        names = self._needed.get(row.session, set())
        own = sum(self._sizes.get(name, 0) for name in names if self._sharers[name] == 1)
        shared = sum(self._sizes.get(name, 0) for name in names if self._sharers[name] > 1)
        return SessionSize(row.session, row.row_bytes + own, shared)


def _parts_of(states: States, session: str, family: int) -> set[bytes]:
    """The names of all parts that a session needs."""
    needed: set[bytes] = set()
    level = {name for row in states.store.rows(session, None, whole=True) for name in names_in(row.refs)}
    while level:
        needed |= level
        found = states.store.groups(family, list(level))
        level = {name for refs in found.values() for name in names_in(refs)} - needed
    return needed
