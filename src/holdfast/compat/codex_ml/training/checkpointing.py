"""`training.checkpointing`: files `epochN-metricM.pt`, of which the best stay."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files, payload
from holdfast.compat.codex_ml.frameworks import torch
from holdfast.compat.deprecation import deprecate

__all__ = ["RNGState", "load_checkpoint", "restore_rng_state", "save_checkpoint", "snapshot_rng_state"]

_NAME = re.compile(r"epoch(-?\d+)-metric(-?(?:\d+\.\d+|inf|nan))\.pt")


@dataclass
class RNGState:
    """The random states of PyTorch: of the CPU, and of each CUDA device."""

    cpu: Any = None
    cuda_all: list[Any] | None = None


def snapshot_rng_state() -> RNGState:
    """Return the random states of PyTorch as they are now; empty without PyTorch."""
    if torch is None:
        return RNGState()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    return RNGState(cpu=torch.get_rng_state(), cuda_all=cuda)


def restore_rng_state(state: RNGState) -> None:
    """Restore random states of `snapshot_rng_state`."""
    if torch is None:
        return
    if state.cpu is not None:
        torch.set_rng_state(state.cpu.cpu())
    if state.cuda_all and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([each.cpu() for each in state.cuda_all])


def save_checkpoint(
    model: Any,
    optimizer: Any,
    *,
    epoch: int,
    val_metric: float,
    out_dir: str | os.PathLike[str],
    mode: str = "min",
    keep_best_k: int = 3,
    extra: dict[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """Save model, optimizer and random states durably; return the file.

    The best `keep_best_k` stay, and always the one just saved. Files with other names are not touched.
    """
    _need_torch()
    if mode not in ("min", "max"):
        raise ValueError("mode must be 'min' or 'max'")
    folder, states = Path(out_dir).expanduser(), snapshot_rng_state()
    path = folder / f"epoch{int(epoch)}-metric{val_metric:.6f}.pt"
    state = {
        "model_state": model.state_dict(), "optimizer_state": optimizer.state_dict(), "val_metric": float(val_metric),
        "epoch": int(epoch), "rng_cpu": states.cpu, "rng_cuda_all": states.cuda_all, **(extra or {}),
    }  # fmt: skip
    with files.locked(folder):
        with files.staged(path, lambda out: payload.write(state, out, use_torch=True)):
            pass
        if manifest is not None:
            files.write_json(folder / "manifest.json", dict(manifest))
        found = [(each, match) for each in folder.iterdir() if (match := _NAME.fullmatch(each.name))]
        order = sorted(found, key=lambda each: (*files.rank(float(each[1][2]), mode), -int(each[1][1])))
        for each, _ in order[max(keep_best_k, 1) :]:
            if each != path:
                files.remove(each)
    return path


def load_checkpoint(
    path: str | os.PathLike[str],
    model: Any,
    optimizer: Any = None,
    *,
    strict: bool = True,
    map_location: Any = None,
    restore_rng: bool = True,
    weights_only: bool = True,
) -> tuple[int, float]:
    """Load a file of `save_checkpoint` into these objects; return its epoch and metric.

    Nothing is unpickled, whatever `weights_only` is (P7): a file with objects is Refused, and the model stays as it is.
    """
    del weights_only
    _need_torch()
    location = map_location or ("cuda" if torch.cuda.is_available() else "cpu")
    state = payload.read(Path(path).expanduser(), map_location=location)
    model.load_state_dict(state["model_state"], strict=strict)
    if optimizer is not None and "optimizer_state" in state:
        optimizer.load_state_dict(state["optimizer_state"])
    if restore_rng:
        restore_rng_state(RNGState(state.get("rng_cpu"), state.get("rng_cuda_all")))
    return int(state.get("epoch", 0)), float(state.get("val_metric", float("nan")))


def _need_torch() -> None:
    if torch is None:
        raise RuntimeError("torch is required for checkpointing")


deprecate(
    __name__,
    {
        "RNGState": "holdfast.training.capture_rng",
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "restore_rng_state": "holdfast.training.restore_rng",
        "save_checkpoint": "holdfast.training.save_checkpoint",
        "snapshot_rng_state": "holdfast.training.capture_rng",
    },
)
