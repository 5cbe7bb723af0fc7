"""Nodes of JAX's trees: objects of classes that were registered with it, such as states of Optax and Flax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

Key = str | int


def take_apart(value: Any) -> tuple[list[Key], list[Any], Callable[[list[Any]], Any]] | None:
    """The names and values of what a node holds, and what makes one like it of other values; None if it is no node."""
    pairs, made_of = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if any(not path for path, _ in pairs):  # a leaf has no way to itself
        return None
    return [_key(path[0]) for path, _ in pairs], [each for _, each in pairs], partial(_make, made_of)


def _key(step: Any) -> Key:
    """What one step is called: the name of an attribute, a key, or a number."""
    found = next(getattr(step, name) for name in ("name", "key", "idx") if hasattr(step, name))
    return found if type(found) in (str, int) else str(found)


def _make(made_of: Any, values: list[Any]) -> Any:
    return jax.tree_util.tree_unflatten(made_of, values)


def place_like(value: Any, like: Any) -> Any:
    """An array, spread over devices as another one is, or is to be (`jax.ShapeDtypeStruct`)."""
    spread = getattr(like, "sharding", None)
    if isinstance(value, jax.Array) and isinstance(spread, jax.sharding.Sharding) and len(spread.device_set) > 1:
        return jax.device_put(value, spread)
    return value
