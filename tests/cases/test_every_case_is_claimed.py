"""Every numbered situation is claimed by a test, or is named here with the reason why it is not shown."""

from __future__ import annotations

import ast
import re
from pathlib import Path

WANTED = {
    *range(1, 123), 126, 133, 134, 135, 138, 139, 140, 143, 145, 147, 148, 150, 151, 152, 153, 158, 160, 161,
} - {14, 26, 45, 62, 89, 98, 116}  # fmt: skip

NOT_SHOWN: dict[int, str] = {}


def claimed() -> set[int]:
    """The numbers at the beginnings of the docstrings of all tests in this folder."""
    numbers: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found = re.match(r"(Case \d+\.\s*)+", ast.get_docstring(node) or "")
                numbers |= {int(number) for number in re.findall(r"\d+", found[0])} if found else set()
    return numbers


def test_every_case_is_claimed_by_a_test_or_named_with_a_reason() -> None:
    """The list of situations has numbers; none is forgotten and none is claimed twice over."""
    assert WANTED - claimed() - NOT_SHOWN.keys() == set()
    assert claimed() & NOT_SHOWN.keys() == set()
    assert claimed() <= WANTED
    assert all(NOT_SHOWN.values())
