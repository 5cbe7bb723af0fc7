"""The classes that the schemas of a graph name: registered, or refused, before the graph runs.

A schema is code of the running program. Stored bytes name a class by the id that it is registered with here; an unknown
id creates nothing (P7).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typing_extensions
from langgraph.channels import BaseChannel, UntrackedValue
from langgraph.pregel import Pregel

from holdfast.errors import Refused
from holdfast.serde import Registry, Serde
from holdfast.serde.registry import CustomKind, kind_of

_HINT = "Register its class in registry= with encode= and decode=, or annotate the field with UntrackedValue."
_WRAPPERS = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly, typing.Final)
_CLASS_OR_CALL = (type, collections.abc.Callable)
Named = Iterator[tuple[type, str]]
"""Classes, each with the place that names it first."""


def register_schemas(registry: Registry, schemas: Iterable[Any]) -> None:
    """Register each class that schemas name, by its module and name; Refused if one cannot be stored.

    A field that such a class gains later gets its default in values stored before.
    """
    serde = Serde(registry)
    if isinstance(schemas, type | str):
        raise Refused(f"schemas= is {_name(schemas)}, not a list of schemas", hint="Write schemas=[State].")
    for schema in schemas:
        if isinstance(schema, str):
            raise Refused(f"schemas= contains the text {schema!r}", hint="Give the class itself, not its name.")
        for cls, place in _classes(registry, schema, _name(schema)):
            if serde.why_not(cls) is None:
                continue
            if _is_registrable(cls):
                registry.add(cls, f"{cls.__module__}.{cls.__qualname__}", fill=True)
            elif not _is_open(cls, serde):
                raise _refused(place, serde.why_not(cls))


def check_graph(serde: Serde, graph: Pregel[Any, Any, Any, Any]) -> None:
    """Refused if the schemas or channels of a compiled graph name a class that cannot be stored."""
    graphs: list[Any] = [graph, *(subgraph for _, subgraph in graph.get_subgraphs(recurse=True))]
    for each in graphs:
        for schema, place in _schemas(each):
            for cls, where in _classes(serde.registry, schema, place):
                reason = serde.why_not(cls)
                if reason is not None and not _is_open(cls, serde):
                    raise _refused(where, reason, is_registrable=_is_registrable(cls))


def _schemas(graph: Pregel[Any, Any, Any, Any]) -> Iterator[tuple[Any, str]]:
    for schema in getattr(getattr(graph, "builder", None), "schemas", ()):
        yield schema, _name(schema)
    for name, channel in graph.channels.items():
        if isinstance(channel, BaseChannel) and not isinstance(channel, UntrackedValue):
            yield channel.ValueType, name
            yield channel.UpdateType, name


def _classes(registry: Registry, schema: Any, place: str) -> Named:
    """The classes that a schema names, at whatever depth, and what the fields of these name; but for classes that are
    stored by functions of their own."""
    seen: list[Any] = []
    left = [(schema, place)]
    while left:
        annotation, where = left.pop()
        if any(annotation is each for each in seen):
            continue
        seen.append(annotation)
        if isinstance(annotation, type) and get_origin(annotation) is None:
            if not typing_extensions.is_typeddict(annotation):
                yield annotation, where
            entry = registry.of_class(annotation)
            if entry is None or not isinstance(entry.kind, CustomKind):
                left += [(inner, f"{where}.{name}") for name, inner in _fields(annotation)]
        else:
            left += [(inner, where) for inner in _inner(annotation)]


def _inner(annotation: Any) -> Iterator[Any]:
    """The annotations inside an annotation that is not a class."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, typing.NewType):
        yield annotation.__supertype__
    elif isinstance(annotation, typing.TypeVar):
        yield from (annotation.__bound__, *annotation.__constraints__)
    elif isinstance(annotation, typing_extensions.TypeAliasType):
        yield annotation.__value__
    elif origin is Annotated:
        if not any(each is UntrackedValue or isinstance(each, UntrackedValue) for each in arguments[1:]):
            yield arguments[0]
    elif origin is Literal:
        yield from {type(each) for each in arguments if isinstance(each, Enum)}
    elif origin in _WRAPPERS or origin in (typing.Union, types.UnionType):
        yield from arguments
    elif origin in _CLASS_OR_CALL:
        yield origin
    elif isinstance(origin, type):
        yield origin
        yield from () if origin.__module__ == "numpy" else arguments  # of an array, its shape and dtype


def _fields(cls: type) -> Iterator[tuple[str, Any]]:
    """The fields of a class that has some, with their annotations."""
    if hasattr(cls, "__pydantic_fields__"):
        for name, field in cls.__pydantic_fields__.items():
            yield name, Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        origin = cls.__pydantic_generic_metadata__["origin"]  # type: ignore[attr-defined]
        yield from () if origin is None else [(origin.__name__, origin)]
    elif typing_extensions.is_typeddict(cls) or (_is_registrable(cls) and not issubclass(cls, Enum)):
        try:
            hints = get_type_hints(cls, include_extras=True)
        except Exception:  # unresolvable names: their values are checked when they are saved
            hints = {}
        names = {each.name for each in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else hints.keys()
        for name, hint in hints.items():
            if name in names and get_origin(hint) is not typing.ClassVar:
                yield name, hint


def _is_registrable(cls: type) -> bool:
    try:
        kind_of(cls, None, None)
    except Refused:
        return False
    return not inspect.isabstract(cls)


def _is_open(cls: type, serde: Serde) -> bool:
    """Whether a class leaves open what the value will be: an abstract one, or one whose subclasses can be stored, such
    as `BaseMessage`, `PurePath` or `Sequence`."""
    if cls in _CLASS_OR_CALL:
        return False
    is_bare = cls is object or cls.__module__ in ("typing", "typing_extensions", "collections.abc", "numbers")
    is_protocol = getattr(cls, "_is_protocol", False) or inspect.isabstract(cls)
    return is_bare or is_protocol or any(serde.why_not(each) is None for each in _subclasses(cls))


def _subclasses(cls: type) -> Iterator[type]:
    each: type
    for each in type.__subclasses__(cls):
        yield each
        yield from _subclasses(each)


def _name(schema: Any) -> str:
    return schema.__name__ if isinstance(schema, type) else str(schema)


def _refused(where: str, reason: str | None, *, is_registrable: bool = False) -> Refused:
    hint = "Name the schema of the graph in schemas=, or register the class in registry=." if is_registrable else _HINT
    return Refused(f"{where} cannot be stored: {reason}", hint=hint)
