"""`python -m holdfast.compat.codex_ml.cli.checkpoint --info latest`: what is known of a checkpoint of a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import training
from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate
from holdfast.errors import HoldfastError, NotFound
from holdfast.training.checkpoints import find_run

__all__ = ["info", "main"]


def info(which: str, folder: Path) -> dict[str, Any]:
    """Return what is known of the `latest` or `best` checkpoint of a run, or of a step. NotFound if there is none."""
    found = _of_holdfast(folder) or _of_epochs(folder) or _of_steps(folder)
    best = files.read_json_or(folder / "best.json", {})
    best = best.get("items", [best])[0] if best.get("items", [best]) else {}
    step = (
        max(found, default=None)
        if which == "latest"
        else best.get("step", best.get("epoch"))
        if which == "best"
        else which
    )
    chosen = next((told for number, told in found.items() if str(number) == str(step)), None)
    if chosen is None:
        raise NotFound(f"{folder} has no checkpoint {which}", hint="Name the folder of its checkpoints.")
    return chosen


def _here() -> Path:
    here = Path()
    return here if _of_epochs(here) or _of_steps(here) else find_run(here)


def _of_holdfast(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the checkpoints that `holdfast.training` has saved, by step."""
    if not any(folder.glob("step-*")):
        return {}
    return {
        each.step: {
            "step": each.step, "path": each.path, "created_at": each.timestamp.isoformat(), "metrics": each.metrics,
            "bytes": each.n_bytes, "tensors": each.n_tensors,
        }
        for each in training.CheckpointManager(folder).history()
    }  # fmt: skip


def _of_epochs(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the epochs of `utils.checkpointing.CheckpointManager`, by number."""
    found = {}
    for path in folder.glob("epoch-*"):
        epoch = files.number_of(path)
        told = files.read_json_or(path / "meta.json", {}) or files.read_json_or(path / "metadata.json", {})
        if epoch is not None and told:
            found[epoch] = {"epoch": epoch, "path": str(path), "metrics": told.get("metrics", {})}
    return found


def _of_steps(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the files of `training.checkpoint_manager.CheckpointManager`, by step."""
    found = {}
    for path in [*folder.glob("ckpt-*.pt"), *folder.glob("step-*.pt")]:
        step = path.stem.rpartition("-")[2]
        if step.isdigit():
            told = files.read_json_or(path.with_suffix(".meta.json"), {})
            found[int(step)] = {
                "step": int(step), "path": str(path), "metrics": told.get("metrics", {}), "bytes": path.stat().st_size,
            }  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is known of a checkpoint; return the exit status."""
    parser = argparse.ArgumentParser(prog="checkpoint", description="Show a checkpoint of a training run.")
    parser.add_argument("--info", default="latest", metavar="WHICH", help="latest, best, or a step")
    parser.add_argument("--dir", type=Path, help="the folder of the checkpoints; else this one, or the run below it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    try:
        told = info(chosen.info, chosen.dir.expanduser() if chosen.dir else _here())
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(told) if chosen.json else "\n".join(f"{name}: {value}" for name, value in told.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

deprecate(
    __name__,
    {
        "info": "holdfast.training.CheckpointManager (or `holdfast training info latest`)",
        "main": "holdfast.cli.start.main (or `holdfast training info latest`)",
    },
)
