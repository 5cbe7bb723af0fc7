"""Makes channels return copies of their values, so that a checkpoint saved in the background is of its own step.

With `durability="async"`, LangGraph's default, a checkpoint is saved by another thread while the next step runs. Its
channels return the same set, list or dict that the next step changes in place: a barrier (`add_edge([a, b], c)`) its
set of names, an accumulating topic its list, a reducer such as `operator.ior` its left operand. Every saver then stores
a mixture of two steps. LangGraph calls no method of a saver between creating a checkpoint and that change, so the copy
is made where the checkpoint is created: in `checkpoint` of LangGraph's own channel classes.
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from langgraph import channels

_CONTAINERS = frozenset({set, list, dict, bytearray, deque, OrderedDict, defaultdict, Counter})
_MARK = "__holdfast_copies__"


def copy_channel_values() -> None:
    """Make LangGraph's channels return copies, for every saver of the process. Calling it again changes nothing."""
    for name in channels.__all__:
        cls = getattr(channels, name)
        _wrap(cls, "checkpoint", _copying)
    _wrap(channels.DeltaChannel, "update", _leaving)


def _wrap(cls: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
    method = vars(cls).get(name)
    if method is not None and not hasattr(method, _MARK):
        replaced = functools.wraps(method)(wrapped(method))
        setattr(replaced, _MARK, True)
        setattr(cls, name, replaced)


def _copying(checkpoint: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda channel: _copied(checkpoint(channel))


def _leaving(update: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A delta channel's snapshot is its value, not the result of `checkpoint`: the channel continues with a copy."""

    def updated(channel: Any, values: Any) -> bool:
        if values:
            channel.value = _copied(channel.value)
        return update(channel, values)

    return updated


def _copied(value: Any) -> Any:
    """A shallow copy of a container: a deep copy would cost the size of the state."""
    if type(value) is tuple:  # of channels that wait for the end of a run: the value, and whether the run ended
        return tuple(each.copy() if type(each) in _CONTAINERS else each for each in value)
    return value.copy() if type(value) in _CONTAINERS else value
