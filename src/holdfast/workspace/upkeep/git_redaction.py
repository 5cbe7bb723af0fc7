"""Removing purged contents from what checkpoints hold of the user's git: its packs, and its configuration.

The git program reads each pack, and writes it again without the files, commits and tags that contain what is purged,
and without every file that a commit or the index has at a purged path. Which they were is stored, so that they are not
held again. Changes nothing itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import private
from holdfast.errors import Damaged, Remedy, Unavailable
from holdfast.scan.git_index import staged_objects
from holdfast.scan.git_scratch import GitScratch
from holdfast.scan.read import LARGE_BYTES
from holdfast.shadowgit import ObjectKind, object_id
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.stored.chunking import LARGE_FILES, cut, group_parts
from holdfast.workspace.stored.git_data import (
    GitData,
    GitPack,
    content,
    extract,
    read_git_data,
    write_git_data,
    write_index,
)
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.repository import GIT_PURGE, Repository
from holdfast.workspace.upkeep.secret_spellings import Needles

_PIECE_BYTES = 1 << 20
_HASH_BYTES = {"sha1": 20, "sha256": 32}


class RedactedGit(NamedTuple):
    """The folder `git/` of a checkpoint after a purge."""

    tree: bytes
    is_cut: bool


class GitPlaces:
    """The purged paths, as the user's repository names them: the workspace may be a folder in it."""

    def __init__(self, scope: Scope, prefix: str) -> None:
        """`prefix`: the path of the workspace in the repository; empty if it is the whole of it."""
        self.scope = scope
        self._prefix = f"{prefix}/" if prefix else ""
        self.found: set[str] = set()
        """Paths of the workspace at which something was found."""

    def has(self, path: bytes) -> bool:
        """Whether a file at this path of the repository is purged."""
        text = os.fsdecode(path)
        if not text.startswith(self._prefix) or (inner := text.removeprefix(self._prefix)) not in self.scope:
            return False
        self.scope.see(inner)
        self.found.add(inner)
        return True

    def may_hold(self, folder: bytes) -> bool:
        """Whether anything below this folder of the repository can be purged."""
        text = os.fsdecode(folder)
        if self._prefix.startswith(f"{text}/"):
            return True
        return text.startswith(self._prefix) and self.scope.may_hold(text.removeprefix(self._prefix))


class GitRedaction:
    """Rewrites the folders `git/` of checkpoints; what they share, once (P8)."""

    def __init__(
        self,
        repository: Repository,
        sink: ObjectSink,
        program: Callable[[], str | None],
        needles: Needles,
        places: GitPlaces,
    ) -> None:
        self._objects = repository.objects
        self._own = repository.own
        self._sink = sink
        self._program = program
        self._needles = needles
        self._places = places
        self._packs: dict[tuple[bytes, frozenset[str]], tuple[GitPack, frozenset[str]]] = {}
        self._trees: dict[bytes, RedactedGit] = {}

    def rewrite(self, tree: bytes, format_of: Callable[[], str], doomed: Set[bytes]) -> RedactedGit:
        """Rewrite one folder. `format_of` returns how the repository names objects. `doomed`: the purged contents.

        Unavailable if a pack cannot be read; Damaged if the folder cannot be.
        """
        if not tree or not (doomed or self._needles or self._places.scope.given):
            return RedactedGit(tree, False)
        if tree not in self._trees:
            self._trees[tree] = self._rewrite(tree, format_of, doomed)
        return self._trees[tree]

    def _rewrite(self, tree: bytes, format_of: Callable[[], str], doomed: Set[bytes]) -> RedactedGit:
        try:
            data = read_git_data(self._objects, tree)
        except (ValueError, KeyError, TypeError):
            raise Damaged("what a checkpoint holds of git cannot be read", remedy=Remedy("verify")) from None
        files = tuple(each for each in data.files if each.name == b"index" or not self._has(each.mode, each.oid))
        packs, gone = [], set(data.purged)
        staged = frozenset(self._staged(data, format_of())) if data.packs else frozenset()
        for pack in data.packs:
            if (pack.oid, staged) not in self._packs:
                self._packs[pack.oid, staged] = self._rewrite_pack(pack, format_of(), doomed, staged)
            made, removed = self._packs[pack.oid, staged]
            packs.append(made._replace(tips=pack.tips))
            gone |= removed
        new = data._replace(packs=tuple(packs), files=files, purged=tuple(sorted(gone)))
        if new == data:
            return RedactedGit(tree, False)
        new = new._replace(problem=data.problem or "objects of git were purged")
        return RedactedGit(write_git_data(self._sink, new), True)

    def _has(self, mode: int, oid: bytes) -> bool:
        return self._needles.is_in(b"".join(content(self._objects, mode, oid)))

    def _staged(self, data: GitData, object_format: str) -> Iterator[str]:
        """The contents that the recorded index has at a purged path."""
        if data.shared_index_name:
            yield from self._staged_in_split_index(data, object_format)
        for each in data.files:
            if each.name in (b"index", b"shared-index"):
                index = b"".join(content(self._objects, each.mode, each.oid))
                for path, oid in staged_objects(index, hash_bytes=_HASH_BYTES[object_format]):
                    if self._places.has(path):
                        yield oid

    def _staged_in_split_index(self, data: GitData, object_format: str) -> Iterator[str]:
        """An entry that replaces one of the shared file has no path of its own: git puts the two together."""
        with self._scratch(self._git(), object_format) as scratch:
            write_index(self._objects, data, scratch.folder)
            listed = scratch.run("ls-files", "--stage", "-z", "--sparse").output  # nothing, if the index is damaged
        for row in listed.split(b"\0"):
            about, _, path = row.partition(b"\t")
            if path and self._places.has(path):
                yield about.split(b" ")[1].decode()

    def _git(self) -> str:
        program = self._program()
        if program is None:
            raise Unavailable(
                "the git program was not found; a purge needs it to search the git objects in checkpoints",
                hint="Install git. Nothing was changed.",
            )
        return program

    def _rewrite_pack(
        self, pack: GitPack, object_format: str, doomed: Set[bytes], staged: Set[str]
    ) -> tuple[GitPack, frozenset[str]]:
        with self._scratch(self._git(), object_format) as scratch:
            file = scratch.folder / "objects" / "pack" / "pack-0.pack"
            extract(self._objects, pack, file)
            _check(scratch.run("index-pack", os.fspath(file)).error)
            every = scratch.folder / "contents"
            with open(every, "wb", opener=private) as out:
                done = scratch.run("cat-file", "--batch", "--batch-all-objects", "--buffer", stdout=out)
            _check(done.error if done.code else "")
            found = {name: self._is_purged(kind, data, doomed) for name, kind, data in _objects(every)}
            gone = {name for name, is_purged in found.items() if is_purged} | staged & found.keys()
            gone |= _at_places(every, self._places, _HASH_BYTES[object_format]) & found.keys()
            if not gone:
                return pack, frozenset()
            new = scratch.folder / "rest.pack"
            listed = "".join(f"{name}\n" for name in found if name not in gone).encode()
            with open(new, "wb", opener=private) as out:
                done = scratch.run(
                    "pack-objects", "-q", "--stdout", "--delta-base-offset", input_data=listed, stdout=out
                )
            _check(done.error if done.code else "")
            return self._stored(pack, new), frozenset(gone)

    def _is_purged(self, kind: str, data: bytes, doomed: Set[bytes]) -> bool:
        """Whether an object is a purged content, or contains what is purged. Names in folders are left."""
        if kind == "tree":
            return False
        if kind == "blob" and object_id(ObjectKind.BLOB, data) in doomed:
            return True
        is_large = kind == "blob" and len(data) > LARGE_BYTES
        if is_large and any(object_id(ObjectKind.BLOB, part) in doomed for part in cut([data], LARGE_FILES)):
            return True
        return self._needles.is_in(data)

    def _stored(self, pack: GitPack, file: Path) -> GitPack:
        add = self._sink.writer.add if isinstance(self._sink, PackSink) else self._sink.add  # the first keeps no copy
        with open(file, "rb") as source:
            pieces = iter(lambda: source.read(_PIECE_BYTES), b"")
            parts = [add(ObjectKind.BLOB, part) for part in cut(pieces, LARGE_FILES)]
        mode, oid = group_parts(self._sink, parts)
        return pack._replace(mode=mode, oid=oid, size_bytes=file.stat().st_size)

    @contextlib.contextmanager
    def _scratch(self, program: str, object_format: str) -> Iterator[GitScratch]:
        folder = self._own / GIT_PURGE
        with durable.Lock(self._own / f"{GIT_PURGE}.lock"):
            try:
                _remove(folder)
                durable.make_folder(folder)
                yield GitScratch(folder / "scratch", program, None, object_format)
            finally:
                _remove(folder)  # it has what is purged


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        durable.remove_tree(str(folder))


def _check(error: str) -> None:
    if error:
        raise Unavailable(f"git cannot read a pack of the store: {error}", hint="Nothing was changed.")


def _at_places(file: Path, places: GitPlaces, hash_bytes: int) -> set[str]:
    """Return the contents that any commit among the objects of a file has at a purged path."""
    trees: dict[str, bytes] = {}
    roots = set()
    for name, kind, data in _objects(file):
        if kind == "tree":
            trees[name] = data
        elif kind == "commit":
            roots.add(data[5 : 5 + 2 * hash_bytes].decode())  # its first line: `tree NAME`
    found = set()
    stack = [(root, b"") for root in roots]
    seen = set(stack)  # P8: a folder that commits share is looked at once
    while stack:
        tree, folder = stack.pop()
        for mode, entry, oid in _tree_entries(trees.get(tree, b""), hash_bytes):
            path = folder + entry
            if mode == b"40000":
                if places.may_hold(path) and (inner := (oid, path + b"/")) not in seen:
                    seen.add(inner)
                    stack.append(inner)
            elif mode != b"160000" and places.has(path):
                found.add(oid)
    return found


def _tree_entries(data: bytes, hash_bytes: int) -> Iterator[tuple[bytes, bytes, str]]:
    """Read a tree of git: mode, name and object of each entry."""
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(0, space)
        at_next = end + 1 + hash_bytes
        yield data[at:space], data[space + 1 : end], data[end + 1 : at_next].hex()
        at = at_next


def _objects(file: Path) -> Iterator[tuple[str, str, bytes]]:
    """Read what `git cat-file --batch` wrote: name, kind and content of each object."""
    with open(file, "rb") as source:
        while header := source.readline():
            name, kind, size = header.decode().split()
            yield name, kind, source.read(int(size))
            source.read(1)
