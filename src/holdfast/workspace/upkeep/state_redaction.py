"""Redacting copies of purged files in states and records: of the whole file, or of words in it that look like secrets.

Many texts may share a line (`import os`), so copies of lines are only reported, unless the caller asks to redact them.
Changes nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.model import JSON, Checkpoint
from holdfast.shadowgit import EMPTY_TREE
from holdfast.workspace.stored.chunking import Sieve
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.state import Form, read_forms, write_forms
from holdfast.workspace.stored.tagged_json import Cut, texts_of
from holdfast.workspace.upkeep.purge_remains import MESSAGE, METADATA, LinePosition, place_of
from holdfast.workspace.upkeep.secret_spellings import Needles

CUT_OUT = "[purged]"
"""Replaces copies of a purged file."""

_WHOLE_MIN_CHARS = 8
_LINE_MIN_CHARS = 16
_WORD = re.compile(r"[^\s\"'`,;=<>()\[\]{}]{12,}")
_FIXED = (("(name)", "name"), ("(session)", "session"), ("(actor)", "actor"))
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[^\W\d_]")


class CutState(NamedTuple):
    """A state tree after redaction."""

    tree: bytes
    cut: list[str]
    """The names of the states that were redacted."""
    places: list[tuple[int, LinePosition]]
    """Where lines remain, with the number of their set."""


class CutRecord(NamedTuple):
    """A record after redaction."""

    checkpoint: Checkpoint
    cut: list[str]
    """What was redacted."""
    left: list[str]
    """Where a copy remains that cannot be redacted."""
    places: list[tuple[int, LinePosition]]
    """As in `CutState`."""


class Cutter:
    """Redacts copies of purged contents, and reports where lines of them remain."""

    def __init__(
        self,
        sink: ObjectSink,
        contents: Sequence[bytes],
        *,
        lines: bool,
        more: Iterable[str] = (),
        told: Sequence[Iterable[str]] = (),
    ) -> None:
        """`more` is redacted too. Places are reported for the lines of the contents (set 0) and for the sets `told`."""
        texts = [text for data in contents if (text := _text(data))]
        cut = {needle for text in texts for needle in _telling(text)}
        other = {line for text in texts for line in _lines(text)}
        if lines:
            cut |= other | {*more}
        self.needles = Needles(cut, [*contents, *map(_utf8, cut)])
        """What is redacted, and must not be found afterwards."""
        self._told = [Needles(other - cut), *map(Needles, told)]
        self._cutting = Cut(lambda text: self.needles.cut(text, CUT_OUT), CUT_OUT)
        self._sink = sink
        every = [each for each in (self.needles, *self._told) if each]
        self._is_needed = bool(every)
        self._sieve = Sieve(sink, lambda data: any(each.may_be_in(data) for each in every))
        self._known: dict[bytes, CutState] = {}

    def cut_state(self, tree: bytes) -> CutState:
        """Redact a state tree."""
        if tree == EMPTY_TREE or not self._is_needed:
            return CutState(tree, [], [])
        if tree not in self._known:
            is_suspect = any(self._sieve.may_have(each.mode, each.oid) for each in self._sink.tree(tree))
            self._known[tree] = self._cut_state(tree) if is_suspect else CutState(tree, [], [])
        return self._known[tree]

    def cut_record(self, checkpoint: Checkpoint) -> CutRecord:
        """Redact message and metadata of a record."""
        message, metadata = self._without(checkpoint.message), self._without(dict(checkpoint.metadata))
        new = checkpoint.replace(message=message, metadata=metadata)
        both = ((MESSAGE, message, checkpoint.message), (METADATA, metadata, dict(checkpoint.metadata)))
        places = [each for where, value, _ in both for each in self._places(where, value, False)]
        left = [where for where, value in _FIXED if self._is_left(getattr(new, value))]
        return CutRecord(new, [where for where, value, old in both if value != old], left, places)

    def _cut_state(self, tree: bytes) -> CutState:
        forms = read_forms(self._sink, tree)
        new = {name: Form(self._cutting.without(*form), form.is_tagged) for name, form in forms.items()}
        names = [name for name, form in forms.items() if new[name] != form]
        places = [each for name, form in new.items() for each in self._places(name, *form)]
        return CutState(write_forms(self._sink, new) if names else tree, names, places)

    def _without(self, value: JSON) -> JSON:
        return self._cutting.without(value, False)

    def _is_left(self, text: str | None) -> bool:
        return text is not None and (self.needles.is_in_text(text) or self._told[0].is_in_text(text))

    def _places(self, where: str, value: JSON, is_tagged: bool) -> Iterator[tuple[int, LinePosition]]:
        """Yield where lines remain."""
        if any(self._told):
            for number, text in enumerate(texts_of(value, is_tagged)):
                for index, needles in enumerate(self._told):
                    for start, end in needles.spans(text):
                        yield index, place_of(where, number, start, end, text)


def _text(data: bytes) -> str:
    """Decode a content; empty if it is binary."""
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        return ""


def _telling(text: str) -> Iterator[str]:
    """Yield what is always redacted: the whole text, unless it is too short to be recognised, and each word with
    letters and digits that is long enough for a key."""
    if len(text) >= _WHOLE_MIN_CHARS:
        yield text
    yield from (word for word in _WORD.findall(text) if _DIGIT.search(word) and _LETTER.search(word))


def _lines(text: str) -> Iterator[str]:
    return (line for line in map(str.strip, text.splitlines()) if len(line) >= _LINE_MIN_CHARS)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
