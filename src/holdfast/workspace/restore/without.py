"""Undoing only what an agent did: the target is made of the folder as it is, and then restored like any other.

Order of writes (P3): the target, as a checkpoint that moves nothing; then everything as in a restore to it. A crash in
between leaves a checkpoint that only `log --all` shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256

from holdfast.model import Checkpoint, Operation, Reason, Uncovered
from holdfast.shadowgit import PackWriter
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Frozen, Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.restore.plan import Merged, Steps, Target
from holdfast.workspace.restore.reversal import Reversal
from holdfast.workspace.restore.reverse import Reverser
from holdfast.workspace.restore.tracks import Moment, Stretch
from holdfast.workspace.scope import Scope
from holdfast.workspace.stored.editing import edit
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.record import to_json
from holdfast.workspace.stored.repository import WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.stored.windows import doubts, runs, trail


class Undoing:
    """Makes targets without an agent's work."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver

    def merge(
        self,
        reversal: Reversal,
        snapshot: Snapshot,
        gathering: Gathering,
        reader: TreeReader,
        scope: Scope,
        now_ns: int,
    ) -> Merged:
        """What the folder would be; its objects go into the gathering."""
        present = Moment(None, snapshot.root, _gaps(snapshot.uncovered))
        checkpoints = trail(self._repository, reversal.since, reversal.agent)
        stretches = self._stretches(checkpoints, reversal, present)
        found = Reverser(gathering, reader, snapshot.root, now_ns).reverse(stretches, scope)
        root = edit(snapshot.root, found.edits, reader, gathering) if found.edits else snapshot.root
        rules = json.loads(self._scanner.frozen_rules(snapshot))
        then = self._repository.rules(self._repository.contents(reversal.since))["repositories"]
        rules["repositories"] = {path: text for path, text in rules["repositories"].items() if path in then}
        frozen = Frozen(rules, reader, gathering.blob, root)
        target = Target(reversal.since.id, root, tuple(snapshot.uncovered), frozen)
        return Merged(target, found.overlaps, found.unknown, to_json(rules), doubts(checkpoints, reversal.agent))

    def _stretches(self, checkpoints: Sequence[Checkpoint], reversal: Reversal, present: Moment) -> list[Stretch]:
        found = []
        newer = present
        for run in runs(checkpoints, reversal.agent, reversal.unsaved_by):
            older = self._moment(run.older)
            found.append(Stretch(run, older, newer))
            newer = older
        return found

    def _moment(self, checkpoint: Checkpoint) -> Moment:
        root = self._repository.contents(checkpoint).root
        return Moment(checkpoint.id, root, _gaps(self._repository.uncovered(checkpoint)))

    def told(self, steps: Steps, merged: Merged, reversal: Reversal, gathering: Gathering, now_ns: int) -> Steps:
        """Steps that say of themselves what they are; their digest does not depend on the time."""
        plan = steps.plan
        afters = {change.after.oid for change in steps.changes.values() if change.after and change.after.oid}
        new = [oid for oid in afters if not self._repository.objects.has(oid)]
        digest = sha256(repr((reversal.since.id, *reversal[1:], plan.paths, plan.keep_new)).encode())
        for path, before, after in steps.changes.values():
            if after is not None and after.attr.mtime_ns == now_ns:
                after = after._replace(attr=after.attr._replace(mtime_ns=0))
            digest.update(repr((path, before, after)).encode())
        for said in (merged.overlaps, merged.unknown, plan.kept, plan.blocked):
            digest.update(repr(sorted(said.items())).encode())
        plan = replace(
            plan,
            digest=digest.hexdigest(),
            bytes_to_write=sum(gathering.size(oid) or 0 for oid in new),  # the rest is weighed in the store
            keep_mine=True,
            agent=reversal.agent,
            unsaved_by=reversal.unsaved_by,
            conflicts=merged.overlaps,
            doubts=merged.doubts,
            kept=dict(sorted({**merged.unknown, **plan.kept}.items())),
        )
        return steps._replace(plan=plan, merged=merged)

    def publish(
        self, reversal: Reversal, merged: Merged, snapshot: Snapshot, writer: PackWriter, gathering: Gathering
    ) -> Checkpoint:
        """Make a target a checkpoint, with what could not be undone in its metadata."""
        whose = reversal.agent or "what agents did"
        return self._saver.publish_without(
            writer,
            gathering,
            snapshot._replace(root=merged.target.root, previous={}),
            Operation(WITHOUT, reversal.since.id),
            message=f"without {whose} since {reversal.since.id}",
            metadata={
                "agent": reversal.agent,
                "unsaved_by": reversal.unsaved_by,
                "conflicts": {path: asdict(overlap) for path, overlap in merged.overlaps.items()},
            },
            rules=merged.rules,
        )


def _gaps(uncovered: Iterable[Uncovered]) -> dict[str, Reason]:
    return {item.path: item.reason for item in uncovered if item.path}
