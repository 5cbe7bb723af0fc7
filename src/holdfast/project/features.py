"""What a feature list says: which features are done, and which is being worked on. Pure; a list may have many shapes.

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
    """What a list says."""

    current: str | None = None
    completed: Sequence[str] = ()
    note: str = ""
    """Why nothing could be told."""


class _Feature(NamedTuple):
    name: str
    is_done: bool
    is_current: bool
    is_open: bool


def read_features(data: bytes, name: str) -> Features:
    """Read a feature list. What is no JSON, or says nothing of features, is no error: the note says so."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        return Features(note=f"{name} is not JSON ({why}): it is kept as a file, and says nothing of features")
    found = list(_features(said))
    current, completed = _named(said, _CURRENT_KEYS), _listed(said)
    if not found and current is None and completed is None:
        return Features(note=f"{name} says nothing of features: it is kept as a file")
    if completed is None:
        completed = [feature.name for feature in found if feature.is_done]
    if current is None:
        working = [feature.name for feature in found if feature.is_current and feature.name not in completed]
        todo = [feature.name for feature in found if feature.is_open and feature.name not in completed]
        current = next(iter((*working, *todo)), None)
    return Features(current, completed)


def _features(said: Any) -> Iterator[_Feature]:
    if isinstance(said, Mapping):
        inner = next((said[key] for key in _LISTS if isinstance(said.get(key), list | Mapping)), None)
        if inner is not None:
            said = inner
        elif not all(isinstance(value, Mapping) for value in said.values()):
            return
    if isinstance(said, Mapping):
        yield from (_feature(value, name) for name, value in said.items())
    elif isinstance(said, list):
        yield from (_feature(value, str(number)) for number, value in enumerate(said, 1))


def _feature(said: Any, fallback: str) -> _Feature:
    """One feature, by the name it has, or the one it stands under."""
    if not isinstance(said, Mapping):
        word = said if isinstance(said, str) else ""
        state = _word(word)
        return _Feature(fallback, state in _DONE or said is True, state in _CURRENT, state not in _NEVER)
    name = next((str(said[key]) for key in _NAMES if isinstance(said.get(key), str | int)), fallback)
    states = {_word(said[key]) for key in _STATES if isinstance(said.get(key), str)}
    done = bool(states & _DONE) or any(said.get(key) is True for key in _DONE_FLAGS)
    current = bool(states & _CURRENT) or any(said.get(key) is True for key in _CURRENT_FLAGS)
    return _Feature(name, done, current and not done, not done and not states & _NEVER)


def _named(said: Any, keys: Sequence[str]) -> str | None:
    values = (said.get(key) for key in keys) if isinstance(said, Mapping) else ()
    for value in values:
        if isinstance(value, Mapping):
            value = next((value[key] for key in _NAMES if key in value), None)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    return None


def _listed(said: Any) -> list[str] | None:
    """The names that a list gives as completed, if it does."""
    values = (said.get(key) for key in _COMPLETED_KEYS) if isinstance(said, Mapping) else ()
    for value in values:
        if isinstance(value, list):
            return [_feature(each, str(each)).name if isinstance(each, Mapping) else str(each) for each in value]
    return None


def _word(text: str) -> str:
    return text.strip().lower().replace("-", "_").replace(" ", "_")
