"""A nested state as JSON and tensors (`flatten`), and back (`Builder`)."""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from holdfast.errors import Damaged, Refused
from holdfast.training import frameworks, gc_pause, object_nodes
from holdfast.training.frameworks.interface import ArrayParts, Framework, PlainArray, as_parts
from holdfast.training.shared_memory import PlacedArray, Span, find_views
from holdfast.training.stored import leaves
from holdfast.training.stored.shards import Payload

RESUME = "holdfast_resume"

_MAX_DEPTH = 200
_RESERVED = "__metadata__"
_ROOT = "the state"
_SCALARS = (int, float, str, bool, bytes, type(None))

ARRAY = str(b"$array", "ascii")
"""Stands for an array in a tree until that is encoded. Compared by identity: a state may contain an equal text."""

_Leaf = tuple[str, Framework, Any]
"""The path of an array, its framework, and the array."""
_FRAMEWORK = operator.itemgetter(1)


@dataclass(slots=True)
class FlatState:
    """A state taken apart."""

    tree: Any
    """As JSON, with `ARRAY` in place of each array."""
    resume: Any = None
    nodes: list[str] = field(default_factory=list)
    """The JSON of each array, in the order of `tree` and then of `resume`."""
    payloads: list[Payload] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the caller should know, though everything is stored (P4)."""


def flatten(state: Any, resume: Any = None) -> FlatState:
    """Take a state apart without copying tensors. Refused, with the path of a value that cannot be stored exactly.

    `resume` is stored beside it, under names that begin with RESUME.
    """
    with gc_pause.paused():
        return _flatten(state, resume)


def _flatten(state: Any, resume: Any) -> FlatState:
    walk = _Walk()
    try:
        flat = FlatState(walk.take(state, "", 0), walk.take(resume, RESUME, 0))
    except RecursionError:
        raise Refused("the state is nested too deeply", hint="Save a flatter one.") from None
    _store_arrays(walk.arrays, flat)
    flat.notes = [
        f"{where} is of class {name}, and is stored by its fields: load it with like=…"
        for name, where in walk.objects.items()
        if object_nodes.needs_like(name)
    ]
    return flat


class _Walk:
    def __init__(self) -> None:
        self.arrays: list[_Leaf] = []
        self.objects: dict[str, str] = {}
        """By class, the path of the first object that was taken apart."""
        self._frameworks: dict[type, Framework] = {}

    def take(self, value: Any, where: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise Refused(f"{where[:60]}… is nested too deeply, or contains itself", hint="Save a flatter state.")
        kind = type(value)
        if kind is dict or kind is OrderedDict:
            return self._take_dict(value, where, depth)
        if kind is list or kind is tuple:
            items = [self.take(item, _join(where, str(at)), depth + 1) for at, item in enumerate(value)]
            return items if kind is list else {"$tuple": items}
        if kind in _SCALARS:
            return leaves.encode(value, _shown(where))
        framework = self._frameworks.get(kind) or frameworks.framework_of(value)
        if framework is None:
            return self._take_object(value, where, depth)
        self._frameworks[kind] = framework
        return self._take_array(value, where, framework)

    def _take_object(self, value: Any, where: str, depth: int) -> Any:
        """Take an object apart if it contains arrays; otherwise the serializer stores it."""
        known = len(self.arrays)
        if registration := object_nodes.registered(type(value)):
            data = self.take(object_nodes.fields_of(registration, value, _shown(where)), where, depth + 1)
            if len(self.arrays) == known:
                return leaves.encode(value, _shown(where))
            return {"$registered": {"id": registration.id, "version": registration.version, "data": data}}
        node = object_nodes.take_apart(value, _shown(where))
        if node is None:
            return leaves.encode(value, _shown(where))
        self.objects.setdefault(node.name, _shown(where))
        pairs = zip(node.keys, node.values, strict=True)
        values = [self.take(inner, _join(where, str(key)), depth + 1) for key, inner in pairs]
        return {"$node": {"class": node.name, "keys": node.keys, "values": values}}

    def _take_array(self, value: Any, where: str, framework: Framework) -> Any:
        self.arrays.append((where or "tensor", framework, value))
        return ARRAY

    def _take_dict(self, value: dict[Any, Any], where: str, depth: int) -> Any:
        is_json = type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value)
        if is_json:
            prefix, known = (f"{where}." if where else ""), self._frameworks
            return {
                key: self._take_array(item, prefix + key, framework)
                if (framework := known.get(type(item)))  # most values are arrays of one type
                else self.take(item, prefix + key, depth + 1)
                for key, item in value.items()
            }
        pairs = [
            [
                self._take_key(key, _join(where, f"key {key!r:.60}"), depth + 1),
                self.take(item, _join(where, str(key)), depth + 1),
            ]
            for key, item in value.items()
        ]
        if type(value) is dict:
            return {"$dict": pairs}
        extra = dict(vars(value))
        if extra.keys() - {"_metadata"}:
            raise Refused(
                f"{_shown(where)} cannot be saved: it is an OrderedDict with further attributes",
                hint="Save OrderedDict(x) instead.",
            )
        metadata = self._take_key(extra.get("_metadata"), _join(where, "_metadata"), depth + 1)
        return {"$ordered_dict": {"items": pairs, "metadata": metadata}}

    def _take_key(self, key: Any, where: str, depth: int) -> Any:
        """Take what must be rebuilt before any tensor is: a key, or the metadata of a dict."""
        known = len(self.arrays)
        found = self.take(key, where, depth)
        if len(self.arrays) != known:
            raise Refused(f"{where} cannot be saved: it is an array", hint="Use a plain number or text: x.item().")
        return found


def _store_arrays(arrays: list[_Leaf], flat: FlatState) -> None:
    """Decompose the arrays, name them, and describe them for the tree."""
    found: list[ArrayParts | PlainArray] = []
    for framework, same in itertools.groupby(arrays, key=_FRAMEWORK):
        found += framework.decompose_all([(value, where) for where, _, value in same])

    def placed(at: int) -> PlacedArray:
        where, framework, _ = arrays[at]
        payloads, details, extent, transform = as_parts(found[at])
        assert extent is not None  # else nothing overlaps with it
        # Arrays of two types may be stored alike, and are then not one array
        kind = f"{framework.NAME} {payloads[0].dtype} {details.get('dtype', '')}{transform}"
        return PlacedArray(where, kind, extent)

    views = find_views(_spans(found), placed)
    first_names: dict[int, str] = {}
    taken = {_RESERVED}
    for at, ((_, framework, _), parts) in enumerate(zip(arrays, found, strict=True)):
        if at in views:
            flat.nodes.append("")  # filled in below: its base may come later
            continue
        names = []
        for payload in parts.payloads if isinstance(parts, ArrayParts) else (parts[0],):
            name = payload[0]
            if name in taken or not name.isascii():
                name = _free_name(name, taken)
                payload = payload._replace(name=name)
            taken.add(name)
            names.append(name)
            flat.payloads.append(payload)
        first_names[at] = names[0]
        if isinstance(parts, ArrayParts):
            flat.nodes.append(_node({"names": names, "kind": framework.NAME, **parts.details}))
        else:  # encoded by hand: there may be tens of thousands
            flat.nodes.append(f'{{"$tensor":{{"names":[{quoted(names[0])}],"kind":"{framework.NAME}"}}}}')
    for at, view in views.items():
        details = as_parts(found[at]).details
        node: dict[str, Any] = {"of": first_names[view.base], "kind": arrays[view.base][1].NAME}
        node |= {key: details[key] for key in ("parameter", "requires_grad") if key in details}
        if view.stride is not None:
            shape = placed(at).extent.shape
            node |= {"offset": view.offset, "shape": list(shape), "stride": list(view.stride)}
        flat.nodes[at] = _node(node)


def _node(about: dict[str, Any]) -> str:
    return json.dumps({"$tensor": about}, allow_nan=False, separators=(",", ":"))


def _spans(found: list[ArrayParts | PlainArray]) -> list[Span]:
    spans: list[Span] = []
    for at, parts in enumerate(found):
        if not isinstance(parts, ArrayParts):
            spans.append(("cpu", parts[1], parts[2], at))
        elif (extent := parts.extent) and 0 not in extent.shape:
            spans.append((extent.device, *extent.span, at))
    return spans


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that can be encoded and that no other tensor has."""
    name = name.encode("utf-8", "backslashreplace").decode()
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}#{number}"
    return free


def encode_document(document: dict[str, Any], nodes: Sequence[str]) -> bytes:
    """Encode a document that contains trees; `nodes` replace the arrays in order.

    They are inserted into the text: encoding them as dicts would take three times as long.
    """
    # These trees contain no cycles, and looking for them takes a third of the time
    encode = functools.partial(json.dumps, allow_nan=False, separators=(",", ":"), check_circular=False)
    pieces = encode(document).split(f'"{ARRAY}"')
    if len(pieces) != len(nodes) + 1:  # the state contains the text of ARRAY
        return f"{encode(_with_nodes(document, iter(nodes)))}\n".encode()
    text = [""] * (2 * len(nodes) + 1)
    text[::2], text[1::2] = pieces, nodes
    return f"{''.join(text)}\n".encode()


def _with_nodes(tree: Any, nodes: Iterator[str]) -> Any:
    """Return a tree with nodes in place of its arrays, which are recognized by identity."""
    if tree is ARRAY:
        return json.loads(next(nodes))
    if isinstance(tree, dict):
        return {key: _with_nodes(value, nodes) for key, value in tree.items()}
    return [_with_nodes(value, nodes) for value in tree] if isinstance(tree, list) else tree


class Absent:
    """Stands for a part that was not asked for."""


ABSENT = Absent()
Bytes = tuple[memoryview, str, tuple[int, ...]]
"""The bytes of a tensor, its type and its shape."""
Fetch = Callable[[str], Bytes]
IsWanted = Callable[[str], bool]


def tensors(tree: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the node of each tensor of a tree."""
    if isinstance(tree, dict) and len(tree) == 1 and isinstance(tree.get("$tensor"), dict):
        yield where, tree["$tensor"]
        return
    for step, inner in _children(tree):
        yield from tensors(inner, _join(where, step))


def _children(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, list):
        yield from ((str(at), item) for at, item in enumerate(tree))
    elif isinstance(tree, dict):
        inner: Any
        tag, inner = next(iter(tree.items())) if len(tree) == 1 else ("", None)
        if tag == "$ordered_dict":
            tag, inner = "$dict", inner["items"]
        if tag == "$registered":
            yield from _children(inner["data"])
        elif tag == "$node":
            yield from zip(map(str, inner["keys"]), inner["values"], strict=True)
        elif tag == "$dict":
            yield from ((str(_without_tensors(key)), item) for key, item in inner)
        elif tag == "$tuple":
            yield from ((str(at), item) for at, item in enumerate(inner))
        elif not tag.startswith("$"):
            yield from tree.items()


class Builder:
    """Rebuilds a state from its tree."""

    def __init__(
        self,
        tree: Any,
        fetch: Fetch,
        *,
        device: Any = None,
        is_wanted: IsWanted | None = None,
        plain_only: bool = False,
        lazy: bool = False,
        root: str = "",
        like: Any = object_nodes.MISSING,
    ) -> None:
        self._tree = tree
        self._root = root
        self._fetch = fetch
        self._device = device
        self._is_wanted: IsWanted = is_wanted or (lambda where: True)
        self._plain_only = plain_only
        self._is_lazy = lazy
        self._like = like
        self._is_partial = lazy or plain_only or is_wanted is not None
        self._tensors = list(tensors(tree, root))
        self._nodes = {node["names"][0]: node for _, node in self._tensors if "names" in node}
        self._built: dict[str, Any] = {}
        self._has_objects = False

    def names(self) -> list[str]:
        """Return the names of the tensors that are needed."""
        found: dict[str, None] = {}
        for where, node in self._tensors:
            if self._is_wanted(where):
                found |= dict.fromkeys([node["of"]] if "of" in node else node["names"])
        return list(found)

    def build(self) -> Any:
        """Return the state, or the wanted part of it; ABSENT if nothing is wanted."""
        with gc_pause.paused():
            found = self._build(self._tree, self._root)
            has_objects = self._has_objects or self._like is not object_nodes.MISSING
            return object_nodes.fill(found, self._like, self._root) if has_objects else found

    def _build(self, tree: Any, where: str) -> Any:
        if isinstance(tree, dict):
            if len(tree) == 1:
                [(tag, inner)] = tree.items()
                if tag.startswith("$"):
                    return self._tagged(tag, inner, where)
            return self._mapping(tree.items(), where, dict)
        if isinstance(tree, list):
            return self._sequence(tree, where, list)
        return tree if self._is_wanted(where) else ABSENT

    def _tagged(self, tag: str, inner: Any, where: str) -> Any:
        try:
            if tag == "$tensor":
                return self._tensor(inner) if self._is_wanted(where) else ABSENT
            if tag == "$tuple":
                return self._sequence(inner, where, tuple)
            if tag == "$dict":
                return self._mapping(((_without_tensors(key), item) for key, item in inner), where, dict)
            if tag == "$ordered_dict":
                return self._ordered(inner, where)
            if tag == "$node":
                return self._node(inner, where)
            if tag == "$registered":
                return self._registered(inner, where)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"{_shown(where)} is corrupt: {error}", hint="Use another checkpoint.") from None
        return leaves.decode(tag, inner) if self._is_wanted_leaf(tag, inner, where) else ABSENT

    def _node(self, inner: Any, where: str) -> Any:
        """Return an object, to be completed by `object_nodes.fill`; a mapping if only a part was asked for."""
        keys, values = inner["keys"], inner["values"]
        if self._is_partial:
            return self._mapping(zip(keys, values, strict=True), where, dict)
        self._has_objects = True
        built = [self._build(value, _join(where, str(key))) for key, value in zip(keys, values, strict=True)]
        return object_nodes.StoredObject(inner["class"], _shown(where), tuple(keys), built)

    def _registered(self, inner: Any, where: str) -> Any:
        found = self._build(inner["data"], where)
        if self._is_partial:
            return found
        data = object_nodes.fill(found, where=where)
        return object_nodes.make_registered(inner["id"], inner["version"], data, _shown(where))

    def _ordered(self, inner: Any, where: str) -> Any:
        found = self._mapping(((_without_tensors(key), item) for key, item in inner["items"]), where, OrderedDict)
        if inner["metadata"] is not None and isinstance(found, OrderedDict):
            found._metadata = _without_tensors(inner["metadata"])  # type: ignore[attr-defined]  # PyTorch's versions
        return found

    def _mapping(self, pairs: Any, where: str, kind: type[dict[Any, Any]]) -> Any:
        pairs = [(key, item, _join(where, str(key))) for key, item in pairs]
        if self._is_lazy:
            return LazyDict({key: (item, below) for key, item, below in pairs if self._has(item, below)}, self._build)
        built = [(key, self._build(item, below)) for key, item, below in pairs]
        present = kind((key, item) for key, item in built if item is not ABSENT)
        return present if present or self._keeps_empty(pairs, where) else ABSENT

    def _sequence(self, tree: list[Any], where: str, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
        items = [self._build(item, _join(where, str(at))) for at, item in enumerate(tree)]
        if all(item is ABSENT for item in items) and not self._keeps_empty(items, where):
            return ABSENT
        return kind(None if item is ABSENT else item for item in items)

    def _keeps_empty(self, items: list[Any], where: str) -> bool:
        return not items and self._is_wanted(where)

    def _is_wanted_leaf(self, tag: str, inner: Any, where: str) -> bool:
        return self._is_wanted(where) and (not self._plain_only or leaves.is_plain(tag, inner))

    def _has(self, tree: Any, where: str) -> bool:
        """Whether a tree contains anything that is wanted."""
        children = list(_children(tree))
        if children:
            return any(self._has(inner, _join(where, step)) for step, inner in children)
        if isinstance(tree, dict) and len(tree) == 1:
            [(tag, inner)] = tree.items()
            if tag.startswith("$") and tag != "$tensor":
                return self._is_wanted_leaf(tag, inner, where)
        return self._is_wanted(where)

    def _tensor(self, node: dict[str, Any]) -> Any:
        framework = frameworks.named(node["kind"])
        if "of" in node:
            return framework.view(self._base(self._nodes[node["of"]], framework), node)
        if len(node["names"]) == 1:
            return self._base(node, framework)
        return framework.rebuild(node, [self._fetch(name) for name in node["names"]], self._device)

    def _base(self, node: dict[str, Any], framework: Framework) -> Any:
        name = node["names"][0]
        if name not in self._built:
            self._built[name] = framework.rebuild(node, [self._fetch(name)], self._device)
        return self._built[name]


def _without_tensors(tree: Any) -> Any:
    """Rebuild a value that has no tensors: a key, or the metadata of a dict."""
    if isinstance(tree, str | int):
        return tree

    def fetch(name: str) -> Bytes:
        raise ValueError(f"{name} is a tensor where there cannot be one")

    return Builder(tree, fetch).build()


def _join(where: str, step: str) -> str:
    return f"{where}.{step}" if where else step


def _shown(where: str) -> str:
    return where or _ROOT


class LazyDict(Mapping[Any, Any]):
    """A mapping of a loaded state whose tensors are read and verified at their first use (then Damaged is raised)."""

    def __init__(self, nodes: dict[Any, tuple[Any, str]], build: Callable[[Any, str], Any]) -> None:
        self._nodes = nodes
        self._build = build
        self._built: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        if key not in self._built:
            found = self._build(*self._nodes[key])
            if found is ABSENT:
                raise KeyError(key)
            self._built[key] = found
        return self._built[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def copy(self) -> dict[Any, Any]:
        """Read and verify everything now. Return plain dicts, as PyTorch's optimizers need them."""
        return {key: _plain_dicts(value) for key, value in self.items()}

    def __repr__(self) -> str:
        return f"LazyDict({', '.join(map(repr, self._nodes))})"


def _plain_dicts(value: Any) -> Any:
    if isinstance(value, LazyDict):
        return value.copy()
    return type(value)(map(_plain_dicts, value)) if isinstance(value, list | tuple) else value
