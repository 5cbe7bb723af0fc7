"""Checkpoints of training runs: atomic, verified, shared where nothing changed, in plain safetensors and JSON.

from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
"""

# A constant of this name is known to type checkers, as in `holdfast` itself
TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.training.background import wait_for_save
    from holdfast.training.checkpoints import load_checkpoint, save_checkpoint
    from holdfast.training.manager import CheckpointManager, Resumed, TrainingCheckpoint
    from holdfast.training.resume.rng import capture_rng, restore_rng

__all__ = [
    "CheckpointManager",
    "Resumed",
    "TrainingCheckpoint",
    "capture_rng",
    "load_checkpoint",
    "restore_rng",
    "save_checkpoint",
    "wait_for_save",
]

_PLACES = {
    "CheckpointManager": "manager",
    "Resumed": "manager",
    "TrainingCheckpoint": "manager",
    "capture_rng": "resume.rng",
    "load_checkpoint": "checkpoints",
    "restore_rng": "resume.rng",
    "save_checkpoint": "checkpoints",
    "wait_for_save": "background",
}

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a name when it is first asked for."""
        if name not in _PLACES:
            raise AttributeError(f"module 'holdfast.training' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"holdfast.training.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
