"""JSON with comments: parsing it with the position of each value, and editing the text in place.

Comments, order and spacing of everything that is not edited stay as they are.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BLANK = " \t\r\n"
_MAX_DEPTH = 100


class NotJSON(ValueError):
    """The text is not JSON with or without comments; the message says where."""


class JsonMember(NamedTuple):
    """One member of an object."""

    key: str
    start: int  # of its key
    value: JsonNode


@dataclass
class JsonNode:
    """A value, and its position."""

    start: int
    end: int
    value: Any = None
    """Of a scalar."""
    items: list[JsonNode] | None = None
    """Of an array."""
    members: list[JsonMember] | None = None
    """Of an object."""
    has_last_comma: bool = False

    def get(self, key: str) -> JsonNode | None:
        """A member of an object; the last if a key is duplicated, as other readers do."""
        found = [member.value for member in self.members or () if member.key == key]
        return found[-1] if found else None

    def plain(self) -> Any:
        """The value in Python."""
        if self.members is not None:
            return {member.key: member.value.plain() for member in self.members}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.value

    def spans(self) -> list[tuple[int, int]]:
        """The positions of its children, keys included."""
        if self.members is not None:
            return [(member.start, member.value.end) for member in self.members]
        return [(item.start, item.end) for item in self.items or ()]


def parse(text: str) -> JsonNode:
    """Parse a text; trailing commas and comments are accepted. Raises NotJSON with the line."""
    node, at = _value(text, _skip(text, 0), 0)
    if _skip(text, at) != len(text):
        raise _wrong(text, _skip(text, at))
    return node


def _value(text: str, at: int, deep: int) -> tuple[JsonNode, int]:
    if deep > _MAX_DEPTH:
        raise NotJSON("it is nested too deeply")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, deep)
    match = _SCALAR.match(text, at)
    if match is None:
        raise _wrong(text, at)
    try:
        return JsonNode(at, match.end(), json.loads(match[0])), match.end()
    except ValueError:
        raise _wrong(text, at) from None


def _container(text: str, start: int, deep: int) -> tuple[JsonNode, int]:
    is_object = text[start] == "{"
    members: list[JsonMember] = []
    items: list[JsonNode] = []
    node = JsonNode(start, start, members=members) if is_object else JsonNode(start, start, items=items)
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
            members.append(JsonMember(key.value, key.start, value))
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
    return NotJSON(f"line {line}: {what} is unexpected")


def add_item(text: str, array: JsonNode, value: Any) -> str:
    """Add a value at the end of an array."""
    return _add(text, array, value, "")


def add_member(text: str, node: JsonNode, key: str, value: Any) -> str:
    """Add a member at the end of an object."""
    return _add(text, node, value, json.dumps(key) + ": ")


def remove_child(text: str, node: JsonNode, number: int) -> str:
    """Remove a child of an array or an object, with one comma and the space before it."""
    spans = node.spans()
    start, end = spans[number]
    if number + 1 < len(spans):  # with the comma after it
        comma = _comma(text, end)
        before = _strip_end(text, node.start + 1, start)
        return _joined(text[:before], text[comma + 1 :])
    cut = _strip_end(text, node.start + 1, start)
    if node.has_last_comma:
        after = _comma(text, end) + 1
    else:
        after = end
    if number > 0 and not node.has_last_comma:
        comma = _comma(text, spans[number - 1][1])
        text = text[:comma] + text[comma + 1 :]
        cut, after, close = cut - 1, after - 1, node.end - 2
    else:
        close = node.end - 1
    if len(spans) == 1 and not text[node.start + 1 : cut].strip() and not text[after:close].strip():
        return text[: node.start + 1] + text[close:]
    return _joined(text[:cut], text[after:])


def _joined(left: str, right: str) -> str:
    """Join two pieces; a newline keeps the second one out of a line comment at the end of the first."""
    is_same_line = bool(right.partition("\n")[0].strip())
    if is_same_line and "//" in left[left.rfind("\n") + 1 :]:  # or in a string, where an extra newline is harmless
        return left + ("\r\n" if "\r\n" in left else "\n") + right
    return left + right


def _add(text: str, node: JsonNode, value: Any, prefix: str) -> str:
    spans = node.spans()
    close = node.end - 1
    newline = "\r\n" if "\r\n" in text else "\n"
    if spans and "\n" not in text[node.start : node.end]:
        comma = "" if node.has_last_comma else ","
        at = spans[-1][1] if not node.has_last_comma else _comma(text, spans[-1][1]) + 1
        return f"{text[:at]}{comma} {prefix}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    step = _step(text)
    outer = _line_indent(text, node.start)
    inner = outer + step
    spelled = json.dumps(value, indent=step, ensure_ascii=False).replace("\n", newline + inner)
    at = _strip_end(text, node.start + 1, close)
    comma = "," if spans and not node.has_last_comma else ""
    child_end = spans[-1][1] if spans else at
    return (
        f"{text[:child_end]}{comma}{text[child_end:at]}{newline}{inner}{prefix}{spelled}{newline}{outer}{text[close:]}"
    )


def _step(text: str) -> str:
    """The indentation of a text."""
    match = _INDENT.search(text)
    return match[1] if match and len(match[1]) <= 8 else "  "


def _line_indent(text: str, at: int) -> str:
    """The indentation of the line at a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _strip_end(text: str, start: int, end: int) -> int:
    """The end of the last non-blank text before `end`."""
    while end > start and text[end - 1] in _BLANK:
        end -= 1
    return end


def _comma(text: str, at: int) -> int:
    """The position of the comma after a value; comments may be between."""
    while text[at] != ",":
        if text.startswith("//", at):
            at = text.index("\n", at)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            at += 1
    return at
