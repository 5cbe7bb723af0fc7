"""The search after a purge, in every object and every other file of the store. Changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.shadowgit import FOLDER_MODE, ObjectKind, TreeEntry, decode_commit
from holdfast.shadowgit.objects import decode_tree
from holdfast.workspace.stored.chunking import Source, list_parts
from holdfast.workspace.upkeep.secret_spellings import Needles

STORE = "(store)"
"""In place of a checkpoint's id for what belongs to none."""
_PART = re.compile(rb"[0-9]{2}")
_LABELS = {
    b"attrs": "(attributes)",
    b"changes.json": "(paths)",
    b"checkpoint.json": "(record)",
    b"files": "(paths)",
    b"git": "(git)",
    b"git.json": "(git)",
    b"rules.json": "(rules)",
    b"uncovered.json": "(paths)",
}
_CATALOG = "catalog.db"
_FILE_MAX_BYTES = 64 << 20


class CommitReader(Source, Protocol):
    """Reads objects, including commits."""

    def commit(self, oid: bytes) -> bytes: ...


class Left(NamedTuple):
    """The objects that still contain purged text."""

    contents: set[bytes]
    """Blobs and commits, and the trees of contents in chunks."""
    names: set[bytes]
    """Folders with such a name in them."""

    def __bool__(self) -> bool:
        return bool(self.contents or self.names)


def find_objects(objects: Iterable[tuple[bytes, ObjectKind, bytes]], source: Source, needles: Needles) -> Left:
    """Return the objects that contain a needle, also across two chunks."""
    left = Left(set(), set())
    for oid, kind, data in objects if needles else ():
        if kind is not ObjectKind.TREE:
            if needles.is_in(data):
                left.contents.add(oid)
            continue
        entries = list(decode_tree(data))
        if needles.is_in(b"\0".join(entry.name for entry in entries)):
            left.names.add(oid)
        if _are_parts(entries) and _is_across(source, oid, needles):
            left.contents.add(oid)
    return left


def locate(commits: Mapping[str, bytes], source: CommitReader, left: Left) -> dict[str, list[str]]:
    """Return where each of these objects is, by the first checkpoint that has it; without contents of files."""
    found: dict[str, list[str]] = {}
    seen: set[bytes] = set()
    every = left.contents | left.names
    for checkpoint_id, commit in commits.items() if every else ():
        places = ["(message)"] if commit in left.contents else []
        seen.add(commit)
        for label, entry, is_file in _top(source, decode_commit(source.commit(commit))):
            new = set(_new_objects(source, entry, seen))
            if not new.isdisjoint(left.names if is_file else every):
                places.append(label)
        if places:
            found[checkpoint_id] = list(dict.fromkeys(places))
    others = sorted(every - seen)
    if others:
        found[STORE] = [f"object {oid.hex()}" for oid in others]  # a ref that somebody else created needs it
    return found


def find_files(folder: Path, needles: Needles) -> list[str]:
    """Return the files of the store, except packs and catalog, that contain a needle."""
    found = []
    for where, folders, names in os.walk(folder):
        if where == os.fspath(folder / "objects"):
            folders.clear()
        for name in names:
            path = Path(where, name)
            try:
                is_plain = (
                    not name.startswith(_CATALOG)
                    and path.is_file()
                    and not path.is_symlink()
                    and path.stat().st_size <= _FILE_MAX_BYTES
                )
                if is_plain and needles.is_in(path.read_bytes()):
                    found.append(path.relative_to(folder).as_posix())
            except FileNotFoundError:
                continue  # SQLite creates and removes files
    return sorted(found)


def _top(source: Source, tree: bytes) -> Iterator[tuple[str, TreeEntry, bool]]:
    """Yield the parts of a checkpoint: name, entry, and whether it contains files."""
    for entry in source.tree(tree):
        if entry.name == b"state":
            for state in source.tree(entry.oid):
                yield state.name.decode("utf-8", "replace").rpartition(".json")[0], state, False
        else:
            yield _LABELS.get(entry.name, "(record)"), entry, entry.name == b"files"


def _new_objects(source: Source, entry: TreeEntry, seen: set[bytes]) -> Iterator[bytes]:
    """Yield every object of an entry that was not seen yet."""
    stack = [entry]
    while stack:
        at = stack.pop()
        if at.oid in seen:
            continue
        seen.add(at.oid)
        yield at.oid
        if at.is_folder:
            stack += source.tree(at.oid)


def _are_parts(entries: list[TreeEntry]) -> bool:
    return len(entries) > 1 and all(_PART.fullmatch(entry.name) for entry in entries)


def _is_across(source: Source, tree: bytes, needles: Needles) -> bool:
    """Whether a needle is in a content across the boundary of two chunks."""
    size, last = needles.seam_bytes, b""
    for part in list_parts(source, FOLDER_MODE, tree):
        data = source.blob(part)
        if last and needles.is_in(last + data[:size]):
            return True
        last = (last + data)[-size:]
    return False
