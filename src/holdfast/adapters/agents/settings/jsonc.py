"""JSON with comments, as a tree that knows where in the text each value is, so that a text can be edited in place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')
_MOST_DEEP = 100


class NotJSON(ValueError):
    """The text is no JSON, with or without comments; says where."""


class Member(NamedTuple):
    """One member of an object."""

    key: str
    start: int  # of its key
    value: Node


@dataclass
class Node:
    """A value, and where it is."""

    start: int
    end: int
    value: Any = None
    """Of a scalar."""
    items: list[Node] | None = None
    """Of an array."""
    members: list[Member] | None = None
    """Of an object."""
    has_last_comma: bool = False

    def get(self, key: str) -> Node | None:
        """A member of an object; of several with one name the last, as readers do."""
        found = [member.value for member in self.members or () if member.key == key]
        return found[-1] if found else None

    def plain(self) -> Any:
        """The value as Python has it."""
        if self.members is not None:
            return {member.key: member.value.plain() for member in self.members}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.value

    def spans(self) -> list[tuple[int, int]]:
        """Where its children are, keys included."""
        if self.members is not None:
            return [(member.start, member.value.end) for member in self.members]
        return [(item.start, item.end) for item in self.items or ()]


def parse(text: str) -> Node:
    """Read a text. Commas after a last value and comments are taken. Raises NotJSON, which names the line."""
    node, at = _value(text, _skip(text, 0), 0)
    if _skip(text, at) != len(text):
        raise _wrong(text, _skip(text, at))
    return node


def _value(text: str, at: int, deep: int) -> tuple[Node, int]:
    if deep > _MOST_DEEP:
        raise NotJSON("it is nested too deeply")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, deep)
    match = _SCALAR.match(text, at)
    if match is None:
        raise _wrong(text, at)
    try:
        return Node(at, match.end(), json.loads(match[0])), match.end()
    except ValueError:
        raise _wrong(text, at) from None


def _container(text: str, start: int, deep: int) -> tuple[Node, int]:
    is_object = text[start] == "{"
    members: list[Member] = []
    items: list[Node] = []
    node = Node(start, start, members=members) if is_object else Node(start, start, items=items)
    at = _skip(text, start + 1)
    while text[at : at + 1] != ("}" if is_object else "]"):
        if node.spans() and not node.has_last_comma:
            raise _wrong(text, at)
        if is_object:
            key, key_at = _value(text, at, deep + 1)
            colon = _skip(text, key_at)
            if not isinstance(key.value, str) or text[colon : colon + 1] != ":":
                raise _wrong(text, at)
            value, at = _value(text, _skip(text, colon + 1), deep + 1)
            members.append(Member(key.value, key.start, value))
        else:
            value, at = _value(text, at, deep + 1)
            items.append(value)
        at = _skip(text, at)
        node.has_last_comma = text[at : at + 1] == ","
        if node.has_last_comma:
            at = _skip(text, at + 1)
    node.end = at + 1
    return node, node.end


def _skip(text: str, at: int) -> int:
    match = _TRIVIA.match(text, at)
    return match.end() if match else at


def _wrong(text: str, at: int) -> NotJSON:
    line = text.count("\n", 0, at) + 1
    what = repr(text[at : at + 10]) if at < len(text) else "the end"
    return NotJSON(f"line {line}: {what} is not expected there")
