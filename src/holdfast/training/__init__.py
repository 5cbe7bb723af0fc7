"""Checkpoints of training runs: atomic, verified, shared where nothing changed, in plain safetensors and JSON.

    from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

A run is a folder, or the beginning of names in an object store.

    checkpoints, manager     what is called: one save or load; all those of a loop
    saving, loading          the life of each, in a folder
    folder, retaining        the checkpoints of a run, their lock and markers; which of them stay
    sweeping    what writers that died left, and what was replaced
    tree, sharing            a state as JSON and tensors, and back; which tensors share memory
    nodes       objects that hold tensors: named tuples, registered classes, nodes of JAX's trees
    frameworks/              PyTorch, NumPy and JAX
    stored/                  the format
    resume/                  random states, the circumstances of a run
    grouping    which files are shared with the checkpoint before, and how the rest is divided into files
    writing, reading, mapping    shards onto the disk; from it, verified; files as memory
    background, staging      saves beside the loop; the copies that they write
    lazily      tensors that are read when they are first asked for
    checking, comparing      what is damaged; what differs
    objects     the few calls of an object store
    remote, remote_reading, briefly    the checkpoints of a run in one, as they are found and read
    uploading, sending       a save to one; its objects
    metrics, preemption, telling, threads    metrics, SIGTERM, errors of the system, threads of our own
    garbage     Python's search for garbage, paused for a moment
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
