"""`codex_ml.utils.checkpoint_event`: one line of JSON on stdout for each saved checkpoint, if asked for."""

from __future__ import annotations

from holdfast.compat.codex_ml.events import maybe_emit_checkpoint_saved_event, toggle_checkpoint_json_logging
from holdfast.compat.deprecation import deprecate

__all__ = ["maybe_emit_checkpoint_saved_event", "toggle_checkpoint_json_logging"]

deprecate(
    __name__,
    {
        "maybe_emit_checkpoint_saved_event": "holdfast.training.save_checkpoint (its result has all that)",
        "toggle_checkpoint_json_logging": "holdfast.training.save_checkpoint (its result has all that)",
    },
)
