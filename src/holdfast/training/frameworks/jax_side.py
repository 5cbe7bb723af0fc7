"""JAX arrays, as NumPy sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from holdfast.errors import Refused
from holdfast.training.frameworks import numpy_side
from holdfast.training.frameworks.pieces import Lowered

NAME = "jax"


def claims(value: Any) -> bool:
    return isinstance(value, jax.Array)


def lower(value: Any, where: str) -> Lowered:
    if isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
        raise Refused(
            f"{where} cannot be saved: this process does not have all of it",
            hint="Gather it first, or let each process save what it has under a name of its own.",
        )
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise Refused(f"{where} cannot be saved: it is a key of JAX", hint="Save jax.random.key_data(key) instead.")
    found = numpy_side.lower(jax.device_get(value), where)
    return Lowered(found.parts, found.about)  # immutable: whether two share memory cannot be told apart


def raise_(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], place: Any) -> Any:
    return jax.numpy.array(numpy_side.raise_(about, parts, None))


def view(base: Any, about: Mapping[str, Any]) -> Any:
    raise AssertionError("an array of JAX is never stored as a view")


def copy_into(room: Any, start: int, source: Any) -> None:
    numpy_side.copy_into(room, start, source)


def capture_rng() -> dict[str, Any]:
    """JAX has no random state but the keys that its users hold."""
    return {}


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    return []


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    return numpy_side.distance(old, new)
