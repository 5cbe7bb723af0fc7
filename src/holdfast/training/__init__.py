"""Checkpoints of training runs: atomic, verified, shared where nothing changed, in plain safetensors and JSON.

    from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

A run is a folder, or a prefix in an object store.

    checkpoints, manager     the API: one save or load; all those of a training loop
    save, load               a save and a load: their options and their steps
    run_store                where checkpoints are stored: `RunStore`, the interface of a back end
    folder, objects          the back ends: a folder, an object store (`object_client`: its requests)
    retention, verify, diff  what to keep; what is damaged; what differs
    location                 a run as a `Location`, for commands and pages
    state_tree               a nested state as JSON and tensors, and back
    object_nodes             objects that contain tensors: named tuples, registered classes, nodes of JAX trees
    shared_memory            which tensors share memory
    frameworks/              PyTorch, NumPy and JAX
    stored/                  the stored format
    shard_layout             which files to share with the previous checkpoint, and how to divide the rest
    shard_writer, shard_reader    files with tensors, written and read
    background, staging_buffers   saves in the background; the copies that they write
    resume/                  random states, the environment
    metrics, preemption, threads, gc_pause    metrics, SIGTERM, worker threads, the garbage collector
"""

# Type checkers treat a constant of this name as true, as in `holdfast` itself
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

if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a name at its first use (start-up cost)."""
        if name not in _PLACES:
            raise AttributeError(f"module 'holdfast.training' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"holdfast.training.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
