"""Arrays of PyTorch, NumPy and JAX: a module for each, with the same functions, loaded only if the library is."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from holdfast.errors import Damaged, Unavailable
from holdfast.training.frameworks.interface import Framework

_FILES = {"torch": "torch_tensors", "numpy": "numpy_arrays", "jax": "jax_arrays"}


def loaded() -> Iterator[Framework]:
    """Yield the frameworks that this process has loaded: no value can belong to another."""
    for name, file in _FILES.items():
        if name in sys.modules:
            yield _module(file)


def named(name: object) -> Framework:
    """Return the framework of a stored array. Unavailable if it is not installed."""
    file = _FILES.get(name) if isinstance(name, str) else None
    if file is None:
        raise Damaged(f"unknown kind of tensor: {name!r}", hint="Use another checkpoint.")
    try:
        return _module(file)
    except ImportError:
        raise Unavailable(
            f"this checkpoint contains {name} arrays, and {name} is not installed", hint=f"pip install {name}"
        ) from None


def rank() -> tuple[int, int]:
    """Return the rank of this process and the number of processes of a distributed PyTorch run."""
    if "torch" not in sys.modules:
        return 0, 1
    found: tuple[int, int] = importlib.import_module("holdfast.training.frameworks.torch_tensors").rank()
    return found


def framework_of(value: Any) -> Framework | None:
    """Return the framework of an array; None if the value is no array."""
    return next((framework for framework in loaded() if framework.is_array(value)), None)


def jax_trees() -> Any:
    """Return the module that handles objects in JAX trees; None if this process has not loaded JAX."""
    return importlib.import_module("holdfast.training.frameworks.jax_arrays") if "jax" in sys.modules else None


@functools.cache
def _module(file: str) -> Framework:
    found: Framework = importlib.import_module(f"holdfast.training.frameworks.{file}")
    return found
