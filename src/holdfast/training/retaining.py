"""Which checkpoints of a run stay: last K, best K, every N steps, pinned; decided by the shared planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast import retention
from holdfast.errors import HoldfastError
from holdfast.training.folder import Found, TrainingFolder, deciding


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept. Without `last` and `every` that is everything."""

    last: int | None = None
    best: int | None = 1
    every: int | None = None

    def __post_init__(self) -> None:
        self.policy()

    @property
    def is_all(self) -> bool:
        return self.last is None and self.every is None

    def policy(self) -> retention.Policy:
        """The same for the planner; Refused if it makes no sense."""
        return retention.Policy(keep_last=self.last, keep_best=self.best, keep_every=self.every)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Which steps went (in a dry run: would go), and why the others stay."""

    removed: list[int]
    kept: dict[int, str]
    is_done: bool


def plan(
    folder: TrainingFolder, found: Sequence[Found], keep: Keep, *, best_key: str | None, mode: str, now: datetime
) -> Trimmed:
    """Decide which checkpoints go. Only what is whole, ours, and holds nothing of others can."""
    if keep.is_all:
        return Trimmed([], {each.step: "everything is kept" for each in found}, is_done=False)
    try:
        if best_key is None and (marker := deciding(folder)):
            best_key, mode = marker  # the best stays, also if this save does not ask which it is
        pinned = folder.pinned()
    except HoldfastError as error:  # whoever cannot tell what must stay removes nothing
        return Trimmed([], dict.fromkeys((each.step for each in found), error.message), is_done=False)
    if best_key is None and (keep.best or 0) > 1:  # P1: those that were to be kept are among them
        why = f"the best {keep.best} are to be kept, and nothing says which they are; save with best_key"
        return Trimmed([], dict.fromkeys((each.step for each in found), why), is_done=False)
    best = folder.best_of(list(found), best_key, mode) if best_key else None
    records = []
    for each in found:
        protected = ""
        if keep.every and each.step % keep.every == 0:
            protected = f"one of every {keep.every} steps"
        if best is not None and each.path == best.path:
            protected = "the best"
        if each.step in pinned:
            protected = "pinned"
        score = each.manifest.score(best_key, mode) if best_key else None
        manifest = each.manifest
        records.append(
            retention.Record(each.path.name, manifest.sequence, manifest.timestamp, protected=protected, score=score)
        )
    policy = retention.Policy(keep_last=keep.last or 0, keep_best=keep.best)
    decided = retention.plan(records, policy, now)
    reasons = {each.step: decided.kept.get(each.path.name) or _foreign(folder, each) for each in found}
    removed = [step for step, why in reasons.items() if not why]
    return Trimmed(removed, {step: why for step, why in reasons.items() if why}, is_done=False)


def _foreign(folder: TrainingFolder, found: Found) -> str:
    """Why one that no rule keeps must stay all the same; empty if nothing is against it."""
    try:
        strangers = folder.strangers(found)
    except HoldfastError as error:
        return error.message
    return f"holds {strangers[0]}, which Holdfast did not write" if strangers else ""


def prune(
    folder: TrainingFolder, found: Sequence[Found], keep: Keep, *, best_key: str | None, mode: str, now: datetime,
    shown: Trimmed | None = None,
) -> Trimmed:  # fmt: skip
    """Remove what nothing keeps; of that, only what a plan has `shown`, if one was. The lock is held."""
    decided = plan(folder, found, keep, best_key=best_key, mode=mode, now=now)
    removed = [step for step in decided.removed if shown is None or step in shown.removed]
    kept = decided.kept | {step: "was not shown" for step in decided.removed if step not in removed}
    by_step = {each.step: each for each in found}
    for step in removed:
        folder.remove(by_step[step])
    return Trimmed(removed, kept, is_done=True)
