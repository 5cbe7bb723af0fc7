"""What the documentation points to is there: files, headings, functions, tests, numbers of cases."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.group import COMMANDS
from holdfast.model import Reason

from .pages import ROOT, Page, pages

_PATH = re.compile(r"(?:src|tests|docs|benchmarks)/[\w./-]*")
_KEEPER = re.compile(r"(?:^- |;\s)`(src/[\w/]+\.py)`((?:,?\s+`[\w.]+`)*)", re.MULTILINE)
_ROW = re.compile(r"^\| ([\d–, ]+) \|.*?`(tests/cases/\w+\.py)`", re.MULTILINE)
_NOT_SHOWN_ROW = re.compile(r"^\| ([\d–, ]+) \|.*\| *\S+.*\|$", re.MULTILINE)


@pytest.mark.parametrize("page", pages(), ids=repr)
def test_every_link_leads_somewhere(page: Page) -> None:
    for target in page.links():
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.exists(), f"{target} is not there"
        assert path.is_relative_to(ROOT), f"{target} leaves the repository"
        if anchor:
            assert anchor in Page(path).anchors(), f"{target} has no such heading"


@pytest.mark.parametrize("page", pages(), ids=repr)
def test_every_path_of_the_repository_that_is_named_exists(page: Page) -> None:
    for code in page.codes():
        if _PATH.fullmatch(code):
            assert (ROOT / code).exists(), f"{code} is not there"


def test_every_function_that_keeps_a_promise_exists() -> None:
    page = Page(ROOT / "docs" / "internals" / "promises.md")
    found = _KEEPER.findall(page.text)
    assert len(found) > 20
    for path, symbols in found:
        named = re.findall(r"`([\w.]+)`", symbols)
        assert named, f"{path} names no function"
        assert set(named) <= _symbols(ROOT / path), f"{path} lacks {set(named) - _symbols(ROOT / path)}"


def test_every_promise_names_its_code_and_its_tests() -> None:
    sections = re.split(r"^## ", Page(ROOT / "docs" / "internals" / "promises.md").text, flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections] == [f"P{number}" for number in range(1, 11)]
    for section in sections:
        assert _KEEPER.search(section), f"{section.split()[0]} names no code"
        assert "`tests/" in section, f"{section.split()[0]} names no test"


def test_every_package_is_in_the_table_and_the_drawing() -> None:
    text = Page(ROOT / "docs" / "internals" / "architecture.md").text
    for package in (ROOT / "src" / "holdfast").iterdir():
        if package.suffix == ".py" or (package / "__init__.py").exists():
            name = package.name if package.suffix else f"{package.name}/"
            is_start = package.name in ("__init__.py", "__main__.py")
            assert is_start or f"| `src/holdfast/{name}` |" in text, f"{name} has no row"
    [layers] = [each["layers"] for each in _contracts() if each["name"].startswith("Packages")]
    drawn = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0].splitlines()
    assert [re.split(r"  +", line)[0] for line in drawn] == [line.replace("holdfast.", "") for line in layers]


def _contracts() -> list[dict[str, Any]]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def test_a_word_has_one_meaning_in_a_section_of_the_glossary() -> None:
    for section in Page(ROOT / "docs" / "glossary.md").text.split("\n## ")[1:]:
        words = re.findall(r"^\| \*\*([^*]+)\*\*", section, re.MULTILINE)
        assert sorted(words) == sorted(set(words))


def test_every_case_is_said_to_be_tested_where_it_is() -> None:
    said: dict[str, set[int]] = {}
    for numbers, path in _ROW.findall(Page(ROOT / "docs" / "internals" / "cases.md").text):
        said.setdefault(path, set()).update(_numbers(numbers))
    claimed = {str(path.relative_to(ROOT)): _claimed(path) for path in (ROOT / "tests" / "cases").glob("test_*.py")}
    assert said == {path: numbers for path, numbers in claimed.items() if numbers}


def test_every_case_that_is_not_shown_is_named_with_its_reason() -> None:
    _, _, section = Page(ROOT / "docs" / "internals" / "cases.md").text.partition("## Not in `tests/cases`")
    named = {number for numbers in _NOT_SHOWN_ROW.findall(section) for number in _numbers(numbers)}
    tests = ROOT / "tests" / "cases"
    assert not named & set().union(*map(_claimed, tests.glob("test_*.py")))
    assert named >= _not_shown(tests / "test_every_case_is_claimed.py")
    assert len(named) > 10


def test_every_public_name_is_told() -> None:
    """A word of the library that no page mentions cannot be learnt."""
    told = "\n".join(page.text for page in pages())
    words = {*holdfast.__all__, *(reason.value for reason in Reason), *(f"holdfast {name}" for name in COMMANDS)}
    for word in words - {"__version__"}:
        assert word in told, f"{word} is mentioned nowhere"


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for page in pages() for name in re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", page.text, re.MULTILINE)
    }
    assert {first or second for first, second in named} <= targets
    assert named


def test_every_mark_is_left_out_of_the_default_tier() -> None:
    [tier] = re.findall(r"^FULL_TIER := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    marks = [mark.partition(":")[0] for mark in project["tool"]["pytest"]["ini_options"]["markers"]]
    assert [*tier.split(" or "), "linux"] == marks  # `linux` is for `make portable`


@cache
def _symbols(path: Path) -> set[str]:
    """The functions, classes, methods and constants of a file, methods with their class."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        found |= _named(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _named(inner)}
    return found


def _named(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _claimed(path: Path) -> set[int]:
    """The numbers at the beginnings of the docstrings of a file's tests."""
    numbers: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found = re.match(r"(Case \d+\.\s*)+", ast.get_docstring(node) or "")
            numbers |= {int(number) for number in re.findall(r"\d+", found[0])} if found else set()
    return numbers


def _not_shown(path: Path) -> set[int]:
    """The keys of the table that names cases which no test claims."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "NOT_SHOWN":
            return set(ast.literal_eval(node.value)) if node.value else set()
    raise AssertionError(f"{path} has no NOT_SHOWN")


def _numbers(text: str) -> set[int]:
    """Read `1–13, 15`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("–")
        found |= set(range(int(first), int(last or first) + 1))
    return found
