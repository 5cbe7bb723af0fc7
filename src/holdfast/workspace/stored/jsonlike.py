"""What has to be JSON whatever it is, such as metadata: checked before it is written down."""

from __future__ import annotations

import json

from holdfast.errors import Refused
from holdfast.model import JSON


def as_json(value: JSON, name: str) -> JSON:
    """A value as JSON brings it back; Refused, with the path of the culprit, unless that is equal."""
    try:
        found = json.loads(json.dumps(value, allow_nan=False))
        if found == value:
            return found
        reason = "it would come back different"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    where = _culprit(value, name, set()) or name
    raise Refused(
        f"{where} cannot be stored: {reason}",
        hint="It may hold None, bool, int, finite float, str, list and dict with str keys.",
    )


def _culprit(value: JSON, path: str, seen: set[int]) -> str | None:
    """The path of the first part that is not JSON-like."""
    if isinstance(value, str):
        return None if _comes_back(value) else path
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        return path if value != value or value in (float("inf"), float("-inf")) else None
    if not isinstance(value, list | dict):
        return f"{path} ({type(value).__name__})"
    if id(value) in seen or len(seen) > 100_000:
        return None
    seen.add(id(value))
    items = enumerate(value) if isinstance(value, list) else value.items()
    for key, item in items:
        inner = f"{path}[{key!r}]"
        if isinstance(value, dict) and (not isinstance(key, str) or not _comes_back(key)):
            return inner
        try:
            found = _culprit(item, inner, seen)
        except RecursionError:
            return path
        if found:
            return found
    return None


def _comes_back(text: str) -> bool:
    return bool(json.loads(json.dumps(text)) == text)
