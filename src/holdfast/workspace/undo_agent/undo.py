"""Undoing only what an agent changed, or only chosen hunks: compute the target from the folder, then restore to it.

Order of writes (P3): the target, as a checkpoint that is not the folder's head; then everything as in a restore to it.
A crash in between leaves a checkpoint that only a list with safety checkpoints shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from holdfast.errors import Conflict
from holdfast.model import JSON, Checkpoint, Operation, Overlap, Reason, Uncovered
from holdfast.model.documents import short
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Frozen, Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.requests import Chosen, RestoreRequest
from holdfast.workspace.stored.attribution import UNDONE_TURN, AttributedRun, attributed_runs, doubts, trail
from holdfast.workspace.stored.hunks import changed_paths, choose, tree_edits
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.record import Node, to_json
from holdfast.workspace.stored.repository import REVERT, WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.stored.tree_edit import edit
from holdfast.workspace.undo_agent.plan import Reversed, Reverser
from holdfast.workspace.undo_agent.renames import Moment, Stretch

_NAMED_MAX = 5


class UndoneContent(NamedTuple):
    """What the folder would contain without the undone changes; not a checkpoint yet."""

    root: Node
    frozen: Frozen
    """Its ignore rules."""
    rules: bytes
    """The same, as the checkpoint stores them."""
    overlaps: dict[str, Overlap]
    unknown: dict[str, str]
    doubts: dict[str, str]


class AgentUndo:
    """Computes restore targets without an agent's changes, or without chosen ones."""

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
        uncertain: dict[str, str] = {}
        if request.chosen is not None:
            stretches = self._of_chosen(since, request.chosen, present, reader, sink, now_ns)
        else:
            checkpoints = trail(self._repository, since, request.agent)
            stretches = self._stretches(checkpoints, request, present)
            uncertain = doubts(checkpoints, request.undone)
        found = Reverser(sink, reader, snapshot.root, now_ns).reverse(stretches, scope)
        if request.chosen is not None:
            _check_chosen(found)
        root = edit(snapshot.root, found.edits, reader, sink) if found.edits else snapshot.root
        rules = json.loads(self._scanner.frozen_rules(snapshot))
        then = self._repository.rules(self._repository.contents(since))["repositories"]
        rules["repositories"] = {path: text for path, text in rules["repositories"].items() if path in then}
        frozen = Frozen(rules, reader, sink.blob, root)
        return UndoneContent(root, frozen, to_json(rules), found.overlaps, found.unknown, uncertain)

    def _stretches(self, checkpoints: Sequence[Checkpoint], request: RestoreRequest, present: Moment) -> list[Stretch]:
        found = []
        newer = present
        for run in attributed_runs(checkpoints, request.undone):
            older = self._moment(run.older)
            found.append(Stretch(run, older, newer))
            newer = older
        return found

    def _of_chosen(
        self, since: Checkpoint, chosen: Chosen, present: Moment, reader: TreeReader, sink: ObjectSink, now_ns: int
    ) -> list[Stretch]:
        """Return the chosen hunks as one run to revert, and what was changed after it as another.

        The run begins at a tree of the newer state in which the chosen hunks never happened.
        """
        older = self._moment(since)
        newer = present if chosen.until is None else self._moment(chosen.until)
        paths = changed_paths(reader.diff(older.root, newer.root), sink, (older.uncovered, newer.uncovered))
        picked = choose(paths, chosen.hunks)
        edits = tree_edits(paths, picked, reader, (older.root, newer.root), now_ns)
        start = edit(newer.root, edits, reader, sink) if edits else newer.root
        run = AttributedRun(True, ("this change",), since, chosen.until)
        found = [Stretch(run, Moment(since.id, start, {}), newer._replace(uncovered={}))]
        if chosen.until is not None:
            found.insert(0, Stretch(AttributedRun(False, ("others",), chosen.until, None), newer, present))
        return found

    def _moment(self, checkpoint: Checkpoint) -> Moment:
        root = self._repository.contents(checkpoint).root
        return Moment(checkpoint.id, root, _gaps(self._repository.uncovered(checkpoint)))

    def publish(self, request: RestoreRequest, undone: UndoneContent, snapshot: Snapshot, sink: PackSink) -> Checkpoint:
        """Make it a checkpoint, with what could not be undone in its metadata."""
        since, chosen = request.target.id, request.chosen
        metadata: dict[str, JSON] = {
            "agent": request.agent,
            "unsaved_by": request.unsaved_by,
            "conflicts": {path: asdict(overlap) for path, overlap in undone.overlaps.items()},
        }
        message = f"undo changes of {request.agent or 'agents'} since {short(since)}"
        if (turn := request.undone.turn) is not None:
            metadata[UNDONE_TURN] = list(turn)
            message = f"undo a turn of {request.agent or turn.agent} since {short(since)}"
        if chosen is not None:
            metadata = {"hunks": len(chosen.hunks), "until": chosen.until and chosen.until.id}
            message = f"take back {len(chosen.hunks)} of the changes since {short(since)}"
        return self._saver.publish_target(
            sink,
            snapshot._replace(root=undone.root, previous={}),
            Operation(WITHOUT if chosen is None else REVERT, since),
            message=message,
            metadata=metadata,
            rules=undone.rules,
        )


def _check_chosen(found: Reversed) -> None:
    """Conflict unless every chosen hunk can be taken back: some of them alone would not be what was asked for (P3)."""
    reasons = {path: each.why for path, each in found.overlaps.items()} | found.unknown
    if reasons:
        some = "; ".join(f"{path}: {why}" for path, why in list(reasons.items())[:_NAMED_MAX])
        more = "; …" if len(reasons) > _NAMED_MAX else ""
        raise Conflict(f"cannot take back {some}{more}", hint="Nothing was changed. Leave these out, or look again.")


def _gaps(uncovered: Iterable[Uncovered]) -> dict[str, Reason]:
    return {item.path: item.reason for item in uncovered if item.path}
