"""Saving and loading over any store."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.errors import Conflict, Damaged, Refused, Unavailable
from holdfast.flow.asked import check_checkpoint, check_options, check_place
from holdfast.flow.model import Checkpoint, CheckpointMetadata, Encoded
from holdfast.flow.remembering import Memory, PartCache, Remembered
from holdfast.flow.rope import Held, join
from holdfast.flow.sealing import Sealer
from holdfast.flow.store import ANYTHING, Anything, Base, Row, Stale, StateStore, names_in
from holdfast.flow.weaving import Changing, Weaver
from holdfast.serde import Envelope, Keys, NoKey, Serde

_TRIES = 10
_Opened = TypeVar("_Opened")


class Core:
    """What all verbs stand on: checkpoints become rows and parts, and come back."""

    def __init__(
        self,
        store: StateStore,
        *,
        serde: Serde | None = None,
        keys: Keys | None = None,
        compress: bool = True,
        ttl: timedelta | None = None,
        max_state_bytes: int = 1 << 30,
        memory_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ttl`: a session into which nothing was saved for so long is gone, all at once.

        `memory_bytes`: up to so much is remembered of states and of parts, each, to save work.
        """
        check_options(ttl, max_state_bytes, memory_bytes)
        envelope = Envelope(keys, compress=compress, max_bytes=max_state_bytes)
        self.store = store
        self.sealer = Sealer(serde or Serde(), envelope, store.tenant)
        self.ttl = ttl
        self.now = clock
        self._max_state_bytes = max_state_bytes
        self._remembered = Remembered(memory_bytes)
        self._cache = PartCache(memory_bytes)

    # saving

    def save(
        self,
        checkpoint: Checkpoint,
        *,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
    ) -> CheckpointMetadata:
        """Save a checkpoint; its metadata, with the number that the store gave.

        The same checkpoint saved again changes nothing. Conflict if another one has its id (unless `replace`), if the
        session was deleted, or if the newest of its namespace is not `expected_parent` (None: there is none yet).
        Refused, with its path, if something in the state cannot be stored.
        """
        meta = check_checkpoint(checkpoint, expected_parent)
        if not isinstance(expected_parent, Anything) and meta.parent_id is None:
            meta = changed(meta, parent_id=expected_parent)
        if meta.parent_id is None:
            self.free_expired(meta.session_id)
        return self._save(meta, checkpoint.state, expected_parent, replace, self.micros())

    def save_copy(self, checkpoint: Checkpoint, saved_at: int) -> CheckpointMetadata:
        """Save a checkpoint of another store, which is as old here as it is there."""
        return self._save(checkpoint.metadata, checkpoint.state, ANYTHING, False, saved_at)

    def _save(
        self,
        meta: CheckpointMetadata,
        state: Any,
        expected_parent: str | Anything | None,
        replace: bool,
        saved_at: int,
    ) -> CheckpointMetadata:
        for _ in range(_TRIES):
            memory = self._base(meta)
            try:
                return self._save_on(memory, meta, state, expected_parent, replace, saved_at)
            except Stale:
                self._remembered.forget(meta.session_id)
            except Changing:
                pass  # nothing was stored yet: once more, as it is now
        raise Unavailable("this session, or its state, keeps being changed meanwhile", hint="Try again.")

    def free_expired(self, session_id: str) -> None:
        """Free a session that is gone for having lived too long: what begins anew does not raise what it held."""
        if self.ttl is None:
            return
        session = self.store.session(session_id)
        if session is not None and not session.is_deleted and self.is_old(session.saved_at):
            self.forget(session_id)
            self.store.delete_session(session_id, tombstone=False, if_is=session)

    def _save_on(
        self,
        memory: Memory,
        meta: CheckpointMetadata,
        state: Any,
        expected_parent: str | Anything | None,
        replace: bool,
        saved_at: int,
    ) -> CheckpointMetadata:
        serde = self.sealer.serde
        weaver = Weaver(serde.encode, self.sealer.name, memory.known, serde.look)
        rope, woven, encoded = weaver.weave(state, memory.woven)
        size = sum(map(len, encoded))
        if size > self._max_state_bytes:
            raise Refused(f"the state has {size:,} bytes", hint=f"max_state_bytes is {self._max_state_bytes:,}.")
        row = self.sealer.row(meta, rope, family=memory.family, saved_at=saved_at)
        parts = [self.sealer.part(name, held, memory.family) for name, held in weaver.parts.items()]
        try:
            sequence = self.store.commit(row, parts, base=memory.base, expected_parent=expected_parent, replace=replace)
        except Conflict:
            there = self._sealed_before(row, b"".join(encoded))
            if there is None:
                raise
            return changed(meta, sequence=there)
        base = Base(sequence, row.digest)
        after = Memory(memory.family, base, frozenset(weaver.names), woven, tuple(encoded))
        self._remembered.put((meta.session_id, meta.namespace), after)
        self._cache.put(memory.family, weaver.parts)
        return changed(meta, sequence=sequence)

    def _sealed_before(self, row: Row, state: bytes) -> int | None:
        """The number of this very checkpoint if it is there already, sealed with another key: its digest is another."""
        there = self.store.find(*row.place) if self.sealer.envelope.keys else None
        if there is None or (there.parent_id, there.run_id) != (row.parent_id, row.run_id):
            return None
        try:
            is_same = self.bytes_of(there) == (self.sealer.open_meta(row), state)
        except (KeyError, Damaged, NoKey):  # deleted meanwhile, or not to be read: nobody can say that it is the same
            return None
        return there.sequence if is_same else None

    def _base(self, meta: CheckpointMetadata) -> Memory:
        """What a save builds on: what is remembered, or else the newest checkpoint there is."""
        remembered = self._remembered.get((meta.session_id, meta.namespace))
        if remembered is not None:
            return remembered
        session = self.store.session(meta.session_id)
        if session is None or session.is_deleted:
            return Memory(secrets.randbits(62), None, frozenset())
        newest = self.store.find(meta.session_id, meta.namespace, None)
        if newest is None:
            return Memory(session.family, None, frozenset())
        known = self.names_of(newest)
        return Memory(session.family, Base(newest.sequence, newest.digest), frozenset(known))

    def names_of(self, row: Row) -> set[bytes]:
        """The names of all parts that a row needs and that are there: one that was lost is not taken for known, but
        stored again with what is saved next."""
        needed: set[bytes] = set()
        level = set(names_in(row.refs))
        while level:
            found = self.store.groups(row.family, list(level))
            needed |= found.keys()
            level = {name for refs in found.values() for name in names_in(refs)} - needed
        return needed

    # loading

    def load(self, session_id: str, checkpoint_id: str | None = None, *, namespace: str = "") -> Checkpoint | None:
        """A checkpoint by its id, or the newest of its namespace; None where there is none."""
        return self._load(session_id, checkpoint_id, namespace, self.open_row)

    def load_encoded(self, session_id: str, checkpoint_id: str | None = None, *, namespace: str = "") -> Encoded | None:
        """The same with its state as bytes (`holdfast.serde.to_json` shows them): no class or package is needed."""
        return self._load(session_id, checkpoint_id, namespace, self._open_encoded)

    def _load(
        self, session_id: str, checkpoint_id: str | None, namespace: str, opened: Callable[[Row], _Opened]
    ) -> _Opened | None:
        check_place(session_id, checkpoint_id, namespace)
        if self.is_expired(session_id):
            return None
        row = self.store.find(session_id, namespace, checkpoint_id)
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
        raise Unavailable("others keep changing this session", hint="Try again.")

    def open_row(self, row: Row) -> Checkpoint:
        """The checkpoint of a row. KeyError if it was deleted meanwhile, or a part of it is lost."""
        meta, encoded = self._encoded(row)
        return self.sealer.checkpoint(row, meta, encoded)

    def _open_encoded(self, row: Row) -> Encoded:
        meta, state = self.bytes_of(row)
        return Encoded(self.sealer.metadata(row, meta), state)

    def bytes_of(self, row: Row) -> tuple[bytes, bytes]:
        """The encoded metadata and the encoded state of a row."""
        meta, encoded = self._encoded(row)
        return meta, b"".join(encoded)

    def _encoded(self, row: Row) -> tuple[bytes, Sequence[bytes]]:
        """What is remembered of a row, or else what is stored."""
        meta, rope = self.sealer.open_row(row)
        remembered = self._remembered.get(row.place[:2])
        if remembered is not None and remembered.base == (row.sequence, row.digest) and remembered.encoded:
            return meta, remembered.encoded
        fetch = partial(self._fetch, row)
        return meta, [join(rope, fetch, max_bytes=self._max_state_bytes)]

    def _fetch(self, row: Row, names: Sequence[bytes], count: int) -> Mapping[bytes, Held]:
        """Parts, and perhaps more than these: from what is remembered, or else from the store."""
        held = self._cache.of_family(row.family)
        missing = [name for name in names if name not in held]
        if not missing:
            return held
        found = self.sealer.open_parts(self.store.parts(row.family, missing, hint=row.hint, count=count), row.family)
        if len(missing) < len(names):
            found |= {name: held[name] for name in names if name in held}
        self._cache.put(row.family, found)
        return found

    def is_expired(self, session_id: str) -> bool:
        """Whether nothing was saved into a session for longer than states live."""
        if self.ttl is None:
            return False
        session = self.store.session(session_id)
        return session is not None and self.is_old(session.saved_at)

    def is_old(self, saved_at: int) -> bool:
        return self.ttl is not None and self.micros() - saved_at >= self.ttl // timedelta(microseconds=1)

    def micros(self) -> int:
        return int(self.now() * 1e6)

    def forget(self, session_id: str | None = None) -> None:
        """Forget what is remembered of a session, or of all."""
        self._remembered.forget(session_id)

    def forget_parts(self) -> None:
        """Read parts anew from the store."""
        self._cache.clear()

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
