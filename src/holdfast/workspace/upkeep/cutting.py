"""Cutting out of states and records what repeats a purged file: all of it, or the words in it that look like secrets.

A line of the file that is only told of is one that many texts may share (`import os`), so it is cut where that is asked
for. Nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from holdfast.model import JSON, Checkpoint
from holdfast.shadowgit import EMPTY_TREE
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.parts import Sieve
from holdfast.workspace.stored.state import PROBE_BYTES, Form, read_forms, spelled, write_forms
from holdfast.workspace.stored.tags import Cut, texts_of

CUT_OUT = "[purged]"
"""What stands where a purged file was repeated."""

_WHOLE_MIN_CHARS = 8
_LINE_MIN_CHARS = 16
_WORD = re.compile(r"[^\s\"'`,;=<>()\[\]{}]{12,}")
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[^\W\d_]")
_KEY = 8
_FEW = 64


class Finder:
    """Tells whether a text has any of some others in it, in a time that hardly depends on how many they are."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        """Each of at least eight bytes."""
        self._needles = sorted(set(needles))
        self._by_key: dict[bytes, list[bytes]] = {}
        for needle in self._needles if len(self._needles) > _FEW else ():
            self._by_key.setdefault(needle[:_KEY], []).append(needle)

    def __bool__(self) -> bool:
        return bool(self._needles)

    def is_in(self, data: bytes) -> bool:
        """Whether one of them is in it."""
        if not self._by_key:
            return any(needle in data for needle in self._needles)
        return any(
            data.startswith(needle, at)
            for at in range(len(data) - _KEY + 1)
            for needle in self._by_key.get(data[at : at + _KEY], ())
        )


class Cutter:
    """Cuts out what repeats purged contents, and tells where lines of them are left."""

    def __init__(self, gathering: Gathering, contents: Sequence[bytes], *, lines: bool) -> None:
        texts = [text for data in contents if (text := _text(data))]
        cut = {needle for text in texts for needle in _telling(text)}
        other = {line for text in texts for line in _lines(text)}
        if lines:
            cut |= other
        self._needles = sorted(cut, key=lambda needle: (-len(needle), needle))
        self._left = other - cut
        self._cut, self._tell = Finder(map(_utf8, cut)), Finder(map(_utf8, self._left))
        self._probes = Finder(spelled(needle)[:PROBE_BYTES] for needle in cut | self._left)
        self._cutting = Cut(self._cut_text, CUT_OUT)
        self._gathering = gathering
        self._sieve = Sieve(gathering, self._probes.is_in)
        self._known: dict[bytes, tuple[bytes, list[str], list[str]]] = {}

    def cut_state(self, tree: bytes) -> tuple[bytes, list[str], list[str]]:
        """A tree of state without it; the names of the states that had it, and of those that go on having lines."""
        if tree == EMPTY_TREE or not self._probes:
            return tree, [], []
        if tree not in self._known:
            is_suspect = any(self._sieve.may_have(each.mode, each.oid) for each in self._gathering.tree(tree))
            self._known[tree] = self._cut_state(tree) if is_suspect else (tree, [], [])
        return self._known[tree]

    def cut_record(self, checkpoint: Checkpoint) -> tuple[Checkpoint, list[str], list[str]]:
        """A record without it in message and metadata; where it was, and where it, or a line of it, is left."""
        message, metadata = self._without(checkpoint.message), self._without(dict(checkpoint.metadata))
        new = replace(checkpoint, message=message, metadata=metadata)
        both = (("(message)", message, checkpoint.message), ("(metadata)", metadata, dict(checkpoint.metadata)))
        left = [where for where, value, _ in both if self._is_left(value)]
        for where, value in (("name", new.name), ("session", new.session), ("actor", new.actor)):
            if value is not None and (self._cut.is_in(_utf8(value)) or self._is_left(value)):
                left.append(f"({where})")
        return new, [where for where, value, old in both if value != old], left

    def _cut_state(self, tree: bytes) -> tuple[bytes, list[str], list[str]]:
        forms = read_forms(self._gathering, tree)
        new = {name: Form(self._cutting.without(*form), form.is_tagged) for name, form in forms.items()}
        names = [name for name, form in forms.items() if new[name] != form]
        left = [name for name, form in new.items() if self._is_left(*form)]
        return (write_forms(self._gathering, new) if names else tree), names, left

    def _without(self, value: JSON) -> JSON:
        return self._cutting.without(value, False)

    def _cut_text(self, text: str) -> str:
        if self._cut.is_in(_utf8(text)):
            for needle in self._needles:
                text = text.replace(needle, CUT_OUT)
        return text

    def _is_left(self, value: JSON, is_tagged: bool = False) -> bool:
        """Whether a line that was not cut is in a value."""
        return bool(self._tell) and any(self._tell.is_in(_utf8(text)) for text in texts_of(value, is_tagged))


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
