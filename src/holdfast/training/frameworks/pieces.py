"""What every framework's file offers, and what it hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an array lies in memory; two that overlap share it."""

    device: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    item_bytes: int

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def first(self) -> int:
        return self.address + sum(
            min(0, stride * (size - 1)) for size, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + sum(max(0, reach) for reach in self._reaches) + self.item_bytes

    @property
    def _reaches(self) -> list[int]:
        return [stride * (size - 1) for size, stride in zip(self.shape, self.strides, strict=True)]

    @property
    def is_contiguous(self) -> bool:
        expected = self.item_bytes
        for size, stride in reversed(list(zip(self.shape, self.strides, strict=True))):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True, slots=True)
class Part:
    """An array that the format can hold: a type that it knows, and a way to the bytes."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], memoryview]
    suffix: str = ""
    """What follows the name, where one value needs several arrays."""
    source: Any = None
    """The array itself, for whoever copies it without reading it."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A value taken apart."""

    parts: tuple[Part, ...]
    about: dict[str, Any] = field(default_factory=dict)
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
