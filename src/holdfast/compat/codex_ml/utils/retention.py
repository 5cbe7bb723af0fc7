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
    folders = {}
    if root.is_dir():
        folders = {
            number: path
            for path in root.glob("epoch-*")
            if (number := files.number_of(path)) is not None and path.is_dir()
        }
    epochs = sorted(folders)
    latest = files.read_json_or(root / "latest.json", {}).get("epoch")
    protected = {
        epoch
        for epoch in (latest if isinstance(latest, int) else None, epochs[-1] if epochs else None)
        if epoch is not None
    }
    kept = set(epochs)
    if keep_last or keep_every:
        kept = {epoch for epoch in epochs if keep_every and epoch % keep_every == 0} | set(
            epochs[-keep_last:] if keep_last else ()
        )
    if max_epochs:
        kept = set(sorted(kept)[-max_epochs:])
    kept = (kept | protected) & set(epochs)
    pruned = [epoch for epoch in epochs if epoch not in kept]
    if pruned and not dry_run:
        with files.locked(root):
            for epoch in pruned:
                files.remove(folders[epoch])
    return {
        "total": len(epochs), "kept": sorted(kept), "pruned": pruned,
        "protected_latest": latest if isinstance(latest, int) else None, "dry_run": dry_run,
    }  # fmt: skip


deprecate(__name__, {"prune_checkpoints": "holdfast.training.CheckpointManager and its prune()"})
