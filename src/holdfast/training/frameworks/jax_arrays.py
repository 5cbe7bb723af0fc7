"""JAX arrays, keys of its random numbers, and objects in its trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax

from holdfast.errors import Damaged, Refused
from holdfast.training.frameworks import numpy_arrays
from holdfast.training.frameworks.interface import ArrayParts, PlainArray

NAME = "jax"


def is_array(value: Any) -> bool:
    return isinstance(value, jax.Array)


def decompose_all(arrays: Iterable[tuple[Any, str]]) -> list[ArrayParts | PlainArray]:
    return [_decompose(value, where) for value, where in arrays]


def _decompose(value: Any, where: str) -> ArrayParts:
    _check_is_readable(value, where)
    details: dict[str, Any] = {}
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        details["key"] = _implementation(value, where)
        value = jax.random.key_data(value)
    elif value.weak_type:
        details["weak"] = True
    found = numpy_arrays.decompose(jax.device_get(value), where)
    return ArrayParts(found.payloads, found.details | details)  # immutable: sharing of memory has no effect


def _check_is_readable(value: Any, where: str) -> None:
    if isinstance(value, jax.core.Tracer):
        raise Refused(f"{where} cannot be saved: it is being traced, and has no value", hint="Save outside of jax.jit.")
    if not value.is_fully_addressable:
        raise Refused(
            f"{where} cannot be saved: this process has only a part of it",
            hint="Gather it first, or let each process save its part under another name.",
        )
    if value.is_deleted():
        raise Refused(f"{where} cannot be saved: it was donated to a function", hint="Save what the function returned.")


def _implementation(key: Any, where: str) -> str:
    found = jax.random.key_impl(key)
    if not isinstance(found, str):
        raise Refused(
            f"{where} cannot be saved: it is a key of {found}, an implementation without a name",
            hint="Save jax.random.key_data(key) instead.",
        )
    return found


def rebuild(details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], device: Any) -> Any:
    bare = numpy_arrays.rebuild(details, parts, None)
    if bare.dtype.itemsize >= 8 and jax.dtypes.canonicalize_dtype(bare.dtype) != bare.dtype:
        raise Refused(
            f"this checkpoint contains an array of {bare.dtype}, and JAX is set to 32 bits",
            hint='jax.config.update("jax_enable_x64", True)',
        )
    found = jax.numpy.array(bare)
    if details.get("weak"):  # weakly typed: setting elements keeps that
        found = jax.numpy.full(found.shape, bare.dtype.type(0).item()).at[...].set(found)
    if isinstance(device, jax.Device | jax.sharding.Sharding):
        found = jax.device_put(found, device)
    return _key(found, details["key"]) if details.get("key") else found


def _key(data: Any, implementation: Any) -> Any:
    try:
        return jax.random.wrap_key_data(data, impl=implementation)
    except (TypeError, ValueError) as error:
        raise Damaged(f"stored JAX key is corrupt: {error}", hint="Use another checkpoint.") from None


def view(base: Any, details: Mapping[str, Any]) -> Any:
    raise AssertionError("a JAX array is never stored as a view")


def copy_into(buffer: Any, start: int, source: Any) -> None:
    numpy_arrays.copy_into(buffer, start, source)


def capture_rng() -> dict[str, Any]:
    """Return nothing: JAX has no random state besides the keys that its users keep."""
    return {}


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    return []


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    return numpy_arrays.distance(old, new)


Key = str | int


def take_apart(value: Any) -> tuple[list[Key], list[Any], Callable[[list[Any]], Any]] | None:
    """Return names and values of a node's children, and a function that makes such a node; None if it is no node."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if any(not path for path, _ in pairs):  # a leaf has an empty path
        return None
    return [_step_name(path[0]) for path, _ in pairs], [each for _, each in pairs], partial(_make, structure)


def _step_name(step: Any) -> Key:
    """Return the name of a child: an attribute, a key, or an index."""
    found = next(getattr(step, name) for name in ("name", "key", "idx") if hasattr(step, name))
    return found if type(found) in (str, int) else str(found)


def _make(structure: Any, values: list[Any]) -> Any:
    return jax.tree_util.tree_unflatten(structure, values)


def place_like(value: Any, like: Any) -> Any:
    """Shard an array over devices as another one is, or is to be (`jax.ShapeDtypeStruct`)."""
    sharding = getattr(like, "sharding", None)
    if isinstance(value, jax.Array) and isinstance(sharding, jax.sharding.Sharding) and len(sharding.device_set) > 1:
        return jax.device_put(value, sharding)
    return value
