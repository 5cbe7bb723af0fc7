"""The state that a service is given: a conversation or named values, copied at once, so that it may go on."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import JSON

CONVERSATION = "conversation"
"""The name of a state that is given without one."""
_AT_ONCE = 50_000  # values; copying them takes some 20 ms, and texts are not copied at all


def as_state(state: JSON) -> Mapping[str, JSON] | None:
    """Named values as they are; anything else under the name `conversation`."""
    return state if state is None or isinstance(state, Mapping) else {CONVERSATION: state}


def copied(state: Mapping[str, JSON] | None) -> Mapping[str, JSON] | None:
    """A copy that later changes do not reach; of a very large state only the first part is copied."""
    if state is None:
        return None
    left = [_AT_ONCE]
    try:
        return {name: _copied(value, left) for name, value in state.items()}
    except RecursionError:
        return state


def _copied(value: JSON, left: list[int]) -> JSON:
    """Only exact lists and dicts are copied; whatever else there is, storing it decides."""
    kind = type(value)
    if kind is list:
        left[0] -= len(value)
        return [_copied(item, left) for item in value] if left[0] > 0 else value
    if kind is dict:
        left[0] -= len(value)
        return {key: _copied(item, left) for key, item in value.items()} if left[0] > 0 else value
    return value
