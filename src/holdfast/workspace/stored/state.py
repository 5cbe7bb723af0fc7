"""Named state, such as a conversation, stored beside the files: values that come back exactly.

A state is an entry of a tree: `NAME.json`, which is JSON as it stands, or `NAME.json-tagged`, JSON with tags for what
JSON lacks. The ending decides, so that JSON whose keys look like tags stays what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.errors import Refused
from holdfast.model import JSON
from holdfast.shadowgit import Kind, TreeEntry, encode_tree
from holdfast.workspace.stored.parts import JSON_TOKENS, Sink, Source, read_parts, write_parts
from holdfast.workspace.stored.pieces import encode_pieces
from holdfast.workspace.stored.spelling import Spelled, Spelling, parsed
from holdfast.workspace.stored.tags import texts_of

_NAME = re.compile(r"[\w][\w .:@+-]{0,150}")
_JSON, _TAGGED = b".json", b".json-tagged"
_PLAINLY = Spelling()
PROBE_BYTES = 1 << 10
"""As much of a text as can be looked for in two parts of a state at a time: less than the smallest has."""


class Form(NamedTuple):
    """A stored state as JSON; nothing is made of its tags."""

    value: JSON
    is_tagged: bool


def write_state(sink: Sink, state: Mapping[str, Any], spelling: Spelling = _PLAINLY) -> bytes:
    """Store named values in a tree. Refused, with the path of the value, if one would not come back the same."""
    if not isinstance(state, Mapping):
        raise Refused("state is not a mapping of names to values", hint=f"It is of type {type(state).__name__}.")
    for name in state:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(f"{name!r} cannot name a state", hint="Use letters, digits, spaces and . : @ + - _")
    return _write(sink, ((name, spelling.spell(value, f"state {name}")) for name, value in state.items()))


def read_state(source: Source, tree: bytes, spelling: Spelling = _PLAINLY) -> dict[str, Any]:
    """The named values of a tree."""
    return {name: read_one(source, entry, spelling) for name, entry in state_names(source, tree).items()}


def read_one(source: Source, entry: TreeEntry, spelling: Spelling) -> Any:
    """The value of one state."""
    return spelling.read(_spelled(source, entry), _where(entry))


def write_forms(sink: Sink, forms: Mapping[str, Form]) -> bytes:
    """Store states whose JSON was changed."""
    pairs = ((name, b"".join(encode_pieces(form.value)), form.is_tagged) for name, form in forms.items())
    return _write(sink, ((name, Spelled(text, is_tagged)) for name, text, is_tagged in pairs))


def read_forms(source: Source, tree: bytes) -> dict[str, Form]:
    """The states of a tree as JSON."""
    return {name: _form(source, entry) for name, entry in state_names(source, tree).items()}


def state_names(source: Source, tree: bytes) -> dict[str, TreeEntry]:
    """The states in a tree, by name, unread."""
    return {_name(entry): entry for entry in source.tree(tree)}


def read_texts(source: Source, entry: TreeEntry) -> str:
    """All texts of a state, names and values, a line or more each, in order."""
    return "\n".join(texts_of(*_form(source, entry)))


def spelled(text: str) -> bytes:
    """A text as it stands in a stored state."""
    return json.dumps(text)[1:-1].encode()


def _write(sink: Sink, states: Iterable[tuple[str, Spelled]]) -> bytes:
    """One state after the other, so that one at a time is held spelled."""
    entries = []
    for name, each in states:
        mode, oid = write_parts(sink, each.text, JSON_TOKENS)
        entries.append(TreeEntry(mode, name.encode() + (_TAGGED if each.is_tagged else _JSON), oid))
    return sink.add(Kind.TREE, encode_tree(entries))


def _spelled(source: Source, entry: TreeEntry) -> Spelled:
    return Spelled(read_parts(source, entry.mode, entry.oid), entry.name.endswith(_TAGGED))


def _form(source: Source, entry: TreeEntry) -> Form:
    text, is_tagged = _spelled(source, entry)
    return Form(parsed(text, _where(entry)), is_tagged)


def _name(entry: TreeEntry) -> str:
    """Without its ending, once: a state may be named `a.json`."""
    return entry.name.removesuffix(_TAGGED if entry.name.endswith(_TAGGED) else _JSON).decode()


def _where(entry: TreeEntry) -> str:
    return f"state {entry.name!r}"
