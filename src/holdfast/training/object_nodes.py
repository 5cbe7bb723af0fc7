"""Objects in a state that contain tensors: stored by their fields, and rebuilt from classes that are loaded (P7).

A stored class name is never imported. It is compared with the classes of the state that is given as `like`, with those
registered with `holdfast.serde`, and with named tuples of the libraries below, if the process has loaded them.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.errors import Refused
from holdfast.training import frameworks

_LIBRARIES = ("optax",)
"""Their states are named tuples of public classes, so no example of them is needed."""
_FROZEN = "flax.core.frozen_dict"
_STANDARD = ("builtins", "collections")
_LIKE_HINT = (
    "Pass like=…, a state of the same structure such as the initial one, or import the library of the class first."
)


class _Missing:
    """Stands for a part that `like` does not have."""


MISSING = _Missing()


class StoredObject(NamedTuple):
    """An object whose fields are rebuilt, and that itself is not yet."""

    name: str
    where: str
    keys: tuple[Any, ...]
    values: list[Any]


class Fields(NamedTuple):
    """The class name and the fields of an object."""

    name: str
    keys: list[Any]
    values: list[Any]


# saving


def take_apart(value: Any, where: str) -> Fields | None:
    """Return the fields of a node of a JAX tree; None if the object is none. Refused if JAX cannot flatten it."""
    kind = type(value)
    trees = frameworks.jax_trees()
    if trees is None or kind.__module__ in _STANDARD:  # the serializer stores those
        return None
    try:
        found = trees.take_apart(value)
    except Exception as error:  # the functions that a class is registered with may raise anything
        raise Refused(
            f"{where} cannot be saved: JAX cannot flatten the {kind.__qualname__}: {error}",
            hint="Save its fields instead.",
        ) from error
    return None if found is None else Fields(_name(kind), found[0], found[1])


def needs_like(name: str) -> bool:
    """Whether objects of a class can be rebuilt only with an example."""
    return name not in _known() and name != f"{_FROZEN}.FrozenDict"


def registered(kind: type) -> Any:
    """Return the registration of a class with `holdfast.serde`; None if there is none."""
    registry = sys.modules.get("holdfast.serde.registry")  # loaded if a class is registered
    return registry.default_registry.of_class(kind) if registry else None


def fields_of(registration: Any, value: Any, where: str) -> Any:
    """Return the data of an object of a registered class. Refused if that cannot represent it."""
    from holdfast.serde.types import Unstorable  # loaded, because the class is registered

    try:
        return registration.kind.take(value)
    except Unstorable as error:
        raise Refused(f"{where} cannot be saved: {error.reason}", hint="Save its fields instead.") from None


def make_registered(type_id: Any, version: Any, data: Any, where: str) -> Any:
    """Rebuild an object of a registered class. Refused if this process has no such class, or an older version."""
    from holdfast.serde.registry import default_registry  # start-up cost, only for registered classes

    found = default_registry.of_id(type_id) if isinstance(type_id, str) else None
    if found is None or not isinstance(version, int) or version > found.version:
        raise Refused(
            f"{where} is an object of {type_id!r}, version {version}, which is not registered in this process",
            hint="Register its class with holdfast.serde.register before you load it.",
        )
    return found.make(version, data)


# loading


def fill(built: Any, like: Any = MISSING, where: str = "") -> Any:
    """Rebuild the objects in a state.

    like: a state of the same structure, which provides classes and devices. Refused, with the path, if it has another
    structure, or if there is none and the class is unknown.
    """
    if isinstance(built, StoredObject):
        return _object(built, like)
    if type(built) in (dict, OrderedDict):
        _check_same(isinstance(like, Mapping), built, like, where)
        if like is not MISSING and (more := [key for key in like if key not in built]):
            raise _mismatch(where, f"like has {more[0]!r}, which the checkpoint does not have")
        for key, value in built.items():
            built[key] = fill(value, _at(like, key), _join(where, key))
        return built
    if type(built) in (list, tuple):
        _check_same(type(like) is type(built) and len(like) == len(built), built, like, where)
        items = [fill(value, _at(like, at), _join(where, at)) for at, value in enumerate(built)]
        return type(built)(items)
    if like is MISSING:
        return built
    _check_same(type(like) not in (dict, OrderedDict, list, tuple), built, like, where)
    trees = frameworks.jax_trees()
    return trees.place_like(built, like) if trees else built


def _object(stored: StoredObject, like: Any) -> Any:
    name, where, keys, values = stored
    if like is MISSING:
        values = [fill(value, MISSING, _join(where, key)) for key, value in zip(keys, values, strict=True)]
        return _make_known(stored._replace(values=values))
    trees = frameworks.jax_trees()
    node = trees.take_apart(like) if trees else None
    if node is None or _name(type(like)).rpartition(".")[2] != name.rpartition(".")[2]:
        raise _mismatch(where, f"it is of class {name} in the checkpoint, and of class {_name(type(like))} in like")
    there, examples, make = node
    if list(keys) != there:
        raise _mismatch(
            where, f"the {name} in the checkpoint has {_listed(keys)}, the one in like has {_listed(there)}"
        )
    triples = zip(keys, values, examples, strict=True)
    filled = [fill(value, example, _join(where, key)) for key, value, example in triples]
    try:
        return make(filled)
    except Exception as error:  # the functions that a class is registered with may raise anything
        raise _mismatch(where, f"no {name} can be made from the stored fields: {error}") from error


def _make_known(stored: StoredObject) -> Any:
    """Rebuild an object of a library that this process has loaded."""
    if stored.name == f"{_FROZEN}.FrozenDict" and _FROZEN in sys.modules:
        return sys.modules[_FROZEN].FrozenDict(dict(zip(stored.keys, stored.values, strict=True)))
    kind = _known().get(stored.name)
    if kind is None:
        raise Refused(f"{stored.where} is of class {stored.name}, which is unknown", hint=_LIKE_HINT)
    if kind._fields != stored.keys:
        what = f"is of class {stored.name} with {_listed(stored.keys)}, but here that class has {_listed(kind._fields)}"
        raise Refused(f"{stored.where} {what}", hint="Use the version of the library that saved it.")
    return tuple.__new__(kind, stored.values)


def _known() -> dict[str, Any]:
    modules = tuple(sorted(name for name in tuple(sys.modules) if name.partition(".")[0] in _LIBRARIES))
    return _named_tuples(modules)


@functools.lru_cache(maxsize=1)
def _named_tuples(modules: tuple[str, ...]) -> dict[str, Any]:
    """Return, by name, the named tuples that modules of the libraries define."""
    found: dict[str, Any] = {}
    for module in modules:
        for value in list(vars(sys.modules[module]).values()):
            if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
                found[_name(value)] = value
    return {name: kind for name, kind in found.items() if name.partition(".")[0] in _LIBRARIES}


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _at(like: Any, key: Any) -> Any:
    if like is MISSING or (isinstance(like, Mapping) and key not in like):
        return MISSING
    return like[key]


def _check_same(is_same: bool, built: Any, like: Any, where: str) -> None:
    if like is not MISSING and not is_same:
        raise _mismatch(where, f"it is a {_kind(built)} in the checkpoint, and a {_kind(like)} in like")


def _kind(value: Any) -> str:
    size = f" of length {len(value)}" if isinstance(value, list | tuple) else ""
    return f"{type(value).__name__}{size}"


def _mismatch(where: str, what: str) -> Refused:
    return Refused(
        f"{where or 'the state'} does not match like: {what}",
        hint="Pass a state of the structure that was saved, such as the initial one.",
    )


def _listed(keys: Any) -> str:
    return ", ".join(map(str, keys)) or "nothing"


def _join(where: str, key: Any) -> str:
    return f"{where}.{key}" if where else str(key)
