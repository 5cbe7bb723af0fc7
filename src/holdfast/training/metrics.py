"""Metrics as they are given: checked, and written down."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Refused

MODES = ("min", "max")


def check_metrics(metrics: Mapping[str, Any] | None, best_key: str | None, mode: str) -> dict[str, Any]:
    """Return metrics as a manifest has them. Refused if one is no number, or the one that decides is missing."""
    if mode not in MODES:
        raise Refused(f"mode is {mode!r}", hint="Say 'min' if smaller is better, 'max' if greater is.")
    if metrics is not None and not isinstance(metrics, Mapping):
        raise Refused(f"metrics is a {type(metrics).__name__}", hint='Give a dict, such as {"val_loss": 1.23}.')
    if best_key is not None and not isinstance(best_key, str):
        raise Refused(f"best_key is {best_key!r}", hint="Give the name of a metric.")
    found = {_name(name): _written(name, value) for name, value in (metrics or {}).items()}
    if best_key is not None and best_key not in found:
        given = ", ".join(found) or "none"
        raise Refused(f"best_key is {best_key!r}, and no such metric is given", hint=f"The metrics are: {given}.")
    return found


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise Refused(f"a metric is called {name!r}", hint="Give names of metrics as text.")
    return name


def _written(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = type(value).__name__
        hint = "Give a plain number: value.item()." if hasattr(value, "item") else "Give a plain number."
        raise Refused(f"the metric {name} is a {kind}, not a number", hint=hint)
    try:
        as_float = float(value)
    except OverflowError:
        raise Refused(
            f"the metric {name} is a number too large to compare", hint="Give one that a float holds."
        ) from None
    number = int(value) if isinstance(value, numbers.Integral) else as_float
    return number if math.isfinite(as_float) else {"$float": repr(as_float)}
