"""How a checkpoint is stored: one commit, whose tree contains everything.

files/           the workspace
attrs            what git cannot express of it, folder by folder
state/           the named state
checkpoint.json  the record: message, actor, time, parent
changes.json     the paths that differ from the parent
uncovered.json   the paths that are not covered, and why
rules.json       the ignore rules that are not files of the workspace
git.json         refs and stashes of the user's git; only in a repository
git/             its index, and objects that exist nowhere else: `git_data`
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.durable import parse_json
from holdfast.errors import Damaged, Refused, Remedy
from holdfast.model import Checkpoint, GitHead, Operation

if TYPE_CHECKING:
    from holdfast.model import Lazy, Uncovered
    from holdfast.workspace.stored.chunking import Sink, Source

FORMAT = 1


class Node(NamedTuple):
    """One stored folder: its tree in `files/` and its attributes."""

    tree: bytes
    attrs: bytes
    attrs_is_tree: bool


class Contents(NamedTuple):
    """The object ids of the parts of a checkpoint."""

    root: Node
    state: bytes  # EMPTY_TREE: none
    record: bytes
    changes: bytes
    uncovered: bytes
    rules: bytes
    git: bytes = b""  # empty: not in a repository
    git_data: bytes = b""  # a tree; empty: none


def encode_record(checkpoint: Checkpoint) -> bytes:
    """`checkpoint.json`. Refused if `decode_record` could not read it: nobody could read that checkpoint again (P1)."""
    operation = checkpoint.operation
    later: dict[str, Any] = {"purged": checkpoint.purged} if checkpoint.purged else {}
    if checkpoint.git is not None:
        later["git"] = [checkpoint.git.commit, checkpoint.git.branch]
    data = to_json(
        {
            "format": FORMAT,
            "id": checkpoint.id,
            "sequence": checkpoint.sequence,
            "message": checkpoint.message,
            "timestamp": checkpoint.timestamp.isoformat(),
            "name": checkpoint.name,
            "session": checkpoint.session,
            "actor": checkpoint.actor,
            "step": checkpoint.step,
            "parent": checkpoint.parent,
            "metadata": dict(checkpoint.metadata),
            "pinned": checkpoint.pinned,
            "complete": checkpoint.complete,
            "quiet": checkpoint.quiet,
            "operation": operation and [operation.verb, operation.target, operation.paths],
            **later,
        }
    )
    try:
        _read_fields(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(f"a checkpoint cannot be stored: {error}", hint="Nothing was stored.") from None
    return data


def decode_record(data: bytes, *, commit: str, lazy: "Lazy | None") -> Checkpoint:
    """Read `checkpoint.json`."""
    try:
        row = _read_fields(data)
        operation = row["operation"]
        if operation is not None:
            verb, target, paths = operation
            paths = None if paths is None else tuple(_texts(paths))
            verb, target = _texts([verb, target])
            operation = Operation(verb, target, paths)
        return Checkpoint(
            id=row["id"],
            sequence=row["sequence"],
            message=row["message"],
            timestamp=datetime.fromisoformat(row["timestamp"]).astimezone(UTC),
            name=row["name"],
            session=row["session"],
            actor=row["actor"],
            step=row["step"],
            parent=row["parent"],
            metadata=row["metadata"],
            pinned=row["pinned"],
            complete=row["complete"],
            quiet=row["quiet"],
            operation=operation,
            purged=tuple(_texts(row.get("purged", []))),
            commit=commit,
            git=GitHead(*map(str, row["git"])) if row.get("git") else None,
            _lazy=lazy,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        # OverflowError: a time before the year 1 in UTC
        raise Damaged(f"the record of commit {commit} cannot be read ({error})", remedy=Remedy("verify")) from None


def _refuse(constant: str) -> None:
    """Raise for a number that JSON lacks: SQLite, which searches in records, reads none of it."""
    raise ValueError(f"{constant} is no number")


_RECORD = json.JSONDecoder(parse_constant=_refuse)
_TEXT, _TEXT_OR_NONE, _FLAG = frozenset({str}), frozenset({str, type(None)}), frozenset({bool})
_FIELDS = {
    "id": _TEXT,
    "sequence": frozenset({int}),
    "message": _TEXT,
    "timestamp": _TEXT,
    "name": _TEXT_OR_NONE,
    "session": _TEXT_OR_NONE,
    "actor": _TEXT_OR_NONE,
    "step": frozenset({int, type(None)}),
    "parent": _TEXT_OR_NONE,
    "metadata": frozenset({dict}),
    "pinned": _FLAG,
    "complete": _FLAG,
    "quiet": _FLAG,
}
_SEQUENCE_MAX = (1 << 63) - 1


def _read_fields(data: bytes) -> dict[str, Any]:
    """Return the fields of a record. KeyError, TypeError or ValueError unless each is there and of its type."""
    row: dict[str, Any] = _RECORD.decode(data.decode())
    if row["message"] is None:  # what earlier versions stored for a caller
        row["message"] = ""
    for name, kinds in _FIELDS.items():
        if type(row[name]) not in kinds:
            raise TypeError(f"{name} is of a wrong type")
    if not 0 <= row["sequence"] <= _SEQUENCE_MAX:
        raise ValueError("its number is out of range")
    for name in ("id", "name", "parent"):
        (row[name] or "").encode()  # these are looked up; UnicodeEncodeError for a lone surrogate
    return row


def _texts(value: Any) -> "list[str]":
    """Return a list of texts. TypeError if it is none."""
    if type(value) is not list or not all(type(each) is str for each in value):
        raise TypeError("not a list of texts")
    return value


def write_commit(sink: "Sink", checkpoint: Checkpoint, contents: Contents) -> bytes:
    """Write the tree and the commit of a checkpoint; return the id of the commit."""
    from holdfast.shadowgit import (  # start-up cost: reading records does not need it
        EMPTY_TREE,
        FILE_MODE,
        FOLDER_MODE,
        ObjectKind,
        TreeEntry,
        encode_commit,
        encode_tree,
    )

    attrs_mode = FOLDER_MODE if contents.root.attrs_is_tree else FILE_MODE
    entries = [
        TreeEntry(attrs_mode, b"attrs", contents.root.attrs),
        TreeEntry(FILE_MODE, b"changes.json", contents.changes),
        TreeEntry(FILE_MODE, b"checkpoint.json", contents.record),
        TreeEntry(FOLDER_MODE, b"files", contents.root.tree),
        TreeEntry(FILE_MODE, b"rules.json", contents.rules),
        TreeEntry(FILE_MODE, b"uncovered.json", contents.uncovered),
    ]
    if contents.git_data:
        entries.append(TreeEntry(FOLDER_MODE, b"git", contents.git_data))
    if contents.git:
        entries.insert(4, TreeEntry(FILE_MODE, b"git.json", contents.git))
    if contents.state != EMPTY_TREE:
        entries.append(TreeEntry(FOLDER_MODE, b"state", contents.state))
    tree = sink.add(ObjectKind.TREE, encode_tree(entries))
    title = checkpoint.message or ("before " + checkpoint.operation.verb if checkpoint.operation else checkpoint.id)
    seconds = int(checkpoint.timestamp.timestamp())
    return sink.add(ObjectKind.COMMIT, encode_commit(tree, seconds=seconds, message=title))


def read_contents(source: "Source", commit: bytes) -> Contents:
    """Read the parts of a stored checkpoint."""
    from holdfast.shadowgit import EMPTY_TREE, FOLDER_MODE, decode_commit  # as above

    tree = decode_commit(commit)
    entries = {entry.name: entry for entry in source.tree(tree)}
    try:
        attrs = entries[b"attrs"]
        state, git, git_data = entries.get(b"state"), entries.get(b"git.json"), entries.get(b"git")
        return Contents(
            root=Node(entries[b"files"].oid, attrs.oid, attrs.mode == FOLDER_MODE),
            state=state.oid if state else EMPTY_TREE,
            record=entries[b"checkpoint.json"].oid,
            changes=entries[b"changes.json"].oid,
            uncovered=entries[b"uncovered.json"].oid,
            rules=entries[b"rules.json"].oid,
            git=git.oid if git else b"",
            git_data=git_data.oid if git_data else b"",
        )
    except KeyError as error:
        raise Damaged(f"a checkpoint has no {error.args[0].decode()}", remedy=Remedy("verify")) from None


def encode_uncovered(uncovered: "Sequence[Uncovered]") -> bytes:
    """`uncovered.json`."""
    return to_json([[item.path, item.reason, item.detail] for item in uncovered])


def decode_uncovered(data: bytes) -> "tuple[Uncovered, ...]":
    """Read `uncovered.json`."""
    from holdfast.model import Reason, Uncovered  # start-up cost: a list of checkpoints does not need them

    try:
        return tuple(Uncovered(path, Reason(reason), detail) for path, reason, detail in map(_texts, parse_json(data)))
    except (ValueError, TypeError):
        raise Damaged("the list of what a checkpoint does not cover cannot be read", remedy=Remedy("verify")) from None


def decode_changes(data: bytes) -> "list[str] | None":
    """Read `changes.json`: the paths that differ from the parent; None if there is none."""
    try:
        found = parse_json(data)
        return None if found is None else _texts(found)
    except (ValueError, TypeError):
        raise Damaged("the paths that a checkpoint changed cannot be read", remedy=Remedy("verify")) from None


def decode_rules(data: bytes) -> "dict[str, Any]":
    """Read `rules.json`: the ignore rules that are not files of the workspace."""
    try:
        found = parse_json(data)
        _texts(found["exclude_patterns"])
        _texts([found["excludes_file"], *found["repositories"].values()])
        around = found.get("around")
        if around is not None:
            _texts([around["path"], around["info_exclude"], *around["gitignores"].values()])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged("the rules of a checkpoint cannot be read", remedy=Remedy("verify")) from None
    return dict(found)


def to_json(value: Any) -> bytes:
    """Encode canonical JSON: ASCII, one line per item, the same bytes for the same value."""
    return json.dumps(value, indent=1, sort_keys=isinstance(value, Mapping)).encode() + b"\n"
