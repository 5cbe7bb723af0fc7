"""Which checkpoints of a run are kept: the last K, the best K, every N steps, pinned. The shared planner decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast import retention
from holdfast.errors import HoldfastError
from holdfast.training.run_store import RunStore, StoredCheckpoint, best_metric, best_of


@dataclass(frozen=True, slots=True)
class Keep:
    """What to keep. Without `last` and `every`, everything."""

    last: int | None = None
    best: int | None = 1
    every: int | None = None

    def __post_init__(self) -> None:
        retention.Policy(keep_last=self.last, keep_best=self.best, keep_every=self.every)  # Refused if it is invalid

    @property
    def is_all(self) -> bool:
        return self.last is None and self.every is None


@dataclass(frozen=True, slots=True)
class PrunedSteps:
    """Which steps were removed (in a plan: would be), and why the others are kept."""

    removed: list[int]
    kept: dict[int, str]
    is_done: bool


def plan(
    store: RunStore, found: Sequence[StoredCheckpoint], keep: Keep, *, best_key: str | None, mode: str, now: datetime
) -> PrunedSteps:
    """Decide which checkpoints to remove: only complete ones, without files of other programs (P1)."""
    if keep.is_all:
        return _keep_all(found, "everything is kept")
    try:
        if best_key is None and (marker := best_metric(store)):
            best_key, mode = marker  # the best is kept, also if this save does not name the metric
        pinned = store.pinned()
    except HoldfastError as error:  # P1: what must be kept is unknown, so nothing is removed
        return _keep_all(found, error.message)
    if best_key is None and (keep.best or 0) > 1:  # P1: the best ones are among these
        return _keep_all(found, f"the best {keep.best} are kept, but no metric is known; save with best_key")
    best = best_of(found, best_key, mode) if best_key else None
    records = []
    for each in found:
        protected = ""
        if keep.every and each.step % keep.every == 0:
            protected = f"one of every {keep.every} steps"
        if best is not None and each.path == best.path:
            protected = "the best"
        if each.step in pinned:
            protected = "pinned"
        manifest = each.manifest
        score = manifest.score(best_key, mode) if best_key else None
        records.append(
            retention.Record(each.path.name, manifest.sequence, manifest.timestamp, protected=protected, score=score)
        )
    decided = retention.plan(records, retention.Policy(keep_last=keep.last or 0, keep_best=keep.best), now)
    reasons = {each.step: decided.kept.get(each.path.name) or _obstacle(store, each) for each in found}
    removed = [step for step, reason in reasons.items() if not reason]
    return PrunedSteps(removed, {step: reason for step, reason in reasons.items() if reason}, is_done=False)


def _keep_all(found: Sequence[StoredCheckpoint], reason: str) -> PrunedSteps:
    return PrunedSteps([], {each.step: reason for each in found}, is_done=False)


def _obstacle(store: RunStore, found: StoredCheckpoint) -> str:
    """Why a checkpoint that no rule keeps cannot be removed; empty if it can."""
    try:
        foreign = store.foreign_files(found)
    except HoldfastError as error:
        return error.message
    return f"contains {foreign[0]}, which Holdfast did not write" if foreign else ""


def prune(
    store: RunStore, found: Sequence[StoredCheckpoint], keep: Keep, *, best_key: str | None, mode: str, now: datetime,
    shown: PrunedSteps | None = None,
) -> PrunedSteps:  # fmt: skip
    """Remove what no rule keeps; if a plan was `shown`, only what that removes. Called within `writing()`."""
    decided = plan(store, found, keep, best_key=best_key, mode=mode, now=now)
    removed = [step for step in decided.removed if shown is None or step in shown.removed]
    kept = decided.kept | {step: "not in the plan" for step in decided.removed if step not in removed}
    by_step = {each.step: each for each in found}
    for step in removed:
        store.remove(by_step[step])
    return PrunedSteps(removed, kept, is_done=True)
