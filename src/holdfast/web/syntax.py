"""The colours of a programming language: lines of text as markup whose classes the stylesheet knows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from os.path import basename, splitext
from typing import Any

from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from holdfast.escaping import escape

LINE_MAX_CHARS = 2_000
"""A longer line is cut where it is shown."""
_TEXT_MAX_CHARS = 60_000  # longer texts are shown without colours: they would take seconds
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="s-")


def colour_lines(lines: Sequence[str], path: str) -> list[Markup]:
    """Each line as markup, escaped; in the colours of the language that the name of the file tells."""
    shown = [_shown(line) for line in lines]
    text = "\n".join(shown)
    lexer = _lexer(_kind_of(path)) if len(text) <= _TEXT_MAX_CHARS else None
    if lexer is not None and text:
        pieces: list[str] = []
        _FORMATTER.format(lexer.get_tokens(text), _Lines(pieces))
        coloured = "".join(pieces).split("\n")
        if len(coloured) == len(shown) + 1 and not coloured[-1]:
            coloured.pop()
        if len(coloured) == len(shown):  # else the lexer has another idea of what a line is
            return [Markup(line) for line in coloured]
    return [Markup.escape(line) for line in shown]


class _Lines:
    """What the formatter writes to."""

    def __init__(self, pieces: list[str]) -> None:
        self.write = pieces.append


def _shown(line: str) -> str:
    line = line.rstrip("\n").removesuffix("\r")
    rest = len(line) - LINE_MAX_CHARS
    line = escape(line[:LINE_MAX_CHARS], keep="\t")
    return f"{line} … {rest:,} more characters" if rest > 0 else line


def _kind_of(path: str) -> str:
    """What the lexer is chosen by: the suffix, or the whole name where there is none."""
    name = basename(path)
    suffix = splitext(name)[1]
    return f"x{suffix}" if suffix else name


@lru_cache(maxsize=128)
def _lexer(name: str) -> Any:
    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
