"""Editing a text of JSON in place: comments, order and spacing of everything else stay as they are."""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.adapters.agents.settings.jsonc import Node

_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BLANK = " \t\r\n"


def add_item(text: str, array: Node, value: Any) -> str:
    """Add a value at the end of an array."""
    return _add(text, array, value, "")


def add_member(text: str, node: Node, key: str, value: Any) -> str:
    """Add a member at the end of an object."""
    return _add(text, node, value, json.dumps(key) + ": ")


def remove_child(text: str, node: Node, number: int) -> str:
    """Take a child out of an array or an object, with one comma and the space before it."""
    spans = node.spans()
    start, end = spans[number]
    if number + 1 < len(spans):  # the comma after it goes along
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
    """Two pieces; what follows a comment that goes to the end of its line stays out of it."""
    is_same_line = bool(right.partition("\n")[0].strip())
    if is_same_line and "//" in left[left.rfind("\n") + 1 :]:  # or in a string, where a newline more does no harm
        return left + ("\r\n" if "\r\n" in left else "\n") + right
    return left + right


def _add(text: str, node: Node, value: Any, prefix: str) -> str:
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
    """How a text is indented."""
    match = _INDENT.search(text)
    return match[1] if match and len(match[1]) <= 8 else "  "


def _line_indent(text: str, at: int) -> str:
    """The blanks at the beginning of the line of a place."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _strip_end(text: str, start: int, end: int) -> int:
    """Where the last thing before `end` that is not blank ends."""
    while end > start and text[end - 1] in _BLANK:
        end -= 1
    return end


def _comma(text: str, at: int) -> int:
    """The comma after a value; comments may stand between."""
    while text[at] != ",":
        if text.startswith("//", at):
            at = text.index("\n", at)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            at += 1
    return at
