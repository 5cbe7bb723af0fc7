"""Which arrays of a state share memory: what is one in memory is stored once, and comes back as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Refused
from holdfast.training import frameworks
from holdfast.training.frameworks.pieces import Extent


@dataclass(frozen=True, slots=True)
class Placed:
    """An array of a state: what it is called, of which framework and type it is, and where it lies."""

    where: str
    kind: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class View:
    """An array that is part of another one; `offset` and `stride` count elements. Without a stride it is the same."""

    base: int
    offset: int = 0
    stride: tuple[int, ...] | None = None


def find_views(arrays: Sequence[Placed]) -> dict[int, View]:
    """By number, which arrays are views of which others.

    A view is of an array that lies in one piece and contains it, or of one that is exactly the same. Refused, by
    name, if two arrays share memory in any other way: stored as two they would come back as something else.
    """
    found: dict[int, View] = {}
    for group in _touching(arrays):
        base = max(group, key=lambda at: (_is_base(arrays[at]), _length(arrays[at]), -at))
        rest = []
        for at in group:
            view = _view(arrays[at], arrays[base], base) if at != base else None
            if view is not None:
                found[at] = view
            elif at != base:
                rest.append(at)
        found |= _same(arrays, [*rest, base])
        alone = [at for at in (*rest, base) if at not in found]
        for first, second in _pairs(arrays, alone):
            _check_apart(arrays[first], arrays[second])
    return found


def _touching(arrays: Sequence[Placed]) -> Iterator[list[int]]:
    """Groups of arrays whose stretches of memory overlap, directly or by way of others."""
    order = [at for at, array in enumerate(arrays) if not array.extent.is_empty]
    order.sort(key=lambda at: (arrays[at].extent.device, arrays[at].extent.first))
    group: list[int] = []
    end, device = 0, ""
    for at in order:
        extent = arrays[at].extent
        if group and extent.device == device and extent.first < end:
            end = max(end, extent.end)
        else:
            if len(group) > 1:
                yield group
            group, end, device = [], extent.end, extent.device
        group.append(at)
    if len(group) > 1:
        yield group


def _same(arrays: Sequence[Placed], group: list[int]) -> dict[int, View]:
    """Those that are exactly what an earlier one is, though that one does not lie in one piece."""
    first: dict[object, int] = {}
    found = {}
    for at in sorted(group):
        array = arrays[at]
        base = first.setdefault((array.kind, array.extent), at)
        if base != at:
            found[at] = View(base)
    return found


def _view(array: Placed, base: Placed, number: int) -> View | None:
    inner, outer = array.extent, base.extent
    if array.kind == base.kind and inner == outer:
        return View(number)
    size = outer.item_bytes
    offset = inner.address - outer.address
    fits = outer.first <= inner.first and inner.end <= outer.end and not offset % size
    if array.kind != base.kind or not outer.is_contiguous or not fits or any(step % size for step in inner.strides):
        return None
    return View(number, offset // size, tuple(step // size for step in inner.strides))


def _pairs(arrays: Sequence[Placed], group: list[int]) -> Iterator[tuple[int, int]]:
    """The pairs whose stretches overlap."""
    order = sorted(group, key=lambda at: arrays[at].extent.first)
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            if arrays[second].extent.first >= arrays[first].extent.end:
                break
            yield first, second


def _check_apart(one: Placed, other: Placed) -> None:
    """Stretches that overlap may still have no element in common: columns of one matrix."""
    side: Any = frameworks.named("numpy")  # whoever has tensors has it
    if side.share_elements(one.extent, other.extent):
        raise Refused(
            f"{one.where} and {other.where} share memory, and neither is a part of the other",
            hint="Save x.clone() of one of them, or the tensor that both are views of beside them.",
        )


def _is_base(array: Placed) -> bool:
    return array.extent.is_contiguous


def _length(array: Placed) -> int:
    return array.extent.end - array.extent.first
