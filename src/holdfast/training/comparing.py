"""What differs between two checkpoints: which tensors changed, and by how much."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.training import frameworks
from holdfast.training.folder import Found, TrainingFolder
from holdfast.training.reading import Reader
from holdfast.training.stored.manifest import TensorEntry
from holdfast.training.tree import tensors


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
    """The length of the difference over the length of the old tensor."""


@dataclass(frozen=True, slots=True)
class StateDiff:
    """What differs between two checkpoints."""

    changes: list[TensorChange]
    same: int
    """How many tensors are equal, bit for bit."""
    values: dict[str, tuple[Any, Any]]
    """By path, values that are no tensors and differ: the old and the new; None where there is none."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.values)


def compare(old: Found, new: Found, run: TrainingFolder) -> StateDiff:
    """Compare two checkpoints of a run; only tensors whose digests differ are read, and verified."""
    readers = run.reader(old, verify=True), run.reader(new, verify=True)
    texts = [reader.file(found.manifest.state_file) for reader, found in zip(readers, (old, new), strict=True)]
    documents = [json.loads(text) for text in texts]
    disguised = set().union(*map(_disguised, documents))
    before, after = old.manifest.tensors, new.manifest.tensors
    changes = []
    same = 0
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was and now and (was.digest, was.dtype, was.shape) == (now.digest, now.dtype, now.shape):
            same += 1
        else:
            changes.append(_change(name, was, now, None if name in disguised else readers))
    return StateDiff(changes, same, _values(*documents))


def _disguised(document: dict[str, Any]) -> set[str]:
    """The tensors whose type the format does not have: they are stored as bytes, whose distances say nothing."""
    trees = (document["state"], document.get("resume"))
    nodes = [node for tree in trees for _, node in tensors(tree) if "names" in node]
    parts = [(name, about) for node in nodes for name, about in zip(node["names"], node.get("parts", []), strict=False)]
    return {name for name, about in parts if about.get("dtype")} | {
        name for node in nodes if node.get("dtype") for name in node["names"]
    }


def _change(
    name: str, was: TensorEntry | None, now: TensorEntry | None, readers: tuple[Reader, Reader] | None
) -> TensorChange:
    """What became of a tensor; how far it moved only with `readers` of the old and the new."""
    if was is None or now is None:
        entry = was or now
        assert entry is not None
        return TensorChange(name, "removed" if was else "added", _shown(entry))
    if (was.dtype, was.shape) != (now.dtype, now.shape):
        return TensorChange(name, "reshaped", f"{_shown(was)} → {_shown(now)}")
    side: Any = next((side for side in ("torch", "numpy") if _is_there(side)), None)
    if side is None or readers is None:
        return TensorChange(name, "changed", _shown(now))
    largest, moved, length = frameworks.named(side).distance(readers[0].fetch(name), readers[1].fetch(name))
    return TensorChange(name, "changed", _shown(now), largest, moved / length if length else math.inf)


def _is_there(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _shown(entry: TensorEntry) -> str:
    return f"{entry.dtype}{list(entry.shape)}"


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
            else:
                yield from _leaves(item, where if key.startswith("$") else f"{where}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for at, item in enumerate(tree):
            yield from _leaves(item, f"{where}.{at}".lstrip("."))
    elif not isinstance(tree, dict):
        yield where, tree
