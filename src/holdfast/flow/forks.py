"""Forks within a store, and copies between stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, Damaged, NotFound, Unavailable
from holdfast.flow import parents, store
from holdfast.flow.codec import StateCodec
from holdfast.flow.model import Checkpoint, CheckpointMetadata, Copied
from holdfast.flow.store import Base, CheckpointRow, Copy, Place, Stale
from holdfast.model import Progress

if TYPE_CHECKING:
    from holdfast.flow.states import States

_BATCH = 256
_TRIES = 10


def fork(states: States, source: CheckpointRow, into: str, *, reopen: bool = False) -> CheckpointMetadata:
    """Create a session with a row that names the same parts. NotFound if the source is deleted meanwhile."""
    _check_new(states, into, reopen=reopen)
    try:
        return _begin(states, into, [_forked(states, source, into)], reopen=reopen)[0]
    except Stale:
        raise _gone(source) from None


def fork_history(
    states: States, source: CheckpointRow, into: str, *, before: int | None, reopen: bool = False
) -> CheckpointMetadata:
    """Create a session with all rows of another (those numbered below `before`), oldest first, in one step.

    If one of them is deleted meanwhile, read again and leave it out. NotFound if the source row is deleted.
    """
    _check_new(states, into, reopen=reopen)
    for _ in range(_TRIES):
        rows = list(_all_rows(states, source.place.session, before))[::-1]
        places = [row.place for row in rows]
        if source.place not in places:
            raise _gone(source)
        try:
            begun = _begin(states, into, _copies(states, rows, into), reopen=reopen)
            return begun[places.index(source.place)]
        except Stale:
            pass
    raise Unavailable("other writers keep deleting from this session", hint="Try again.")


def _check_new(states: States, into: str, *, reopen: bool) -> None:
    states.free_expired(into)
    known = states.store.session(into)
    if known is not None and not (known.is_deleted and reopen):
        raise store.session_exists(into)
    states.begin_anew(into)


def _begin(states: States, into: str, copies: list[Copy], *, reopen: bool = False) -> list[CheckpointMetadata]:
    """One commit (P3). If all of it exists already, an earlier try succeeded and only its answer was lost."""
    try:
        numbers = states.store.begin(into, copies, reopen=reopen)
    except Conflict:
        there = {(row.place, row.digest): row.sequence for row in _all_rows(states, into, None)}
        found = [there.get((copy.row.place, copy.row.digest)) for copy in copies]
        numbers = [number for number in found if number is not None]
        if len(numbers) < len(copies):
            raise
    pairs = zip(copies, numbers, strict=True)
    return [states.codec.metadata(copy.row._replace(sequence=number)) for copy, number in pairs]


def _gone(source: CheckpointRow) -> NotFound:
    return NotFound(f"checkpoint {source.place.checkpoint_id} is gone", hint="It was deleted just now.")


def _forked(states: States, source: CheckpointRow, into: str) -> Copy:
    told = states.codec.metadata(source)
    parents.check_whole(told)
    meta = CheckpointMetadata(
        checkpoint_id=told.checkpoint_id, session_id=into, timestamp=told.timestamp, node_name=told.node_name,
        step=told.step, namespace=told.namespace, tags=told.tags, run_id=told.run_id,
        extra={**told.extra, "forked_from": [told.session_id, told.checkpoint_id]},
    )  # fmt: skip
    _, segments = states.codec.open_row(source)
    row = states.codec.row(meta, segments, family=source.family, saved_at=states.micros())
    return Copy(row, Base(source.sequence, source.digest))


def _copies(states: States, rows: list[CheckpointRow], into: str) -> list[Copy]:
    """The same rows for another session, with their writes."""
    codec, now, made = states.codec, states.micros(), []
    for at in range(0, len(rows), _BATCH):
        some = rows[at : at + _BATCH]
        writes = states.store.writes([row.place for row in some])
        for row in some:
            meta, segments = codec.open_row(row)
            to = row.place._replace(session=into)
            copied = codec.pack_row(to, row.parent_id, row.run_id, meta, segments, family=row.family, saved_at=now)
            moved = [codec.moved_write(row.place, to, write) for write in writes[row.place]]
            made.append(Copy(copied, Base(row.sequence, row.digest), moved))
    return made


def copy(source: States, target: States, *, session: str | None, progress: Progress | None, go_on: bool) -> Copied:
    """Save every checkpoint again, oldest first, so that order and sharing are the same in the target.

    Tombstones come last: the next copy continues one that was interrupted, which has not brought back anything.
    """
    opaque = source.codec.opaque()
    rows = sorted(_all_rows(source, session, None), key=lambda row: row.sequence)
    copied: dict[str, list[bool]] = {}
    refused: dict[str, str] = {}
    damaged: dict[tuple[str, str, str], str] = {}
    for number, light in enumerate(rows):
        if progress is not None:
            progress("copying", number, len(rows))
        if light.place.session in refused:
            continue
        try:
            is_new = _copy_checkpoint(source, target, light.place, opaque)
        except (Conflict, Damaged) as error:
            if not go_on:
                raise
            if isinstance(error, Conflict):
                refused[light.place.session] = error.message
            else:
                damaged[light.place] = error.message
            continue
        if is_new is not None:
            copied.setdefault(light.place.session, []).append(is_new)
    dead = [name for name in source.store.tombstones() if session is None or name == session]
    new, seen = sum(map(sum, copied.values())), sum(map(len, copied.values()))
    return Copied(len(copied), new, seen - new, sum(map(target.store.add_tombstone, dead)), refused, damaged)


def _copy_checkpoint(source: States, target: States, place: Place, opaque: StateCodec) -> bool | None:
    """Whether it is new in the target; None if it was deleted in the source meanwhile."""
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
    _copy_writes(source, target, place, opaque)
    return before is None or before.sequence != saved.sequence


def _copy_writes(source: States, target: States, place: Place, opaque: StateCodec) -> None:
    moved = [
        target.codec.write_row(place, (row.task_id, row.idx, row.task_path, row.channel), opaque.open_write(place, row))
        for row in source.store.writes([place])[place]
    ]
    if moved:
        target.store.add_writes(place, moved, replace=False)


def _all_rows(states: States, session: str | None, before: int | None) -> Iterator[CheckpointRow]:
    """Rows, newest first, a page at a time."""
    whole = session is not None
    while True:
        rows = states.store.rows(session, None, before=before, limit=_BATCH, whole=whole)
        yield from rows
        if len(rows) < _BATCH:
            return
        before = rows[-1].sequence
