"""What a checkpoint keeps of the user's git beside the names in `git.json`: the folder `git/`.

held.json    which commits are held, in which pack
packs/N      packs of the user's objects, as the git program wrote them
remotes      the commits of remote-tracking refs that the packs were made without
index        the index; shared-index: the file that a split index builds on
config       the configuration of the repository; shallow: where the history of a shallow clone ends

The packs are stored as contents, and not as objects of the store: their commits have ancestors that only a remote has,
so the store's repository would not be complete with them, and a SHA-256 repository fits in no other way. Checkpoints
share them like any content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.durable import parse_json, private
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, ObjectKind, TreeEntry, encode_tree
from holdfast.workspace.stored.chunking import Sink, Source, list_parts
from holdfast.workspace.stored.record import to_json

_SHARED_INDEX = r"sharedindex\.[0-9a-f]{40}(?:[0-9a-f]{24})?"
_REMOTES = b"remotes"


class GitPack(NamedTuple):
    """A pack of the user's objects."""

    tips: list[str]
    """Everything that these name is in this pack or an earlier one, or a remote had it."""
    mode: int
    oid: bytes
    """Where its content is in the store."""
    size_bytes: int


class GitData(NamedTuple):
    """What a checkpoint keeps of the user's git."""

    packs: tuple[GitPack, ...] = ()
    wanted: frozenset[str] = frozenset()
    """What the record names and no pack has yet."""
    problem: str = ""
    """Why something of it is not held."""
    purged: tuple[str, ...] = ()
    """Objects that a purge removed; they are not stored again."""
    files: tuple[TreeEntry, ...] = ()
    """`index`, `shared-index`, `config`, `shallow`."""
    index_digest: str = ""
    """The digest of the index in `files`, as the record has it."""
    shared_index_name: str = ""
    place: str = ""
    """Where the git directory is, relative to the workspace."""
    remotes: frozenset[str] = frozenset()
    """What remotes had when the packs were made: the packs lack what these reach."""

    @property
    def tips(self) -> set[str]:
        """What the packs have been made for."""
        return {tip for pack in self.packs for tip in pack.tips}

    def file(self, name: str) -> TreeEntry | None:
        return next((each for each in self.files if each.name == name.encode()), None)


def write_git_data(sink: Sink, data: GitData) -> bytes:
    """Store the folder `git/`; return its tree."""
    held: dict[str, Any] = {
        "format": 1,
        "packs": [{"tips": pack.tips, "bytes": pack.size_bytes} for pack in data.packs],
        "wanted": sorted(data.wanted),
        "problem": data.problem,
        "purged": sorted(data.purged),
        "index": data.index_digest,
        "shared_index_name": data.shared_index_name,
        "place": data.place,
    }
    entries = [TreeEntry(FILE_MODE, b"held.json", sink.add(ObjectKind.BLOB, to_json(held))), *data.files]
    if data.remotes:
        text = "".join(f"{each}\n" for each in sorted(data.remotes))
        entries.append(TreeEntry(FILE_MODE, _REMOTES, sink.add(ObjectKind.BLOB, text.encode())))
    if data.packs:
        packs = [TreeEntry(pack.mode, b"%d" % number, pack.oid) for number, pack in enumerate(data.packs)]
        entries.append(TreeEntry(FOLDER_MODE, b"packs", sink.add(ObjectKind.TREE, encode_tree(packs))))
    return sink.add(ObjectKind.TREE, encode_tree(entries))


def read_git_data(source: Source, tree: bytes) -> GitData:
    """Read the folder `git/`. ValueError, KeyError or TypeError if it is damaged."""
    entries = {entry.name: entry for entry in source.tree(tree)}
    held: dict[str, Any] = parse_json(source.blob(entries[b"held.json"].oid))
    found = {} if b"packs" not in entries else {each.name: each for each in source.tree(entries[b"packs"].oid)}
    packs = []
    for number, row in enumerate(held["packs"]):
        entry = found[b"%d" % number]
        packs.append(GitPack([str(tip) for tip in row["tips"]], entry.mode, entry.oid, int(row["bytes"])))
    files = tuple(entry for name, entry in entries.items() if name not in (b"held.json", b"packs", _REMOTES))
    remotes = source.blob(entries[_REMOTES].oid).decode("ascii").split() if _REMOTES in entries else ()
    wanted = frozenset(str(each) for each in held["wanted"])
    purged = tuple(str(each) for each in held["purged"])
    names = str(held["index"]), str(held["shared_index_name"]), str(held["place"])
    if names[1] and re.fullmatch(_SHARED_INDEX, names[1]) is None:  # P7: a rescue writes a file of this name
        raise ValueError("no name of a shared index")
    return GitData(tuple(packs), wanted, str(held["problem"]), purged, files, *names, frozenset(remotes))


def content(source: Source, mode: int, oid: bytes) -> Iterator[bytes]:
    """Read a pack or a file of `git/`, piece by piece."""
    return map(source.blob, list_parts(source, mode, oid))


def write_index(source: Source, data: GitData, folder: Path) -> None:
    """Write the recorded index, and the file that it builds on, into a git directory."""
    for name, target in (("shared-index", data.shared_index_name), ("index", "index")):
        entry = data.file(name)
        if entry is not None and target and "/" not in target:
            with open(folder / target, "wb", opener=private) as file:
                file.writelines(content(source, entry.mode, entry.oid))


def extract(source: Source, pack: GitPack, path: Path) -> None:
    """Write a pack into a new file."""
    with open(path, "xb", opener=private) as file:
        for piece in content(source, pack.mode, pack.oid):
            file.write(piece)
