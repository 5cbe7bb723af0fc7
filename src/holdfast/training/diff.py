"""Differences between two checkpoints: which tensors changed, and by how much."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from holdfast.errors import Damaged
from holdfast.training import frameworks
from holdfast.training.run_store import RunStore, StoredCheckpoint
from holdfast.training.shard_reader import Reader
from holdfast.training.state_tree import Bytes, tensors
from holdfast.training.stored.manifest import TensorEntry
from holdfast.training.stored.shards import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class TensorChange:
    """A tensor that differs."""

    name: str
    verb: str
    """`added`, `removed`, `reshaped` or `changed`."""
    detail: str
    max_change: float | None = None
    """The greatest change of an element."""
    relative_change: float | None = None
    """The norm of the change divided by the norm of the old tensor."""


@dataclass(frozen=True, slots=True)
class TensorDiff:
    """The differences between two checkpoints."""

    changes: list[TensorChange]
    same: int
    """How many tensors are equal, bit for bit."""
    values: dict[str, tuple[Any, Any]]
    """By path, other values that differ: the old and the new one; None if there is none."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.values)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor that is stored separately."""

    name: str
    offsets: tuple[int, ...]
    entry: TensorEntry


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a state, whatever number of pieces the ranks have stored."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    byte_type: str
    """Its type, if the format lacks it: then it is stored as bytes, whose distances are meaningless."""

    def __str__(self) -> str:
        return f"{self.byte_type or self.dtype}{list(self.shape)}"

    @property
    def kind(self) -> tuple[str, str, tuple[int, ...]]:
        return self.dtype, self.byte_type, self.shape

    @property
    def digests(self) -> set[tuple[tuple[int, ...], tuple[int, ...], str]]:
        return {(piece.offsets, piece.entry.shape, piece.entry.digest) for piece in self.pieces}

    def read(self, reader: Reader) -> Bytes:
        """Return its bytes, verified, and joined if there are several pieces."""
        if len(self.pieces) == 1 and self.pieces[0].entry.shape == self.shape:
            return reader.fetch(self.pieces[0].name)
        size = ITEM_BYTES[self.dtype]
        buffer = bytearray(prod(self.shape) * size)
        if sum(piece.entry.bytes for piece in self.pieces) != len(buffer):
            raise Damaged(
                f"stored tensor {self.pieces[0].name} is corrupt: pieces are missing", hint="Use another checkpoint."
            )
        for piece in self.pieces:
            _put(buffer, self.shape, size, piece, reader.fetch(piece.name)[0])
        return memoryview(buffer), self.dtype, self.shape


def compare(old: StoredCheckpoint, new: StoredCheckpoint, run: RunStore) -> TensorDiff:
    """Compare two checkpoints of a run tensor by tensor, whatever number of ranks saved them.

    Reads, and verifies, only tensors whose digests or pieces differ (P8).
    """
    readers = run.reader(old, verify=True), run.reader(new, verify=True)
    texts = [reader.file(found.manifest.state_file) for reader, found in zip(readers, (old, new), strict=True)]
    documents = [json.loads(text) for text in texts]
    before, after = (_tensors(found, document) for found, document in zip((old, new), documents, strict=True))
    comparable = old.manifest.digest_algorithm == new.manifest.digest_algorithm
    changes = []
    same = 0
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was and now and comparable and (was.kind, was.digests) == (now.kind, now.digests):
            same += 1
        elif change := _change(name, was, now, readers):
            changes.append(change)
        else:
            same += 1
    return TensorDiff(changes, same, _values(*documents))


def _tensors(found: StoredCheckpoint, document: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint; pieces that several ranks stored are one tensor."""
    entries, byte_types = dict(found.manifest.tensors), _byte_types(document)
    logical = {}
    for name, about in document.get("dcp", {}).get("tensors", {}).items():
        places = [(chunk["name"], tuple(chunk["offsets"])) for chunk in about["chunks"]]
        pieces = [Piece(each, offsets, entries[each]) for each, offsets in places]
        size, first = tuple(about["size"]), pieces[0].entry if pieces else None
        shape = size + first.shape[len(size) :] if first else size  # stored as bytes, an element is a row
        dtype = first.dtype if first else str(about["dtype"])
        logical[name] = Tensor(dtype, shape, tuple(pieces), about["stored_as"] or "")
    of_ranks = {piece.name for tensor in logical.values() for piece in tensor.pieces}
    for name, entry in entries.items():
        if name not in of_ranks:
            piece = Piece(name, (0,) * len(entry.shape), entry)
            logical[name] = Tensor(entry.dtype, entry.shape, (piece,), byte_types.get(name, ""))
    return logical


def _byte_types(document: dict[str, Any]) -> dict[str, str]:
    """Return, by name, the types that the format lacks."""
    trees = (document["state"], document.get("resume"))
    nodes = [node for tree in trees for _, node in tensors(tree) if "names" in node]
    parts = [(name, about) for node in nodes for name, about in zip(node["names"], node.get("parts", []), strict=False)]
    return {name: str(about["dtype"]) for name, about in parts if about.get("dtype")} | {
        name: str(node["dtype"]) for node in nodes if node.get("dtype") for name in node["names"]
    }


def _put(buffer: bytearray, shape: tuple[int, ...], size: int, piece: Piece, data: memoryview) -> None:
    """Copy a piece to its position, in contiguous runs that are as long as possible."""
    sizes = piece.entry.shape
    starts = piece.offsets + (0,) * (len(shape) - len(piece.offsets))
    axis = len(shape) - 1
    while axis > 0 and sizes[axis] == shape[axis]:
        axis -= 1
    strides = [size * prod(shape[at + 1 :]) for at in range(len(shape))]
    run = sizes[axis] * strides[axis] if shape else size
    outer = itertools.product(*(range(count) for count in sizes[: max(axis, 0)]))
    for number, index in enumerate(outer):
        at = sum(
            (start + step) * stride
            for start, step, stride in zip(starts, (*index, *(0 for _ in starts[len(index) :])), strides, strict=True)
        )
        buffer[at : at + run] = data[number * run : (number + 1) * run]


def _change(name: str, was: Tensor | None, now: Tensor | None, readers: tuple[Reader, Reader]) -> TensorChange | None:
    """Return how a tensor changed, and by how much; None if it is the same, bit for bit."""
    if was is None or now is None:
        return TensorChange(name, "removed" if was else "added", str(was or now))
    if not prod(was.shape) and was.shape == now.shape and not (was.pieces and now.pieces):
        return None  # no bytes and no type are stored
    if was.kind != now.kind:
        return TensorChange(name, "reshaped", f"{was} → {now}")
    before, after = was.read(readers[0]), now.read(readers[1])
    if before[0] == after[0]:
        return None
    side: Any = next((side for side in ("torch", "numpy") if _is_installed(side)), None)
    if side is None or now.byte_type:
        return TensorChange(name, "changed", str(now))
    largest, moved, length = frameworks.named(side).distance(before, after)
    return TensorChange(name, "changed", str(now), largest, moved / length if length else math.inf)


def _is_installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _values(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    before, after = (dict(_leaves(document["state"], "")) for document in (old, new))
    paths = sorted(before.keys() | after.keys())
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def _leaves(tree: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and "$tensor" not in tree:
        for key, item in tree.items():
            if key in ("$dict", "$ordered_dict"):
                pairs = item["items"] if isinstance(item, dict) else item
                for name, inner in pairs:
                    yield from _leaves(inner, f"{where}.{name}".lstrip("."))
            elif key == "$registered":
                yield from _leaves(item["data"], where)
            elif key == "$node":
                for name, inner in zip(item["keys"], item["values"], strict=True):
                    yield from _leaves(inner, f"{where}.{name}".lstrip("."))
            else:
                yield from _leaves(item, where if key.startswith("$") else f"{where}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for at, item in enumerate(tree):
            yield from _leaves(item, f"{where}.{at}".lstrip("."))
    elif not isinstance(tree, dict):
        yield where, tree
