"""States: saving, loading, listing, deleting and upkeep over any store. The asyncio facade is `checkpointer`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as changed
from datetime import timedelta
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from holdfast.durable.closing import Closing
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Unavailable
from holdfast.flow import forks, parents, upkeep, validation
from holdfast.flow.cache import KnownGenerations, PartCache, Remembered, SaveBase, is_begun_again, new_family
from holdfast.flow.chunking import Changing, Chunker
from holdfast.flow.codec import StateCodec
from holdfast.flow.diff import changes
from holdfast.flow.model import (
    Checkpoint,
    CheckpointMetadata,
    Copied,
    Encoded,
    PrunedStates,
    SessionInfo,
    SessionSize,
    StateDiff,
    StoreUsage,
    Write,
    moment,
)
from holdfast.flow.segments import PartContent, SegmentGroup, join
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    CheckpointRow,
    PartRow,
    Place,
    Stale,
    StateStore,
    names_in,
    session_deleted,
)
from holdfast.flow.validation import as_place, check_checkpoint, check_name, check_place, check_sizes, check_ttl
from holdfast.model import Progress, VerifyReport
from holdfast.retention import Policy
from holdfast.serde import Envelope, Keys, NoKey, Serde
from holdfast.validation import check_limit, checked_options

# `list` is a method of the class below
Checkpoints: TypeAlias = list[Checkpoint]
Metadatas: TypeAlias = list[CheckpointMetadata]
Sessions: TypeAlias = list[SessionInfo]
Names: TypeAlias = list[str]
Writes: TypeAlias = list[Write]
SessionSizes: TypeAlias = list[SessionSize]
CheckpointId: TypeAlias = str | Checkpoint | CheckpointMetadata

_BATCH = 256
_TRIES = 10
_Opened = TypeVar("_Opened")


class RowQuery(NamedTuple):
    """Which checkpoints to list; None matches anything."""

    session_id: str | None
    namespace: str | None
    before: int | None
    where: Mapping[str, Any] | None
    tags: Sequence[str]
    run_id: str | None


@checked_options
class States(Closing):
    """The states of sessions, step by step, in one store."""

    def __init__(
        self,
        store: StateStore,
        *,
        serde: Serde | None = None,
        keys: Keys | None = None,
        compress: bool = True,
        ttl: timedelta | float | None = None,
        max_state_bytes: int = 1 << 30,
        memory_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ttl`: a session into which nothing was saved for this long (in seconds, or a timedelta) is gone as a whole.

        `memory_bytes`: the size of the caches of states and of parts, each.
        """
        check_sizes(max_state_bytes, memory_bytes)
        envelope = Envelope(keys, compress=compress, max_bytes=max_state_bytes)
        self.store = store
        self.codec = StateCodec(serde or Serde(), envelope, store.tenant)
        self.ttl = check_ttl(ttl)
        self.now = clock
        self._max_state_bytes = max_state_bytes
        self._remembered = Remembered(memory_bytes)
        self._cache = PartCache(memory_bytes, self.codec.open_parts)
        self._generations = KnownGenerations()

    # saving

    def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
    ) -> CheckpointMetadata:
        """Save a checkpoint; return its metadata with the number that the store assigned.

        The same checkpoint saved again changes nothing. Conflict if another one has its id (unless `replace`), if it
        continues a session that was deleted, or if the newest of its namespace is not `expected_parent` (None: there
        is none yet). Refused, with its path, if something in the state cannot be stored.

        A deleted session is begun again by a checkpoint without a parent, in the namespace "". A save continues the
        deleted one if its checkpoint has a parent, or if this object has read or saved the session before it was
        deleted by another, and has not read it since.
        """
        meta = check_checkpoint(checkpoint, expected_parent)
        if not isinstance(expected_parent, Anything) and meta.parent_id is None:
            meta = changed(meta, parent_id=expected_parent)
        if meta.parent_id is None:
            self.free_expired(meta.session_id)
        self._check_parent(meta)
        may_begin = meta.parent_id is None and not meta.namespace
        return self._save(meta, checkpoint.state, expected_parent, replace, self.micros(), may_begin=may_begin)

    def _check_parent(self, meta: CheckpointMetadata) -> None:
        """Conflict if a checkpoint continues what this object has deleted, in a session that was begun again since."""
        if self._generations.was_deleted_here(meta.session_id):
            self._check_has_parent(meta)

    def _check_has_parent(self, meta: CheckpointMetadata) -> None:
        """Conflict if the parent of a checkpoint is not in its session, so is perhaps of the deleted one."""
        if meta.parent_id is None:
            return
        own = (meta.parent_id, meta.checkpoint_id)
        if all(self.store.find(meta.session_id, meta.namespace, each) is None for each in own):
            raise session_deleted(meta.session_id)

    def save_copy(self, checkpoint: Checkpoint, saved_at: int) -> CheckpointMetadata:
        """Save a checkpoint of another store, with the age that it has there."""
        return self._save(checkpoint.metadata, checkpoint.state, ANYTHING, False, saved_at, may_begin=False)

    def _save(
        self,
        meta: CheckpointMetadata,
        state: Any,
        expected_parent: str | Anything | None,
        replace: bool,
        saved_at: int,
        *,
        may_begin: bool,
    ) -> CheckpointMetadata:
        """Save. `may_begin`: if the session was deleted, this may begin it again."""
        for _ in range(_TRIES):
            memory = self._base(meta, may_begin=may_begin)
            try:
                return self._save_on(memory, meta, state, expected_parent, replace, saved_at)
            except Stale:
                self._remembered.forget(meta.session_id)  # not its generation: it may be deleted
            except Changing:
                pass  # nothing was stored yet: try again with the state as it is now
        raise Unavailable("the session or the state keeps changing during the save", hint="Try again.")

    def free_expired(self, session_id: str) -> None:
        """Delete a session that has expired, so that a new one of its name does not bring back its states."""
        if self.ttl is None:
            return
        session = self.store.session(session_id)
        if session is not None and not session.is_deleted and self.is_old(session.saved_at):
            self.begin_anew(session_id)
            self.store.delete_session(session_id, tombstone=False, if_is=session)

    def _save_on(
        self,
        memory: SaveBase,
        meta: CheckpointMetadata,
        state: Any,
        expected_parent: str | Anything | None,
        replace: bool,
        saved_at: int,
    ) -> CheckpointMetadata:
        serde = self.codec.serde
        chunker = Chunker(serde.encode, self.codec.name, memory.known, serde.look)
        segments, chunked, encoded = chunker.chunk(state, memory.chunked)
        size = sum(map(len, encoded))
        if size > self._max_state_bytes:
            raise Refused(
                f"the state has {size:,} bytes, more than max_state_bytes ({self._max_state_bytes:,})",
                hint="Raise max_state_bytes, or save less.",
            )
        row = self.codec.row(meta, segments, family=memory.family, saved_at=saved_at)
        parts = [self.codec.part(name, content, memory.family) for name, content in chunker.parts.items()]
        try:
            sequence = self.store.commit(
                row,
                parts,
                base=memory.base,
                expected_parent=expected_parent,
                replace=replace,
                reopen=memory.reopens,
            )
        except Conflict:
            there = self._saved_with_another_key(row, b"".join(encoded))
            if there is None:
                raise
            return changed(meta, sequence=there)
        base = Base(sequence, row.digest)
        after = SaveBase(memory.family, base, chunker.names, chunked, tuple(encoded))
        self._remembered.put((meta.session_id, meta.namespace), after)
        self._generations.see(meta.session_id, memory.family)
        self._cache.put(memory.family, chunker.parts)
        return _numbered(meta, sequence)

    def _saved_with_another_key(self, row: CheckpointRow, state: bytes) -> int | None:
        """The number of this checkpoint if it is stored already, encrypted with another key, so with another digest."""
        there = self.store.find(*row.place) if self.codec.envelope.keys else None
        if there is None or (there.parent_id, there.run_id) != (row.parent_id, row.run_id):
            return None
        try:
            is_same = self.bytes_of(there) == (self.codec.open_meta(row), state)
        except (KeyError, Damaged, NoKey):  # deleted meanwhile, or unreadable: cannot be compared
            return None
        return there.sequence if is_same else None

    def _base(self, meta: CheckpointMetadata, *, may_begin: bool) -> SaveBase:
        """What a save builds on: the base that is remembered, or else the newest checkpoint.

        Conflict if the session that this object knows was deleted by another.
        """
        remembered = self._remembered.get((meta.session_id, meta.namespace))
        if remembered is not None:
            return remembered
        session = self.store.session(meta.session_id)
        if session is not None and self._generations.is_outdated(
            session.session, session.family, is_deleted=session.is_deleted
        ):
            raise session_deleted(meta.session_id)
        if session is None or session.is_deleted:
            reopens = session is not None and may_begin
            return SaveBase(new_family(again=reopens), None, frozenset(), reopens=reopens)
        if is_begun_again(session.family) and self._generations.known(meta.session_id) is None:
            self._check_has_parent(meta)
        newest = self.store.find(meta.session_id, meta.namespace, None)
        if newest is None:
            return SaveBase(session.family, None, frozenset())
        known = self.names_of(newest)
        return SaveBase(session.family, Base(newest.sequence, newest.digest), frozenset(known))

    def names_of(self, row: CheckpointRow) -> set[bytes]:
        """The names of all parts that a row needs and that exist: the next save stores a lost one again."""
        needed: set[bytes] = set()
        level = set(names_in(row.refs))
        while level:
            found = self.store.groups(row.family, list(level))
            needed |= found.keys()
            level = {name for refs in found.values() for name in names_in(refs)} - needed
        return needed

    # loading

    def load(
        self, session_id: str, checkpoint_id: CheckpointId | None = None, *, namespace: str = ""
    ) -> Checkpoint | None:
        """A checkpoint by its id, or the newest of its namespace; None if there is none.

        Wherever the id of a checkpoint is taken, the checkpoint or its metadata may be given instead.
        """
        return self._load(session_id, checkpoint_id, namespace, self.open_row)

    def load_encoded(
        self, session_id: str, checkpoint_id: CheckpointId | None = None, *, namespace: str = ""
    ) -> Encoded | None:
        """The same with its state as bytes (`holdfast.serde.to_json` shows them): no class or package is needed."""
        return self._load(session_id, checkpoint_id, namespace, self._open_encoded)

    def _load(
        self,
        session_id: str,
        checkpoint: CheckpointId | None,
        namespace: str,
        opened: Callable[[CheckpointRow], _Opened],
    ) -> _Opened | None:
        checkpoint_id, namespace = as_place(session_id, checkpoint, namespace)
        check_place(session_id, checkpoint_id, namespace)
        if self.is_expired(session_id):
            return None
        row = self.store.find(session_id, namespace, checkpoint_id)
        if row is None and checkpoint_id is None and not namespace:
            self.begin_anew(session_id)
        for _ in range(_TRIES):
            if row is None:
                return None
            try:
                return opened(row)
            except KeyError:
                before, row = row, self.store.find(session_id, namespace, checkpoint_id)
                if row == before:
                    raise Damaged(
                        f"parts of checkpoint {row.place.checkpoint_id} are missing", hint="Use another checkpoint."
                    ) from None
        raise Unavailable("other writers keep changing this session", hint="Try again.")

    def open_row(self, row: CheckpointRow) -> Checkpoint:
        """The checkpoint of a row. KeyError if it was deleted meanwhile, or a part is missing."""
        self._generations.see(row.place.session, row.family)
        meta, encoded = self._encoded(row)
        return self.codec.checkpoint(row, meta, encoded)

    def _open_encoded(self, row: CheckpointRow) -> Encoded:
        self._generations.see(row.place.session, row.family)
        meta, state = self.bytes_of(row)
        return Encoded(self.codec.metadata(row, meta), state)

    def bytes_of(self, row: CheckpointRow) -> tuple[bytes, bytes]:
        """The encoded metadata and the encoded state of a row."""
        meta, encoded = self._encoded(row)
        return meta, b"".join(encoded)

    def _encoded(self, row: CheckpointRow) -> tuple[bytes, Sequence[bytes]]:
        """The encoded metadata and state of a row, from the cache or the store."""
        meta, segments = self.codec.open_row(row)
        remembered = self._remembered.get(row.place[:2])
        if remembered is not None and remembered.base == (row.sequence, row.digest) and remembered.encoded:
            return meta, remembered.encoded
        reader = _PartReader(self.store, self.codec, self._cache, row)
        at_once = partial(reader.joined, segments)
        return meta, [join(segments, reader.fetch, max_bytes=self._max_state_bytes, at_once=at_once)]

    def is_expired(self, session_id: str) -> bool:
        """Whether nothing was saved into a session for longer than `ttl`."""
        if self.ttl is None:
            return False
        session = self.store.session(session_id)
        return session is not None and self.is_old(session.saved_at)

    def is_old(self, saved_at: int) -> bool:
        """Tell whether what was saved at this time has expired."""
        return self.ttl is not None and self.micros() - saved_at >= self.ttl // timedelta(microseconds=1)

    def micros(self) -> int:
        """The time in microseconds, by the clock of this object."""
        return int(self.now() * 1e6)

    def forget(self, session_id: str | None = None) -> None:
        """Drop a session, or all, from the cache."""
        self._remembered.forget(session_id)

    def begin_anew(self, session_id: str) -> None:
        """Note that the caller knows that there is no such session: it may begin it again if it was deleted."""
        if self._generations.forget(session_id):
            self.forget(session_id)

    def begin_again(self, session_id: str) -> None:
        """Begin a session again, if it was deleted, before its first checkpoint: its tasks may write already.

        It is of a new family from here on, so that writers of the deleted one are refused.
        """
        self.free_expired(session_id)
        self.begin_anew(session_id)
        known, family = self.store.session(session_id), new_family(again=True)
        is_deleted = known is not None and known.is_deleted
        if is_deleted and self.store.reopen(session_id, family=family, saved_at=self.micros()):
            self._generations.see(session_id, family)

    def forget_parts(self) -> None:
        """Drop all parts from the cache."""
        self._cache.clear()

    # listing

    def list(
        self,
        session_id: str,
        limit: int | None = 10,
        *,
        namespace: str | None = "",
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        run_id: str | None = None,
    ) -> Checkpoints:
        """Checkpoints with their states, newest first, 10 unless `limit` says otherwise (None: all of them).

        The options are those of `metadata`, and so is the way to the next page.
        """
        check_name(session_id, "session_id")
        query = RowQuery(session_id, namespace, before, where, tags, run_id)
        rows = self._rows(query, limit, whole=True)
        found = []
        for row, _ in rows:
            try:
                found.append(self.open_row(row))
            except KeyError:
                if self.store.find(*row.place) == row:
                    raise Damaged(f"parts of {row.place.checkpoint_id} are missing", hint="Run verify.") from None
        return found

    def metadata(
        self,
        session_id: str | None,
        limit: int | None = 10,
        *,
        namespace: str | None = "",
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        run_id: str | None = None,
    ) -> Metadatas:
        """The metadata of checkpoints, newest first, without reading any state: 10 unless `limit` says otherwise (None:
        all of them).

        `session_id=None`: of all sessions; `namespace=None`: of all namespaces. `before`: only those with a smaller
        sequence (for the next page, that of the last one of this page). `where`: those whose `extra` has these values;
        keys and values are only compared, never put into a query.
        """
        query = RowQuery(session_id, namespace, before, where, tags, run_id)
        return [told for _, told in self._rows(query, limit, whole=False)]

    def _rows(
        self, query: RowQuery, limit: int | None, *, whole: bool
    ) -> Iterator[tuple[CheckpointRow, CheckpointMetadata]]:
        left = check_limit(limit)
        validation.check_query(*query)
        session_id, namespace, before, where, tags, run_id = query
        is_expired = cache(self.is_expired)  # one query per session
        is_filtered = bool(where or tags)
        while left is None or left > 0:
            batch = _BATCH if left is None or is_filtered else min(left, _BATCH)
            rows = self.store.rows(session_id, namespace, before=before, limit=batch, run_id=run_id, whole=whole)
            if session_id is not None and rows:
                self._generations.see(session_id, rows[0].family)
            elif session_id is not None and before is None and run_id is None and not namespace:
                self.begin_anew(session_id)
            for row in rows:
                told = self.codec.metadata(row)
                if _matches(told, where, tags) and not is_expired(row.place.session):
                    yield row, told
                    left = None if left is None else left - 1
                    if left == 0:
                        return
            if len(rows) < batch:
                return
            before = rows[-1].sequence

    def sessions(self, limit: int | None = 100, *, before: int | None = None) -> Sessions:
        """The sessions, last saved first, 100 unless `limit` says otherwise (None: all of them).

        `before`: only those whose `latest` is smaller; for the next page, that of the last one of this page.
        """
        validation.check_before(before)
        left = check_limit(limit)
        found: Sessions = []
        while left is None or len(found) < left:
            most = None if left is None else left - len(found)
            rows = self.store.sessions(before=before, limit=most)
            alive = [row for row in rows if not self.is_old(row.saved_at)]
            found += [SessionInfo(row.session, row.checkpoints, row.latest, moment(row.saved_at)) for row in alive]
            if most is None or len(rows) < most:
                break
            before = rows[-1].latest
        return found

    # deleting

    def delete(
        self, session_id: str, checkpoint_id: CheckpointId | None = None, *, namespace: str = "", tombstone: bool = True
    ) -> int:
        """Delete one checkpoint, or the session with all its namespaces; return how many checkpoints were deleted.

        Refused if a later checkpoint needs that one (see `holdfast.flow.parents`). A deleted session leaves a
        tombstone, so that a late writer cannot continue it; its id can be used again: see `save`. With
        `tombstone=False` it leaves none.
        """
        checkpoint_id, namespace = as_place(session_id, checkpoint_id, namespace)
        check_name(session_id, "session_id")
        check_name(namespace, "namespace", empty=True)
        if checkpoint_id is None:
            self.forget(session_id)
            count = self.store.delete_session(session_id, tombstone=tombstone)
            left = self.store.session(session_id)
            if left is not None and left.is_deleted:
                self._generations.note_deleted(session_id)
            else:  # without a tombstone, anything may be saved into it
                self._generations.reopen(session_id)
            return count
        family = self._generations.known(session_id)
        session = None if family is None else self.store.session(session_id)
        if session is not None and not session.is_deleted and session.family != family:
            raise session_deleted(session_id)
        families = None if family is None else {session_id: family}
        return self._delete([Place(session_id, namespace, check_name(checkpoint_id, "checkpoint_id"))], families)

    def _delete(self, places: Sequence[Place], families: Mapping[str, int] | None) -> int:
        for session in {place.session for place in places}:
            self.forget(session)
        for _ in range(_TRIES):
            seen = parents.check_not_needed(self, places)
            with contextlib.suppress(Stale):  # saved into meanwhile: check again whether that needs these
                return self.store.delete(places, if_are=seen, families=families)
        raise Unavailable("other writers keep saving into this session", hint="Try again.")

    def reopen(self, session_id: str) -> bool:
        """Let a deleted session be saved into again, by late writers too; return whether it was deleted."""
        self.forget(check_name(session_id, "session_id"))
        self._generations.reopen(session_id)
        return self.store.reopen(session_id)

    def clear_all(self) -> None:
        """Delete everything of the tenant, tombstones too."""
        self.forget()
        self._generations.reopen(None)
        self.store.clear()

    # writes

    def put_writes(
        self, place: Place, writes: Sequence[Write], *, replace: bool = False, max_wait_seconds: float = 0.0
    ) -> None:
        """Attach pending writes to a checkpoint. Of two with the same task and index the first stays; with `replace`,
        the last.

        `max_wait_seconds`: how long this may wait for a save by another thread, to be stored in its transaction.
        """
        validation.check_writes(place, writes)
        rows = [
            self.codec.write_row(place, (write.task_id, write.index, write.task_path, write.channel), write.value)
            for write in writes
        ]
        single = {row[:2]: row for row in (rows if replace else reversed(rows))}
        if single:
            kept = list(single.values())
            family = self._generations.known(place.session)
            self.store.add_writes(place, kept, replace=replace, family=family, max_wait_seconds=max_wait_seconds)

    def writes(self, places: Sequence[Place]) -> dict[Place, Writes]:
        """The pending writes of checkpoints, each in order of task path, task and index."""
        validation.check_places(places)
        return {
            place: [
                Write(row.task_id, row.idx, row.channel, self.codec.open_write(place, row), row.task_path)
                for row in rows
            ]
            for place, rows in self.store.writes(places).items()
        }

    # more verbs

    def fork(
        self,
        session_id: str,
        checkpoint_id: CheckpointId | None = None,
        *,
        into: str,
        namespace: str = "",
        history: bool = False,
        reopen: bool = False,
    ) -> CheckpointMetadata:
        """Create a session that begins with a checkpoint of another, in constant time: they share all parts.

        `extra["forked_from"]` names the source. With `history`, copy all namespaces and all checkpoints up to that one
        (without `checkpoint_id`: all), with their parents and writes, unchanged: not in constant time, but in one step.
        Conflict if the new session exists, or was deleted and `reopen` is False.
        """
        check_name(into, "into")
        source = self._row(session_id, checkpoint_id, namespace)
        if not history:
            return forks.fork(self, source, into, reopen=reopen)
        before = None if checkpoint_id is None else source.sequence + 1
        return forks.fork_history(self, source, into, before=before, reopen=reopen)

    def diff(
        self, session_id: str, before_id: CheckpointId, after_id: CheckpointId | None = None, *, namespace: str = ""
    ) -> StateDiff:
        """The differences between two checkpoints of a session; the second is the newest by default."""
        before, after = (self._whole(session_id, each, namespace) for each in (before_id, after_id))
        found = list(changes(before.state, after.state, self.codec.serde.encode))
        return StateDiff(before.metadata, after.metadata, found)

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of runs, in all sessions; return how many there were.

        Refused, and nothing is deleted, if a checkpoint of another run needs one of them.
        """
        validation.check_texts(run_ids, "run_ids")
        rows = [row for run_id in run_ids for row in self.store.rows(None, None, run_id=check_name(run_id, "run_id"))]
        return self._delete([row.place for row in rows], {row.place.session: row.family for row in rows})

    def prune(
        self,
        policy: Policy,
        session_id: str | None = None,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        plan: PrunedStates | None = None,
    ) -> PrunedStates:
        """Delete what a policy does not keep. The newest of each namespace, checkpoints tagged `pinned`, and those that
        others need always stay.

        Nothing is deleted from a session whose checkpoints need their parents if it is saved into meanwhile: `kept`
        says so.

        A policy's kinds are tags, its score is `extra["score"]`. With the `plan` of a dry run, only checkpoints that
        the plan named are deleted.
        """
        if not isinstance(policy, Policy):
            raise Refused(f"a {type(policy).__name__} is not a policy", hint="Give a holdfast.retention.Policy.")
        validation.check_query(session_id, namespace, None, None, (), None)
        return upkeep.prune(self, policy, session_id, namespace=namespace, dry_run=dry_run, shown=plan)

    def expire(self) -> Names:
        """Delete the sessions into which nothing was saved for longer than `ttl`; their ids."""
        return upkeep.expire(self)

    def copy_to(
        self,
        other: States,
        *,
        session_id: str | None = None,
        progress: Progress | None = None,
        go_on: bool = False,
    ) -> Copied:
        """Copy everything, or one session, to another store, unchanged and in order.

        What exists there stays. A session that was deleted here is deleted there, too, unless the other store has one
        of that name. Conflict if a session was deleted there, or has another checkpoint with the same id; Damaged if a
        checkpoint cannot be read. With `go_on`, skip that session or checkpoint and name it in the result. Classes need
        not be registered. The copy is encrypted with the keys of the other store. Call it again to continue a copy
        that was interrupted.
        """
        if not isinstance(other, States):
            raise Refused(f"a {type(other).__name__} is not a store of states", hint="Give what open_states returned.")
        if session_id is not None:
            check_name(session_id, "session_id")
        return forks.copy(self, other, session=session_id, progress=progress, go_on=go_on)

    def sizes(self, session_ids: Sequence[str]) -> SessionSizes:
        """The sizes of sessions; missing ones are left out."""
        return upkeep.sizes(self, [check_name(each, "session_id") for each in session_ids])

    def usage(self) -> StoreUsage:
        """Counts and sizes of what is stored."""
        return StoreUsage(*self.store.usage())

    def verify(self, session_id: str | None = None, *, progress: Progress | None = None) -> VerifyReport:
        """Read everything, or all of a session, and name the checkpoints that are damaged.

        NoKey if it is encrypted and no key was given.
        """
        return upkeep.verify(self, session_id, progress)

    def close(self) -> None:
        """Close the store and its connections."""
        self.store.close()

    def _row(self, session_id: str, checkpoint: CheckpointId | None, namespace: str) -> CheckpointRow:
        checkpoint_id, namespace = as_place(session_id, checkpoint, namespace)
        validation.check_place(session_id, checkpoint_id, namespace)
        row = None if self.is_expired(session_id) else self.store.find(session_id, namespace, checkpoint_id)
        if row is None:
            raise _not_found(session_id, checkpoint_id)
        return row

    def _whole(self, session_id: str, checkpoint_id: CheckpointId | None, namespace: str) -> Checkpoint:
        found = self.load(session_id, checkpoint_id, namespace=namespace)
        if found is None:
            raise _not_found(session_id, as_place(session_id, checkpoint_id, namespace)[0])
        return found


def _numbered(meta: CheckpointMetadata, sequence: int) -> CheckpointMetadata:
    """Metadata with the number that the store gave; `dataclasses.replace` takes three times as long."""
    if type(meta) is not CheckpointMetadata:
        return changed(meta, sequence=sequence)
    return CheckpointMetadata(
        meta.checkpoint_id, meta.session_id, meta.timestamp, meta.node_name, meta.step, meta.parent_id, meta.namespace,
        meta.tags, meta.run_id, meta.extra, sequence,
    )  # fmt: skip


def _not_found(session_id: str, checkpoint_id: str | None) -> NotFound:
    if checkpoint_id is None:
        return NotFound(f"session {session_id!r} has no checkpoints", hint="List the sessions.")
    return NotFound(f"session {session_id!r} has no checkpoint {checkpoint_id!r}", hint="List its checkpoints.")


def _matches(told: CheckpointMetadata, where: Mapping[str, Any] | None, tags: Sequence[str]) -> bool:
    if tags and not set(tags) <= set(told.tags):
        return False
    return all(key in told.extra and _equal(told.extra[key], value) for key, value in (where or {}).items())


def _equal(one: Any, other: Any) -> bool:
    """Whether values are equal; True does not equal 1, and values without one answer, such as arrays, never do."""
    try:
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    except (TypeError, ValueError):
        return False


class _PartReader:
    """Reads the parts of one row, from the cache or the store."""

    def __init__(self, store: StateStore, codec: StateCodec, cache: PartCache, row: CheckpointRow) -> None:
        self._store, self._codec, self._cache, self._row = store, codec, cache, row
        self._hint = row.hint

    def joined(self, segments: SegmentGroup, size: int, count: int) -> bytes | None:
        """The bytes of the state, joined from rows as they are stored; None if that needs another look at parts."""
        family = self._row.family
        rows = self._cache.rows(family)
        if rows or self._cache.of_family(family):
            return self._codec.joined(rows, segments, size) if rows else None
        rows = self._read(names_in(segments.refs), count)
        found = self._codec.joined(rows, segments, size)
        if found is None:
            self._cache.put(family, self._codec.open_parts(rows, family))
        else:
            self._cache.put_rows(family, rows)
        return found

    def fetch(self, names: Sequence[bytes], count: int) -> Mapping[bytes, PartContent]:
        """Parts, and perhaps more than these."""
        cached = self._cache.of_family(self._row.family)
        missing = [name for name in names if name not in cached]
        if not missing:
            return cached
        found = self._codec.open_parts(self._read(missing, 0 if cached else count), self._row.family)
        if self._row.hint is not None and (rest := [name for name in missing if name not in found]):
            found |= self._codec.open_parts(self._read(rest, 0), self._row.family)
        if len(missing) < len(names):
            found |= {name: cached[name] for name in names if name in cached}
        self._cache.put(self._row.family, found)
        return found

    def _read(self, names: Sequence[bytes], count: int) -> list[PartRow]:
        hint, self._hint = self._hint, None  # it leads to the same rows again
        return self._store.parts(self._row.family, names, hint=hint, count=count)
