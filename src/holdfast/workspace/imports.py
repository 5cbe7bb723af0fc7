"""Adding checkpoints whose files come from another tool's history, and not from the folder.

Order of writes (P3): as in a save, the objects in one pack, synced, then the ref, which is the commit point. A kill
between two checkpoints leaves those that were added; each stores where it came from, so that a second import adds
nothing twice.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import Damaged
from holdfast.model import Checkpoint, Uncovered
from holdfast.scan.attrs import NOTHING, PARTS, Attr
from holdfast.scan.read import LARGE_BYTES
from holdfast.shadowgit import EMPTY_TREE, ObjectKind, object_id
from holdfast.workspace.requests import SaveRequest
from holdfast.workspace.stored.chunking import LARGE_FILES, write_parts
from holdfast.workspace.stored.ids import new_id
from holdfast.workspace.stored.object_sink import PackSink
from holdfast.workspace.stored.record import (
    Contents,
    Node,
    encode_record,
    encode_uncovered,
    to_json,
    write_commit,
)
from holdfast.workspace.stored.state import write_state
from holdfast.workspace.stored.tree import Entry, TreeReader
from holdfast.workspace.stored.tree_edit import edit

if TYPE_CHECKING:
    from holdfast.workspace.stored.repository import Repository

_PAGE = 100  # how many checkpoints are looked at in one query
IMPORTED = "imported"
"""The key in a checkpoint's metadata under which its origin is stored."""


class OutsideFile(NamedTuple):
    """A file, link or folder of another tool's history."""

    mode: int
    """Type and permissions, as in `st_mode`."""
    mtime_ns: int
    size: int = 0
    read: Callable[[], bytes] | None = None
    """Returns the content, or the target of a link. Called only if the store lacks it."""
    oid: bytes = b""
    """The id that git gives this content, if it is known."""


@dataclass(frozen=True, slots=True)
class OutsideCheckpoint:
    """A checkpoint of another tool."""

    origin: str
    """Names it among all that are imported into a workspace: an import adds each origin once."""
    source: str
    """Where it was imported from, for people."""
    request: SaveRequest
    """What is known about it, and its named state."""
    timestamp: datetime
    edits: Mapping[str, OutsideFile | None]
    """What differs from the base, by path; None: removed. What is below a removed folder is removed with it."""
    base: str | None = None
    """The id of the checkpoint that it builds on; None: an empty folder."""
    uncovered: Sequence[Uncovered] = ()
    info_exclude: bytes = b""
    """The ignore rules of that tool, in the format of git. A restore keeps what they ignore."""
    exclude_patterns: Sequence[str] = ()
    """What the tool never saves: a restore keeps it, too."""


class Imports:
    """Adds checkpoints of other tools to a workspace, each atomically. The folder itself does not change."""

    def __init__(self, repository: Repository, writing: Callable[[], AbstractContextManager[None]]) -> None:
        """`writing`: takes the lock of the store."""
        self._repository = repository
        self._writing = writing
        self._known: dict[str, str] = {}
        self._seen = 0

    def known(self) -> Mapping[str, str]:
        """Return the ids of all checkpoints that were imported, by origin."""
        self._repository.sync()
        self._look()
        return self._known

    def add(self, given: OutsideCheckpoint) -> Checkpoint:
        """Add a checkpoint; if its origin is there already, return that one, with `is_new` False."""
        with self._writing():
            self._look()  # under the lock: another import may have added it meanwhile (P9)
            if given.origin in self._known:
                return self._repository.find(self._known[given.origin])
            checkpoint = self._add(given)
            self._known[given.origin], self._seen = checkpoint.id, checkpoint.sequence
            with contextlib.suppress(OSError):  # the checkpoint exists; merging packs only saves space
                self._repository.upkeep()
        return checkpoint

    def _look(self) -> None:
        """Read the origins of checkpoints that were added since the last look."""
        greatest, before = self._seen, None
        while rows := self._repository.catalog.newest(limit=_PAGE, safety=True, before=before):
            for row in rows:
                if row.sequence <= self._seen:
                    self._seen = greatest
                    return
                greatest = max(greatest, row.sequence)
                origin = origin_of(self._repository.checkpoint(row))
                if origin is not None:
                    self._known[origin] = row.id
            before = rows[-1].id
        self._seen = greatest

    def _add(self, given: OutsideCheckpoint) -> Checkpoint:
        repository, sequence = self._repository, self._repository.next_sequence()
        request = given.request
        origin = {IMPORTED: {"origin": given.origin, "source": given.source}}
        checkpoint = request.label().replace(
            id=new_id(sequence),
            sequence=sequence,
            timestamp=given.timestamp,
            parent=given.base,
            metadata={**(request.metadata or {}), **origin},
            complete=not any(each.reason.is_failure for each in given.uncovered),
        )
        with PackSink(repository.objects) as sink:
            reader = TreeReader(sink)
            root = _empty_root(sink) if given.base is None else self._root(given.base)
            edits = {path: None if file is None else _entry(sink, path, file) for path, file in given.edits.items()}
            spelling = repository.spelling
            contents = Contents(
                root=edit(root, edits, reader, sink),
                state=write_state(sink, request.state, spelling) if request.state else EMPTY_TREE,
                record=sink.add(ObjectKind.BLOB, encode_record(checkpoint)),
                changes=sink.add(ObjectKind.BLOB, to_json(_files(given, root, reader) if given.base else None)),
                uncovered=sink.add(ObjectKind.BLOB, encode_uncovered(given.uncovered)),
                rules=sink.add(ObjectKind.BLOB, to_json(_rules(given))),
            )
            commit = write_commit(sink, checkpoint, contents)
            repository.publish(sink.writer, checkpoint, contents, commit)
        return checkpoint.replace(commit=commit.hex(), is_new=True, _lazy=repository)

    def _root(self, base: str) -> Node:
        return self._repository.contents(self._repository.find(base)).root


def origin_of(checkpoint: Checkpoint) -> str | None:
    """Return the origin of an imported checkpoint; None for any other."""
    found = checkpoint.metadata.get(IMPORTED)
    origin = found.get("origin") if isinstance(found, Mapping) else None
    return origin if isinstance(origin, str) else None


def _empty_root(sink: PackSink) -> Node:
    """Write the root that a checkpoint without a base builds on."""
    return Node(sink.add(ObjectKind.TREE, b""), sink.add(ObjectKind.BLOB, b""), False)


class _Contents:
    """Takes the content of files; unlike the sink, it does not keep them in memory."""

    def __init__(self, sink: PackSink) -> None:
        self._sink = sink

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        return self._sink.writer.add(kind, data) if kind is ObjectKind.BLOB else self._sink.add(kind, data)


def _entry(sink: PackSink, path: str, file: OutsideFile) -> Entry:
    attr = Attr(file.mode, file.mtime_ns, NOTHING)
    if stat.S_ISDIR(file.mode) or file.read is None:
        return Entry(attr, b"")
    is_large = stat.S_ISREG(file.mode) and file.size > LARGE_BYTES
    if file.oid and not is_large and not sink.lacks(file.oid):
        return Entry(attr, file.oid)
    data = file.read()
    if len(data) != file.size or (file.oid and object_id(ObjectKind.BLOB, data) != file.oid):
        raise Damaged(f"{path} does not have the content that its id names", hint="Check the source with git fsck.")
    if is_large:
        _, oid = write_parts(_Contents(sink), data, LARGE_FILES)
        return Entry(attr._replace(extras=PARTS + b"%d" % len(data)), oid)
    return Entry(attr, sink.writer.add(ObjectKind.BLOB, data))


def _files(given: OutsideCheckpoint, root: Node, reader: TreeReader) -> list[str]:
    """Return the paths of files that differ from the base."""
    found = []
    for path, file in given.edits.items():
        before = reader.find(root, path)
        is_folder = (file is None or stat.S_ISDIR(file.mode)) and (before is None or before.is_folder)
        if not is_folder:
            found.append(path)
    return sorted(found)


def _rules(given: OutsideCheckpoint) -> dict[str, Any]:
    """Return `rules.json`. The root counts as a repository: its `.gitignore` files are rules, too."""
    return {
        "exclude_patterns": list(given.exclude_patterns),
        "excludes_file": "",
        "around": None,
        "repositories": {"": given.info_exclude.decode("utf-8", "surrogateescape")},
        "ignored_file_max_bytes": 0,
        "ignored_total_max_bytes": 0,
    }
