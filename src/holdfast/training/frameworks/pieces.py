"""What every framework's file offers, and what it hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, Protocol

# Tuples, and not dataclasses: a state may have tens of thousands of tensors, and these are made for each of them


class Extent(NamedTuple):
    """Where an array lies in memory; two that overlap share it."""

    device: str
    address: int
    shape: tuple[int, ...]
    steps: tuple[int, ...] | None
    """Its strides, in bytes; None where it lies in one piece and in order."""
    item_bytes: int

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        if self.steps is not None:
            return self.steps
        return tuple(self.item_bytes * prod(self.shape[at + 1 :]) for at in range(len(self.shape)))

    @property
    def span(self) -> tuple[int, int]:
        """The address of the first byte, and the one after the last."""
        if self.steps is None:
            return self.address, self.address + prod(self.shape) * self.item_bytes
        reaches = [stride * (size - 1) for size, stride in zip(self.shape, self.steps, strict=True)]
        first = self.address + sum(min(0, reach) for reach in reaches)
        return first, self.address + sum(max(0, reach) for reach in reaches) + self.item_bytes


class Part(NamedTuple):
    """An array that the format can hold: a type that it knows, the array itself, and a way to its bytes."""

    dtype: str
    shape: tuple[int, ...]
    source: Any
    bytes_of: Callable[[Any], memoryview]
    """The bytes of the source, in order."""
    suffix: str = ""
    """What follows the name, where one value needs several arrays."""


class Lowered(NamedTuple):
    """A value taken apart."""

    parts: tuple[Part, ...]
    about: dict[str, Any]
    """What else is needed to make it again; JSON."""
    extent: Extent | None = None
    """Where it lies, if sharing can be told from that."""
    twist: str = ""
    """What its memory has to undergo to be what is stored; two that differ in it are never one."""


class Framework(Protocol):
    """The verbs of a framework's file. PyTorch's and NumPy's also have `make_room` and `bytes_in`, to copy into."""

    NAME: str

    def claims(self, value: Any) -> bool:
        """Whether a value is an array of this framework."""

    def lower(self, value: Any, where: str) -> Lowered:
        """Take an array apart, without copying it. Refused, by name, if it cannot be made again exactly."""

    def raise_(self, about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], place: Any) -> Any:
        """Make an array of its bytes, on a device where one is named; the bytes are not copied if they need not be."""

    def view(self, base: Any, about: Mapping[str, Any]) -> Any:
        """Make a view of an array that was made before."""

    def copy_into(self, room: Any, start: int, source: Any) -> None:
        """Copy an array, in order, into memory that `make_room` made."""

    def capture_rng(self) -> dict[str, Any]:
        """Random states, as values that can be saved."""

    def restore_rng(self, captured: Mapping[str, Any]) -> list[str]:
        """Set random states back; returns what could not be."""

    def distance(self, old: Any, new: Any) -> tuple[float, float, float]:
        """Of two arrays of one type and shape: the greatest change, the length of the difference and of the old."""
