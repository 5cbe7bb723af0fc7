"""One pattern of an ignore file, read and matched as git does, quirks included.

A pattern is read into tokens. A str is one byte out of those that it lists (a plain character: itself), an int is one
of the gaps below. Text has one character for each byte.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.scan.ignore import Verdict

_STAR = 0  # any bytes but "/"
_DIRS = 1  # "**/": nothing, or anything up to a "/"
_SOME_DIRS = 2  # "**\/", which git reads a little differently: the "/" must be there
_REST = 3  # "**" at the end: anything

_LAZY = {_DIRS: "(?:.*?/)??", _SOME_DIRS: ".*?/"}
_GREEDY = {_DIRS: "(?:.*/)?", _SOME_DIRS: ".*/", _REST: ".*"}

_MAX_NAME = 255  # bytes; the kernel's limit

_ANY = "".join(map(chr, (*range(1, 47), *range(48, 256))))
_DIGITS, _UPPER, _LOWER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_PRINT = "".join(map(chr, range(32, 127)))
_CLASSES = {
    "alnum": _DIGITS + _UPPER + _LOWER,
    "alpha": _UPPER + _LOWER,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(1, 32), 127))),
    "digit": _DIGITS,
    "graph": _PRINT[1:],
    "lower": _LOWER,
    "print": _PRINT,
    "punct": "".join(char for char in _PRINT[1:] if not char.isalnum()),
    "space": " \t\n\r",
    "upper": _UPPER,
    "xdigit": _DIGITS + "ABCDEFabcdef",
}


class Pattern:
    """One line of an ignore file, without its `!`."""

    __slots__ = ("_match", "by_name", "dir_only", "tokens", "verdict", "word")

    def __init__(self, tokens: list[str | int], *, by_name: bool, dir_only: bool) -> None:
        self.tokens = tokens
        self.by_name = by_name
        self.dir_only = dir_only
        self.verdict: Verdict | None = None
        # The one text that it matches, if there is but one.
        self.word = "".join(map(str, tokens)) if all(isinstance(t, str) and len(t) == 1 for t in tokens) else None
        self._match: Callable[[str], object] | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern | None:
        """Read a pattern; None where it can match nothing."""
        dir_only = text.endswith("/")
        text = text[:-1] if dir_only else text
        by_name = "/" not in text
        tokens = _tokens(text.removeprefix("/"), by_name=by_name)
        return cls(tokens, by_name=by_name, dir_only=dir_only) if tokens and _fits(tokens) else None

    def matches(self, subject: str) -> bool:
        if self._match is None:
            if len(subject) < sum(isinstance(token, str) for token in self.tokens):
                return False  # and a pattern of absurd length is never compiled
            self._match = re.compile(regex(self.tokens), re.DOTALL).fullmatch
        return self._match(subject) is not None

    def last_component(self) -> tuple[list[str | int], bool]:
        """The tokens behind the last slash, and whether a match's last component is free to be anything."""
        tokens = self.tokens
        start = len(tokens)
        while start and tokens[start - 1] not in ("/", _DIRS, _SOME_DIRS):
            start -= 1
        last = tokens[start:]
        # "a**/b" matches "ab" as well: the last component is then more than what stands behind the slash.
        is_glued = start > 1 and tokens[start - 1] == _DIRS and tokens[start - 2] not in ("/", _DIRS, _SOME_DIRS)
        return last, is_glued or _REST in last or last == [_STAR]


def _tokens(text: str, *, by_name: bool) -> list[str | int] | None:
    """Read a pattern as git does, quirks included; None where it can match nothing."""
    first = at = next((place for place, char in enumerate(text) if char in "*?[\\"), len(text))
    tokens: list[str | int] = list(text[:first])
    while at < len(text):
        char = text[at]
        if char == "*":
            start = at
            while text[at + 1 : at + 2] == "*":
                at += 1
            # Git compares what precedes the first special character by itself, so that a "**" right behind it counts
            # as the start of a component wherever it stands.
            at_start = not by_name and (start == first or text[start - 1] == "/")
            gap, width = _gap(text[at + 1 : at + 3]) if at > start and at_start else (_STAR, 0)
            if gap != _DIRS or tokens[-1:] != [_DIRS]:  # "**/**/" is "**/"
                tokens.append(gap)
            at += width
        elif char == "[":
            chars, at = _bracket(text, at + 1)
            if not chars:
                return None
            tokens.append(chars)
        else:
            at += char == "\\"
            if at == len(text):
                return None
            tokens.append(_ANY if char == "?" else text[at])
        at += 1
    return tokens


def _fits(tokens: Sequence[str | int]) -> bool:
    """Whether a name can be long enough for each component; keeps a line of a million characters from costing much."""
    length = 0
    for token in tokens if len(tokens) > _MAX_NAME else ():
        length = 0 if token in ("/", _DIRS, _SOME_DIRS) else length + isinstance(token, str)
        if length > _MAX_NAME:
            return False
    return True


def _gap(following: str) -> tuple[int, int]:
    """What a "**" at the start of a component is, and how much of the text behind it belongs to it."""
    if not following:
        return _REST, 0
    if following[0] == "/":
        return _DIRS, 1
    return (_SOME_DIRS, 2) if following == "\\/" else (_STAR, 0)


def _bracket(text: str, at: int) -> tuple[str, int]:
    """Read a bracket expression from behind its "[": the bytes that it matches, and the place of its "]".

    No bytes where it has no end, names an unknown class or leaves nothing to match.
    """
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    start = at
    chosen: set[str] = set()
    previous = ""  # what a "-" makes a range from
    while (char := text[at : at + 1]) != "]" or at == start:
        if char == "-" and previous and text[at + 1 : at + 2] not in ("", "]"):
            at += 2 if text[at + 1] == "\\" else 1
            chosen.update(map(chr, range(ord(previous), ord(text[at : at + 1] or "\0") + 1)))
            previous = ""
        elif text[at : at + 2] == "[:" and (end := text.find("]", at + 2)) > at + 2 and text[end - 1] == ":":
            if text[at + 2 : end - 1] not in _CLASSES:
                return "", at
            chosen.update(_CLASSES[text[at + 2 : end - 1]])
            previous = ""
            at = end
        else:
            at += char == "\\"
            previous = text[at : at + 1]
            chosen.add(previous)
        if at >= len(text):
            return "", at
        at += 1
    return "".join(char for char in _ANY if (char in chosen) != negated), at


def spelled(tokens: Sequence[str | int]) -> tuple[int, list[str]]:
    """How many of the first tokens can be spelled out in a few words, and these words."""
    words = [""]
    for used, token in enumerate(tokens):
        if isinstance(token, int) or len(words) * len(token) > 16 or used == _MAX_NAME:
            return used, words
        words = [word + char for word in words for char in token]
    return len(tokens), words


def regex(tokens: Sequence[str | int]) -> str:
    """Write tokens as a regular expression that no path can hold up for long.

    What lies between two gaps has a fixed length (in bytes between stars, in components between double stars), so that
    the first place where it fits is as good as any later one: it is an atomic group, and nothing is tried again.
    """
    source = ""
    gap = None
    start = 0
    for place, token in enumerate(tokens):
        if isinstance(token, int) and token != _STAR:
            segment = _segment(tokens[start:place], is_last=False)
            source += segment if gap is None else f"(?>{_LAZY[gap]}{segment})"
            gap, start = token, place + 1
    return source + ("" if gap is None else _GREEDY[gap]) + _segment(tokens[start:], is_last=True)


def _segment(tokens: Sequence[str | int], *, is_last: bool) -> str:
    pieces = [""]
    for token in tokens:
        if isinstance(token, int):
            pieces.append("")
        elif token == _ANY:
            pieces[-1] += "[^/]"
        else:
            pieces[-1] += re.escape(token) if len(token) == 1 else "[" + re.escape(token) + "]"
    source = pieces[0]
    for place, piece in enumerate(pieces[1:], 2):
        source += f"[^/]*{piece}" if is_last and place == len(pieces) else f"(?>[^/]*?{piece})"
    return source
