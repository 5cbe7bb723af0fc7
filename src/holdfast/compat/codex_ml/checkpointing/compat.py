"""`codex_ml.checkpointing.compat`: the earlier names of the folder with `weights.pt`."""

from __future__ import annotations

import warnings
from typing import Any

from holdfast.compat.codex_ml import weights_folder as _core

_warned = False


def save_checkpoint(out_dir: Any, **options: Any) -> Any:
    """Save as `checkpointing.checkpoint_core.save_checkpoint` does."""
    _warn("save_checkpoint")
    return _core.save_checkpoint(out_dir, **options)


def load_checkpoint(path: Any, **options: Any) -> Any:
    """Load as `checkpointing.checkpoint_core.load_checkpoint` does."""
    _warn("load_checkpoint")
    return _core.load_checkpoint(path, **options)


def _warn(name: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        what = f"{__name__}.{name} is deprecated; use holdfast.training.{name} instead"
        warnings.warn(what, DeprecationWarning, stacklevel=3)


def __getattr__(name: str) -> Any:
    """Warn of names that codex_ml once had, and that are gone."""
    if name != "__path__":  # which `import` asks for
        warnings.warn(f"{__name__} is deprecated; use holdfast.training instead", DeprecationWarning, stacklevel=2)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
