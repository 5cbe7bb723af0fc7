"""A reusable buffer for the copy of a state, so that the state may change while it is written."""

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


class StagingBuffer:
    """Memory as large as the largest state it has held, until `release`.

    Allocating memory costs more than copying into it, so only the first save pays for that.
    """

    def __init__(self) -> None:
        self._buffer: Any = None
        self._framework = ""
        self.n_bytes = 0

    def stage(self, payloads: Sequence[Payload], gate: Sequence[Any] = ()) -> tuple[list[Payload], Callable[[], None]]:
        """Copy the bytes of tensors. Return the tensors with the copies as source, and a function that waits for them.

        When this returns the state may change: copies by the CPU are complete, and devices wait for theirs before
        they go on. With `gate`, only steps of these optimizers wait, and other work overlaps with the copies.
        """
        places = _places(payloads)
        self._grow(max((end for _, end in places.values()), default=0))
        module: Any = frameworks.named(self._framework)
        devices, gated = _devices(payloads, gate) if self._framework == "torch" else (None, set())
        last = [payload for payload in payloads if _address(payload.source) in gated]
        first = [payload for payload in payloads if _address(payload.source) not in gated]
        for group, waiting in ((first, ()), (last, tuple(gate))):
            on_cpu = [payload for payload in group if not _is_on_device(payload.source)]
            each(lambda payload: self._copy(places[payload.name][0], payload.source, None), on_cpu)
            for payload in group:
                if _is_on_device(payload.source):
                    self._copy(places[payload.name][0], payload.source, devices)
            if devices and (group or not waiting):
                devices.gate(waiting)
        staged = [
            payload._replace(source=places[payload.name], bytes_of=partial(_bytes_at, module, self._buffer))
            for payload in payloads
        ]
        return staged, devices.finished if devices else lambda: None

    def release(self) -> None:
        """Free the memory."""
        self._buffer, self.n_bytes = None, 0

    def _grow(self, n_bytes: int) -> None:
        framework = "torch" if "torch" in sys.modules else "numpy"
        if n_bytes > self.n_bytes or framework != self._framework or self._buffer is None:
            self._buffer = None  # free the old buffer before allocating the new one
            self._framework = framework
            module: Any = frameworks.named(framework)
            self._buffer = module.allocate(n_bytes)
            self.n_bytes = n_bytes

    def _copy(self, start: int, source: Any, devices: Any) -> None:
        framework = frameworks.framework_of(source)
        if framework is None:
            raise AssertionError(f"{type(source)} is not an array")
        with devices.copying(source) if devices else nullcontext():
            framework.copy_into(self._buffer, start, source)


def _places(payloads: Sequence[Payload]) -> dict[str, tuple[int, int]]:
    """Return where each tensor begins and ends in the buffer; each begins on a page."""

    def places() -> Iterator[tuple[str, tuple[int, int]]]:
        at = 0
        for payload in payloads:
            yield payload.name, (at, at + payload.n_bytes)
            at = -(-(at + payload.n_bytes) // _PAGE) * _PAGE

    return dict(places())


def _devices(payloads: Sequence[Payload], gate: Sequence[Any]) -> tuple[Any, set[int]]:
    """Return the CUDA devices of a state, and the addresses of tensors that only steps of gated optimizers change."""
    from holdfast.training.frameworks.cuda_copies import Devices, held_by  # PyTorch is loaded

    devices = Devices(payload.source for payload in payloads)
    held: set[int] = set().union(*(held_by(optimizer) for optimizer in gate)) if devices.devices else set()
    return devices, held


def _bytes_at(module: Any, buffer: Any, place: tuple[int, int]) -> memoryview:
    start, end = place
    found: memoryview = module.bytes_at(buffer, start, end - start)
    return found


def _is_on_device(source: Any) -> bool:
    return bool(getattr(source, "is_cuda", False))


def _address(source: Any) -> int | None:
    return source.data_ptr() if hasattr(source, "data_ptr") else None
