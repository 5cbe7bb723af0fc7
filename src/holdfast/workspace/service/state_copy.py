"""Copying state when a call is made, so that the caller may go on changing it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import Refused
from holdfast.model import JSON
from holdfast.workspace.stored.state_json import Spelling

CONVERSATION = "conversation"
"""The name of a state that is given without a name."""
_ATOMS = frozenset({type(None), bool, int, float, str})
_AT_ONCE = 50_000  # values; copying them takes some 20 ms, and texts are not copied at all


def as_state(state: JSON) -> Mapping[str, JSON] | None:
    """Return named values as they are; anything else under the name `conversation`."""
    return state if state is None or isinstance(state, Mapping) else {CONVERSATION: state}


def copied(values: Mapping[str, JSON] | None, spelling: Spelling | None) -> Mapping[str, JSON] | None:
    """Return a deep copy; of JSON with more than 50,000 values only the first part is copied.

    Values of other classes are serialized now, if there is a spelling: only the serializer knows their parts.
    """
    if values is None:
        return None
    left = [_AT_ONCE]
    try:
        return {name: _value(name, value, left, spelling) for name, value in values.items()}
    except RecursionError:
        return values


class _Other(Exception):
    """A value is not JSON."""


def _value(name: str, value: JSON, left: list[int], spelling: Spelling | None) -> JSON:
    if spelling is None:
        return _copied(value, left, strict=False)
    try:
        return _copied(value, left, strict=True)
    except _Other:
        try:
            return spelling.tagged(value, f"state {name}")
        except Refused:
            return value  # `save` refuses it again, and reports it


def _copied(value: JSON, left: list[int], *, strict: bool) -> JSON:
    kind = type(value)
    if kind is list:
        left[0] -= len(value)
        return [_copied(item, left, strict=strict) for item in value] if left[0] > 0 else value
    if kind is dict:
        left[0] -= len(value)
        return {key: _copied(item, left, strict=strict) for key, item in value.items()} if left[0] > 0 else value
    if strict and kind not in _ATOMS:
        raise _Other
    return value
