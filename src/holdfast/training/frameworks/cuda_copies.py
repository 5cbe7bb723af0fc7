"""Asynchronous copies from CUDA devices, and the gate that makes changes of the state wait for them."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


class Devices:
    """Copies from CUDA devices on side streams, while the devices compute.

    Until `finished` has returned, the sources must not change: `gate` makes each device wait before it changes them.
    """

    def __init__(self, sources: Any) -> None:
        self.devices = sorted(
            {source.device.index for source in sources if isinstance(source, torch.Tensor) and source.is_cuda}
        )
        self._streams = {device: _stream(device) for device in self.devices}
        self._events: list[Any] = []
        for device, stream in self._streams.items():
            stream.wait_stream(torch.cuda.current_stream(device))

    def copying(self, source: Any) -> Any:
        """Return a context in which copies from the device of a source are on its side stream."""
        on_device = isinstance(source, torch.Tensor) and source.is_cuda
        return torch.cuda.stream(self._streams[source.device.index]) if on_device else contextlib.nullcontext()

    def gate(self, optimizers: Any = ()) -> None:
        """Make everything the devices do from now on wait for the copies so far; or only the steps of optimizers."""
        events = {device: stream.record_event() for device, stream in self._streams.items()}
        self._events += events.values()

        def wait(*_: Any) -> None:
            for device, event in events.items():
                torch.cuda.current_stream(device).wait_event(event)

        if not optimizers:
            wait()
        for optimizer in optimizers:
            _once_before_step(optimizer, wait)

    def finished(self) -> None:
        """Wait until all copies are complete."""
        for event in self._events:
            event.synchronize()


_side_streams: dict[int, Any] = {}


def _stream(device: int) -> Any:
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)
    return _side_streams[device]


_hooks: list[tuple[Any, list[Any]]] = []


def _once_before_step(optimizer: Any, wait: Any) -> None:
    """Call a function before the next step. A hook cannot remove itself while hooks run, so the next save does."""
    for handle, waiting in [pair for pair in _hooks if not pair[1]]:
        handle.remove()
        _hooks.remove((handle, waiting))
    waiting = [wait]

    def hook(*_: Any) -> None:
        while waiting:
            waiting.pop()()

    _hooks.append((optimizer.register_step_pre_hook(hook), waiting))


def held_by(optimizer: Any) -> set[int]:
    """Return the addresses of the tensors that only a step of this optimizer changes."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    return {tensor.data_ptr() for tensor in (*parameters, *moments)}
