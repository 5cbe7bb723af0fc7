"""The terminal casts show what the commands print now."""

from __future__ import annotations

import html
import re
from pathlib import Path

from .casts import picture, play
from .pages import ROOT


def test_the_cast_is_what_is_printed_now(tmp_path: Path) -> None:
    drawn = (ROOT / "docs" / "pictures" / "undo.svg").read_text("utf-8")
    assert _texts(drawn) == _texts(picture(play(tmp_path))), "make it anew: make screens"
    assert "@font-face" not in drawn
    assert not re.search(r"(?:url\(|href=)[\"']?http", drawn)


def _texts(svg: str) -> str:
    """What is written in a picture, without the blanks: how they are drawn depends on the version of rich."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    return re.sub(r"\s+", "", html.unescape("".join(found)))
