"""`training.checkpoint_manager`: files of steps, the best one linked, and a callback for a Trainer."""

from holdfast.compat.codex_ml.rng import capture as dump_rng_state
from holdfast.compat.codex_ml.step_manager import CheckpointManager, build_payload_bytes
from holdfast.compat.deprecation import deprecate

__all__ = ["CheckpointManager", "build_payload_bytes", "dump_rng_state"]

deprecate(
    __name__,
    {
        "CheckpointManager": "holdfast.training.CheckpointManager",
        "build_payload_bytes": "holdfast.training.save_checkpoint",
        "dump_rng_state": "holdfast.training.capture_rng",
    },
)
