"""A state of any nesting, taken apart into JSON and tensors, and put together again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import Damaged, Refused
from holdfast.training import frameworks, garbage, nodes
from holdfast.training.frameworks.pieces import Framework, Lowered
from holdfast.training.sharing import Placed, find_views
from holdfast.training.stored import leaves
from holdfast.training.stored.shards import Payload

RESUME = "holdfast_resume"

_DEEPEST = 200
_RESERVED = "__metadata__"
_WHOLE = "the state"
_PLAIN = (int, float, str, bool, bytes, type(None))


@dataclass(slots=True)
class Flat:
    """A state taken apart."""

    tree: Any
    resume: Any
    payloads: list[Payload] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the caller should know, though all of it is stored."""


class _Leaf(NamedTuple):
    node: dict[str, Any]
    where: str
    side: Framework
    lowered: Lowered


def flatten(state: Any, resume: Any = None) -> Flat:
    """Take a state apart, without copying a tensor. Refused, with the path of what cannot be stored exactly.

    `resume` is kept beside it, under names that begin with RESUME.
    """
    with garbage.paused():
        return _flatten(state, resume)


def _flatten(state: Any, resume: Any) -> Flat:
    walk = _Walk()
    try:
        found = Flat(walk.take(state, "", 0), walk.take(resume, RESUME, 0))
    except RecursionError:
        raise Refused("the state is nested too deeply", hint="Save a flatter one.") from None
    _store(walk.leaves, found)
    found.notes = [
        f"{where} is of the class {name}: it is stored by what it holds, and is loaded with like=…"
        for name, where in walk.objects.items()
        if nodes.needs_like(name)
    ]
    return found


class _Walk:
    def __init__(self) -> None:
        self.leaves: list[_Leaf] = []
        self.objects: dict[str, str] = {}
        """By class, the first of the objects that were taken apart."""
        self._sides: dict[type, Framework] = {}

    def take(self, value: Any, where: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Refused(f"{where[:60]}… is nested too deeply, or holds itself", hint="Save a flatter state.")
        kind = type(value)
        if kind is dict or kind is OrderedDict:
            return self._take_dict(value, where, depth)
        if kind is list or kind is tuple:
            items = [self.take(item, _join(where, str(at)), depth + 1) for at, item in enumerate(value)]
            return items if kind is list else {"$tuple": items}
        if kind in _PLAIN:
            return leaves.encode(value, _shown(where))
        side = self._sides.get(kind) or frameworks.claimed(value)
        if side is None:
            return self._take_object(value, where, depth)
        self._sides[kind] = side
        return self._take_array(value, where, side)

    def _take_object(self, value: Any, where: str, depth: int) -> Any:
        """An object of another class: by what it holds if that is arrays too, else as the serializer has it."""
        known = len(self.leaves)
        if registration := nodes.registered(type(value)):
            data = self.take(nodes.fields_of(registration, value, _shown(where)), where, depth + 1)
            if len(self.leaves) == known:
                return leaves.encode(value, _shown(where))
            return {"$registered": {"id": registration.id, "version": registration.version, "data": data}}
        node = nodes.take_apart(value, _shown(where))
        if node is None:
            return leaves.encode(value, _shown(where))
        self.objects.setdefault(node.name, _shown(where))
        pairs = zip(node.keys, node.values, strict=True)
        values = [self.take(inner, _join(where, str(key)), depth + 1) for key, inner in pairs]
        return {"$node": {"class": node.name, "keys": node.keys, "values": values}}

    def _take_array(self, value: Any, where: str, side: Framework) -> Any:
        node: dict[str, Any] = {}
        self.leaves.append(_Leaf(node, where or "tensor", side, side.lower(value, where or _WHOLE)))
        return {"$tensor": node}

    def _take_dict(self, value: dict[Any, Any], where: str, depth: int) -> Any:
        plain = type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value)
        if plain:
            stem, sides = (f"{where}." if where else ""), self._sides
            return {
                key: self._take_array(item, stem + key, side)
                if (side := sides.get(type(item)))  # most are arrays of one kind
                else self.take(item, stem + key, depth + 1)
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
                f"{_shown(where)} cannot be saved: it is an OrderedDict with attributes of its own",
                hint="Save OrderedDict(x) of it.",
            )
        about = self._take_key(extra.get("_metadata"), _join(where, "_metadata"), depth + 1)
        return {"$ordered_dict": {"items": pairs, "metadata": about}}

    def _take_key(self, key: Any, where: str, depth: int) -> Any:
        """What has to be made before any tensor is: a key, or the metadata of a dict."""
        known = len(self.leaves)
        found = self.take(key, where, depth)
        if len(self.leaves) != known:
            raise Refused(
                f"{where} cannot be saved: it is an array", hint="Have plain numbers or text there: x.item()."
            )
        return found


def _store(found: list[_Leaf], flat: Flat) -> None:
    def placed(at: int) -> Placed:
        leaf = found[at]
        assert leaf.lowered.extent is not None  # else nothing overlaps with it
        return Placed(_shown(leaf.where), _kind(leaf), leaf.lowered.extent)

    views = find_views([leaf.lowered.extent for leaf in found], placed)
    names = _Names()
    for at, leaf in enumerate(found):
        if at not in views:
            _store_leaf(leaf, names, flat)
    for at, view in views.items():
        base, lowered, node = found[view.base], found[at].lowered, found[at].node
        node |= {"of": base.node["names"][0], "kind": base.side.NAME}
        node |= {key: lowered.about[key] for key in ("parameter", "requires_grad") if key in lowered.about}
        if view.stride is not None and lowered.extent is not None:
            node |= {"offset": view.offset, "shape": list(lowered.extent.shape), "stride": list(view.stride)}


def _kind(leaf: _Leaf) -> str:
    """Of what an array is; two that are stored alike may still be of two types."""
    lowered = leaf.lowered
    return f"{leaf.side.NAME} {lowered.parts[0].dtype} {lowered.about.get('dtype', '')}{lowered.twist}"


def _store_leaf(leaf: _Leaf, names: _Names, flat: Flat) -> None:
    node, where, side, lowered = leaf
    given = node["names"] = []
    for part in lowered.parts:
        name = names.give(where + part.suffix)
        given.append(name)
        flat.payloads.append(Payload(name, part.dtype, part.shape, part.source, part.bytes_of))
    node["kind"] = side.NAME
    node.update(lowered.about)


class _Names:
    """Gives each tensor a name that no other has."""

    def __init__(self) -> None:
        self._given: set[str] = {_RESERVED}

    def give(self, wish: str) -> str:
        if not wish.isascii():
            wish = wish.encode("utf-8", "backslashreplace").decode()
        name, number = wish, 1
        while name in self._given:
            number += 1
            name = f"{wish}#{number}"
        self._given.add(name)
        return name


class Absent:
    """Stands for what was not asked for."""


ABSENT = Absent()
Bytes = tuple[memoryview, str, tuple[int, ...]]
Fetch = Callable[[str], Bytes]
Wanted = Callable[[str], bool]


def tensors(tree: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The path and the node of each tensor of a tree."""
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
        mark, inner = next(iter(tree.items())) if len(tree) == 1 else ("", None)
        if mark == "$ordered_dict":
            mark, inner = "$dict", inner["items"]
        if mark == "$registered":
            yield from _children(inner["data"])
        elif mark == "$node":
            yield from zip(map(str, inner["keys"]), inner["values"], strict=True)
        elif mark == "$dict":
            yield from ((str(_plain(key)), item) for key, item in inner)
        elif mark == "$tuple":
            yield from ((str(at), item) for at, item in enumerate(inner))
        elif not mark.startswith("$"):
            yield from tree.items()


class Builder:
    """Puts a state together again."""

    def __init__(
        self,
        tree: Any,
        fetch: Fetch,
        *,
        place: Any = None,
        wanted: Wanted | None = None,
        tensors_only: bool = False,
        lazily: bool = False,
        root: str = "",
        like: Any = nodes.MISSING,
    ) -> None:
        self._tree = tree
        self._root = root
        self._fetch = fetch
        self._place = place
        self._wanted: Wanted = wanted or (lambda where: True)
        self._tensors_only = tensors_only
        self._lazily = lazily
        self._like = like
        self._is_part = lazily or tensors_only or wanted is not None
        self._tensors = list(tensors(tree, root))
        self._nodes = {node["names"][0]: node for _, node in self._tensors if "names" in node}
        self._made: dict[str, Any] = {}
        self._holds_objects = False

    def names(self) -> list[str]:
        """The tensors that are needed for what is wanted."""
        found: dict[str, None] = {}
        for where, node in self._tensors:
            if self._wanted(where):
                found |= dict.fromkeys([node["of"]] if "of" in node else node["names"])
        return list(found)

    def build(self) -> Any:
        """The whole, without what is not wanted; ABSENT if nothing is."""
        with garbage.paused():
            found = self._build(self._tree, self._root)
            has_objects = self._holds_objects or self._like is not nodes.MISSING
            return nodes.fill(found, self._like, self._root) if has_objects else found

    def _build(self, tree: Any, where: str) -> Any:
        if isinstance(tree, dict):
            if len(tree) == 1:
                [(mark, inner)] = tree.items()
                if mark.startswith("$"):
                    return self._marked(mark, inner, where)
            return self._mapping(tree.items(), where, dict)
        if isinstance(tree, list):
            return self._sequence(tree, where, list)
        return ABSENT if self._tensors_only or not self._wanted(where) else tree

    def _marked(self, mark: str, inner: Any, where: str) -> Any:
        try:
            if mark == "$tensor":
                return self._tensor(inner) if self._wanted(where) else ABSENT
            if mark == "$tuple":
                return self._sequence(inner, where, tuple)
            if mark == "$dict":
                return self._mapping(((_plain(key), item) for key, item in inner), where, dict)
            if mark == "$ordered_dict":
                return self._ordered(inner, where)
            if mark == "$node":
                return self._node(inner, where)
            if mark == "$registered":
                return self._registered(inner, where)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(
                f"{_shown(where)} is not as it was written: {error}", hint="Use another checkpoint."
            ) from None
        return ABSENT if self._tensors_only or not self._wanted(where) else leaves.decode(mark, inner)

    def _node(self, inner: Any, where: str) -> Any:
        """An object, to be made when all that it holds is; a mapping where only part of it is asked for."""
        keys, values = inner["keys"], inner["values"]
        if self._is_part:
            return self._mapping(zip(keys, values, strict=True), where, dict)
        self._holds_objects = True
        built = [self._build(value, _join(where, str(key))) for key, value in zip(keys, values, strict=True)]
        return nodes.Stored(inner["class"], _shown(where), tuple(keys), built)

    def _registered(self, inner: Any, where: str) -> Any:
        found = self._build(inner["data"], where)
        if self._is_part:
            return found
        data = nodes.fill(found, where=where)
        return nodes.make_registered(inner["id"], inner["version"], data, _shown(where))

    def _ordered(self, inner: Any, where: str) -> Any:
        found = self._mapping(((_plain(key), item) for key, item in inner["items"]), where, OrderedDict)
        if inner["metadata"] is not None and isinstance(found, OrderedDict):
            found._metadata = _plain(inner["metadata"])  # type: ignore[attr-defined]  # where PyTorch keeps versions
        return found

    def _mapping(self, pairs: Any, where: str, kind: type[dict[Any, Any]]) -> Any:
        pairs = [(key, item, _join(where, str(key))) for key, item in pairs]
        if self._lazily:
            from holdfast.training.lazily import LazyDict  # only for loads that ask for it

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
        return not items and not self._tensors_only and self._wanted(where)

    def _has(self, tree: Any, where: str) -> bool:
        """Whether anything in there is wanted."""
        children = list(_children(tree))
        if children:
            return any(self._has(inner, _join(where, step)) for step, inner in children)
        is_tensor = isinstance(tree, dict) and "$tensor" in tree
        return self._wanted(where) and (is_tensor or not self._tensors_only)

    def _tensor(self, node: dict[str, Any]) -> Any:
        side = frameworks.named(node["kind"])
        if "of" in node:
            return side.view(self._base(self._nodes[node["of"]], side), node)
        if len(node["names"]) == 1:
            return self._base(node, side)
        return side.raise_(node, [self._fetch(name) for name in node["names"]], self._place)

    def _base(self, node: dict[str, Any], side: Framework) -> Any:
        name = node["names"][0]
        if name not in self._made:
            self._made[name] = side.raise_(node, [self._fetch(name)], self._place)
        return self._made[name]


def _plain(tree: Any) -> Any:
    """A value without tensors: a key, or the metadata of a dict."""
    if isinstance(tree, str | int):
        return tree

    def fetch(name: str) -> Bytes:
        raise ValueError(f"{name} is a tensor where none can be")

    return Builder(tree, fetch).build()


def _join(where: str, step: str) -> str:
    return f"{where}.{step}" if where else step


def _shown(where: str) -> str:
    return where or _WHOLE
