"""`codex_ml.utils.checkpoint_core`: one checkpoint in one file, verified, and the best of a folder."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from holdfast.compat.codex_ml import payload, rng
from holdfast.compat.codex_ml.core import (
    SCHEMA_VERSION,
    CheckpointIntegrityError,
    CheckpointMeta,
    capture_environment_summary,
    load_best,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from holdfast.compat.codex_ml.frameworks import np, torch
from holdfast.compat.deprecation import deprecate
from holdfast.errors import Refused

__all__ = [
    "SCHEMA_VERSION",
    "CheckpointIntegrityError",
    "CheckpointMeta",
    "capture_environment_summary",
    "capture_rng_state",
    "dump_rng_state",
    "load_best",
    "load_checkpoint",
    "load_rng_state",
    "np",
    "restore_rng_state",
    "save_checkpoint",
    "set_seed",
    "torch",
    "trusted_pickle_dumps",
    "verify_checkpoint",
]

capture_rng_state = dump_rng_state = rng.capture
restore_rng_state = load_rng_state = rng.restore


def set_seed(seed: int) -> None:
    """Seed Python, NumPy and PyTorch."""
    rng.seed_all(seed)


def trusted_pickle_dumps(obj: Any, *, protocol: int | None = None) -> bytes:
    """Return a state as bytes that `_deserialize_payload` reads. They are no pickle, whatever the protocol (P7)."""
    return payload.dumps(obj, use_torch=False)


def _serialize_payload(state: dict[str, Any]) -> bytes:
    return payload.dumps(state, use_torch=payload.has_torch())


def _deserialize_payload(data: bytes, *, map_location: Any = "cpu") -> Any:
    try:
        return payload.loads(data, map_location=map_location, torch_module=torch)
    except Refused as error:
        named = re.search(r"needs ([\w.]+),", error.message)
        what = f"Class {named[1]} not in whitelist" if named else error.message
        raise UnpicklingError(what) from error


def _digest_payload(value: dict[str, Any]) -> bytes:
    return hashlib.sha256(trusted_pickle_dumps(value)).digest()


def _epoch_dir_sort_key(path: Path | str) -> tuple[int, int | str, str]:
    """Return a key that sorts numbered folders by their numbers, and others by their names after them."""
    name = Path(path).name
    match = re.search(r"\d+", name)
    return (0, int(match[0]), name) if match else (1, name, name)


deprecate(
    __name__,
    {
        "SCHEMA_VERSION": "holdfast.training.stored.layout.SCHEMA_VERSION",
        "CheckpointIntegrityError": "holdfast.Damaged",
        "CheckpointMeta": "holdfast.training.TrainingCheckpoint",
        "capture_environment_summary": "holdfast.training.resume.environment.capture_environment",
        "capture_rng_state": "holdfast.training.capture_rng",
        "dump_rng_state": "holdfast.training.capture_rng",
        "load_best": "holdfast.training.load_checkpoint with step='best'",
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "load_rng_state": "holdfast.training.restore_rng",
        "restore_rng_state": "holdfast.training.restore_rng",
        "save_checkpoint": "holdfast.training.save_checkpoint",
        "set_seed": "random.seed",
        "trusted_pickle_dumps": "holdfast.serde.to_json",
        "verify_checkpoint": "holdfast.training.CheckpointManager and its verify()",
    },
)
