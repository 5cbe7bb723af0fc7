"""States: the verbs of the surface over any store. Synchronous; the async facade calls them in threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.flow import asked, copying, parents, upkeep, weighing
from holdfast.flow.core import Core
from holdfast.flow.differ import changes
from holdfast.flow.model import (
    Checkpoint,
    CheckpointMetadata,
    Copied,
    Pruned,
    Session,
    StateDiff,
    Usage,
    Weight,
    Write,
    moment,
)
from holdfast.flow.names import check_limit, check_name
from holdfast.flow.store import Place, Row, Stale
from holdfast.model import Progress, VerifyReport
from holdfast.retention import Policy

# `list` is a verb of the class below
Checkpoints: TypeAlias = list[Checkpoint]
Metadatas: TypeAlias = list[CheckpointMetadata]
Sessions: TypeAlias = list[Session]
Names: TypeAlias = list[str]
Writes: TypeAlias = list[Write]
Weights: TypeAlias = list[Weight]

_BATCH = 256
_TRIES = 10


class States(Core):
    """The states of sessions, step by step, in one store."""

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
        """Checkpoints with their states, newest first; the rest is as for `metadata`."""
        check_name(session_id, "session_id")
        rows = self._rows(session_id, limit, namespace, before, where, tags, run_id, whole=True)
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
        """What is told of checkpoints, newest first, without reading any state.

        `session_id=None`: of all sessions; `namespace=None`: of all namespaces. `before`: only those with a smaller
        sequence (that of the last one of a page leads to the next page). `where`: those whose `extra` has these values;
        keys and values are only ever compared, never made into a query.
        """
        return [told for _, told in self._rows(session_id, limit, namespace, before, where, tags, run_id, whole=False)]

    def _rows(
        self,
        session_id: str | None,
        limit: int | None,
        namespace: str | None,
        before: int | None,
        where: Mapping[str, Any] | None,
        tags: Sequence[str],
        run_id: str | None,
        *,
        whole: bool,
    ) -> Iterator[tuple[Row, CheckpointMetadata]]:
        left = check_limit(limit)
        asked.check_query(session_id, namespace, before, where, tags, run_id)
        is_expired = cache(self.is_expired)  # each session is asked for once
        is_filtered = bool(where or tags)
        while left is None or left > 0:
            batch = _BATCH if left is None or is_filtered else min(left, _BATCH)
            rows = self.store.rows(session_id, namespace, before=before, limit=batch, run_id=run_id, whole=whole)
            for row in rows:
                told = self.sealer.metadata(row)
                if _matches(told, where, tags) and not is_expired(row.place.session):
                    yield row, told
                    left = None if left is None else left - 1
                    if left == 0:
                        return
            if len(rows) < batch:
                return
            before = rows[-1].sequence

    def sessions(self, limit: int | None = 100, *, before: int | None = None) -> Sessions:
        """The sessions, the one saved into last first; `before`: only those whose `latest` is smaller."""
        asked.check_before(before)
        left = check_limit(limit)
        found: Sessions = []
        while left is None or len(found) < left:
            most = None if left is None else left - len(found)
            rows = self.store.sessions(before=before, limit=most)
            alive = [row for row in rows if not self.is_old(row.saved_at)]
            found += [Session(row.session, row.checkpoints, row.latest, moment(row.saved_at)) for row in alive]
            if most is None or len(rows) < most:
                break
            before = rows[-1].latest
        return found

    # deleting

    def delete(
        self, session_id: str, checkpoint_id: str | None = None, *, namespace: str = "", tombstone: bool = True
    ) -> int:
        """Delete one checkpoint, or the session with all its namespaces; how many there were.

        Refused if a later checkpoint is made of that one (see `holdfast.flow.parents`). A deleted session leaves a
        tombstone, so that a writer that comes late cannot raise it: to save into it again, `reopen` it, or delete it
        with `tombstone=False`.
        """
        check_name(session_id, "session_id")
        check_name(namespace, "namespace", empty=True)
        if checkpoint_id is None:
            self.forget(session_id)
            return self.store.delete_session(session_id, tombstone=tombstone)
        return self._delete([Place(session_id, namespace, check_name(checkpoint_id, "checkpoint_id"))])

    def _delete(self, places: Sequence[Place]) -> int:
        for session in {place.session for place in places}:
            self.forget(session)
        for _ in range(_TRIES):
            seen = parents.check_not_needed(self, places)
            with contextlib.suppress(Stale):  # saved into meanwhile: is that made of these?
                return self.store.delete(places, if_are=seen)
        raise Unavailable("others keep saving into this session", hint="Try again.")

    def reopen(self, session_id: str) -> bool:
        """Let a deleted session be saved into again; whether it was deleted."""
        return self.store.reopen(check_name(session_id, "session_id"))

    def clear_all(self) -> None:
        """Delete everything of the tenant, tombstones too."""
        self.forget()
        self.store.clear()

    # writes

    def put_writes(
        self, place: Place, writes: Sequence[Write], *, replace: bool = False, patience_seconds: float = 0.0
    ) -> None:
        """Attach pending writes to a checkpoint; of two with one task and index the first stays, or else the last one
        if they `replace`.

        `patience_seconds`: how long this may wait for a save by another thread, to be stored together with it.
        """
        asked.check_writes(place, writes)
        rows = [
            self.sealer.write_row(place, (write.task_id, write.index, write.task_path, write.channel), write.value)
            for write in writes
        ]
        single = {row[:2]: row for row in (rows if replace else reversed(rows))}
        if single:
            kept = list(single.values())
            self.store.add_writes(place, kept, replace=replace, patience_seconds=patience_seconds)

    def writes(self, places: Sequence[Place]) -> dict[Place, Writes]:
        """The pending writes of checkpoints, each in order of task path, task and index."""
        asked.check_places(places)
        return {
            place: [
                Write(row.task_id, row.idx, row.channel, self.sealer.open_write(place, row), row.task_path)
                for row in rows
            ]
            for place, rows in self.store.writes(places).items()
        }

    # more verbs

    def fork(
        self,
        session_id: str,
        checkpoint_id: str | None = None,
        *,
        into: str,
        namespace: str = "",
        history: bool = False,
        reopen: bool = False,
    ) -> CheckpointMetadata:
        """Begin a new session with a checkpoint of another, in constant time: they share all parts.

        `extra["forked_from"]` says where it came from. With `history`, all namespaces come along, all checkpoints up to
        that one (where none is named: all there are), with their parents and writes, unchanged: not in constant time,
        but in one step. Conflict if the new session exists, or was deleted and is not to be reopened.
        """
        check_name(into, "into")
        source = self._row(session_id, checkpoint_id, namespace)
        if not history:
            return copying.fork(self, source, into, reopen=reopen)
        before = None if checkpoint_id is None else source.sequence + 1
        return copying.fork_history(self, source, into, before=before, reopen=reopen)

    def diff(self, session_id: str, before_id: str, after_id: str | None = None, *, namespace: str = "") -> StateDiff:
        """What differs between two checkpoints of a session (the second: the newest, where none is named)."""
        before, after = (self._whole(session_id, each, namespace) for each in (before_id, after_id))
        found = changes(before.state, after.state, self.sealer.serde.encode)
        return StateDiff(before.metadata, after.metadata, found)

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of runs, in all sessions; how many there were.

        Refused, and nothing is deleted, if a checkpoint of another run is made of one of them.
        """
        asked.check_texts(run_ids, "run_ids")
        rows = [row for run_id in run_ids for row in self.store.rows(None, None, run_id=check_name(run_id, "run_id"))]
        return self._delete([row.place for row in rows])

    def prune(
        self,
        policy: Policy,
        session_id: str | None = None,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        plan: Pruned | None = None,
    ) -> Pruned:
        """Delete what a policy has no reason to keep. The newest of each namespace, and what is tagged `pinned`, stay,
        and so do those that others which stay are made of.

        Of a session whose checkpoints are made of parents nothing goes if it is saved into meanwhile: `kept` says so.

        A policy's kinds are tags, its score is `extra["score"]`. With the `plan` of a dry run nothing else goes than
        what that named.
        """
        if not isinstance(policy, Policy):
            raise Refused(f"a {type(policy).__name__} is not a policy", hint="Give a holdfast.retention.Policy.")
        asked.check_query(session_id, namespace, None, None, (), None)
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
        """Copy everything, or one session, to another store, of whatever kind, unchanged and in order.

        What is there already stays. A session that was deleted here is deleted there, too, unless the other store has
        one of that name. Conflict if a session was deleted there, or has another checkpoint under the same id; Damaged
        if a checkpoint cannot be read. With `go_on`, that session, or that checkpoint, is left and named in the result.
        Classes need not be registered. Encrypted anew with the keys of the other. A copy that was cut off is gone on
        with by the next one.
        """
        if not isinstance(other, States):
            raise Refused(f"a {type(other).__name__} is not a store of states", hint="Give what open_states returned.")
        if session_id is not None:
            check_name(session_id, "session_id")
        return copying.copy(self, other, session=session_id, progress=progress, go_on=go_on)

    def weigh(self, session_ids: Sequence[str]) -> Weights:
        """What sessions take; those that are not there are left out."""
        return weighing.weigh(self, [check_name(each, "session_id") for each in session_ids])

    def usage(self) -> Usage:
        """What is stored, in numbers."""
        return Usage(*self.store.usage())

    def verify(self, session_id: str | None = None, *, progress: Progress | None = None) -> VerifyReport:
        """Read everything, or all of a session, and name the checkpoints that are damaged.

        NoKey if it is sealed and no key was given.
        """
        return upkeep.verify(self, session_id, progress)

    def _row(self, session_id: str, checkpoint_id: str | None, namespace: str) -> Row:
        asked.check_place(session_id, checkpoint_id, namespace)
        row = None if self.is_expired(session_id) else self.store.find(session_id, namespace, checkpoint_id)
        if row is None:
            raise _not_found(session_id, checkpoint_id)
        return row

    def _whole(self, session_id: str, checkpoint_id: str | None, namespace: str) -> Checkpoint:
        found = self.load(session_id, checkpoint_id, namespace=namespace)
        if found is None:
            raise _not_found(session_id, checkpoint_id)
        return found


def _not_found(session_id: str, checkpoint_id: str | None) -> NotFound:
    if checkpoint_id is None:
        return NotFound(f"session {session_id!r} has no checkpoints", hint="List the sessions.")
    return NotFound(f"session {session_id!r} has no checkpoint {checkpoint_id!r}", hint="List them.")


def _matches(told: CheckpointMetadata, where: Mapping[str, Any] | None, tags: Sequence[str]) -> bool:
    if tags and not set(tags) <= set(told.tags):
        return False
    return all(key in told.extra and _equal(told.extra[key], value) for key, value in (where or {}).items())


def _equal(one: Any, other: Any) -> bool:
    """Equal, and not only because True counts as 1; what cannot be compared as one, as arrays, is not."""
    try:
        return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
    except (TypeError, ValueError):
        return False
