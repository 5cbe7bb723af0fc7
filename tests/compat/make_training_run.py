"""Makes the run of training checkpoints that stands for those that people have: `python make_training_run.py N`.

Run once for each version of the format, by the code that is released with it; what it made is committed and never made
again. Its content is that of `state`, which needs nothing that is stored.
"""

from __future__ import annotations

import platform
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.training import CheckpointManager

STEPS = (10, 20, 30)


def state(step: int) -> dict[str, Any]:
    """The state of a step: something of everything that a state may hold."""
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4) + step
    return {
        "model": {"weight": torch.nn.Parameter(base), "view": base[1:], "turned": base.t().contiguous().t()},
        "types": [torch.tensor([step], dtype=dtype) for dtype in (torch.bfloat16, torch.int64, torch.complex128)],
        "float8": torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn),
        "sparse": (torch.eye(3) * step).to_sparse(),
        "frozen": torch.zeros(300_000),
        "numpy": (np.arange(4, dtype=">i4"), np.float32(step), np.array(["2020-01-01"], "M8[D]")),
        "plain": {1: None, "nan": float("nan"), "bytes": b"\x00\xff", "text": "ä", "nothing": torch.empty(0, 3)},
    }


def make(folder: Path) -> None:
    manager = CheckpointManager(folder, best_key="loss", keep_last=3, config={"lr": 0.1})
    for step in STEPS:
        manager.save(step, state(step), {"loss": abs(step - 20) + 0.5}, metadata={"name": f"step {step}"})
    manager.pin(10)


if __name__ == "__main__":
    platform.platform = lambda: "Linux"  # where it was made is nobody's business
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch) / "run")
        target = Path(__file__).with_name(f"training-{sys.argv[1]}.tar.xz")
        with tarfile.open(target, "w:xz") as tar:
            tar.add(Path(scratch) / "run", "run")
