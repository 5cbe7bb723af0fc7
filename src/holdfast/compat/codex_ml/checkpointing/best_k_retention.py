"""`codex_ml.checkpointing.best_k_retention`: a folder of files, of which the best stay; `index.json` lists them."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files, payload
from holdfast.compat.deprecation import deprecate

__all__ = ["CheckpointEntry", "CheckpointIndex", "prune_checkpoints", "save_checkpoint_with_retention"]


@dataclass
class CheckpointEntry:
    """A file of the index."""

    path: str
    metric: float
    step: int
    created_at: float


class CheckpointIndex:
    """The index of a folder."""

    def __init__(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        self.checkpoint_dir = files.make_folder(Path(checkpoint_dir).expanduser())
        self.index_path = self.checkpoint_dir / "index.json"

    def load(self) -> list[CheckpointEntry]:
        """Return its entries; none, with a warning, if it is damaged: then nothing is ever removed."""
        try:
            return [CheckpointEntry(**each) for each in files.read_json(self.index_path)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            warnings.warn(f"{self.index_path} is not an index of checkpoints: {error}", stacklevel=2)
            return []

    def save(self, entries: Sequence[CheckpointEntry], atomic: bool = True) -> None:
        """Replace the index, always in one step."""
        files.write_json(self.index_path, [asdict(each) for each in entries])


def prune_checkpoints(
    checkpoint_dir: str | os.PathLike[str],
    keep_top_k: int = 5,
    metric_lower_better: bool = True,
    keep_last: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Remove the files of the index that are not among the best; return which are `kept`, `deleted` and `errors`.

    With `keep_last`, the newest stays in place of the worst of the best.
    """
    index = CheckpointIndex(checkpoint_dir)
    with files.locked(index.checkpoint_dir):
        entries = index.load()
        kept = _best(entries, keep_top_k, metric_lower_better)
        if entries and keep_last and (newest := max(entries, key=lambda each: each.created_at)) not in kept:
            kept = [*kept[: max(0, keep_top_k - 1)], newest]
        gone = [each for each in entries if each not in kept]
        if entries and not dry_run:
            index.save(kept)  # P3: first, so that it never lists what is gone
        errors = [] if dry_run else [error for each in gone if (error := _remove(index, each))]
    return {"kept": [each.path for each in kept], "deleted": [each.path for each in gone], "errors": errors}


def save_checkpoint_with_retention(
    checkpoint_dir: str | os.PathLike[str],
    checkpoint_data: Any,
    metric: float,
    step: int,
    keep_top_k: int = 5,
    metric_lower_better: bool = True,
) -> Path:
    """Save a state durably and return its file. Of those before, the best stay; this one stays in any case."""
    index = CheckpointIndex(checkpoint_dir)
    path = index.checkpoint_dir / f"checkpoint_step_{step}_metric_{metric:.4f}.pt"
    with files.locked(index.checkpoint_dir):
        before = [each for each in index.load() if each.path != path.name]
        with files.staged(path, lambda out: payload.write(checkpoint_data, out, use_torch=payload.has_torch())):
            pass
        new = CheckpointEntry(path.name, metric, step, time.time())
        kept = _best([*before, new], keep_top_k, metric_lower_better)
        index.save(kept if new in kept else [*kept, new])
        for each in before:
            if each not in kept:
                _remove(index, each)
    return path


def _best(entries: Sequence[CheckpointEntry], count: int, is_lower_better: bool) -> list[CheckpointEntry]:
    mode = "min" if is_lower_better else "max"
    return sorted(entries, key=lambda each: (files.rank(each.metric, mode), each.created_at))[:count]


def _remove(index: CheckpointIndex, entry: CheckpointEntry) -> str | None:
    """Remove the file of an entry; return why not. Only a `.pt` file of the folder: the index may be anybody's (P1)."""
    path = index.checkpoint_dir / entry.path
    if path.parent != index.checkpoint_dir or path.suffix != ".pt":
        return f"{entry.path} is not a checkpoint of this folder"
    try:
        files.remove(path)
    except OSError as error:
        return f"cannot remove {entry.path}: {error.strerror}"
    return None


deprecate(__name__, dict.fromkeys(__all__, "holdfast.training.CheckpointManager with keep_best"))
