"""The pages of the documentation, cut into what can be checked: blocks, links, headings, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")


class Block(NamedTuple):
    """A block of code in a page; with a title, it is the content of the file of that name."""

    language: str
    text: str
    line: int
    title: str


class Page:
    """One page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")
        self.prose = _BLOCK.sub("", self.text)

    def __repr__(self) -> str:
        return str(self.path.relative_to(ROOT))

    def blocks(self) -> Iterator[Block]:
        """The blocks of code, in order."""
        for match in _BLOCK.finditer(self.text):
            yield Block(match[1], match[3], self.text.count("\n", 0, match.start()) + 2, match[2] or "")

    def links(self) -> Iterator[str]:
        """The targets of the links that stay within the repository."""
        return (target for target in _LINK.findall(self.prose) if "://" not in target)

    def anchors(self) -> set[str]:
        """What a link to a heading may name."""
        return {_slug(title) for title in _HEADING.findall(self.prose)}

    def codes(self) -> list[str]:
        """What is set as code within the prose."""
        return _CODE.findall(self.prose)


def pages() -> list[Page]:
    """Every page: those at the root of the repository and all of `docs/`."""
    return [Page(path) for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))]


def documented() -> dict[str, set[str]]:
    """The keys of what commands print with `--json`, as the page of the command line tells them; none of a report."""
    rows = re.findall(
        r"^\| (`[a-z].*?) \| (.*) \|$", (ROOT / "docs" / "command-line.md").read_text("utf-8"), re.MULTILINE
    )
    return {
        name: set(re.findall(r'"(\w+)": ', told)) if told.startswith("`{") else set()
        for names, told in rows
        for name in _CODE.findall(names)
    }


def _slug(title: str) -> str:
    """The name of a heading in a link, as the usual viewers of such pages make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
