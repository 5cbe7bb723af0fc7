"""JAX arrays, as NumPy sees them; and keys of its random numbers, as the arrays that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from holdfast.errors import Damaged, Refused
from holdfast.training.frameworks import numpy_side
from holdfast.training.frameworks.pieces import Lowered

NAME = "jax"


def claims(value: Any) -> bool:
    return isinstance(value, jax.Array)


def lower(value: Any, where: str) -> Lowered:
    _check_is_here(value, where)
    about: dict[str, Any] = {}
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        about["key"] = _implementation(value, where)
        value = jax.random.key_data(value)
    elif value.weak_type:
        about["weak"] = True
    found = numpy_side.lower(jax.device_get(value), where)
    return Lowered(found.parts, found.about | about)  # immutable: whether two share memory cannot be told apart


def _check_is_here(value: Any, where: str) -> None:
    if isinstance(value, jax.core.Tracer):
        raise Refused(f"{where} cannot be saved: it is being traced, and has no value", hint="Save outside of jax.jit.")
    if not value.is_fully_addressable:
        raise Refused(
            f"{where} cannot be saved: this process does not have all of it",
            hint="Gather it first, or let each process save what it has under a name of its own.",
        )
    if value.is_deleted():
        raise Refused(f"{where} cannot be saved: it was donated to a function, and is gone", hint="Save its successor.")


def _implementation(key: Any, where: str) -> str:
    found = jax.random.key_impl(key)
    if not isinstance(found, str):
        raise Refused(
            f"{where} cannot be saved: it is a key of {found}, which has no name",
            hint="Save jax.random.key_data(key) instead.",
        )
    return found


def raise_(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], place: Any) -> Any:
    bare = numpy_side.raise_(about, parts, None)
    if bare.dtype.itemsize >= 8 and jax.dtypes.canonicalize_dtype(bare.dtype) != bare.dtype:
        raise Refused(
            f"this checkpoint holds an array of {bare.dtype}, which JAX would cut in half as it is set",
            hint='jax.config.update("jax_enable_x64", True)',
        )
    found = jax.numpy.array(bare)
    if about.get("weak"):  # a type that gives way to those of others stays so when its content is replaced
        found = jax.numpy.full(found.shape, bare.dtype.type(0).item()).at[...].set(found)
    if isinstance(place, jax.Device | jax.sharding.Sharding):
        found = jax.device_put(found, place)
    return _key(found, about["key"]) if about.get("key") else found


def _key(data: Any, implementation: Any) -> Any:
    try:
        return jax.random.wrap_key_data(data, impl=implementation)
    except (TypeError, ValueError) as error:
        raise Damaged(f"a key of JAX makes no sense: {error}", hint="Use another checkpoint.") from None


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
