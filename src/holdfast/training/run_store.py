"""Where the checkpoints of one training run are stored: the interface of a back end, and the values it returns.

`FolderRunStore` (folder.py) stores a run in a folder, `ObjectRunStore` (objects.py) below a URL of an object store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import Damaged, HoldfastError
from holdfast.model import Progress, VerifyReport
from holdfast.training.metrics import MODES
from holdfast.training.shard_reader import Reader
from holdfast.training.shard_writer import WrittenShard
from holdfast.training.stored import marker
from holdfast.training.stored.layout import BEST
from holdfast.training.stored.manifest import Manifest
from holdfast.training.stored.shards import Payload

if TYPE_CHECKING:  # `save` works on a RunStore
    from holdfast.training.save import PendingSave

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint of a run, and what its manifest says."""

    path: Any
    """A `Path`, or an `ObjectPath` in an object store."""
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


@dataclass(frozen=True, slots=True)
class BrokenCheckpoint:
    """Something with the name of a checkpoint that cannot be read as one."""

    path: Any
    step: int
    error: HoldfastError


class StepPage(NamedTuple):
    """Some checkpoints of a run, the greatest step first."""

    found: list[StoredCheckpoint]
    broken: list[BrokenCheckpoint]
    next: int | None
    """The step that the next page is below; None on the last page."""


@dataclass(frozen=True, slots=True)
class SaveStart:
    """What a store contained when a save began."""

    found: list[StoredCheckpoint] = field(default_factory=list)
    replaced: Any = None
    """In an object store, the manifest that the save may replace."""


class RunStore(Protocol):
    """The checkpoints of one run.

    A checkpoint is there whole or not at all (P3); readers take no lock and wait for nobody (P9). Methods that change
    something are called within `writing()`.
    """

    @property
    def path(self) -> Any:
        """The folder, or the URL."""

    # reading

    def scan(self) -> tuple[list[StoredCheckpoint], list[BrokenCheckpoint]]:
        """Return all checkpoints in the order in which they were saved, and those that cannot be read.

        Their manifests may be `Brief`, without tensors; `full` reads the whole one.
        """

    def page(self, limit: int | None, *, before: int | None = None) -> StepPage:
        """Return the checkpoints with the greatest steps, below `before` if given."""

    def get(self, step: int | str) -> StoredCheckpoint:
        """Return the checkpoint of a step, `latest` or `best`. NotFound, or Damaged if it is there but unreadable."""

    def full(self, found: StoredCheckpoint) -> StoredCheckpoint:
        """Return the same checkpoint with its whole manifest."""

    def reader(self, found: StoredCheckpoint, *, verify: bool) -> Reader:
        """Return a reader of its tensors and files."""

    def new_bytes(self, found: Sequence[StoredCheckpoint]) -> dict[int, int]:
        """Return, by step, how many bytes a checkpoint does not share with the one before it, of some in the order in
        which they were saved; nothing where that is not known without reading them."""

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of every checkpoint, and name what is damaged."""

    # markers: for people and other programs; Holdfast itself goes by the manifests

    def best_marker(self) -> dict[str, Any] | None:
        """Return the content of `best.json`; None if Holdfast wrote none."""

    def foreign_markers(self, names: Iterable[str]) -> list[str]:
        """Return which of these markers another program wrote."""

    def repoint_markers(self, remaining: list[StoredCheckpoint]) -> None:
        """Point the markers at what remains, before the checkpoint that they point at is removed or renamed."""

    # pins

    def pinned(self) -> set[int]:
        """Return the steps that are pinned. Damaged if that cannot be read."""

    def pin(self, steps: set[int]) -> None:
        """Replace the set of pinned steps. Conflict if it changed since `pinned` returned it."""

    # writing

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which this process may change the run: a lock where the store needs one."""

    def begin_save(self, pending: PendingSave) -> SaveStart:
        """Check that the step is free, and make room for its shards."""

    def write_shards(
        self,
        step: int,
        payloads: Sequence[Payload],
        found: list[StoredCheckpoint],
        *,
        threads: int | None,
        rank: int | None = None,
    ) -> list[WrittenShard]:
        """Write tensors, or share files of the newest of `found` (P8). Nobody sees them before `commit_save`.

        rank: the number of this process, if several write one checkpoint.
        """

    def commit_save(self, pending: PendingSave, shards: Sequence[WrittenShard], start: SaveStart) -> dict[str, Any]:
        """Turn written shards into a checkpoint (the commit point), move the markers, prune. Return the summary."""

    def abort_save(self) -> None:
        """Remove what a failed save left, as far as that is possible."""

    def remove(self, found: StoredCheckpoint) -> None:
        """Remove a checkpoint: first from sight, then its bytes."""

    def set_aside(self, path: Any) -> Any:
        """Rename a damaged checkpoint so that its step can be saved again. Nothing is removed (P1)."""

    def foreign_files(self, found: StoredCheckpoint) -> list[str]:
        """Return what lies in a checkpoint's folder and is not part of it: such a checkpoint is not removed (P1)."""


def best_of(found: Iterable[StoredCheckpoint], metric: str, mode: str) -> StoredCheckpoint | None:
    """Return the checkpoint with the best value: the first of equals, and never one whose value is not finite."""
    best, best_score = None, None
    for each in found:
        score = each.manifest.score(metric, mode)
        if score is not None and (best_score is None or score > best_score):
            best, best_score = each, score
    return best


def best_metric(store: RunStore) -> tuple[str, str] | None:
    """Return the metric and the mode that `best.json` names; None if there is none, Damaged if it is unreadable."""
    found = store.best_marker()
    if found is None:
        if not store.foreign_markers([BEST]):
            return None
        what = f"{store.path / BEST} {marker.FOREIGN}, so the best checkpoint is unknown"
        raise Damaged(what, hint="Move it away, and save once with best_key.")
    metric, mode = found.get("metric"), found.get("mode")
    if not isinstance(metric, str) or mode not in MODES:
        what = f"{store.path / BEST} names no metric and mode, so the best checkpoint is unknown"
        raise Damaged(what, hint="Save once with best_key.")
    return metric, str(mode)


def next_sequence(last_marker: dict[str, Any] | None, found: Iterable[StoredCheckpoint]) -> int:
    """Return a sequence number greater than any that was given, also to checkpoints that are gone (P10)."""
    given = (last_marker or {}).get("sequence", 0)
    return max([given if isinstance(given, int) else 0, *(each.manifest.sequence for each in found)]) + 1


def log_skipped(broken: Iterable[BrokenCheckpoint]) -> None:
    """Log checkpoints that cannot be read: one of them may have been the newest (P4)."""
    for each in broken:
        _log.warning("skipped: %s", each.error)
