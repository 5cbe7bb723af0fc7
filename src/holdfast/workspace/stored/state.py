"""Named state, such as a conversation, stored next to the files. Values are read back exactly (P2).

A state is an entry of a tree: `NAME.json`, plain JSON, or `NAME.json-tagged`, JSON with tags for types that JSON lacks.
The suffix decides, so that plain JSON whose keys look like tags stays what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.errors import Refused
from holdfast.model import JSON
from holdfast.shadowgit import ObjectKind, TreeEntry, encode_tree
from holdfast.validation import check_mapping
from holdfast.workspace.stored.chunking import JSON_TOKENS, Sink, Source, read_parts, write_parts
from holdfast.workspace.stored.incremental_json import encode_pieces
from holdfast.workspace.stored.state_json import Spelled, Spelling, parsed

_NAME = re.compile(r"[\w][\w .:@+-]{0,150}")
_JSON, _TAGGED = b".json", b".json-tagged"
_PLAINLY = Spelling()
PROBE_BYTES = 1 << 10
"""The longest text that can be searched for across two chunks of a state: less than the smallest chunk."""


class Form(NamedTuple):
    """A stored state as JSON; its tags are not decoded."""

    value: JSON
    is_tagged: bool


def write_state(sink: Sink, state: Mapping[str, Any], spelling: Spelling = _PLAINLY) -> bytes:
    """Store named values in a tree. Refused, with the path of the value, if one cannot be read back exactly."""
    for name in check_mapping(state, "state"):
        if not _NAME.fullmatch(name):
            raise Refused(f"{name!r} cannot name a state", hint="Use letters, digits, spaces and . : @ + - _")
    return _write(sink, ((name, spelling.spell(value, f"state {name}")) for name, value in state.items()))


def read_state(source: Source, tree: bytes, spelling: Spelling = _PLAINLY) -> dict[str, Any]:
    """Read the named values of a tree."""
    return {name: read_one(source, entry, spelling) for name, entry in state_names(source, tree).items()}


def read_one(source: Source, entry: TreeEntry, spelling: Spelling) -> Any:
    """Read the value of one state."""
    return spelling.read(_spelled(source, entry), _where(entry))


def write_forms(sink: Sink, forms: Mapping[str, Form]) -> bytes:
    """Store states whose JSON was changed."""
    pairs = ((name, b"".join(encode_pieces(form.value)), form.is_tagged) for name, form in forms.items())
    return _write(sink, ((name, Spelled(text, is_tagged)) for name, text, is_tagged in pairs))


def read_forms(source: Source, tree: bytes) -> dict[str, Form]:
    """Read the states of a tree as JSON."""
    return {name: _form(source, entry) for name, entry in state_names(source, tree).items()}


def state_names(source: Source, tree: bytes) -> dict[str, TreeEntry]:
    """Return the entries of the states in a tree, by name."""
    return {_name(entry): entry for entry in source.tree(tree)}


def read_texts(source: Source, entry: TreeEntry) -> str:
    """Return all texts of a state, names and values, each on its own lines, in order."""
    from holdfast.workspace.stored.tagged_json import texts_of  # start-up cost: no save needs it

    return "\n".join(texts_of(*_form(source, entry)))


def spelled(text: str) -> bytes:
    """Return the bytes of a text in a stored state."""
    return json.dumps(text)[1:-1].encode()


def _write(sink: Sink, states: Iterable[tuple[str, Spelled]]) -> bytes:
    """Store states one after the other, so that only one is encoded in memory at a time."""
    entries = []
    for name, each in states:
        mode, oid = write_parts(sink, each.text, JSON_TOKENS)
        entries.append(TreeEntry(mode, name.encode() + (_TAGGED if each.is_tagged else _JSON), oid))
    return sink.add(ObjectKind.TREE, encode_tree(entries))


def _spelled(source: Source, entry: TreeEntry) -> Spelled:
    return Spelled(read_parts(source, entry.mode, entry.oid), entry.name.endswith(_TAGGED))


def _form(source: Source, entry: TreeEntry) -> Form:
    text, is_tagged = _spelled(source, entry)
    return Form(parsed(text, _where(entry)), is_tagged)


def _name(entry: TreeEntry) -> str:
    """Return the name of an entry without its suffix; only one suffix, since a state may be named `a.json`."""
    return entry.name.removesuffix(_TAGGED if entry.name.endswith(_TAGGED) else _JSON).decode()


def _where(entry: TreeEntry) -> str:
    return f"state {entry.name!r}"
