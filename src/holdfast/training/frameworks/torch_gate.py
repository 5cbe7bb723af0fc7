"""Copies from CUDA devices beside their work, and the gate at which whatever would change the state waits for them."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


class Devices:
    """Copies from CUDA devices that go on beside the work of the devices.

    Until `finished` has returned, what is copied must not change: `gate` makes each device wait at the right place.
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
        """A context in which copies from a source's device are on its side stream."""
        on_device = isinstance(source, torch.Tensor) and source.is_cuda
        return torch.cuda.stream(self._streams[source.device.index]) if on_device else contextlib.nullcontext()

    def gate(self, optimizers: Any = ()) -> None:
        """Let whatever the devices do from here on wait for the copies made so far; or only the optimisers' steps."""
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
        """Wait until everything is copied."""
        for event in self._events:
            event.synchronize()


_side_streams: dict[int, Any] = {}


def _stream(device: int) -> Any:
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)
    return _side_streams[device]


_hooks: list[tuple[Any, list[Any]]] = []


def _once_before_step(optimizer: Any, wait: Any) -> None:
    """Call something before the next step. A hook cannot remove itself while hooks are called: the next save does."""
    for handle, waiting in [pair for pair in _hooks if not pair[1]]:
        handle.remove()
        _hooks.remove((handle, waiting))
    waiting = [wait]

    def hook(*_: Any) -> None:
        while waiting:
            waiting.pop()()

    _hooks.append((optimizer.register_step_pre_hook(hook), waiting))


def held_by(optimizer: Any) -> set[int]:
    """Where the tensors lie that only a step of this optimiser changes."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    return {tensor.data_ptr() for tensor in (*parameters, *moments)}
