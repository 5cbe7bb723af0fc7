"""The native module, where there is one: without it (no compiler when Holdfast was built, or `HOLDFAST_NATIVE=0`) the
same is done in Python, slower."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

_INTERFACE = 5
"""Of the native module; changes with its functions."""


def _load() -> ModuleType | None:
    if os.environ.get("HOLDFAST_NATIVE") == "0" or sys.byteorder != "little":
        return None
    try:
        found = import_module("holdfast._native")  # not there without a compiler, so `import-linter` cannot see it
    except ImportError:
        return None
    if getattr(found, "INTERFACE", 1) != _INTERFACE:  # a working tree whose sources are newer than what was built
        return None
    return found


native = _load()
"""The native module, or None."""
