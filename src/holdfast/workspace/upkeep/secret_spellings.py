"""Searching for texts in every encoding: plain, escaped for JSON or for a URL (also repeatedly), and as base64.

Two texts are compared after folding, which undoes all escapes. What follows a run of backslashes is an escape however
long the run is, because JSON within JSON doubles it; `%250A` is `%0A`, escaped once more. Line ends are dropped, since
base64 is wrapped at any width, and `+` is a space, as in a query.
"""

from __future__ import annotations

import base64
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_PERCENT = re.compile(r"(?:%(?:25)*[0-9A-Fa-f]{2})+")
_PERCENT_BYTE = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(r"\\+(?:u([0-9A-Fa-f]{4})|(.)|$)|[\U00010000-\U0010ffff]|[\r\n+]", re.DOTALL)
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_RUN = re.compile(rb"[A-Za-z0-9_.~-]{4,}")  # characters that no escaping changes
_ANCHOR_MIN, _ANCHOR_MAX = 4, 8
_FOLDED_MIN = 5
_FEW = 64
_BLUNT_CHARS = 64
_BASE64_MIN = 10
_ALIGNED_MAX_BYTES = 4 << 10
_UNWRAPPED = 60  # base64 is wrapped at 64 characters or more: one line end at most is in as many
_URL_SAFE = str.maketrans("+/", "-_")
_SEAM_MAX_BYTES = 1 << 20
_GROWTH = 12  # bytes that one character may take when escaped


class Needle(NamedTuple):
    """A text to search for."""

    raw: str
    folded: str
    """Empty if the text is too short to be recognised."""
    anchors: tuple[bytes, ...]
    """Every encoding contains one of them; empty if there is none."""


class Needles:
    """Searches for many texts at once."""

    def __init__(self, texts: Iterable[str], values: Iterable[bytes] = ()) -> None:
        """Search for these texts, and for these values as base64."""
        found = [_needle(text) for text in {*texts}]
        found += [_base64_needle(text) for text in {form for value in {*values} for form in _base64_forms(value)}]
        self._blunt = [needle for needle in found if not needle.anchors]
        self._by_anchor: dict[bytes, list[Needle]] = {}
        for needle in found:
            for anchor in needle.anchors:
                self._by_anchor.setdefault(anchor, []).append(needle)
        self._sizes = sorted({len(anchor) for anchor in self._by_anchor})
        longest = max((len(needle.raw) for needle in found), default=0)
        self.seam_bytes = min(_SEAM_MAX_BYTES, longest * _GROWTH)
        """How much of two neighbouring chunks has to be searched together."""

    def __bool__(self) -> bool:
        return bool(self._blunt or self._by_anchor)

    def may_be_in(self, data: bytes) -> bool:
        """Whether a chunk could contain a part of one of them; a fast filter."""
        if any(True for _ in self._anchors_in(data)):
            return True
        text = _text(data) if self._blunt else ""
        folded = fold(text)
        return any(
            needle.folded[:_BLUNT_CHARS] in folded if needle.folded else needle.raw[:_BLUNT_CHARS] in text
            for needle in self._blunt
        )

    def is_in(self, data: bytes) -> bool:
        """Whether one of them is in these bytes."""
        candidates = self._candidates(data)
        return bool(candidates) and _has_one(candidates, _text(data))

    def is_in_text(self, text: str) -> bool:
        """Whether one of them is in a text."""
        candidates = self._candidates(_utf8(text))
        return bool(candidates) and _has_one(candidates, text)

    def cut(self, text: str, instead: str) -> str:
        """Return the text with each of them replaced."""
        out, at = [], 0
        for start, end in self.spans(text):
            out += [text[at:start], instead]
            at = end
        return "".join((*out, text[at:])) if out else text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where they are in a text, in order; overlapping ones as one."""
        candidates = self._candidates(_utf8(text))
        if not candidates or not _has_one(candidates, text):
            return []
        return _merged(_spans(candidates, text))

    def _candidates(self, data: bytes) -> list[Needle]:
        """Return the needles that may be in it: few, for most contents none."""
        found = {needle.raw: needle for anchor in self._anchors_in(data) for needle in self._by_anchor[anchor]}
        return [*found.values(), *self._blunt]

    def _anchors_in(self, data: bytes) -> Iterator[bytes]:
        if len(self._by_anchor) <= _FEW:
            yield from (anchor for anchor in self._by_anchor if anchor in data)
            return
        found: set[bytes] = set()  # many anchors: the time does not depend on their number
        for run in set(_RUN.findall(data)):
            for size in self._sizes:
                for at in range(len(run) - size + 1):
                    anchor = run[at : at + size]
                    if anchor in self._by_anchor and anchor not in found:
                        found.add(anchor)
                        yield anchor


def fold(text: str) -> str:
    """Return a text without escapes and line ends; equal for all encodings of it."""
    text = _PERCENT.sub(lambda match: "".join(char for char, _, _ in _unquoted(match)), text)
    return _BACKSLASH.sub(lambda match: "".join(char for char, _, _ in _unescaped(match)), text)


def _has_one(candidates: list[Needle], text: str) -> bool:
    if any(needle.raw in text for needle in candidates):
        return True
    folded = fold(text)
    return any(needle.folded and needle.folded in folded for needle in candidates)


def _spans(candidates: list[Needle], text: str) -> Iterator[tuple[int, int]]:
    """Yield where needles are in a text, in any encoding."""
    folded, starts, ends = _folded_places(text)
    for needle in candidates:
        for at in _occurrences(needle.folded, folded):
            yield starts[at], ends[at + len(needle.folded) - 1]
        for at in _occurrences(needle.raw, text):
            yield at, at + len(needle.raw)


def _occurrences(needle: str, text: str) -> Iterator[int]:
    at = text.find(needle) if needle else -1
    while at >= 0:
        yield at
        at = text.find(needle, at + len(needle))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _folded_places(text: str) -> tuple[str, array[int], array[int]]:
    """Return the folded text, and where each of its characters begins and ends in the original."""
    starts, ends = array("Q", range(len(text))), array("Q", range(1, len(text) + 1))
    text, starts, ends = _replaced(_PERCENT, _unquoted, text, starts, ends)
    return _replaced(_BACKSLASH, _unescaped, text, starts, ends)


def _replaced(
    pattern: re.Pattern[str],
    decode: Callable[[re.Match[str]], list[tuple[str, int, int]]],
    text: str,
    starts: array[int],
    ends: array[int],
) -> tuple[str, array[int], array[int]]:
    out: list[str] = []
    new_starts, new_ends = array("Q"), array("Q")
    at = 0
    for match in pattern.finditer(text):
        out.append(text[at : match.start()])
        new_starts.extend(starts[at : match.start()])
        new_ends.extend(ends[at : match.start()])
        for char, start, end in decode(match):
            out.append(char)
            new_starts.append(starts[start])
            new_ends.append(ends[end - 1])
        at = match.end()
    out.append(text[at:])
    new_starts.extend(starts[at:])
    new_ends.extend(ends[at:])
    return "".join(out), new_starts, new_ends


def _unquoted(match: re.Match[str]) -> list[tuple[str, int, int]]:
    """Decode percent escapes: the characters, and where each is encoded."""
    tokens = list(_PERCENT_BYTE.finditer(match.string, match.start(), match.end()))
    chars = bytes(int(token[1], 16) for token in tokens).decode("utf-8", "surrogateescape")
    found, at = [], 0
    for char in chars:
        size = len(char.encode("utf-8", "surrogateescape"))
        found.append((char, tokens[at].start(), tokens[at + size - 1].end()))
        at += size
    return found


def _unescaped(match: re.Match[str]) -> list[tuple[str, int, int]]:
    """Decode an escape; characters beyond the first plane as two surrogates, as in JSON."""
    if match[1]:
        char = chr(int(match[1], 16))
    else:
        char = _CONTROL.get(match[2], match[2]) if match[2] else match[0].lstrip("\\")
    if char in "\r\n":
        return []  # also for backslashes at the very end
    char = " " if char == "+" else char
    if len(char) == 1 and char > "\uffff":
        both = char.encode("utf-16-be", "surrogatepass")
        char = chr(int.from_bytes(both[:2], "big")) + chr(int.from_bytes(both[2:], "big"))
    return [(each, match.start(), match.end()) for each in char]


def _needle(text: str) -> Needle:
    runs = _RUN.findall(_utf8(text))
    longest = max(runs, key=len, default=b"")
    return Needle(text, _long_enough(fold(text)), (longest[-_ANCHOR_MAX:],) if longest else ())


def _base64_needle(text: str) -> Needle:
    """Make a needle with two anchors: one line end cannot break both."""
    anchors = [
        run[at : at + _ANCHOR_MAX]
        for run in _RUN.findall(text[:_UNWRAPPED].encode())
        for at in range(0, len(run) - _ANCHOR_MIN + 1, _ANCHOR_MAX)
    ]
    best = sorted(anchors, key=len, reverse=True)[:2]
    return Needle(text, _long_enough(fold(text)), tuple(best) if len(best) > 1 or len(text) < _UNWRAPPED else ())


def _base64_forms(value: bytes) -> Iterator[str]:
    """Yield the base64 forms of a value: alone, and, if it is not large, inside something longer."""
    whole = base64.b64encode(value).decode()
    forms = [whole, whole.rstrip("=")]
    for before in range(3) if len(value) <= _ALIGNED_MAX_BYTES else ():
        text = base64.b64encode(bytes(before) + value).decode()
        forms.append(text[-(-before * 8 // 6) : (before + len(value)) * 8 // 6])  # what depends on the value alone
    for form in forms:
        if len(form) >= _BASE64_MIN:
            yield form
            yield form.translate(_URL_SAFE)


def _long_enough(folded: str) -> str:
    return folded if len(folded) >= _FOLDED_MIN else ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
