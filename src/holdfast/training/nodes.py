"""Objects in a state that hold tensors: stored by the names of what they hold, and made of classes that are here (P7).

A stored name of a class is only compared: with the classes of the state that is given as `like`, with those that were
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
"""Their states are named tuples of public classes, so that no example of them is needed."""
_FROZEN = "flax.core.frozen_dict"
_STANDARD = ("builtins", "collections")
_LIKE_HINT = (
    "Pass like=…, a state of the same structure such as the one that a run begins with, or import the library that "
    "the class is of before."
)


class _Missing:
    """Stands for what `like` does not have."""


MISSING = _Missing()


class Stored(NamedTuple):
    """An object that is still to be made."""

    name: str
    where: str
    keys: tuple[Any, ...]
    values: list[Any]


class Apart(NamedTuple):
    """An object taken apart."""

    name: str
    keys: list[Any]
    values: list[Any]


# saving


def take_apart(value: Any, where: str) -> Apart | None:
    """What an object holds, if it is a node of JAX's trees; None if it is none. Refused if JAX cannot tell."""
    kind = type(value)
    side = frameworks.nodes()
    if side is None or kind.__module__ in _STANDARD:  # those are the serializer's
        return None
    try:
        found = side.take_apart(value)
    except Exception as error:  # whatever the functions raise that a class is registered with
        raise Refused(
            f"{where} cannot be saved: JAX cannot take the {kind.__qualname__} apart: {error}",
            hint="Save what it is made of.",
        ) from error
    return None if found is None else Apart(_name(kind), found[0], found[1])


def needs_like(name: str) -> bool:
    """Whether objects of a class can only be made with an example."""
    return name not in _known() and name != f"{_FROZEN}.FrozenDict"


def registered(kind: type) -> Any:
    """How a class is stored that was registered with `holdfast.serde`; None if it was not."""
    registry = sys.modules.get("holdfast.serde.registry")  # who has registered one has loaded it
    return registry.default_registry.of_class(kind) if registry else None


def fields_of(registration: Any, value: Any, where: str) -> Any:
    """The data of an object of such a class; Refused if it has more than that."""
    from holdfast.serde.cannot import Cannot  # it is loaded, as the class was registered with it

    try:
        return registration.kind.take(value)
    except Cannot as error:
        raise Refused(f"{where} cannot be saved: {error.reason}", hint="Save what it is made of.") from None


def make_registered(type_id: Any, version: Any, data: Any, where: str) -> Any:
    """The object of a registered class; Refused if none is registered under this id, or it is older here."""
    from holdfast.serde.registry import default_registry  # its libraries, only for those who registered a class

    found = default_registry.of_id(type_id) if isinstance(type_id, str) else None
    if found is None or not isinstance(version, int) or version > found.version:
        raise Refused(
            f"{where} is an object of {type_id!r}, version {version}, which is not registered here",
            hint="Register its class with holdfast.serde.register before it is loaded.",
        )
    return found.make(version, data)


# loading


def fill(built: Any, like: Any = MISSING, where: str = "") -> Any:
    """Make the objects of a state that was put together.

    `like`: a state of the same structure, whose classes they get, and whose devices. Refused, with the path, where it
    has another structure, or where there is none and the class is not known.
    """
    if isinstance(built, Stored):
        return _object(built, like)
    if type(built) in (dict, OrderedDict):
        _check_same(isinstance(like, Mapping), built, like, where)
        if like is not MISSING and (more := [key for key in like if key not in built]):
            raise _other(where, f"like has {more[0]!r}, and the checkpoint has not")
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
    side = frameworks.nodes()
    return side.place_like(built, like) if side else built


def _object(stored: Stored, like: Any) -> Any:
    name, where, keys, values = stored
    if like is MISSING:
        values = [fill(value, MISSING, _join(where, key)) for key, value in zip(keys, values, strict=True)]
        return _make_known(stored._replace(values=values))
    side = frameworks.nodes()
    node = side.take_apart(like) if side else None
    if node is None or _name(type(like)).rpartition(".")[2] != name.rpartition(".")[2]:
        raise _other(where, f"it is of {name} in the checkpoint, and of {_name(type(like))} in like")
    there, examples, make = node
    if list(keys) != there:
        raise _other(where, f"the {name} of the checkpoint holds {_told(keys)}, that of like {_told(there)}")
    triples = zip(keys, values, examples, strict=True)
    filled = [fill(value, example, _join(where, key)) for key, value, example in triples]
    try:
        return make(filled)
    except Exception as error:  # whatever the functions raise that a class is registered with
        raise _other(where, f"no {name} can be made of what is stored: {error}") from error


def _make_known(stored: Stored) -> Any:
    """An object of a class of one of the libraries, which this process has loaded."""
    if stored.name == f"{_FROZEN}.FrozenDict" and _FROZEN in sys.modules:
        return sys.modules[_FROZEN].FrozenDict(dict(zip(stored.keys, stored.values, strict=True)))
    kind = _known().get(stored.name)
    if kind is None:
        raise Refused(f"{stored.where} is of the class {stored.name}, and no such class is known here", hint=_LIKE_HINT)
    if kind._fields != stored.keys:
        what = f"is of the class {stored.name}, with {_told(stored.keys)}, which has {_told(kind._fields)} here"
        raise Refused(f"{stored.where} {what}", hint="Use the version of that library that saved it.")
    return tuple.__new__(kind, stored.values)


def _known() -> dict[str, Any]:
    modules = tuple(sorted(name for name in tuple(sys.modules) if name.partition(".")[0] in _LIBRARIES))
    return _named_tuples(modules)


@functools.lru_cache(maxsize=1)
def _named_tuples(modules: tuple[str, ...]) -> dict[str, Any]:
    """By name, the classes of named tuples that modules of the libraries define."""
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
        raise _other(where, f"it is of {_kind(built)} in the checkpoint, and of {_kind(like)} in like")


def _kind(value: Any) -> str:
    size = f", with {len(value)} items," if isinstance(value, list | tuple) else ""
    return f"{type(value).__name__}{size}"


def _other(where: str, what: str) -> Refused:
    return Refused(
        f"{where or 'the state'} is not like the one that was given: {what}",
        hint="Give a state of the structure that was saved, such as the one that the run began with.",
    )


def _told(keys: Any) -> str:
    return ", ".join(map(str, keys)) or "nothing"


def _join(where: str, key: Any) -> str:
    return f"{where}.{key}" if where else str(key)
