"""The reference of the command line is what the program says of itself."""

from __future__ import annotations

import pytest

from holdfast.cli.group import COMMANDS
from holdfast.cli.reference import reference

from .pages import ROOT, Page, documented


def test_the_page_of_commands_is_fresh() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert written == reference(), "make it anew: python -m holdfast.cli.reference > docs/cli.md"


def test_every_command_has_a_section() -> None:
    page = Page(ROOT / "docs" / "cli.md")
    assert page.anchors() >= {f"holdfast-{name}" for name in COMMANDS}


def test_it_is_told_what_every_command_prints_as_json() -> None:
    found = {name.partition(" ")[0] for name in documented()}
    assert found >= COMMANDS.keys() - {"hook", "mcp", "training"}  # those of agents; and what `show` prints


@pytest.mark.parametrize("columns", ["40", "300"])
def test_it_does_not_depend_on_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = reference()
    monkeypatch.setenv("COLUMNS", columns)
    assert reference() == before
