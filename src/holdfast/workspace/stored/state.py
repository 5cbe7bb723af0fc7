"""Named state, such as a conversation, stored beside the files: JSON-like values that come back equal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from holdfast.errors import Damaged, Refused
from holdfast.model import JSON
from holdfast.shadowgit import Kind, TreeEntry, encode_tree
from holdfast.workspace.stored.parts import JSON_TOKENS, Sink, Source, read_parts, write_parts
from holdfast.workspace.stored.pieces import encode_pieces

_NAME = re.compile(r"[\w][\w .:@+-]{0,150}")
_SUFFIX = b".json"
PROBE_BYTES = 1 << 10
"""As much of a text as can be looked for in two parts of a state at a time: less than the smallest has."""


def write_state(sink: Sink, state: Mapping[str, JSON]) -> bytes:
    """Store named values in a tree. Refused, with the path of the value, if one would not come back equal."""
    if not isinstance(state, Mapping):
        raise Refused("state is not a mapping of names to values", hint=f"It is of type {type(state).__name__}.")
    entries = []
    for name, value in state.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(f"{name!r} cannot name a state", hint="Use letters, digits, spaces and . : @ + - _")
        mode, oid = write_parts(sink, encode_value(value, f"state {name}"), JSON_TOKENS)
        entries.append(TreeEntry(mode, name.encode() + _SUFFIX, oid))
    return sink.add(Kind.TREE, encode_tree(entries))


def read_state(source: Source, tree: bytes) -> dict[str, JSON]:
    """The named values of a tree."""
    found = {}
    for entry in source.tree(tree):
        text = read_parts(source, entry.mode, entry.oid)
        try:
            found[entry.name.removesuffix(_SUFFIX).decode()] = json.loads(text)
        except ValueError:
            raise Damaged(f"state {entry.name!r} cannot be read", hint="Run `holdfast verify`.") from None
    return found


def state_names(source: Source, tree: bytes) -> dict[str, TreeEntry]:
    """The states in a tree, by name, unread."""
    return {entry.name.removesuffix(_SUFFIX).decode(): entry for entry in source.tree(tree)}


def read_texts(source: Source, entry: TreeEntry) -> str:
    """All texts of a state, names and values, a line or more each, in order."""
    lines: list[str] = []
    try:
        stack = [json.loads(read_parts(source, entry.mode, entry.oid))]
    except ValueError:
        raise Damaged(f"state {entry.name!r} cannot be read", hint="Run `holdfast verify`.") from None
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += [each for pair in reversed(value.items()) for each in reversed(pair)]
        elif isinstance(value, list):
            stack += reversed(value)
        else:
            lines.append(value if isinstance(value, str) else json.dumps(value))
    return "\n".join(lines)


def spelled(text: str) -> bytes:
    """A text as it stands in a stored state."""
    return json.dumps(text)[1:-1].encode()


def encode_value(value: JSON, name: str) -> bytes:
    """A value as JSON; Refused unless it comes back equal."""
    try:
        return b"".join(encode_pieces(value))
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
