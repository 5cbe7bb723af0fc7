"""Recording the user's git in a checkpoint: read again only if the status of its files changed (P8).

`holdfast/git.cache` names the record that was made last. It is a hint: without it, or if it is wrong about the status
or names no stored object, the refs are read. A crash at any point leaves the cache of before, or of after.
"""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import durable
from holdfast.errors import Damaged, NotFound
from holdfast.scan.git_refs import Watched, encode_git_refs, read_git_refs, watched_stats
from holdfast.shadowgit import ObjectKind
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import read_contents
from holdfast.workspace.stored.repository import Repository


class GitRecorder:
    """Records refs and stashes of the user's git in one store."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._file = repository.own / "git.cache"
        self._new: bytes | None = None

    def record(self, sink: ObjectSink, git: Path | None) -> bytes:
        """Store the record and return its name; empty outside of a repository. Never fails because of git (P4)."""
        if git is None:
            return b""
        known = self._known(git)
        if known is not None:
            return known
        found, watched = read_git_refs(git)
        oid = sink.add(ObjectKind.BLOB, encode_git_refs(found))
        self._new = _encode(git, watched, oid) if watched is not None else None
        return oid

    def changed_since(self, commit: str, sink: ObjectSink, git: Path | None) -> bool:
        """Whether git's refs differ from those that a checkpoint recorded. One that recorded none never differs."""
        try:
            before = read_contents(self._repository.objects, self._repository.objects.commit(bytes.fromhex(commit))).git
        except (Damaged, NotFound):
            return False
        return bool(before) and git is not None and self.record(sink, git) != before

    def remember(self) -> None:
        """Write the cache, once the checkpoint is published. OSError if the disk refuses."""
        if self._new is not None:
            durable.write_atomically(self._file, self._new)
            self._new = None

    def _known(self, git: Path) -> bytes | None:
        try:
            cached = json.loads(self._file.read_bytes())
            oid = bytes.fromhex(cached["record"])
            is_same = cached["git"] == str(git) and cached["stats"] == watched_stats(git, cached["folders"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return oid if is_same and self._repository.objects.has_sound(oid) else None


def _encode(git: Path, watched: Watched, oid: bytes) -> bytes:
    value = {"git": str(git), "record": oid.hex(), "folders": watched.folders, "stats": watched.stats}
    return json.dumps(value).encode()
