"""Validation of metrics."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Refused
from holdfast.validation import check_mapping

MODES = ("min", "max")


def check_metrics(metrics: Mapping[str, Any] | None, best_key: str | None, mode: str) -> dict[str, Any]:
    """Return metrics as a manifest has them. Refused if one is not a number, or the one named best_key is missing."""
    if mode not in MODES:
        raise Refused(f"invalid mode {mode!r}", hint="Use 'min' if smaller is better, 'max' if greater is.")
    if metrics is not None:
        check_mapping(metrics, "metrics")
    if best_key is not None and not isinstance(best_key, str):
        raise Refused(f"invalid best_key {best_key!r}", hint="Give the name of a metric.")
    found = {name: _encode(name, value) for name, value in (metrics or {}).items()}
    if best_key is not None and best_key not in found:
        given = ", ".join(found) or "none"
        raise Refused(f"metrics has no entry {best_key!r}, which best_key names", hint=f"The metrics are: {given}.")
    return found


def _encode(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = type(value).__name__
        hint = "Give a plain number: value.item()." if hasattr(value, "item") else "Give a plain number."
        raise Refused(f"the metric {name} is a {kind}, not a number", hint=hint)
    try:
        as_float = float(value)
    except OverflowError:
        raise Refused(f"the metric {name} is too large for a float", hint="Give a smaller number.") from None
    number = int(value) if isinstance(value, numbers.Integral) else as_float
    return number if math.isfinite(as_float) else {"$float": repr(as_float)}
