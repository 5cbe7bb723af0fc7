"""Every import name of PraisonAI is here, also under its own name, and warns once."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

NAMES = {
    "checkpoints": ["Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointService"],
    "checkpoints.types": [
        "Checkpoint",
        "CheckpointConfig",
        "CheckpointDiff",
        "CheckpointEvent",
        "CheckpointResult",
        "FileDiff",
    ],
    "checkpoints.service": ["CheckpointService", "PROTECTED_PATHS"],
    "session_checkpoints": ["SessionCheckpointManager"],
    "cli.features.session_checkpoints": ["SessionCheckpointManager"],
    "cli.features.checkpoints": ["CheckpointsHandler"],
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    found = importlib.import_module(f"holdfast.compat.praisonai.{module}")
    assert set(NAMES[module]) == set(found.__all__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert all(getattr(found, name) is not None for name in NAMES[module])


def test_a_program_of_praisonai_runs_and_is_warned_once() -> None:
    script = """
import sys, warnings
import holdfast.compat.praisonai as ours, holdfast.compat.praisonai.checkpoints as checkpoints
sys.modules["praisonaiagents"], sys.modules["praisonaiagents.checkpoints"] = ours, checkpoints
warnings.simplefilter("always")
from praisonaiagents.checkpoints.types import Checkpoint, CheckpointEvent
from praisonaiagents.checkpoints.service import CheckpointService
from praisonaiagents.checkpoints import CheckpointService as again
from praisonaiagents.checkpoints.types import Checkpoint as third
assert again is CheckpointService and third is Checkpoint
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    told = [line for line in ran.stderr.splitlines() if "DeprecationWarning" in line]
    assert len(told) == 4 and all(line.startswith("<string>:") for line in told)
    assert told[0].endswith("checkpoints.types.Checkpoint is deprecated; use holdfast.Checkpoint instead")
