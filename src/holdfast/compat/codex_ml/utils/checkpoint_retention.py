"""`codex_ml.utils.checkpoint_retention`: which folders of epochs to keep."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

__all__ = ["RetainSpec", "retain"]


@dataclass
class RetainSpec:
    """Keep the last `keep_last` epochs and the best `best_k`; the newest always stays."""

    keep_last: int = 3
    best_k: int = 0
    best_metric: str = "val_loss"
    mode: str = "min"


def retain(checkpoints_root: str | os.PathLike[str], spec: RetainSpec) -> None:
    """Remove the folders `epoch-N` that a policy does not keep. Other folders stay."""
    if spec.mode not in ("min", "max"):
        raise ValueError(f"mode must be 'min' or 'max', not {spec.mode!r}")
    root = Path(checkpoints_root).expanduser()
    if not root.is_dir() or (spec.keep_last <= 0 and spec.best_k <= 0):
        return
    with files.locked(root):
        found = [path for path in root.glob("epoch-*") if path.is_dir() and files.number_of(path) is not None]
        epochs = sorted(found, key=lambda path: files.number_of(path) or 0)
        scored = [(value, path) for path in epochs if files.is_number(value := _metric(path, spec.best_metric))]
        best = sorted(scored, key=lambda each: files.rank(each[0], spec.mode))[: max(spec.best_k, 0)]
        kept = {*epochs[-max(spec.keep_last, 1) :], *(path for _, path in best)}
        for path in epochs:
            if path not in kept:
                files.remove(path)


def _metric(folder: Path, name: str) -> Any:
    told = files.read_json_or(folder / "metadata.json", {})
    metrics = told.get("metrics")
    return told.get(name, metrics.get(name) if isinstance(metrics, dict) else None)


deprecate(
    __name__,
    {
        "RetainSpec": "holdfast.training.CheckpointManager with keep_last and keep_best",
        "retain": "holdfast.training.CheckpointManager with keep_last and keep_best",
    },
)
