"""Reading a feature list: which features are done, and which one is in progress. Pure; many layouts are accepted.

A list of features, or a mapping with one (`features`, `tasks`, …), or a mapping of names to features. A feature is done
if `passes`, `completed`, `done` … is true or its `status` says so. The current one is what the list names, else the one
in progress, else the first that is not done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_LISTS = ("features", "feature_list", "featureList", "tasks", "items", "stories", "todos")
_NAMES = ("id", "feature_id", "key", "name", "title", "description", "content")
_DONE_FLAGS = ("passes", "passing", "passed", "completed", "complete", "done", "is_complete", "implemented", "finished")
_CURRENT_FLAGS = ("current", "active", "in_progress")
_STATES = ("status", "state")
_DONE = frozenset(
    {"completed", "complete", "done", "passed", "passing", "finished", "closed", "verified", "implemented"}
)
_CURRENT = frozenset({"in_progress", "current", "active", "doing", "started", "wip", "working"})
_NEVER = frozenset({"blocked", "skipped", "cancelled", "canceled", "deferred", "rejected", "failed", "wont_do"})
_CURRENT_KEYS = ("current", "current_feature", "currentFeature", "current_task", "active")
_COMPLETED_KEYS = ("completed", "completed_features", "completedFeatures", "done")


class Features(NamedTuple):
    """The content of a feature list."""

    current: str | None = None
    completed: Sequence[str] = ()
    note: str = ""
    """Why nothing could be read."""


class _Feature(NamedTuple):
    name: str
    is_done: bool
    is_current: bool
    is_open: bool


def read_features(data: bytes, name: str) -> Features:
    """Read a feature list. If it is not JSON, or has no features, the note says so; that is no error."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        return Features(note=f"{name} is not JSON ({why}): saved as a file, its features are unknown")
    found = list(_features(parsed))
    current, completed = _named(parsed, _CURRENT_KEYS), _listed(parsed)
    if not found and current is None and completed is None:
        return Features(note=f"{name} has no features: saved as a file")
    if completed is None:
        completed = [feature.name for feature in found if feature.is_done]
    if current is None:
        working = [feature.name for feature in found if feature.is_current and feature.name not in completed]
        todo = [feature.name for feature in found if feature.is_open and feature.name not in completed]
        current = next(iter((*working, *todo)), None)
    return Features(current, completed)


def _features(parsed: Any) -> Iterator[_Feature]:
    if isinstance(parsed, Mapping):
        inner = next((parsed[key] for key in _LISTS if isinstance(parsed.get(key), list | Mapping)), None)
        if inner is not None:
            parsed = inner
        elif not all(isinstance(value, Mapping) for value in parsed.values()):
            return
    if isinstance(parsed, Mapping):
        yield from (_feature(value, name) for name, value in parsed.items())
    elif isinstance(parsed, list):
        yield from (_feature(value, str(number)) for number, value in enumerate(parsed, 1))


def _feature(parsed: Any, fallback: str) -> _Feature:
    """One feature, by its own name, or the key it is under."""
    if not isinstance(parsed, Mapping):
        word = parsed if isinstance(parsed, str) else ""
        state = _word(word)
        return _Feature(fallback, state in _DONE or parsed is True, state in _CURRENT, state not in _NEVER)
    name = next((str(parsed[key]) for key in _NAMES if isinstance(parsed.get(key), str | int)), fallback)
    states = {_word(parsed[key]) for key in _STATES if isinstance(parsed.get(key), str)}
    done = bool(states & _DONE) or any(parsed.get(key) is True for key in _DONE_FLAGS)
    current = bool(states & _CURRENT) or any(parsed.get(key) is True for key in _CURRENT_FLAGS)
    return _Feature(name, done, current and not done, not done and not states & _NEVER)


def _named(parsed: Any, keys: Sequence[str]) -> str | None:
    values = (parsed.get(key) for key in keys) if isinstance(parsed, Mapping) else ()
    for value in values:
        if isinstance(value, Mapping):
            value = next((value[key] for key in _NAMES if key in value), None)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    return None


def _listed(parsed: Any) -> list[str] | None:
    """The names that the list declares completed; None if it has no such key."""
    values = (parsed.get(key) for key in _COMPLETED_KEYS) if isinstance(parsed, Mapping) else ()
    for value in values:
        if isinstance(value, list):
            return [_feature(each, str(each)).name if isinstance(each, Mapping) else str(each) for each in value]
    return None


def _word(text: str) -> str:
    return text.strip().lower().replace("-", "_").replace(" ", "_")
