"""Recording the user's git in a checkpoint: read again only if the status of its files changed (P8).

A save records names, the index and the configuration, and which packs of objects are held already; `git_hold` adds what
is missing. `holdfast/git.cache` names the record that was made last. It is a hint: git is read without it, if it is
wrong about the status, or if what it names is not in the store as a whole. A crash at any point leaves the cache of
before, or of after.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Damaged, NotFound
from holdfast.scan.git_index import read_index
from holdfast.scan.git_refs import GitRefs, Watched, encode_git_refs, read_git_refs, remote_tips, watched_stats
from holdfast.scan.user_git import common_dir
from holdfast.shadowgit import FOLDER_MODE, ObjectKind, TreeEntry
from holdfast.workspace.stored.chunking import Cutting, write_parts
from holdfast.workspace.stored.git_data import GitData, read_git_data, write_git_data
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import read_contents
from holdfast.workspace.stored.repository import Repository

INDEX = "index:"
"""Begins the tip that stands for everything staged; its digest follows."""
_SMALL_MAX_BYTES = 4 << 20
_ENTRIES = Cutting(rb"[^\x00]\x00", 4 << 10, 32 << 10, 31)  # entries of an index end so


class RecordedGit(NamedTuple):
    """The user's git in a checkpoint: `git.json`, and the folder `git/`; empty outside of a repository."""

    names: bytes = b""
    data: bytes = b""


class GitRecorder:
    """Records the user's git in one store."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self._repository = repository
        self._root = root
        self._file = repository.own / "git.cache"
        self._new: dict[str, Any] | None = None
        self._made: tuple[ObjectSink, Path, RecordedGit] | None = None
        self.is_wanting = False
        """Whether the last record names objects that are not held, or that a remote had and may have no more."""

    def record(self, sink: ObjectSink, git: Path | None) -> RecordedGit:
        """Store the record. Never fails because of git (P4)."""
        if git is None:
            self.is_wanting = False
            return RecordedGit()
        made, self._made = self._made, None
        if made is not None and made[0] is sink and made[1] == git:
            return made[2]
        cached = self._cached()
        known = self._known(git, cached)
        if known is not None:
            self.is_wanting = bool(cached.get("wanting"))
            return known
        found, watched = read_git_refs(git)
        names = sink.add(ObjectKind.BLOB, encode_git_refs(found))
        data = self._data(sink, git, found, cached)
        self.is_wanting = bool(data.wanted or data.remotes - remote_tips(git))
        recorded = RecordedGit(names, write_git_data(sink, data))
        self._new = None if watched is None else _encode(git, watched, recorded, wanting=self.is_wanting)
        return recorded

    def changed_since(self, commit: str, sink: ObjectSink, git: Path | None) -> bool:
        """Whether git's refs differ from those that a checkpoint recorded. One that recorded none never differs."""
        try:
            before = read_contents(self._repository.objects, self._repository.objects.commit(bytes.fromhex(commit))).git
        except (Damaged, NotFound):
            return False
        if not before or git is None:
            return False
        recorded = self.record(sink, git)
        self._made = sink, git, recorded  # the same save publishes it
        return recorded.names != before

    def remember(self) -> None:
        """Write the cache, once the checkpoint is published. OSError if the disk refuses."""
        self._made = None
        if self._new is not None:
            self._write(self._new)
            self._new = None

    def remember_data(self, names: bytes, data: bytes, *, wanting: bool) -> None:
        """Have the next checkpoint with the same record refer to packs that were added. Needs the lock."""
        cached = self._cached()
        if cached.get("record") == names.hex():
            cached |= {"data": data.hex(), "wanting": wanting}
            self._write(cached)

    def _write(self, value: dict[str, Any]) -> None:
        """Write the cache, with the packs that have what it names."""
        durable.write_atomically(self._file, json.dumps({**value, "packs": self._pack_names()}).encode())

    def _pack_names(self) -> list[str]:
        return sorted(pack.name for pack in self._repository.objects.packs())

    def _data(self, sink: ObjectSink, git: Path, found: GitRefs, cached: dict[str, Any]) -> GitData:
        before = self._previous(cached)
        files = [each for each in before.files if each.name in (b"index", b"shared-index")]
        name = before.shared_index_name
        if not found.index_digest:
            files = []
        elif not files or before.index_digest != found.index_digest:
            index = read_index(git, hash_bytes=32 if found.object_format == "sha256" else 20)
            parts = {"index": index.data} | ({"shared-index": index.shared} if index.shared else {})
            files = _stored(sink, parts)
            name = index.shared_name
        for file in ("config", "shallow"):
            with contextlib.suppress(OSError):
                content = durable.read_file(common_dir(git) / file, max_bytes=_SMALL_MAX_BYTES)
                files += _stored(sink, {file: content})
        wanted = frozenset(wanted_tips(found) - before.tips)
        return before._replace(
            wanted=wanted,
            files=tuple(files),
            index_digest=found.index_digest,
            shared_index_name=name,
            place=os.path.relpath(git, self._root),
        )

    def _previous(self, cached: dict[str, Any]) -> GitData:
        """Return what the last checkpoint holds of git; nothing if that is unknown."""
        objects = self._repository.objects
        try:
            row = self._repository.catalog.greatest()
            if row is not None:  # first: the cache is not written while git's files have just changed
                tree = read_contents(objects, objects.commit(bytes.fromhex(row.commit))).git_data
                if tree and objects.has(tree):
                    data = read_git_data(objects, tree)
                    if all(objects.has(pack.oid) for pack in data.packs):
                        return data
            tree = bytes.fromhex(cached.get("data", ""))
            if tree and objects.has_whole(FOLDER_MODE, tree):
                return read_git_data(objects, tree)
        except (Damaged, NotFound, ValueError, KeyError, TypeError):
            pass
        return GitData()

    def _cached(self) -> dict[str, Any]:
        try:
            found = durable.parse_json(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _known(self, git: Path, cached: dict[str, Any]) -> RecordedGit | None:
        try:
            recorded = RecordedGit(bytes.fromhex(cached["record"]), bytes.fromhex(cached["data"]))
            is_same = cached["git"] == str(git) and cached["stats"] == watched_stats(git, cached["folders"])
        except (ValueError, KeyError, TypeError):
            return None
        return recorded if is_same and self._is_stored(recorded, cached) else None

    def _is_stored(self, recorded: RecordedGit, cached: dict[str, Any]) -> bool:
        """Whether a record is in the store. Only packs that are gone can take away what is below its tree (P3)."""
        objects, packs = self._repository.objects, cached.get("packs")
        if isinstance(packs, list) and set(packs) <= set(self._pack_names()):
            return all(map(objects.has_sound, recorded))
        return objects.has_sound(recorded.names) and objects.has_whole(FOLDER_MODE, recorded.data)


def wanted_tips(found: GitRefs) -> set[str]:
    """Return what must be held for a record: names of commits, tags and other objects, and one that stands for the
    index."""
    tips = {commit for commit in found.refs.values() if not commit.startswith("ref: ")}
    tips |= {commit for commit, _ in found.stashes} | set(found.others.values())
    if found.head and not found.head.startswith("ref: "):
        tips.add(found.head)
    return tips | ({f"{INDEX}{found.index_digest}"} if found.index_digest else set())


def _stored(sink: ObjectSink, files: dict[str, bytes]) -> list[TreeEntry]:
    parts = {name: write_parts(sink, data, _ENTRIES) for name, data in files.items()}
    return [TreeEntry(mode, name.encode(), oid) for name, (mode, oid) in parts.items()]


def _encode(git: Path, watched: Watched, recorded: RecordedGit, *, wanting: bool) -> dict[str, Any]:
    return {
        "git": str(git),
        "record": recorded.names.hex(),
        "data": recorded.data.hex(),
        "wanting": wanting,
        "folders": watched.folders,
        "stats": watched.stats,
    }
