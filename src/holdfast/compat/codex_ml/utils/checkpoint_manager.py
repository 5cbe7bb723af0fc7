"""`codex_ml.utils.checkpoint_manager`: states in files of one folder, of which the last stay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files, payload
from holdfast.compat.deprecation import deprecate

__all__ = ["load_checkpoint", "save_checkpoint"]

_SAVED = ".checkpoints.json"
"""The files that were saved here, in order: no other file is ever removed."""


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str], *, keep_last_k: int = 3) -> Path:
    """Save a state durably; return its file. Of what this saved in the folder, the last `keep_last_k` stay."""
    target = Path(path).expanduser()
    with files.locked(target.parent):
        saved = files.read_json_or(target.parent / _SAVED, [])
        names = [
            name for name in saved if isinstance(name, str) and name not in (target.name, "..") and "/" not in name
        ]
        with files.staged(target, lambda out: payload.write(state, out, use_torch=payload.has_torch())):
            files.write_json(target.parent / _SAVED, [*names, target.name])
        if keep_last_k > 0:
            for name in [*names, target.name][:-keep_last_k]:
                files.remove(target.parent / name)
            files.write_json(target.parent / _SAVED, [*names, target.name][-keep_last_k:])
    return target


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state of a file. Nothing is unpickled (P7)."""
    target = Path(path).expanduser()
    if not target.exists():
        raise FileNotFoundError(path)
    found = payload.read(target)
    if not isinstance(found, dict):
        raise TypeError("checkpoint payload must be a mapping")
    return found


deprecate(
    __name__,
    {
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "save_checkpoint": "holdfast.training.save_checkpoint",
    },
)
