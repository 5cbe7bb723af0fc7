"""Which arrays of a state share memory: what is one in memory is stored once, and comes back as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.errors import Refused
from holdfast.training import frameworks
from holdfast.training.frameworks.pieces import Extent


class Placed(NamedTuple):
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


def find_views(extents: Sequence[Extent | None], placed: Callable[[int], Placed]) -> dict[int, View]:
    """By number, which arrays are views of which others. `placed` tells the rest of those that overlap.

    A view is of an array that lies in one piece and contains it, or of one that is exactly the same. Refused, by
    name, if two arrays share memory in any other way: stored as two they would come back as something else.
    """
    found: dict[int, View] = {}
    for group in _touching(extents):
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


def _touching(extents: Sequence[Extent | None]) -> Iterator[list[int]]:
    """Groups of arrays whose stretches of memory overlap, directly or by way of others."""
    spans = [(extent.device, *extent.span, at) for at, extent in enumerate(extents) if extent and 0 not in extent.shape]
    spans.sort()
    group: list[int] = []
    reached, place = 0, ""
    for device, first, end, at in spans:
        if group and device == place and first < reached:
            reached = max(reached, end)
        else:
            if len(group) > 1:
                yield group
            group, reached, place = [], end, device
        group.append(at)
    if len(group) > 1:
        yield group


def _same(arrays: Mapping[int, Placed], group: list[int]) -> dict[int, View]:
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
    (first, end), (outer_first, outer_end) = inner.span, outer.span
    fits = outer_first <= first and end <= outer_end and not offset % size
    if array.kind != base.kind or outer.steps is not None or not fits or any(step % size for step in inner.strides):
        return None
    return View(number, offset // size, tuple(step // size for step in inner.strides))


def _pairs(arrays: Mapping[int, Placed], group: list[int]) -> Iterator[tuple[int, int]]:
    """The pairs whose stretches overlap."""
    order = sorted((*arrays[at].extent.span, at) for at in group)
    for place, (_, end, one) in enumerate(order):
        for first, _, other in order[place + 1 :]:
            if first >= end:
                break
            yield one, other


def _check_apart(one: Placed, other: Placed) -> None:
    """Stretches that overlap may still have no element in common: columns of one matrix."""
    side: Any = frameworks.named("numpy")  # whoever has tensors has it
    if side.share_elements(one.extent, other.extent):
        raise Refused(
            f"{one.where} and {other.where} share memory, and neither is a part of the other",
            hint="Save x.clone() of one of them, or the tensor that both are views of beside them.",
        )


def _is_base(array: Placed) -> bool:
    return array.extent.steps is None


def _length(array: Placed) -> int:
    first, end = array.extent.span
    return end - first
