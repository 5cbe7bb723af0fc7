"""Which arrays of a state share memory: shared memory is stored once, and shared again after a load (P2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.errors import Refused
from holdfast.training import frameworks
from holdfast.training.frameworks.interface import Extent


class PlacedArray(NamedTuple):
    """An array of a state: its path, its framework and type, and where it lies in memory."""

    where: str
    kind: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array that is part of another one; `offset` and `stride` count elements. Without a stride, it is that one."""

    base: int
    offset: int = 0
    stride: tuple[int, ...] | None = None


Span = tuple[str, int, int, int]
"""Of an array that is not empty: device, address of the first byte, address after the last, and its number."""


def find_views(spans: list[Span], placed: Callable[[int], PlacedArray]) -> dict[int, ArrayView]:
    """Return, by number, which arrays are views of which others. `placed` describes an array that overlaps another.

    The base of a view is a contiguous array that contains it, or one that is exactly the same. Refused, with the
    paths, if two arrays share memory in any other way: stored separately they would no longer share it (P2).
    """
    found: dict[int, ArrayView] = {}
    for group in _touching(spans):
        arrays = {at: placed(at) for at in group}
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


def _touching(spans: list[Span]) -> Iterator[list[int]]:
    """Yield groups of arrays whose spans overlap, directly or through others."""
    group: list[int] = []
    reached, place = 0, ""
    for device, first, end, at in sorted(spans):
        if group and device == place and first < reached:
            reached = max(reached, end)
        else:
            if len(group) > 1:
                yield group
            group, reached, place = [], end, device
        group.append(at)
    if len(group) > 1:
        yield group


def _same(arrays: Mapping[int, PlacedArray], group: list[int]) -> dict[int, ArrayView]:
    """Find arrays that are exactly the same as an earlier one that is not contiguous."""
    first: dict[object, int] = {}
    found = {}
    for at in sorted(group):
        array = arrays[at]
        base = first.setdefault((array.kind, array.extent), at)
        if base != at:
            found[at] = ArrayView(base)
    return found


def _view(array: PlacedArray, base: PlacedArray, number: int) -> ArrayView | None:
    inner, outer = array.extent, base.extent
    if array.kind == base.kind and inner == outer:
        return ArrayView(number)
    size = outer.item_bytes
    offset = inner.address - outer.address
    (first, end), (outer_first, outer_end) = inner.span, outer.span
    fits = outer_first <= first and end <= outer_end and not offset % size
    if array.kind != base.kind or outer.steps is not None or not fits or any(step % size for step in inner.strides):
        return None
    return ArrayView(number, offset // size, tuple(step // size for step in inner.strides))


def _pairs(arrays: Mapping[int, PlacedArray], group: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs whose spans overlap."""
    order = sorted((*arrays[at].extent.span, at) for at in group)
    for place, (_, end, one) in enumerate(order):
        for first, _, other in order[place + 1 :]:
            if first >= end:
                break
            yield one, other


def _check_apart(one: PlacedArray, other: PlacedArray) -> None:
    """Refuse two arrays with a common element. Overlapping spans may have none: columns of one matrix."""
    numpy: Any = frameworks.named("numpy")  # installed wherever there are tensors
    if numpy.share_elements(one.extent, other.extent):
        raise Refused(
            f"{one.where} and {other.where} share memory, and neither contains the other",
            hint="Save x.clone() of one of them, or also save the tensor that both are views of.",
        )


def _is_base(array: PlacedArray) -> bool:
    return array.extent.steps is None


def _length(array: PlacedArray) -> int:
    first, end = array.extent.span
    return end - first
