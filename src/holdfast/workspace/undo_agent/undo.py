"""Undoing only what an agent changed: compute the target from the folder as it is, then restore to it.

Order of writes (P3): the target, as a checkpoint that is not the folder's head; then everything as in a restore to it.
A crash in between leaves a checkpoint that only a list with safety checkpoints shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from holdfast.model import Checkpoint, Operation, Overlap, Reason, Uncovered
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Frozen, Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.requests import RestoreRequest
from holdfast.workspace.stored.attribution import attributed_runs, doubts, trail
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.record import Node, to_json
from holdfast.workspace.stored.repository import WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.stored.tree_edit import edit
from holdfast.workspace.undo_agent.plan import Reverser
from holdfast.workspace.undo_agent.renames import Moment, Stretch


class UndoneContent(NamedTuple):
    """What the folder would contain without the agent's changes; not a checkpoint yet."""

    root: Node
    frozen: Frozen
    """Its ignore rules."""
    rules: bytes
    """The same, as the checkpoint stores them."""
    overlaps: dict[str, Overlap]
    unknown: dict[str, str]
    doubts: dict[str, str]


class AgentUndo:
    """Computes restore targets without an agent's changes."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver

    def compute(
        self, request: RestoreRequest, snapshot: Snapshot, sink: ObjectSink, scope: Scope, now_ns: int
    ) -> UndoneContent:
        """Compute what the folder would contain; new objects go into the sink."""
        since, reader = request.target, TreeReader(sink)
        present = Moment(None, snapshot.root, _gaps(snapshot.uncovered))
        checkpoints = trail(self._repository, since, request.agent)
        stretches = self._stretches(checkpoints, request, present)
        found = Reverser(sink, reader, snapshot.root, now_ns).reverse(stretches, scope)
        root = edit(snapshot.root, found.edits, reader, sink) if found.edits else snapshot.root
        rules = json.loads(self._scanner.frozen_rules(snapshot))
        then = self._repository.rules(self._repository.contents(since))["repositories"]
        rules["repositories"] = {path: text for path, text in rules["repositories"].items() if path in then}
        frozen = Frozen(rules, reader, sink.blob, root)
        uncertain = doubts(checkpoints, request.agent)
        return UndoneContent(root, frozen, to_json(rules), found.overlaps, found.unknown, uncertain)

    def _stretches(self, checkpoints: Sequence[Checkpoint], request: RestoreRequest, present: Moment) -> list[Stretch]:
        found = []
        newer = present
        for run in attributed_runs(checkpoints, request.agent, request.unsaved_by):
            older = self._moment(run.older)
            found.append(Stretch(run, older, newer))
            newer = older
        return found

    def _moment(self, checkpoint: Checkpoint) -> Moment:
        root = self._repository.contents(checkpoint).root
        return Moment(checkpoint.id, root, _gaps(self._repository.uncovered(checkpoint)))

    def publish(self, request: RestoreRequest, undone: UndoneContent, snapshot: Snapshot, sink: PackSink) -> Checkpoint:
        """Make it a checkpoint, with what could not be undone in its metadata."""
        since = request.target.id
        return self._saver.publish_target(
            sink,
            snapshot._replace(root=undone.root, previous={}),
            Operation(WITHOUT, since),
            message=f"without {request.agent or 'what agents did'} since {since}",
            metadata={
                "agent": request.agent,
                "unsaved_by": request.unsaved_by,
                "conflicts": {path: asdict(overlap) for path, overlap in undone.overlaps.items()},
            },
            rules=undone.rules,
        )


def _gaps(uncovered: Iterable[Uncovered]) -> dict[str, Reason]:
    return {item.path: item.reason for item in uncovered if item.path}
