"""Holdfast: keeps every good state of AI work, and brings any of them back exactly.

    from holdfast import Workspace

    ws = Workspace("project")
    ws.save("before the refactoring", state={"conversation": messages})
    ws.restore("latest")  # what it replaces is saved first
    ws.undo()

Also: `holdfast.project` for autonomous loops, `holdfast.flow` for agent graphs, `holdfast.training` for training runs,
`holdfast.indexing` for indexes, `holdfast.adapters` for the programs and frameworks of others.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; importing `typing` for it would double the time that this takes
if TYPE_CHECKING:
    from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
    from holdfast.model import Checkpoint, CheckpointDiff, Plan, Restored, Uncovered, VerifyReport
    from holdfast.workspace import Workspace

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CheckpointDiff",
    "Conflict",
    "Damaged",
    "HoldfastError",
    "NotFound",
    "Plan",
    "Refused",
    "Restored",
    "Unavailable",
    "Uncovered",
    "VerifyReport",
    "Workspace",
    "__version__",
]

_ERRORS = {"Conflict", "Damaged", "HoldfastError", "NotFound", "Refused", "Unavailable"}

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load a public name when it is first asked for, so that `import holdfast` costs next to nothing."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        import importlib

        module = "errors" if name in _ERRORS else "workspace" if name == "Workspace" else "model"
        return getattr(importlib.import_module(f"holdfast.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
