"""PyTorch and NumPy, or None where one is not installed. The only file that imports them."""

from __future__ import annotations

from typing import Any


def _torch() -> Any:
    try:
        import torch  # an optional package
    except ImportError:
        return None
    return torch


def _numpy() -> Any:
    try:
        import numpy  # an optional package
    except ImportError:
        return None
    return numpy


torch: Any = _torch()
np: Any = _numpy()
