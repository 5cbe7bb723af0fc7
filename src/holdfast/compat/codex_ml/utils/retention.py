"""`codex_ml.utils.retention`: prune folders of epochs, or only plan it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

__all__ = ["prune_checkpoints"]


def prune_checkpoints(
    checkpoint_dir: str | os.PathLike[str],
    keep_last: int | None = None,
    keep_every: int | None = None,
    max_epochs: int | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Remove the folders `epoch-N` that no argument keeps; return what was kept and pruned.

    Without `keep_last`, `keep_every` and `max_epochs` all stay. The newest and the one that `latest.json` names always
    stay. `dry_run` removes nothing.
    """
    root = Path(checkpoint_dir).expanduser()
    folders = {files.number_of(path): path for path in root.glob("epoch-*") if path.is_dir()}
    epochs = sorted(number for number in folders if number is not None)
    named = files.read_json_or(root / "latest.json", {}).get("epoch")
    latest = named if isinstance(named, int) else None
    kept = _kept(epochs, latest, keep_last, keep_every, max_epochs)
    pruned = [epoch for epoch in epochs if epoch not in kept]
    if pruned and not dry_run:
        with files.locked(root):
            for epoch in pruned:
                files.remove(folders[epoch])
    return {
        "total": len(epochs), "kept": sorted(kept), "pruned": pruned, "protected_latest": latest, "dry_run": dry_run,
    }  # fmt: skip


def _kept(
    epochs: list[int], latest: int | None, keep_last: int | None, keep_every: int | None, max_epochs: int | None
) -> set[int]:
    """Return the epochs that stay: what the policy keeps, the newest and the latest."""
    kept = set(epochs)
    if keep_last or keep_every:
        kept = {epoch for epoch in epochs if keep_every and epoch % keep_every == 0}
        kept |= set(epochs[-keep_last:] if keep_last else ())
    if max_epochs:
        kept = set(sorted(kept)[-max_epochs:])
    return {epoch for epoch in epochs if epoch in kept or epoch in (latest, epochs[-1])}


deprecate(__name__, {"prune_checkpoints": "holdfast.training.CheckpointManager and its prune()"})
