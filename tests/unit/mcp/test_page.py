"""What the page on the server tells people to write into the files of their agents."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "mcp.md").read_text("utf-8")
_BLOCKS = [block.partition("\n") for block in _PAGE.split("```")[1::2]]
_SNIPPETS = [(kind, text) for kind, _, text in _BLOCKS if kind in ("json", "toml")]


@pytest.mark.parametrize(("kind", "text"), _SNIPPETS)
def test_a_snippet_starts_the_server(kind: str, text: str) -> None:
    written: Any = json.loads(text) if kind == "json" else tomllib.loads(text)
    [servers] = written.values()
    server = servers["holdfast"]
    command = server["command"]
    words = command if isinstance(command, list) else [command, *server["args"]]
    assert words[0] == "holdfast" and words[-1] == "mcp"


def test_there_are_snippets() -> None:
    assert {kind for kind, _ in _SNIPPETS} == {"json", "toml"} and len(_SNIPPETS) == 5
