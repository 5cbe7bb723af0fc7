"""Upkeep: what a policy takes away, what has lived long enough, and what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import retention
from holdfast.errors import HoldfastError
from holdfast.flow.model import CheckpointMetadata, Pruned
from holdfast.flow.store import Row
from holdfast.model import Problem, VerifyReport

if TYPE_CHECKING:
    from holdfast.flow.states import States

PINNED = "pinned"


def prune(
    states: States, policy: retention.Policy, session_id: str | None, *, namespace: str | None, dry_run: bool
) -> Pruned:
    """Plan with the shared planner, then delete in one step."""
    rows = {str(row.sequence): row for row in states.store.rows(session_id, namespace)}
    told = {key: states.sealer.metadata(row) for key, row in rows.items()}
    heads = _heads(states, rows)
    records = [_record(states, row, told[key], policy, key in heads) for key, row in rows.items()]
    measured = _measure(states, rows) if policy.max_bytes is not None else None
    plan = retention.plan(records, policy, datetime.fromtimestamp(states.now(), UTC), bytes_without=measured)
    freed = 0
    if not dry_run and plan.removed:
        before = states.store.usage()
        states.forget()
        states.store.delete([rows[key].place for key in plan.removed])
        after = states.store.usage()
        freed = before.part_bytes + before.row_bytes - after.part_bytes - after.row_bytes
    kept = {int(key): why for key, why in plan.kept.items()}
    return Pruned([told[key] for key in plan.removed], kept, freed, is_done=not dry_run)


def _measure(states: States, rows: dict[str, Row]) -> Callable[[Sequence[str]], int]:
    """What tells how many bytes of rows and parts are left once some rows are gone."""
    whole = {key: row for key in rows if (row := states.store.find(*rows[key].place)) is not None}
    needed = {key: {(row.family, name) for name in states.names_of(row)} for key, row in whole.items()}
    sizes: dict[tuple[int, bytes], int] = {}
    for family in {row.family for row in whole.values()}:
        names = [name for own, name in set().union(*needed.values()) if own == family]
        sizes |= {(family, name): len(refs) + len(data) for name, refs, data in states.store.parts(family, names)}

    def bytes_without(gone: Sequence[str]) -> int:
        kept = whole.keys() - set(gone)
        parts: set[tuple[int, bytes]] = set().union(*(needed[key] for key in kept))
        own = sum(len(whole[key].meta) + len(whole[key].refs) + len(whole[key].shape) for key in kept)
        return own + sum(sizes.get(part, 0) for part in parts)

    return bytes_without


def _heads(states: States, rows: dict[str, Row]) -> set[str]:
    """The newest of each namespace of each session."""
    newest: dict[tuple[str, str], int] = {}
    for row in rows.values():
        key = row.place[:2]
        newest[key] = max(newest.get(key, 0), row.sequence)
    return {str(sequence) for sequence in newest.values()}


def _record(
    states: States, row: Row, told: CheckpointMetadata, policy: retention.Policy, is_head: bool
) -> retention.Record:
    score = told.extra.get("score")
    return retention.Record(
        id=str(row.sequence),
        sequence=row.sequence,
        timestamp=datetime.fromtimestamp(row.saved_at / 1e6, UTC),
        kind=next((tag for tag in told.tags if tag in policy.by_kind), ""),
        session=f"{row.place.session}\0{row.place.namespace}",
        protected=PINNED if PINNED in told.tags else "the newest of its session" if is_head else "",
        score=score if isinstance(score, int | float) else None,
    )


def expire(states: States) -> list[str]:
    """Delete, whole, the sessions that are older than states live. What is saved into meanwhile is looked at again."""
    if states.ttl is None:
        return []
    now = datetime.fromtimestamp(states.now(), UTC)
    rows = {row.session: row for row in states.store.sessions()}
    records = [
        retention.Record(id=name, sequence=row.latest, timestamp=datetime.fromtimestamp(row.saved_at / 1e6, UTC))
        for name, row in rows.items()
    ]
    newest = max((record.sequence for record in records), default=0) + 1
    records.append(retention.Record(id="", sequence=newest, timestamp=now))  # the planner keeps the newest: this moment
    gone = []
    for name in retention.plan(records, retention.Policy(keep_for=states.ttl), now).removed:
        states.forget(name)
        states.store.delete_session(name, tombstone=False, if_is=rows[name])
        if states.store.session(name) is None:
            gone.append(name)
    return gone


def verify(states: States) -> VerifyReport:
    """Open every checkpoint, every write and every part."""
    problems: list[Problem] = []
    checkpoints = read = 0
    states.forget()
    states.forget_parts()
    opaque = states.sealer.opaque()
    for light in states.store.rows(None, None):
        row = states.store.find(*light.place)
        if row is None:
            continue
        checkpoints += 1
        name = f"{row.place.session}/{row.place.checkpoint_id}"
        try:
            read += len(states.bytes_of(row)[1])
            for write in states.store.writes([row.place])[row.place]:
                opaque.open_write(row.place, write)
        except KeyError:
            if states.store.find(*row.place) == row:  # not deleted or replaced meanwhile
                problems.append(Problem("checkpoint", f"{name}: a part is missing", (row.place.checkpoint_id,)))
        except HoldfastError as error:
            problems.append(Problem("checkpoint", f"{name}: {error}", (row.place.checkpoint_id,)))
    return VerifyReport(problems, checkpoints, states.store.usage().parts, read)
