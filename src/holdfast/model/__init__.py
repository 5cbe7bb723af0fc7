"""The nouns: what a checkpoint is, what a restore would do and did, what differs, what is damaged.

Pure values: no clock, no environment, no input or output. Paths are relative to the workspace, with `/` between
folders, and are `str` as Python decodes file names (a byte that is no text becomes a lone surrogate and comes back).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without the cost of `typing`
if TYPE_CHECKING:
    from holdfast.model.changes import (
        Changes,
        CheckpointDiff,
        Exported,
        FileChange,
        Hunk,
        Overlap,
        Recovery,
        Renamed,
    )  # fmt: skip
    from holdfast.model.checkpoint import (
        JSON,
        Checkpoint,
        CheckpointRef,
        GitHead,
        Lazy,
        LoadedParts,
        Operation,
        Progress,
    )
    from holdfast.model.findings import Bisected, Blame, BlamedLine, Match, Origin, Problem, VerifyReport, Why
    from holdfast.model.path_change import LineCount, PathChange
    from holdfast.model.restores import Plan, Restored, TurnRef
    from holdfast.model.uncovered import Reason, Uncovered
    from holdfast.model.upkeep import CheckpointUsage, Compacted, PathUsage, Pruned, Purged, PurgePlan, Usage

__all__ = [
    "JSON",
    "Bisected",
    "Blame",
    "BlamedLine",
    "Changes",
    "Checkpoint",
    "CheckpointDiff",
    "CheckpointRef",
    "CheckpointUsage",
    "Compacted",
    "Exported",
    "FileChange",
    "GitHead",
    "Hunk",
    "Lazy",
    "LineCount",
    "LoadedParts",
    "Match",
    "Operation",
    "Origin",
    "Overlap",
    "PathChange",
    "PathUsage",
    "Plan",
    "Problem",
    "Progress",
    "Pruned",
    "PurgePlan",
    "Purged",
    "Reason",
    "Recovery",
    "Renamed",
    "Restored",
    "TurnRef",
    "Uncovered",
    "Usage",
    "VerifyReport",
    "Why",
]  # fmt: skip

_MODULES = {
    "changes": {
        "Changes", "CheckpointDiff", "Exported", "FileChange", "Hunk", "Overlap", "Recovery", "Renamed",
    },
    "restores": {"Plan", "Restored", "TurnRef"},
    "findings": {"Bisected", "Blame", "BlamedLine", "Match", "Origin", "Problem", "VerifyReport", "Why"},
    "upkeep": {"CheckpointUsage", "Compacted", "PathUsage", "PurgePlan", "Pruned", "Purged", "Usage"},
    "uncovered": {"Reason", "Uncovered"},
    "path_change": {"LineCount", "PathChange"},
}  # fmt: skip

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load a class when it is first used: making all of them would be a third of a command's start-up time."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.model' has no attribute {name!r}")
        import importlib

        module = next((module for module, names in _MODULES.items() if name in names), "checkpoint")
        return getattr(importlib.import_module(f"holdfast.model.{module}"), name)
