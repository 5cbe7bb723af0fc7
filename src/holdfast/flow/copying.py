"""Sessions that begin with the states of others: forks within a store, copies between stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, Damaged, NotFound
from holdfast.flow.model import Checkpoint, CheckpointMetadata, Copied
from holdfast.flow.sealing import Sealer
from holdfast.flow.store import Base, Place, Row, Stale
from holdfast.model import Progress

if TYPE_CHECKING:
    from holdfast.flow.states import States

_BATCH = 256


def fork(states: States, source: Row, into: str) -> CheckpointMetadata:
    """Commit a row that names the same parts. The source is its base: if it goes meanwhile, none is made."""
    _check_new(states, into)
    try:
        return _fork_one(states, source, into)
    except Stale:
        raise _gone(source) from None


def fork_history(states: States, source: Row, into: str, *, before: int | None) -> CheckpointMetadata:
    """Commit all rows of a session (those numbered below `before`), oldest first, each with itself as the base.

    One that is deleted meanwhile is left out, as if it had been deleted before. If the source is, nothing is left.
    """
    _check_new(states, into)
    rows = list(_all_rows(states, source.place.session, before))
    copied = sum(_copy_row(states, row, into) for row in reversed(rows))
    found = states.store.find(into, source.place.namespace, source.place.checkpoint_id)
    if found is None:
        begun = states.store.session(into)
        if begun is not None and begun.checkpoints == copied:
            states.store.delete_session(into, tombstone=False, if_is=begun)
        raise _gone(source)
    return states.sealer.metadata(found)


def _check_new(states: States, into: str) -> None:
    if states.store.session(into) is not None:
        raise _exists(into)
    states.forget(into)


def _exists(into: str) -> Conflict:
    return Conflict(f"session {into!r} exists, or was deleted", hint="Fork into a new one.")


def _gone(source: Row) -> NotFound:
    return NotFound(f"checkpoint {source.place.checkpoint_id} is gone", hint="It was deleted just now.")


def _fork_one(states: States, source: Row, into: str) -> CheckpointMetadata:
    told = states.sealer.metadata(source)
    meta = CheckpointMetadata(
        checkpoint_id=told.checkpoint_id, session_id=into, timestamp=told.timestamp, node_name=told.node_name,
        step=told.step, namespace=told.namespace, tags=told.tags, run_id=told.run_id,
        extra={**told.extra, "forked_from": [told.session_id, told.checkpoint_id]},
    )  # fmt: skip
    _, rope = states.sealer.open_row(source)
    row = states.sealer.row(meta, rope, family=source.family, saved_at=states.micros())
    base = Base(source.sequence, source.digest)
    sequence = states.store.commit(row, [], base=base, expected_parent=None)
    return states.sealer.metadata(row._replace(sequence=sequence))


def _copy_row(states: States, row: Row, into: str) -> bool:
    """Whether there still was something to copy; Conflict if somebody else has begun the new session."""
    found: Row | None = row
    while found is not None:
        try:
            _commit_copy(states, found, into)
            return True
        except Stale:
            before, found = found, states.store.find(*row.place)
            if found == before:
                raise _exists(into) from None
    return False


def _commit_copy(states: States, row: Row, into: str) -> None:
    meta, rope = states.sealer.open_row(row)
    place = row.place._replace(session=into)
    copied = states.sealer.sealed_row(
        place, row.parent_id, row.run_id, meta, rope, family=row.family, saved_at=states.micros()
    )
    states.store.commit(copied, [], base=Base(row.sequence, row.digest))
    _copy_writes(states, row.place, states, place)


def copy(source: States, target: States, *, session: str | None, progress: Progress | None, go_on: bool) -> Copied:
    """Save every checkpoint again, oldest first, so that order and sharing are the same there.

    Tombstones come last: a copy that is cut off is gone on with by the next one, and has raised nothing meanwhile.
    """
    opaque = source.sealer.opaque()
    rows = sorted(_all_rows(source, session, None), key=lambda row: row.sequence)
    copied: dict[str, list[bool]] = {}
    conflicts: dict[str, str] = {}
    damaged: dict[tuple[str, str, str], str] = {}
    for number, light in enumerate(rows):
        if progress is not None:
            progress("copying", number, len(rows))
        if light.place.session in conflicts:
            continue
        try:
            is_new = _copy_checkpoint(source, target, light.place, opaque)
        except (Conflict, Damaged) as error:
            if not go_on:
                raise
            if isinstance(error, Conflict):
                conflicts[light.place.session] = error.message
            else:
                damaged[light.place] = error.message
            continue
        if is_new is not None:
            copied.setdefault(light.place.session, []).append(is_new)
    dead = [name for name in source.store.tombstones() if session is None or name == session]
    new, seen = sum(map(sum, copied.values())), sum(map(len, copied.values()))
    return Copied(len(copied), new, seen - new, sum(map(target.store.bury, dead)), conflicts, damaged)


def _copy_checkpoint(source: States, target: States, place: Place, opaque: Sealer) -> bool | None:
    """Whether it is new there; None if it was deleted here meanwhile."""
    row = source.store.find(*place)
    if row is None:
        return None
    try:
        meta, joined = source.bytes_of(row)
    except KeyError:
        if source.store.find(*place) == row:
            raise Damaged(f"parts of checkpoint {place.checkpoint_id} are missing", hint="Run verify.") from None
        return _copy_checkpoint(source, target, place, opaque)
    before = target.store.find(*place)
    saved = target.save_copy(Checkpoint(opaque.metadata(row, meta), opaque.serde.decode(joined)), row.saved_at)
    _copy_writes(source, place, target, place, opaque)
    return before is None or before.sequence != saved.sequence


def _copy_writes(source: States, place: Place, target: States, to: Place, opaque: Sealer | None = None) -> None:
    sealer = opaque or source.sealer
    rows = source.store.writes([place])[place]
    moved = [
        target.sealer.write_row(to, (row.task_id, row.idx, row.task_path, row.channel), sealer.open_write(place, row))
        for row in rows
    ]
    if moved:
        target.store.add_writes(to, moved, replace=False)


def _all_rows(states: States, session: str | None, before: int | None) -> Iterator[Row]:
    """Rows, newest first, a page at a time."""
    whole = session is not None
    while True:
        rows = states.store.rows(session, None, before=before, limit=_BATCH, whole=whole)
        yield from rows
        if len(rows) < _BATCH:
            return
        before = rows[-1].sequence
