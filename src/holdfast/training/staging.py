"""Copies of a state in memory that is used again and again, so that the state may change while it is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from holdfast.training import frameworks
from holdfast.training.stored.shards import Payload
from holdfast.training.threads import each

_PAGE = 4096


class Arena:
    """One piece of memory, as large as the largest state that it has held; given back by `release`.

    Fresh memory costs more than copying into it: that is paid by the first save alone.
    """

    def __init__(self) -> None:
        self._room: Any = None
        self._framework = ""
        self.n_bytes = 0

    def stage(self, payloads: Sequence[Payload], gate: Sequence[Any] = ()) -> tuple[list[Payload], Callable[[], None]]:
        """Copy the bytes of tensors. Returns the same tensors, to be read from here, and what waits for the copies.

        When this returns the state may be changed: by the processor at once, by a device because its work waits for
        the copies. With `gate`, only steps of these optimisers wait, and the rest goes on beside the copies.
        """
        places = _places(payloads)
        self._make_room(max((end for _, end in places.values()), default=0))
        side: Any = frameworks.named(self._framework)
        devices, late = _devices(payloads, gate) if self._framework == "torch" else (None, set())
        held = [payload for payload in payloads if _address(payload.source) in late]
        first = [payload for payload in payloads if _address(payload.source) not in late]
        for group, waiting in ((first, ()), (held, tuple(gate))):
            here = [payload for payload in group if not _is_on_device(payload.source)]
            each(lambda payload: self._copy(places[payload.name][0], payload.source, None), here)
            for payload in group:
                if _is_on_device(payload.source):
                    self._copy(places[payload.name][0], payload.source, devices)
            if devices and (group or not waiting):
                devices.gate(waiting)
        staged = [
            payload._replace(source=places[payload.name], bytes_of=partial(_bytes_in, side, self._room))
            for payload in payloads
        ]
        return staged, devices.finished if devices else lambda: None

    def release(self) -> None:
        """Give the memory back."""
        self._room, self.n_bytes = None, 0

    def _make_room(self, n_bytes: int) -> None:
        framework = "torch" if "torch" in sys.modules else "numpy"
        if n_bytes > self.n_bytes or framework != self._framework or self._room is None:
            self._room = None  # the old goes before the new comes: never two at once
            self._framework = framework
            side: Any = frameworks.named(framework)
            self._room = side.make_room(n_bytes)
            self.n_bytes = n_bytes

    def _copy(self, start: int, source: Any, devices: Any) -> None:
        side = frameworks.claimed(source)
        if side is None:
            raise AssertionError(f"{type(source)} is no array")
        with devices.copying(source) if devices else nullcontext():
            side.copy_into(self._room, start, source)


def _places(payloads: Sequence[Payload]) -> dict[str, tuple[int, int]]:
    """Where each tensor begins and ends; each begins on a page."""

    def places() -> Iterator[tuple[str, tuple[int, int]]]:
        at = 0
        for payload in payloads:
            yield payload.name, (at, at + payload.n_bytes)
            at = -(-(at + payload.n_bytes) // _PAGE) * _PAGE

    return dict(places())


def _devices(payloads: Sequence[Payload], gate: Sequence[Any]) -> tuple[Any, set[int]]:
    """The CUDA devices that a state lies on, and where the tensors lie that only a step of the gated ones changes."""
    from holdfast.training.frameworks.torch_gate import Devices, held_by  # PyTorch is there, as it was found

    devices = Devices(payload.source for payload in payloads)
    held: set[int] = set().union(*(held_by(optimizer) for optimizer in gate)) if devices.devices else set()
    return devices, held


def _bytes_in(side: Any, room: Any, place: tuple[int, int]) -> memoryview:
    start, end = place
    found: memoryview = side.bytes_in(room, start, end - start)
    return found


def _is_on_device(source: Any) -> bool:
    return bool(getattr(source, "is_cuda", False))


def _address(source: Any) -> int | None:
    return source.data_ptr() if hasattr(source, "data_ptr") else None
