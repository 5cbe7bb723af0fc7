"""The scanner, the saver, the restorer and the recoverer of one workspace.

A module of its own so that listing checkpoints loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.scan.limits import Limits
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader

if TYPE_CHECKING:
    from holdfast.model import Changes, Checkpoint, CheckpointDiff, CheckpointRef, Uncovered
    from holdfast.workspace.capture.save import Saver
    from holdfast.workspace.pathspec import Paths
    from holdfast.workspace.restore.recovery import Recoverer
    from holdfast.workspace.restore.restore import Restorer
    from holdfast.workspace.stored.record import Node
    from holdfast.workspace.stored.tree import Change


class _Between(NamedTuple):
    """What differs between two states."""

    to_id: str | None
    changes: Iterable[Change]
    uncovered: tuple[Sequence[Uncovered], Sequence[Uncovered]]


class FolderNow(NamedTuple):
    """The folder as it is, saved or not."""

    root: Node
    source: ObjectSink
    uncovered: Set[str]


class Engine:
    """The parts of a workspace that scan or change the folder."""

    def __init__(
        self,
        root: Path,
        repository: Repository,
        clock: Callable[[], datetime],
        *,
        ignored_max_bytes: tuple[int, int],
        scans_secrets: bool,
        **scanner_options: Any,
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._scans_secrets = scans_secrets
        self.scanner = Scanner(root, repository, limits=Limits(*ignored_max_bytes), **scanner_options)

    @cached_property
    def saver(self) -> Saver:
        from holdfast.workspace.capture.save import Saver  # start-up cost: what only looks does not need it

        saver = Saver(self._repository, self.scanner, self._clock)
        saver.scans_secrets = self._scans_secrets
        return saver

    @property
    def unscanned(self) -> list[str] | None:
        """See `Saver.unscanned`."""
        return self.saver.unscanned if "saver" in vars(self) else None

    @cached_property
    def restorer(self) -> Restorer:
        from holdfast.workspace.restore.restore import Restorer  # start-up cost: a save does not need it

        return Restorer(self._repository, self.scanner, self.saver)

    @cached_property
    def recoverer(self) -> Recoverer:
        from holdfast.workspace.restore.recovery import Recoverer  # as above

        return Recoverer(self._repository, self.scanner, self.saver, self.restorer)

    def diff(self, a: CheckpointRef, b: CheckpointRef | None, paths: Paths | None) -> CheckpointDiff:
        """Compare two checkpoints; without `b`, a checkpoint with the folder as it is now."""
        from holdfast.workspace.stored.diff import make_diff  # start-up cost: a save does not need it

        first, sink, between = self._between(a, b, paths)
        return make_diff(first.id, between.to_id, between.changes, sink, between.uncovered)

    def changes(self, a: CheckpointRef, b: CheckpointRef | None, paths: Paths | None) -> Changes:
        """Return what changed in parts that can be taken back."""
        from holdfast.model import Changes
        from holdfast.workspace.stored.hunks import changed_paths  # as above
        from holdfast.workspace.stored.tree import gaps_of

        first, sink, between = self._between(a, b, paths)
        found = changed_paths(between.changes, sink, gaps_of(between.uncovered))
        return Changes(first.id, between.to_id, tuple(each.describe() for each in found))

    def now(self) -> FolderNow:
        """Return the folder as it is, without storing anything."""
        sink = ObjectSink(self._repository.objects, keep_files=True)
        snapshot, _ = self.scanner.take(sink, head=self._repository.head())
        return FolderNow(snapshot.root, sink, frozenset(each.path for each in snapshot.uncovered))

    def _between(
        self, a: CheckpointRef, b: CheckpointRef | None, paths: Paths | None
    ) -> tuple[Checkpoint, ObjectSink, _Between]:
        from holdfast.workspace.pathspec import as_text, parse_scope  # start-up cost: a save does not need them

        repository = self._repository
        first = repository.find(a)
        sink = ObjectSink(repository.objects, keep_files=True)
        reader = TreeReader(sink)
        before = repository.contents(first).root
        if b is None:
            snapshot, _ = self.scanner.take(sink, head=repository.head())
            second, after, uncovered = None, snapshot.root, snapshot.uncovered
        else:
            other = repository.find(b)
            second, after, uncovered = other.id, repository.contents(other).root, list(other.uncovered)
        scope = parse_scope(
            as_text(paths),
            self.scanner.root,
            lambda path: any(reader.find(root, path) for root in (before, after)),
            lambda: (path for root in (before, after) for path, _ in reader.walk(root)),
        )
        changes = (each for each in reader.diff(before, after) if scope.selects(each.path, is_folder=each.is_folder))
        return first, sink, _Between(second, changes, (first.uncovered, uncovered))
