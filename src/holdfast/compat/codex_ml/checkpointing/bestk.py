"""`codex_ml.checkpointing.bestk`: an index of the best files; the others are removed."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

__all__ = ["update_and_prune"]


def update_and_prune(
    checkpoint_path: str | os.PathLike[str],
    metric: float,
    k: int,
    index_path: str | os.PathLike[str],
    keep_best: str | None = None,
    keep_last: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Add a file to an index, and remove those that it lists and that are not among the best `k`.

    The file that was just saved is not removed. With `keep_last` it also stays in the index, in place of the worst.
    ValueError if the index is damaged: nothing is changed then.
    """
    path, index = Path(checkpoint_path), Path(index_path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    mode = "max" if keep_best == "max" else "min"
    match = re.search(r"checkpoint_(\d+)", path.name)
    new = {"path": str(path), "metric": metric, "step": int(match[1]) if match else -1, "created_at": time.time()}
    near = {path.parent.absolute(), index.parent.absolute()}
    with files.locked(index.parent):
        known = _entries(index)
        before = [each for each in known if each["path"] != new["path"]]
        order = sorted([*before, new], key=lambda each: files.rank(each["metric"], mode))
        kept = order[:k]
        if keep_last and new not in kept:
            kept = [*order[: k - 1], new]
        pruned = [each for each in known if each not in kept]
        if not dry_run:
            files.write_json(index, {"entries": kept, "k": k, "keep_best": mode})
            for each in pruned:
                gone = Path(each["path"])
                if (
                    each["path"] != new["path"] and gone.parent.absolute() in near
                ):  # another program may write the index
                    files.remove(gone)
    return {"index_path": str(index), "added": str(path), "kept": kept, "pruned": pruned, "dry_run": dry_run}


def _entries(index: Path) -> list[dict[str, Any]]:
    """Return the entries of an index; ValueError if one does not name a `.pt` file, which would be removed."""
    try:
        found = files.read_json(index)
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ValueError(f"{index} is not JSON: {error}") from None
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not all(_is_entry(each) for each in entries):
        raise ValueError(f"{index} is JSON, but not an index of checkpoints")
    return entries


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("path", "")).endswith(".pt") and "metric" in entry


deprecate(__name__, {"update_and_prune": "holdfast.training.CheckpointManager with keep_best"})
