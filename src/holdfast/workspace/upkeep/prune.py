"""Pruning, merging and compacting a store; pinning checkpoints.

Order of writes of a prune (P3): the greatest deleted number, unless a greater one stays (P10); the refs, each a commit
point; the catalog; then the packs are merged without unneeded objects. A crash in between leaves each checkpoint either
deleted or whole, and bytes that the next merge frees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast import durable, retention
from holdfast.errors import Remedy, Unavailable
from holdfast.model import Checkpoint, Compacted, Pruned
from holdfast.retention import Policy, Record, RetentionPlan
from holdfast.shadowgit import ObjectKind
from holdfast.shadowgit.git_repack import is_compact, repack
from holdfast.workspace.restore.journal import Journal
from holdfast.workspace.stored.history import turn_of
from holdfast.workspace.stored.object_sink import PackSink
from holdfast.workspace.stored.record import encode_record, write_commit
from holdfast.workspace.stored.repository import Repository, store_bytes
from holdfast.workspace.stored.undo_stack import unremovable
from holdfast.workspace.upkeep.object_sizes import ObjectSizes
from holdfast.workspace.upkeep.type_policies import kind_of, read_kinds, with_kinds

SAFETY = "safety"
"""The kind of safety checkpoints in a policy. Any other is the `type` in its metadata."""
UNDO_STEPS = 10
"""How many restores can be undone and redone in a row, whatever a policy says (P1)."""
_TALLY = "unmerged"
_FEW = 8
_SHARE = 8
_WORTH_PERCENT = 95  # of the size without deltas; else they cost reading time for nothing
_FRAME_BYTES = 12 + 20 + 8 + 1024 + 40  # of a pack and its index, whatever is in them


Spare = Callable[[Mapping[str, Checkpoint]], Mapping[str, str]]
"""Given all checkpoints, oldest first, says which must stay, and why."""


class Upkeep:
    """Prunes one store and pins its checkpoints. Everything but `plan` needs the store's lock."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    # planning

    def plan(
        self,
        policy: Policy,
        now: datetime,
        *,
        measure_sizes: bool = True,
        only: Container[str] | None = None,
        spare: Spare | None = None,
    ) -> Pruned:
        """Plan which checkpoints to delete; with `only`, none but these; with `spare`, none that it names, and without
        trusting the clock.

        Without `measure_sizes` and a size limit, reads only the catalog.
        """
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        checkpoints = {row.id: self._repository.checkpoint(row) for row in reversed(rows)}
        protected = self._protected(checkpoints)
        policy = with_kinds(_with_safety(policy), read_kinds(self._repository.own))
        records = [_record(each, protected.get(each.id, "")) for each in checkpoints.values()]
        if spare is not None:
            spared, old = spare(checkpoints), retention.ages([each.timestamp for each in records], now)
            records = [
                replace(each, age=age, protected=each.protected or spared.get(each.id, ""))
                for each, age in zip(records, old, strict=True)
            ]
        records = retention.protect_kinds(records, policy)
        sizes = ObjectSizes(self._repository.objects) if measure_sizes or policy.max_bytes is not None else None
        found = retention.plan(records, replace(policy, max_bytes=None), now)
        if policy.max_bytes is not None and sizes is not None:
            left = self._left(sizes, records, found.removed, checkpoints)
            first = len(found.removed)
            found = retention.plan(records, policy, now, bytes_without=lambda gone: left[len(gone) - first])
        kept = found.kept | _left_alone(checkpoints, found, only)
        removed = [each for key, each in checkpoints.items() if key not in kept]
        freed = over = 0
        if sizes is not None:
            needed = sizes.needed_bytes(self._commits_without(removed))
            freed = sizes.total_bytes - needed if measure_sizes else 0
            over = max(0, needed - policy.max_bytes) if policy.max_bytes is not None else 0
        kept = {key: kept[key] for key in checkpoints if key in kept}
        return Pruned(removed, kept, freed, is_done=False, over_bytes=over)

    def _protected(self, checkpoints: dict[str, Checkpoint]) -> dict[str, str]:
        """Return the checkpoints that are never pruned, and why."""
        found: dict[str, str] = {}
        head, latest = self._repository.head(), self._repository.catalog.nth(0)
        if head is not None:
            found[head.id] = "current"
        if latest is not None:
            found.setdefault(latest.id, "the latest")
        if (green := self._repository.catalog.last_green()) is not None:
            found.setdefault(green.id, "the last green")
        found |= {each.id: "pinned" for each in checkpoints.values() if each.pinned}
        found |= {each.id: "named" for each in checkpoints.values() if each.name is not None}
        found |= dict.fromkeys(self._repository.holds.held() & checkpoints.keys(), "held by a running step")
        stack = self._repository.undo_stack()
        for word, safeties in (("an undo", stack.done), ("a redo", stack.undone)):
            for safety in safeties[-UNDO_STEPS:]:
                target = safety.operation.target if safety.operation else ""
                for key in {safety.id, target} & checkpoints.keys():
                    found.setdefault(key, f"needed for {word}")
        with contextlib.suppress(Unavailable):  # an unreadable journal stops every writer before this
            entry = Journal(self._repository.own).read()
            for key in (entry.target, entry.safety) if entry else ():
                found.setdefault(key, "needed by an unfinished restore")
        staying = unremovable(checkpoints.values(), checkpoints.keys() - found.keys())
        return dict.fromkeys(staying, "records what was undone") | found

    def _left(
        self, sizes: ObjectSizes, records: Sequence[Record], removed: list[str], checkpoints: dict[str, Checkpoint]
    ) -> list[int]:
        """Return the bytes that stay without `removed` and the first 0, 1, 2, … of the other candidates."""
        gone = set(removed)
        more = [checkpoints[each.id] for each in records[:-1] if not each.protected and each.id not in gone]
        others = self._commits_without([*more, *(checkpoints[key] for key in removed)])
        return sizes.left_bytes([bytes.fromhex(each.commit) for each in more], others)

    def _commits_without(self, gone: Iterable[Checkpoint]) -> set[bytes]:
        """Return the commits of all refs except some checkpoints. Damaged if a ref has no commit."""
        return set(self._repository.objects.commits(without={each.id for each in gone}))

    # applying

    def prune(self, policy: Policy, now: datetime, *, lazily: bool, only: Container[str] | None) -> Pruned:
        """Delete what a policy does not keep, and free the disk space; `lazily`, only once that is worth the work.

        Damaged, and nothing deleted, if it is unknown what the rest needs.
        """
        plan = self.plan(policy, now, measure_sizes=False, only=only)
        unfreed = len(plan.removed) + (self.tally() if lazily and plan.removed else 0)
        is_due = not lazily or unfreed >= max(_FEW, len(plan.kept) // _SHARE)
        needed = self._repository.needed(without={each.id for each in plan.removed}) if is_due else None
        before = self._object_bytes() if needed is not None else 0
        if needed is not None:
            self._repository.check_room(needed, "no checkpoint was deleted")
        if plan.removed:
            self._repository.delete(*plan.removed)
        if needed is None:
            self.note_tally(unfreed)
            return replace(plan, is_done=True)
        try:
            unfreed_bytes = self._repository.merge(needed) if self._has_unneeded(needed) else 0
            self.forget_tally()
        except OSError as error:
            gone = "1 checkpoint was" if len(plan.removed) == 1 else f"{len(plan.removed)} checkpoints were"
            raise Unavailable(
                f"{gone} deleted, but no disk space could be freed: {error.strerror}",
                hint="Merging needs disk space for a copy of what stays. Free some disk space.",
                remedy=Remedy("compact"),
            ) from error
        freed = max(0, before - self._object_bytes())
        return replace(plan, bytes_freed=freed, unfreed_bytes=unfreed_bytes, is_done=True)

    def merge(self) -> None:
        """Merge all packs without unneeded objects. Damaged, and nothing changed, if it is unknown what is needed."""
        needed = self._repository.needed()
        self._repository.check_room(needed, "nothing was merged")
        self._repository.merge(needed)
        self.forget_tally()

    def _object_bytes(self) -> int:
        """The measure of `plan`: what is freed is what was estimated, and no block of a file more."""
        return ObjectSizes(self._repository.objects).total_bytes

    def _has_unneeded(self, needed: Container[bytes]) -> bool:
        return any(oid not in needed for pack in self._repository.objects.packs() for oid in pack.oids())

    def forget_tally(self) -> None:
        """Note that nothing waits to be freed."""
        tally = self._repository.own / _TALLY
        if tally.exists():
            durable.disk().unlink(str(tally))

    def tally(self) -> int:
        """Return how many checkpoints were deleted since the last merge, which waits until it is worth it (P8)."""
        try:
            return int((self._repository.own / _TALLY).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def note_tally(self, unfreed: int) -> None:
        """Note how many checkpoints are deleted whose disk space is not free."""
        if unfreed:
            with contextlib.suppress(OSError):  # without it, space is only freed later
                durable.write_atomically(self._repository.own / _TALLY, b"%d\n" % unfreed, sync=False)

    def compact(self, git: str | None) -> Compacted:
        """Let git compute deltas of what the checkpoints need; without the git program only merge."""
        before = store_bytes(self._repository.folder)
        objects = self._repository.objects
        if git is None:
            self.merge()
            note = "The git program was not found, so packs were merged without deltas."
            return Compacted(before, store_bytes(self._repository.folder), False, note)
        needed = self._repository.needed()
        if self._has_unneeded(needed) and not self._repository.has_room_for_all():
            self._repository.merge(needed)  # frees space first, since git needs some
        if not is_compact(objects.packs()) or set(objects.packs()[0].oids()) != needed:
            sizes = ObjectSizes(objects).sizes
            whole = sum(sizes.get(oid, 0) for oid in needed)
            if not repack(objects, git, needed, less_than=whole * _WORTH_PERCENT // 100 + _FRAME_BYTES):
                self._repository.merge(needed)
                note = "Deltas would save less than a twentieth, so packs were merged without them."
                self.forget_tally()
                return Compacted(before, store_bytes(self._repository.folder), False, note)
            self.forget_tally()
        return Compacted(before, store_bytes(self._repository.folder), True, "")

    def pin(self, checkpoint: Checkpoint, *, pinned: bool) -> Checkpoint:
        """Pin or unpin a checkpoint. Its id, number and time stay; its commit changes."""
        return checkpoint if checkpoint.pinned == pinned else self.relabel(checkpoint, pinned=pinned)

    def relabel(self, checkpoint: Checkpoint, **changes: Any) -> Checkpoint:
        """Change what the record of a checkpoint says about it. Its id, number and time stay; its commit changes."""
        contents = self._repository.contents(checkpoint)
        with PackSink(self._repository.objects) as sink:
            changed = checkpoint.replace(**changes)
            contents = contents._replace(record=sink.add(ObjectKind.BLOB, encode_record(changed)))
            commit = write_commit(sink, changed, contents)
            self._repository.replace(sink.writer, changed, contents, commit)
        return changed.replace(commit=commit.hex())


def _record(checkpoint: Checkpoint, protected: str) -> Record:
    kind = SAFETY if checkpoint.operation else kind_of(checkpoint)
    turn = turn_of(checkpoint)
    return Record(
        checkpoint.id, checkpoint.sequence, checkpoint.timestamp, kind, checkpoint.session, protected, turn=turn
    )


def _with_safety(policy: Policy) -> Policy:
    """Return the policy with a rule of its own for safety checkpoints: the same rules, unless it has others."""
    if SAFETY in policy.by_kind:
        return policy
    return replace(policy, by_kind={**policy.by_kind, SAFETY: replace(policy, by_kind={}, max_bytes=None)})


def _left_alone(
    checkpoints: dict[str, Checkpoint], found: RetentionPlan, only: Container[str] | None
) -> dict[str, str]:
    """Return what stays although the policy does not keep it, and why."""
    stays = {} if only is None else {key: "not in the plan" for key in found.removed if key not in only}
    staying = unremovable(checkpoints.values(), set(found.removed) - stays.keys())
    return {key: "records what was undone" for key in staying if key not in found.kept} | stays
