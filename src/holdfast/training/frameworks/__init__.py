"""Arrays of other libraries: one file for each, with the same verbs, loaded only where that library is."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from holdfast.errors import Damaged, Unavailable
from holdfast.training.frameworks.pieces import Framework

_FILES = {"torch": "torch_side", "numpy": "numpy_side", "jax": "jax_side"}


def loaded() -> Iterator[Framework]:
    """The frameworks that this process has loaded: no value can be of another."""
    for name, file in _FILES.items():
        if name in sys.modules:
            yield _side(file)


def named(name: object) -> Framework:
    """The framework that a stored array is of. Unavailable if it is not installed."""
    file = _FILES.get(name) if isinstance(name, str) else None
    if file is None:
        raise Damaged(f"there is no kind of tensor {name!r}", hint="Use another checkpoint.")
    try:
        return _side(file)
    except ImportError:
        raise Unavailable(
            f"this checkpoint holds arrays of {name}, which is not installed", hint=f"pip install {name}"
        ) from None


def rank() -> tuple[int, int]:
    """Which of how many processes of a distributed run of PyTorch this is."""
    if "torch" not in sys.modules:
        return 0, 1
    found: tuple[int, int] = importlib.import_module("holdfast.training.frameworks.torch_side").rank()
    return found


def claimed(value: Any) -> Framework | None:
    """The framework that a value is of, if any."""
    return next((side for side in loaded() if side.claims(value)), None)


def nodes() -> Any:
    """What takes objects of JAX's trees apart; None where this process has not loaded JAX, and so has none."""
    return importlib.import_module("holdfast.training.frameworks.jax_nodes") if "jax" in sys.modules else None


@functools.cache
def _side(file: str) -> Framework:
    found: Framework = importlib.import_module(f"holdfast.training.frameworks.{file}")
    return found
