"""Names of predecessors for tests, which are not about the warnings."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any


def names_of(module: str) -> Any:
    """Return what a module of `holdfast.compat` has, without the warnings that a program gets for it."""
    return SimpleNamespace(**vars(importlib.import_module(f"holdfast.compat.{module}")))
