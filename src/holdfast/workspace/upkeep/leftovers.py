"""The search after a purge: every object that is left in the store, and every other file of it. Nothing is changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.shadowgit import FOLDER_MODE, Kind, TreeEntry, decode_commit
from holdfast.shadowgit.objects import decode_tree
from holdfast.workspace.stored.parts import Source, list_parts
from holdfast.workspace.upkeep.needles import Needles

STORE = "(store)"
"""Stands for a checkpoint's id where something belongs to none."""
_PART = re.compile(rb"[0-9]{2}")
_LABELS = {
    b"attrs": "(attributes)",
    b"changes.json": "(paths)",
    b"checkpoint.json": "(record)",
    b"files": "(paths)",
    b"rules.json": "(rules)",
    b"uncovered.json": "(paths)",
}
_CATALOG = "catalog.db"
_FILE_MAX_BYTES = 64 << 20


class Commits(Source, Protocol):
    """Where objects are read, commits too."""

    def commit(self, oid: bytes) -> bytes: ...


class Left(NamedTuple):
    """The objects that repeat what was purged."""

    contents: set[bytes]
    """Blobs and commits, and the trees of contents that are stored in parts."""
    names: set[bytes]
    """Folders with a name in them that does."""

    def __bool__(self) -> bool:
        return bool(self.contents or self.names)


def find_objects(objects: Iterable[tuple[bytes, Kind, bytes]], source: Source, needles: Needles) -> Left:
    """Those of these objects that one of the needles is in; also where it begins in one part and ends in another."""
    left = Left(set(), set())
    for oid, kind, data in objects if needles else ():
        if kind is not Kind.TREE:
            if needles.is_in(data):
                left.contents.add(oid)
            continue
        entries = list(decode_tree(data))
        if needles.is_in(b"\0".join(entry.name for entry in entries)):
            left.names.add(oid)
        if _are_parts(entries) and _is_across(source, oid, needles):
            left.contents.add(oid)
    return left


def locate(commits: Mapping[str, bytes], source: Commits, left: Left) -> dict[str, list[str]]:
    """By the first checkpoint that has it, where each of these objects is, but for the contents of files."""
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
        found[STORE] = [f"object {oid.hex()}" for oid in others]  # somebody's own ref needs it
    return found


def find_files(folder: Path, needles: Needles) -> list[str]:
    """Files of the store, apart from its packs, that one of the needles is in. The catalog is made of the records."""
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
                continue  # SQLite's own come and go
    return sorted(found)


def _top(source: Source, tree: bytes) -> Iterator[tuple[str, TreeEntry, bool]]:
    """What a checkpoint is made of: what to call it, where it is, and whether it has files."""
    for entry in source.tree(tree):
        if entry.name == b"state":
            for state in source.tree(entry.oid):
                yield state.name.decode("utf-8", "replace").rpartition(".json")[0], state, False
        else:
            yield _LABELS.get(entry.name, "(record)"), entry, entry.name == b"files"


def _new_objects(source: Source, entry: TreeEntry, seen: set[bytes]) -> Iterator[bytes]:
    """Every object that an entry needs and that was not seen yet."""
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
    """Whether a needle is in a content that is stored in parts, where neighbouring parts meet."""
    size, last = needles.seam_bytes, b""
    for part in list_parts(source, FOLDER_MODE, tree):
        data = source.blob(part)
        if last and needles.is_in(last + data[:size]):
            return True
        last = (last + data)[-size:]
    return False
