"""Families of models: which models share a space, and whose queries fit whose documents.

A family is a list of directed edges with evidence, not a set of names: teacher and student often work in one direction
only. What the registry does not list is unknown: then a probe decides, or everything is embedded again.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from holdfast import durable
from holdfast.errors import NotFound, Refused
from holdfast.indexing.validation import as_texts

_ANY = "*"
_MOST_BYTES = 16 << 20
SCOPES = ("chunk", "document")
METRICS = ("cosine", "dot", "euclid")
_KINDS = ("dense", "sparse", "multi")


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A model of a space."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names of the same weights."""
    doc_prompt: str = ""
    query_prompt: str = ""
    max_tokens: int | None = None
    usd_per_mtok: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Queries of one model fit documents of another."""

    documents: str
    queries: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Space:
    """A space of vectors: only vectors of one space may be compared (P2)."""

    id: str
    kind: Literal["dense", "sparse", "multi"] = "dense"
    metric: str = "cosine"
    normalised: bool = False
    dimensions: tuple[int, ...] = ()
    matryoshka: bool = False
    """Whether vectors may be truncated."""
    datatypes: tuple[str, ...] = ("float32",)
    default_dimension: int | None = None
    context_scope: Literal["chunk", "document"] = "chunk"
    """What the vector of a chunk depends on."""
    members: tuple[FamilyMember, ...] = ()
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Families:
    """The registry of model families."""

    spaces: tuple[Space, ...]
    _by_name: Mapping[str, tuple[Space, FamilyMember]] = field(repr=False, compare=False)

    def find(self, model: str) -> tuple[Space, FamilyMember] | None:
        """Return the space and the entry of a model, by its name or an alias; None if it is unknown."""
        return self._by_name.get(model.lower())

    def same_weights(self, one: str, other: str) -> bool:
        """Whether two names are known to be the same model."""
        first, second = self.find(one), self.find(other)
        return one == other or (first is not None and second is not None and first[1] == second[1])

    def edge(self, documents: str, queries: str) -> Edge | None:
        """Return the edge from queries of one model to documents of another; None if there is none."""
        found, other = self.find(documents), self.find(queries)
        if found is None or other is None or found[0].id != other[0].id:
            return None
        if found[1] == other[1]:
            return Edge(documents, queries, "the same model")
        names = (found[1].name, other[1].name)
        for edge in found[0].edges:
            if edge.documents in (_ANY, names[0]) and edge.queries in (_ANY, names[1]):
                return edge
        return None

    def any_to_any(self, one: str, other: str) -> bool:
        """Whether vectors of both may be mixed in one index: the queries of each fit the other's documents."""
        return self.edge(one, other) is not None and self.edge(other, one) is not None


def load_families(extra: Iterable[str | Path] = ()) -> Families:
    """Load the registry of Holdfast and files of the user, which may add spaces but not contradict it.

    Refused, with the file and the entry, for an invalid one: a model in two spaces, an edge to an unknown model.
    """
    with files("holdfast.indexing").joinpath("families.toml").open("rb") as file:
        spaces = _read(tomllib.load(file), "families.toml")
    for path in map(os.path.expanduser, as_texts(extra, "families")):
        try:
            spaces += _read(durable.parse_toml(durable.read_file(path, max_bytes=_MOST_BYTES)), str(path))
        except FileNotFoundError:
            raise NotFound(f"the family file {path} does not exist", hint="Check `families` in the settings.") from None
        except OSError as error:
            raise Refused(f"cannot read {path}: {error.strerror}", hint="Check `families` in the settings.") from None
        except ValueError as error:
            raise Refused(f"{path} is not TOML: {error}", hint="See families.toml in the package.") from None
    return _registry(spaces)


def _registry(spaces: list[tuple[str, Space]]) -> Families:
    by_id: dict[str, Space] = {}
    by_name: dict[str, tuple[Space, FamilyMember]] = {}
    for file, space in spaces:
        if space.id in by_id:
            raise Refused(f"{file}: the space {space.id!r} exists already", hint="Choose another id.")
        by_id[space.id] = space
        for member in space.members:
            for name in (member.name, *member.aliases):
                other = by_name.get(name.lower())
                if other is not None:
                    raise Refused(
                        f"{file}: {name!r} is in the space {space.id!r} and in {other[0].id!r}",
                        hint="A model is in one space, and a name belongs to one model.",
                    )
                by_name[name.lower()] = (space, member)
    return Families(tuple(by_id.values()), by_name)


# reading


def _read(document: Mapping[str, Any], file: str) -> list[tuple[str, Space]]:
    unknown = document.keys() - {"space"}
    if unknown:
        raise Refused(f"{file}: unknown key {min(unknown)!r}", hint="Write [[space]] tables.")
    return [(file, _space(table, file)) for table in _list(document.get("space", []), f"{file}: space")]


def _space(table: Any, file: str) -> Space:
    what = f"{file}: a space" if not isinstance(table, Mapping) else f"{file}: {table.get('id', 'a space')}"
    values = _checked(table, Space, what)
    if not isinstance(values.get("id"), str) or not values["id"]:
        raise Refused(f"{what} has no id", hint='Write id = "…".')
    _are(values, what, bool, "normalised", "matryoshka")
    for key, allowed in (("kind", _KINDS), ("context_scope", SCOPES), ("metric", METRICS)):
        if values.get(key, allowed[0]) not in allowed:
            raise Refused(f"{what}: invalid {key} {values[key]!r}", hint=f"Use one of {', '.join(allowed)}.")
    dimensions = tuple(_list(values.get("dimensions", []), what))
    if not all(type(one) is int and one > 0 for one in dimensions):
        raise Refused(f"{what}: invalid dimensions {list(dimensions)!r}", hint="Write whole numbers above 0.")
    default = values.get("default_dimension")
    if default is not None and default not in dimensions:
        raise Refused(f"{what}: default_dimension {default} is not one of its dimensions", hint="Add it to them.")
    members = tuple(_member(one, what) for one in _list(values.get("members", []), what))
    edges = tuple(_edge(one, {member.name for member in members}, what) for one in _list(values.get("edges", []), what))
    plain = values | {"dimensions": dimensions, "members": members, "edges": edges}
    return Space(**plain | {"datatypes": _texts(values.get("datatypes", ["float32"]), what)})


def _member(table: Any, what: str) -> FamilyMember:
    values = _checked(table, FamilyMember, f"{what}: a member")
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise Refused(f"{what}: a member has no name", hint='Write { name = "…" }.')
    aliases = _texts(values.get("aliases", []), f"{what}: {name}")
    _are(values, f"{what}: {name}", str, "doc_prompt", "query_prompt")
    _are(values, f"{what}: {name}", int, "max_tokens")
    if name in aliases:
        raise Refused(f"{what}: {name} is an alias of itself", hint="Leave it out of its aliases.")
    price = values.get("usd_per_mtok")
    if price is not None and (type(price) not in (int, float) or not 0 <= price < math.inf):
        raise Refused(f"{what}: invalid price {price!r} of {name}", hint="Write dollars per million tokens.")
    return FamilyMember(**values | {"aliases": aliases})


def _edge(table: Any, members: set[str], what: str) -> Edge:
    values = _checked(table, Edge, f"{what}: an edge")
    for end in ("documents", "queries"):
        if values.get(end) not in members | {_ANY}:
            raise Refused(
                f"{what}: an edge names {values.get(end)!r}, which is not a member", hint=f'{end} is a member, or "*".'
            )
    _are(values, f"{what}: an edge", str, "evidence")
    if not values.get("evidence"):
        raise Refused(f"{what}: an edge has no evidence", hint='Write its source: evidence = "https://…".')
    return Edge(**values)


def _checked(table: Any, kind: type[Space | FamilyMember | Edge], what: str) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise Refused(f"{what} is not a table: {table!r}", hint="Write it as a TOML table.")
    known = {each.name for each in fields(kind) if not each.name.startswith("_")}
    unknown = table.keys() - known
    if unknown:
        raise Refused(f"{what}: unknown key {min(unknown)!r}", hint=f"The keys are {', '.join(sorted(known))}.")
    return dict(table)


def _are(values: Mapping[str, Any], what: str, kind: type, *names: str) -> None:
    for name in names:
        if name in values and type(values[name]) is not kind:
            raise Refused(f"{what}: invalid {name} {values[name]!r}", hint=f"Write a value of type {kind.__name__}.")


def _texts(value: Any, what: str) -> tuple[str, ...]:
    found = tuple(_list(value, what))
    if not all(isinstance(one, str) and one for one in found):
        raise Refused(f"{what}: {value!r} is not a list of names", hint='Write [ "…", "…" ].')
    return found


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"{what}: {value!r} is not a list", hint="Write [ … ].")
    return value
