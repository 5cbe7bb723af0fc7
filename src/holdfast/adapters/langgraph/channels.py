"""Channels hand over a copy of what they hold, so that a checkpoint saved in the background is of its own step.

With `durability="async"`, LangGraph's default, a checkpoint is saved by another thread while the next step runs. Its
channels hand over the very set, list or dict that the next step changes in place: a barrier (`add_edge([a, b], c)`) its
set of names, an accumulating topic its list, a reducer such as `operator.ior` its left operand. Every saver then stores
a mixture of two steps. LangGraph calls nothing on a saver between making a checkpoint and that change, so the copy is
taken where the checkpoint is made: in `checkpoint` of LangGraph's own channel classes.
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from langgraph import channels

_CONTAINERS = frozenset({set, list, dict, bytearray, deque, OrderedDict, defaultdict, Counter})
_MARK = "__holdfast_copies__"


def hand_over_copies() -> None:
    """Let LangGraph's channels hand over copies, to whatever saver; to do it again changes nothing."""
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
    """A delta channel's snapshot is made of what it holds, not of its `checkpoint`: it goes on with a copy of that."""

    def updated(channel: Any, values: Any) -> bool:
        if values:
            channel.value = _copied(channel.value)
        return update(channel, values)

    return updated


def _copied(value: Any) -> Any:
    """A container with the same items, which stay what they are: a deep copy would cost the size of the state."""
    if type(value) is tuple:  # of channels that wait for the end of a run: what they hold, and whether it came
        return tuple(each.copy() if type(each) in _CONTAINERS else each for each in value)
    return value.copy() if type(value) in _CONTAINERS else value
