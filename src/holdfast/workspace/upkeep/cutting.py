"""Cutting out of states and records what repeats a purged file: all of it, or the words in it that look like secrets.

A line of the file that is only told of is one that many texts may share (`import os`), so it is cut where that is asked
for. Nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.model import JSON, Checkpoint
from holdfast.shadowgit import EMPTY_TREE
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.parts import Sieve
from holdfast.workspace.stored.state import Form, read_forms, write_forms
from holdfast.workspace.stored.tags import Cut, texts_of
from holdfast.workspace.upkeep.lines_left import MESSAGE, METADATA, Place, place_of
from holdfast.workspace.upkeep.needles import Needles

CUT_OUT = "[purged]"
"""What stands where a purged file was repeated."""

_WHOLE_MIN_CHARS = 8
_LINE_MIN_CHARS = 16
_WORD = re.compile(r"[^\s\"'`,;=<>()\[\]{}]{12,}")
_FIXED = (("(name)", "name"), ("(session)", "session"), ("(actor)", "actor"))
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[^\W\d_]")


class CutState(NamedTuple):
    """A tree of state without what was to be cut."""

    tree: bytes
    cut: list[str]
    """The names of the states that had it."""
    places: list[tuple[int, Place]]
    """Where lines are left, with the number of the set that each is of."""


class CutRecord(NamedTuple):
    """A record without what was to be cut."""

    checkpoint: Checkpoint
    cut: list[str]
    """Where it was."""
    left: list[str]
    """Where it is, or a line of it, and cannot be cut."""
    places: list[tuple[int, Place]]
    """As in a state."""


class Cutter:
    """Cuts out what repeats purged contents, and tells where lines of them are left."""

    def __init__(
        self,
        gathering: Gathering,
        contents: Sequence[bytes],
        *,
        lines: bool,
        more: Iterable[str] = (),
        told: Sequence[Iterable[str]] = (),
    ) -> None:
        """`more` is cut, too. Places are told of the lines of the contents, which are set 0, and of the sets `told`."""
        texts = [text for data in contents if (text := _text(data))]
        cut = {needle for text in texts for needle in _telling(text)}
        other = {line for text in texts for line in _lines(text)}
        if lines:
            cut |= other | {*more}
        self.needles = Needles(cut, [*contents, *map(_utf8, cut)])
        """What is cut, and is to be found nowhere afterwards."""
        self._told = [Needles(other - cut), *map(Needles, told)]
        self._cutting = Cut(lambda text: self.needles.cut(text, CUT_OUT), CUT_OUT)
        self._gathering = gathering
        every = [each for each in (self.needles, *self._told) if each]
        self._is_needed = bool(every)
        self._sieve = Sieve(gathering, lambda data: any(each.may_be_in(data) for each in every))
        self._known: dict[bytes, CutState] = {}

    def cut_state(self, tree: bytes) -> CutState:
        """A tree of state without it."""
        if tree == EMPTY_TREE or not self._is_needed:
            return CutState(tree, [], [])
        if tree not in self._known:
            is_suspect = any(self._sieve.may_have(each.mode, each.oid) for each in self._gathering.tree(tree))
            self._known[tree] = self._cut_state(tree) if is_suspect else CutState(tree, [], [])
        return self._known[tree]

    def cut_record(self, checkpoint: Checkpoint) -> CutRecord:
        """A record without it in message and metadata."""
        message, metadata = self._without(checkpoint.message), self._without(dict(checkpoint.metadata))
        new = replace(checkpoint, message=message, metadata=metadata)
        both = ((MESSAGE, message, checkpoint.message), (METADATA, metadata, dict(checkpoint.metadata)))
        places = [each for where, value, _ in both for each in self._places(where, value, False)]
        left = [where for where, value in _FIXED if self._is_left(getattr(new, value))]
        return CutRecord(new, [where for where, value, old in both if value != old], left, places)

    def _cut_state(self, tree: bytes) -> CutState:
        forms = read_forms(self._gathering, tree)
        new = {name: Form(self._cutting.without(*form), form.is_tagged) for name, form in forms.items()}
        names = [name for name, form in forms.items() if new[name] != form]
        places = [each for name, form in new.items() for each in self._places(name, *form)]
        return CutState(write_forms(self._gathering, new) if names else tree, names, places)

    def _without(self, value: JSON) -> JSON:
        return self._cutting.without(value, False)

    def _is_left(self, text: str | None) -> bool:
        return text is not None and (self.needles.is_in_text(text) or self._told[0].is_in_text(text))

    def _places(self, where: str, value: JSON, is_tagged: bool) -> Iterator[tuple[int, Place]]:
        """Where lines are that were not cut."""
        if any(self._told):
            for number, text in enumerate(texts_of(value, is_tagged)):
                for index, needles in enumerate(self._told):
                    for start, end in needles.spans(text):
                        yield index, place_of(where, number, start, end, text)


def _text(data: bytes) -> str:
    """A content as a text would repeat it; empty if it is no text."""
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        return ""


def _telling(text: str) -> Iterator[str]:
    """What is cut wherever it is found: the whole text, unless it is too short to be known again, and each word with
    letters and digits that is long enough for a key."""
    if len(text) >= _WHOLE_MIN_CHARS:
        yield text
    yield from (word for word in _WORD.findall(text) if _DIGIT.search(word) and _LETTER.search(word))


def _lines(text: str) -> Iterator[str]:
    return (line for line in map(str.strip, text.splitlines()) if len(line) >= _LINE_MIN_CHARS)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
