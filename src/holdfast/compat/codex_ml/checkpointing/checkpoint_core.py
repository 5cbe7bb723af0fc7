"""`codex_ml.checkpointing.checkpoint_core`: `weights.pt` and `metadata.json` in one folder."""

from __future__ import annotations

from holdfast.compat.codex_ml.weights_folder import SCHEMA_VERSION, load_checkpoint, save_checkpoint
from holdfast.compat.deprecation import deprecate

__all__ = ["SCHEMA_VERSION", "load_checkpoint", "save_checkpoint"]

deprecate(
    __name__,
    {
        "SCHEMA_VERSION": "holdfast.training.stored.layout.SCHEMA_VERSION",
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "save_checkpoint": "holdfast.training.save_checkpoint",
    },
)
