"""The interface of a framework's module, and the values it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple, Protocol

from holdfast.training.stored.shards import ITEM_BYTES, Payload

# Tuples, not dataclasses: a state may have tens of thousands of tensors, and these are made for each of them


class Extent(NamedTuple):
    """Where an array lies in memory. Two that overlap share memory."""

    device: str
    address: int
    shape: tuple[int, ...]
    steps: tuple[int, ...] | None
    """Its strides in bytes; None if it is contiguous."""
    item_bytes: int

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        if self.steps is not None:
            return self.steps
        return tuple(self.item_bytes * prod(self.shape[at + 1 :]) for at in range(len(self.shape)))

    @property
    def span(self) -> tuple[int, int]:
        """The address of the first byte, and the address after the last."""
        if self.steps is None:
            return self.address, self.address + prod(self.shape) * self.item_bytes
        reaches = [stride * (size - 1) for size, stride in zip(self.shape, self.steps, strict=True)]
        first = self.address + sum(min(0, reach) for reach in reaches)
        return first, self.address + sum(max(0, reach) for reach in reaches) + self.item_bytes


class ArrayParts(NamedTuple):
    """An array decomposed into what the format can store."""

    payloads: tuple[Payload, ...]
    """Their names begin with the path of the array."""
    details: dict[str, Any]
    """What else is needed to rebuild it, as JSON."""
    extent: Extent | None = None
    """Where it lies in memory; None if memory says nothing about sharing."""
    transform: str = ""
    """How its memory differs from what is stored, such as conjugated. Arrays with different ones are never one."""


PlainArray = tuple[Payload, int, int]
"""A contiguous array in main memory without details, the address of its first byte, and the address after its last.

Nearly all arrays are plain, a state may have tens of thousands, and an `ArrayParts` takes longer to make than the rest.
"""


def as_parts(array: ArrayParts | PlainArray) -> ArrayParts:
    """Return a plain array as ArrayParts."""
    if isinstance(array, ArrayParts):
        return array
    payload, address, _ = array
    return ArrayParts((payload,), {}, Extent("cpu", address, payload.shape, None, ITEM_BYTES[payload.dtype]))


class Framework(Protocol):
    """The functions of a framework's module. PyTorch's and NumPy's also have `allocate` and `bytes_at`, for copies."""

    NAME: str

    def is_array(self, value: Any) -> bool:
        """Whether a value is an array of this framework."""

    def decompose_all(self, arrays: Iterable[tuple[Any, str]]) -> list[ArrayParts | PlainArray]:
        """Decompose arrays, given with their paths, without copying. Refused if one cannot be rebuilt exactly (P2)."""

    def rebuild(
        self, details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], device: Any
    ) -> Any:
        """Build an array from its bytes, on a device if one is named. The bytes are copied only if necessary."""

    def view(self, base: Any, details: Mapping[str, Any]) -> Any:
        """Make a view of an array that was rebuilt."""

    def copy_into(self, buffer: Any, start: int, source: Any) -> None:
        """Copy the bytes of an array, in order, into memory from `allocate`."""

    def capture_rng(self) -> dict[str, Any]:
        """Return the random states as values that can be saved."""

    def restore_rng(self, captured: Mapping[str, Any]) -> list[str]:
        """Restore random states. Return what could not be restored (P4)."""

    def distance(self, old: Any, new: Any) -> tuple[float, float, float]:
        """Of two arrays of one type and shape, return the greatest change, and the norms of the change and of `old`."""
