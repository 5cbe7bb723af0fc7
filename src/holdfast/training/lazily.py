"""Dicts whose tensors are read, and verified, when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.training.tree import ABSENT


class LazyDict(Mapping[Any, Any]):
    """A mapping of a loaded state. What was asked for once is kept. Damaged, at that moment, if it is not sound."""

    def __init__(self, nodes: dict[Any, tuple[Any, str]], build: Callable[[Any, str], Any]) -> None:
        self._nodes = nodes
        self._build = build
        self._made: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        if key not in self._made:
            found = self._build(*self._nodes[key])
            if found is ABSENT:
                raise KeyError(key)
            self._made[key] = found
        return self._made[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def copy(self) -> dict[Any, Any]:
        """All of it, read and verified now, in plain dicts: as optimisers of PyTorch take their state."""
        return {key: _plain(value) for key, value in self.items()}

    def __repr__(self) -> str:
        return f"LazyDict({', '.join(map(repr, self._nodes))})"


def _plain(value: Any) -> Any:
    if isinstance(value, LazyDict):
        return value.copy()
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value
