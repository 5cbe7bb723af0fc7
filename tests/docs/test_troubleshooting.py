"""Every message that the page of troubleshooting explains is one that the program prints."""

from __future__ import annotations

import ast
import errno
import os
import re
from functools import cache
from pathlib import Path

import pytest

from .pages import ROOT, Page

_MESSAGES = re.findall(r"^### `(.+)`$", Page(ROOT / "docs" / "troubleshooting.md").text, re.MULTILINE)


def test_there_are_at_least_twenty() -> None:
    assert len(set(_MESSAGES)) == len(_MESSAGES) >= 20


@pytest.mark.parametrize("message", _MESSAGES)
def test_the_message_is_in_the_source(message: str) -> None:
    assert any(message in text for text in _texts()), "no text of the source, with … for what is filled in, has this"


@cache
def _texts() -> frozenset[str]:
    """All texts of the source, with `…` in place of what is filled in, and those of the system."""
    found = {os.strerror(number) for number in errno.errorcode}
    for path in (ROOT / "src" / "holdfast").rglob("*.py"):
        found |= _texts_of(path)
    return frozenset(found)


def _texts_of(path: Path) -> set[str]:
    found, docstrings = set(), set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            found.add("".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found.add(node.value)
    return found
