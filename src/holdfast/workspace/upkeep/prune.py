"""Upkeep: what goes and why the rest stays, disk that is really freed, deltas, pins.

Order of writes of a prune (P3): the greatest number that goes, unless a greater one stays; the refs, each one's commit
point; the catalog; then the packs are merged without what nothing needs. A crash in between leaves some checkpoints
gone and others not, each of them wholly, and bytes that the next merge frees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from holdfast import durable, retention
from holdfast.errors import Unavailable
from holdfast.model import Checkpoint, Compacted, Pruned
from holdfast.retention import Policy, Record, RetentionPlan
from holdfast.shadowgit import Kind
from holdfast.shadowgit.repack import is_compact, repack
from holdfast.workspace.restore.journal import Journal
from holdfast.workspace.stored.record import encode_record, write_commit
from holdfast.workspace.stored.repository import Repository, store_bytes
from holdfast.workspace.upkeep.kinds import read_kinds, with_kinds
from holdfast.workspace.upkeep.undoing import UNDO_STEPS, Step, may_go
from holdfast.workspace.upkeep.weights import Weights

SAFETY = "safety"
"""The kind of safety checkpoints in a policy. Any other is the `type` in its metadata."""
_TALLY = "unmerged"
_FEW = 8
_SHARE = 8


class Upkeep:
    """Prunes one store and pins its checkpoints. Everything but `plan` needs the store's lock."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    # deciding

    def plan(self, policy: Policy, now: datetime, *, weigh: bool = True, only: Container[str] | None = None) -> Pruned:
        """What would go; with `only`, nothing but these. Without `weigh` and a cap only the catalog is read."""
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        checkpoints = {row.id: self._repository.checkpoint(row) for row in reversed(rows)}
        protected = self._protected(checkpoints)
        policy = with_kinds(_with_safety(policy), read_kinds(self._repository.own))
        records = [_record(each, protected.get(each.id, "")) for each in checkpoints.values()]
        records = retention.protect_kinds(records, policy)
        weights = Weights(self._repository.objects) if weigh or policy.max_bytes is not None else None
        found = retention.plan(records, replace(policy, max_bytes=None), now)
        if policy.max_bytes is not None and weights is not None:
            left = self._left(weights, records, found.removed, checkpoints)
            first = len(found.removed)
            found = retention.plan(records, policy, now, bytes_without=lambda gone: left[len(gone) - first])
        kept = found.kept | _left_alone(checkpoints, found, only)
        removed = [each for key, each in checkpoints.items() if key not in kept]
        freed = over = 0
        if weights is not None:
            needed = weights.needed_bytes(self._commits_without(removed))
            freed = weights.total_bytes - needed if weigh else 0
            over = max(0, needed - policy.max_bytes) if policy.max_bytes is not None else 0
        kept = {key: kept[key] for key in checkpoints if key in kept}
        return Pruned(removed, kept, freed, is_done=False, over_bytes=over)

    def _protected(self, checkpoints: dict[str, Checkpoint]) -> dict[str, str]:
        """Those that are never taken, and why."""
        found: dict[str, str] = {}
        head, latest = self._repository.head(), self._repository.catalog.nth(0)
        if head is not None:
            found[head.id] = "current"
        if latest is not None:
            found.setdefault(latest.id, "the latest")
        found |= {each.id: "pinned" for each in checkpoints.values() if each.pinned}
        found |= {each.id: "named" for each in checkpoints.values() if each.name is not None}
        found |= dict.fromkeys(self._repository.holds.held() & checkpoints.keys(), "held by a step under way")
        history = self._repository.history()
        for word, safeties in (("an undo", history.done), ("a redo", history.undone)):
            for safety in safeties[-UNDO_STEPS:]:
                target = safety.operation.target if safety.operation else ""
                for key in {safety.id, target} & checkpoints.keys():
                    found.setdefault(key, f"needed for {word}")
        with contextlib.suppress(Unavailable):  # one that cannot be read stops whoever writes, before this
            entry = Journal(self._repository.own).read()
            for key in (entry.target, entry.safety) if entry else ():
                found.setdefault(key, "needed by a restore that has not ended")
        steps = _steps(checkpoints)
        going = may_go(steps, checkpoints.keys() - found.keys())
        return {step.id: "tells what was undone" for step in steps if step.id not in going} | found

    def _left(
        self, weights: Weights, records: Sequence[Record], removed: list[str], checkpoints: dict[str, Checkpoint]
    ) -> list[int]:
        """The bytes that are left once `removed` and the first 0, 1, 2, … of what may go besides are gone."""
        gone = set(removed)
        more = [checkpoints[each.id] for each in records[:-1] if not each.protected and each.id not in gone]
        others = self._commits_without([*more, *(checkpoints[key] for key in removed)])
        return weights.left_bytes([bytes.fromhex(each.commit) for each in more], others)

    def _commits_without(self, gone: Iterable[Checkpoint]) -> set[bytes]:
        """What the refs name, but for some checkpoints. Damaged if one names nothing."""
        return set(self._repository.objects.commits(without={each.id for each in gone}))

    # doing

    def prune(self, policy: Policy, now: datetime, *, lazily: bool, only: Container[str] | None) -> Pruned:
        """Take away what a policy does not keep, and free its disk; `lazily`, once that is worth the work. Damaged,
        and nothing is gone, if it cannot be told what the rest needs."""
        plan = self.plan(policy, now, weigh=False, only=only)
        before = store_bytes(self._repository.folder)
        unfreed = len(plan.removed) + (self._tally() if lazily and plan.removed else 0)
        is_due = not lazily or unfreed >= max(_FEW, len(plan.kept) // _SHARE)
        needed = self._repository.needed(without={each.id for each in plan.removed}) if is_due else None
        if needed is not None:
            self._repository.check_room(needed, "no checkpoint was deleted")
        if plan.removed:
            self._repository.delete(*plan.removed)
        if needed is None:
            self._note_tally(unfreed)
            return replace(plan, is_done=True)
        try:
            unfreed_bytes = self._repository.merge(needed) if self._has_unneeded(needed) else 0
            self._forget_tally()
        except OSError as error:
            gone = "1 checkpoint is" if len(plan.removed) == 1 else f"{len(plan.removed)} checkpoints are"
            raise Unavailable(
                f"{gone} gone, but no disk could be freed: {error.strerror}",
                hint="Merging needs room for what stays. Make some, then run `holdfast compact`.",
            ) from error
        freed = max(0, before - store_bytes(self._repository.folder))
        return replace(plan, bytes_freed=freed, unfreed_bytes=unfreed_bytes, is_done=True)

    def merge(self) -> None:
        """Merge all packs, without what nothing needs. Damaged, and nothing changed, if that cannot be told."""
        needed = self._repository.needed()
        self._repository.check_room(needed, "nothing was merged")
        self._repository.merge(needed)
        self._forget_tally()

    def _has_unneeded(self, needed: Container[bytes]) -> bool:
        return any(oid not in needed for pack in self._repository.objects.packs() for oid in pack.oids())

    def _forget_tally(self) -> None:
        tally = self._repository.own / _TALLY
        if tally.exists():
            durable.disk().unlink(str(tally))

    def _tally(self) -> int:
        """How many are gone since packs were last merged: reading all of them is put off until it is worth it (P8)."""
        try:
            return int((self._repository.own / _TALLY).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def _note_tally(self, unfreed: int) -> None:
        if unfreed:
            with contextlib.suppress(OSError):  # without it, freeing only comes later
                durable.write_atomically(self._repository.own / _TALLY, b"%d\n" % unfreed, sync=False)

    def compact(self, git: str | None) -> Compacted:
        """Have git make deltas of what the checkpoints need; without the git program only merge."""
        before = store_bytes(self._repository.folder)
        objects = self._repository.objects
        if git is None:
            self.merge()
            note = "The git program is not there, so packs were merged, and no deltas made."
            return Compacted(before, store_bytes(self._repository.folder), False, note)
        needed = self._repository.needed()
        if self._has_unneeded(needed) and not self._repository.has_room_for_all():
            self._repository.merge(needed)  # frees what it can in little room, so that git finds more
        if not is_compact(objects.packs()) or set(objects.packs()[0].oids()) != needed:
            repack(objects, git, needed)
            self._forget_tally()
        return Compacted(before, store_bytes(self._repository.folder), True, "")

    def pin(self, checkpoint: Checkpoint, *, pinned: bool) -> Checkpoint:
        """Mark a checkpoint to be kept, or no longer. Its id, number and time stay; its commit is another."""
        if checkpoint.pinned == pinned:
            return checkpoint
        contents = self._repository.contents(checkpoint)
        writer = self._repository.objects.writer()
        try:
            changed = replace(checkpoint, pinned=pinned)
            contents = contents._replace(record=writer.add(Kind.BLOB, encode_record(changed)))
            commit = write_commit(writer, changed, contents)
            self._repository.replace(writer, changed, contents, commit)
        except BaseException:
            writer.abort()
            raise
        return replace(changed, commit=commit.hex())


def _record(checkpoint: Checkpoint, protected: str) -> Record:
    named = checkpoint.metadata.get("type")
    kind = SAFETY if checkpoint.operation else named if isinstance(named, str) else ""
    return Record(checkpoint.id, checkpoint.sequence, checkpoint.timestamp, kind, checkpoint.session, protected)


def _with_safety(policy: Policy) -> Policy:
    """A policy under which safety checkpoints are counted by themselves, by the same rules unless it has others."""
    if SAFETY in policy.by_kind:
        return policy
    return replace(policy, by_kind={**policy.by_kind, SAFETY: replace(policy, by_kind={}, max_bytes=None)})


def _left_alone(
    checkpoints: dict[str, Checkpoint], found: RetentionPlan, only: Container[str] | None
) -> dict[str, str]:
    """What stays although the policy does not keep it, and why."""
    stays = {} if only is None else {key: "not in the plan" for key in found.removed if key not in only}
    steps = _steps(checkpoints)
    going = may_go(steps, set(found.removed) - stays.keys())
    return {step.id: "tells what was undone" for step in steps if step.id not in going | found.kept.keys()} | stays


def _steps(checkpoints: dict[str, Checkpoint]) -> list[Step]:
    """The safety checkpoints, oldest first."""
    return [
        Step(each.id, each.operation.verb, each.operation.target) for each in checkpoints.values() if each.operation
    ]
