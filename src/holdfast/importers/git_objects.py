"""Reading another program's git repository as data: commits, trees, blobs, refs and reflogs.

No git program runs, and no hook, filter, include or setting of the repository takes effect: objects come from libgit2's
object database, which verifies each against its id; everything else is read and parsed here (P7).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.escaping import escape
from holdfast.scan import user_git
from holdfast.scan.dir_handles import join
from holdfast.shadowgit import FOLDER_MODE, ObjectKind, TreeEntry, decode_commit
from holdfast.shadowgit.objects import decode_lineage, decode_tree

BLOB_MAX_BYTES = 1 << 30
"""Larger files are left out and reported: a blob is read into memory as a whole."""

_NAMED_MAX_BYTES = 64 << 20  # of a commit, a tree, a list of refs or a reflog
_PATH_MAX_BYTES = 4096
_MESSAGE_MAX_BYTES = 1 << 20  # of the message of a commit, which is listed with every checkpoint
_ENTRIES_MAX = 2_000_000
_KINDS = {1: ObjectKind.COMMIT, 2: ObjectKind.TREE, 3: ObjectKind.BLOB, 4: ObjectKind.TAG}
_OID = re.compile(rb"[0-9a-f]{40}")
_COMMITTER = re.compile(rb"^committer (?:(.*) )?<[^>\n]*> (-?\d{1,18})(?: [+-]\d{4})?$", re.MULTILINE)
_ENCODING = re.compile(rb"^encoding (\S+)$", re.MULTILINE)
_EXTENSIONS = (
    "compatobjectformat", "noop", "noop-v1", "objectformat", "partialclone", "preciousobjects", "refstorage",
    "relativeworktrees", "worktreeconfig",
)  # fmt: skip
"""Extensions of the repository format that change nothing about the objects, or are refused by their value."""
_FSCK = "Check the source with git fsck."


class Commit(NamedTuple):
    """A commit."""

    oid: bytes
    tree: bytes
    parents: tuple[bytes, ...]
    seconds: int
    message: str
    author: str


class TreeChange(NamedTuple):
    """A path that differs between two trees; None if it does not exist."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


class GitObjects:
    """The objects, refs and settings of one repository."""

    def __init__(self, git: Path) -> None:
        """`git`: its git directory. Refused if it is of a format that is not supported."""
        import pygit2  # start-up cost: libgit2

        self._git = git
        common = user_git.common_dir(git)
        self._file(common / "config")  # Unavailable if it cannot be read: its settings decide what is refused
        self.settings = user_git.own_settings(git)
        _check_version(git, self.settings)
        if self.settings.get("extensions.objectformat", "sha1").lower() != "sha1":
            raise Refused(f"{git} has SHA-256 objects, which cannot be imported", hint="Only SHA-1 is supported.")
        if os.path.exists(common / "reftable"):
            raise Refused(
                f"{git} has its refs in a reftable, which cannot be imported",
                hint="Convert a copy of it with git refs migrate.",
            )
        self._common = common
        _check_regular(common / "objects")
        self._error = pygit2.GitError
        self._oid = pygit2.Oid
        try:
            self._odb: Any = pygit2.Odb(os.fspath(common / "objects"))
        except (pygit2.GitError, OSError) as error:
            raise Unavailable(f"{git} cannot be read: {error}", hint="Check its permissions.") from None
        self._counts: dict[bytes, int] = {}
        self.tree = lru_cache(maxsize=8192)(self._tree)

    # objects

    def commit(self, oid: bytes) -> Commit:
        """Read a commit, also through tags. Damaged if it is missing or malformed."""
        kind, data = self._read(oid, _NAMED_MAX_BYTES)
        for _ in range(10):
            if kind is not ObjectKind.TAG:
                break
            oid = next(iter(decode_lineage(data)), b"")
            kind, data = self._read(oid, _NAMED_MAX_BYTES)
        if kind is not ObjectKind.COMMIT:
            raise Damaged(f"{oid.hex()} is not a commit", hint=_FSCK)
        head, _, text = data.partition(b"\n\n")
        who = _COMMITTER.search(head)
        coding = _ENCODING.search(head)
        return Commit(
            oid=oid,
            tree=decode_commit(data),
            parents=tuple(decode_lineage(data)),
            seconds=int(who[2]) if who else 0,
            message=_decoded(text[:_MESSAGE_MAX_BYTES], coding[1] if coding else b"utf-8").strip("\n"),
            author=_decoded(who[1] or b"", b"utf-8") if who else "",
        )

    def blob(self, oid: bytes) -> bytes:
        """Read a blob. Damaged if it is missing or is not what its id names."""
        kind, data = self._read(oid, BLOB_MAX_BYTES)
        if kind is not ObjectKind.BLOB:
            raise Damaged(f"{oid.hex()} is not a file", hint=_FSCK)
        return data

    def blob_bytes(self, oid: bytes) -> int:
        """The size of a blob. Damaged if it is missing."""
        kind, size = self._header(oid)
        if kind is not ObjectKind.BLOB:
            raise Damaged(f"{oid.hex()} is not a file", hint=_FSCK)
        return size

    def diff(self, before: bytes | None, after: bytes | None) -> Iterator[TreeChange]:
        """Yield what differs between two trees, folders before their content; equal folders are not opened (P8).

        Damaged if a tree is missing; Refused if one has a name that git would not check out.
        """
        for each in filter(None, (before, after)):
            if self._entries(each) > _ENTRIES_MAX:
                raise Refused(
                    f"a commit has more than {_ENTRIES_MAX:,} files and folders",
                    hint="Holdfast cannot import larger commits.",
                )
        stack: list[tuple[str, bytes | None, bytes | None]] = [("", before, after)]
        while stack:
            path, old_oid, new_oid = stack.pop()
            old = self.tree(old_oid) if old_oid else {}
            new = self.tree(new_oid) if new_oid else {}
            for name in sorted({*old, *new}):
                was, now = old.get(name), new.get(name)
                if was == now:
                    continue
                where = join(path, os.fsdecode(name))
                if len(where) > _PATH_MAX_BYTES:
                    raise Refused(
                        f"a path is longer than {_PATH_MAX_BYTES} bytes: {escape(where[:60])}…",
                        hint="Use a shorter path.",
                    )
                yield TreeChange(where, was, now)
                deeper = _folder(was), _folder(now)
                if any(deeper):
                    stack.append((where, *deeper))

    def _entries(self, root: bytes) -> int:
        """Count the paths of a tree. Each distinct tree is read once: a few small ones may make billions of paths."""
        stack = [root]
        while stack:
            oid = stack[-1]
            below = [entry.oid for entry in self.tree(oid).values() if entry.mode == FOLDER_MODE]
            unknown = [each for each in below if each not in self._counts] if oid not in self._counts else []
            stack += unknown
            if not unknown:
                self._counts[stack.pop()] = len(self.tree(oid)) + sum(self._counts[each] for each in below)
        return self._counts[root]

    def _tree(self, oid: bytes) -> dict[bytes, TreeEntry]:
        kind, data = self._read(oid, _NAMED_MAX_BYTES)
        if kind is not ObjectKind.TREE:
            raise Damaged(f"{oid.hex()} is not a folder", hint=_FSCK)
        found: dict[bytes, TreeEntry] = {}
        for entry in decode_tree(data):
            name = entry.name
            if name in (b".", b"..") or name.lower() == b".git" or b"/" in name or name in found:
                raise Refused(
                    f"a commit contains the invalid name {escape(os.fsdecode(name))!r}",
                    hint="git also refuses such a repository. Nothing was imported.",
                )
            found[name] = entry._replace(mode=_plain_mode(entry.mode))
        return found

    def _header(self, oid: bytes) -> tuple[ObjectKind | None, int]:
        try:
            kind, size = self._odb.read_header(self._oid(raw=oid))
        except (KeyError, ValueError, self._error) as error:
            raise _damaged(oid, error) from None
        return _KINDS.get(kind), size

    def _read(self, oid: bytes, max_bytes: int) -> tuple[ObjectKind | None, bytes]:
        _, size = self._header(oid)  # before it is inflated: a small file may claim to be a huge object
        if size > max_bytes:
            raise Damaged(f"object {oid.hex()} has {size:,} bytes, and at most {max_bytes:,} are read")
        try:
            kind, data = self._odb.read(self._oid(raw=oid))
        except (KeyError, ValueError, MemoryError, self._error) as error:
            raise _damaged(oid, error) from None
        return _KINDS.get(kind), data

    # refs

    def tips(self) -> dict[bytes, bool]:
        """Every commit that HEAD, a ref or a reflog names; whether a ref does, rather than only a reflog."""
        found: dict[bytes, bool] = {}
        for text in self._logs():
            for line in text.splitlines():
                for oid in line.split(b" ", 2)[:2]:
                    if _OID.fullmatch(oid) and oid.strip(b"0"):
                        found.setdefault(bytes.fromhex(oid.decode()), False)
        for text in (self._file(self._git / "HEAD"), *self._refs()):
            oid = text.strip()
            if _OID.fullmatch(oid):
                found[bytes.fromhex(oid.decode())] = True
        return found

    def made_in_order(self) -> dict[bytes, int]:
        """The commits that HEAD was at, numbered as its reflog lists them: their times, in seconds, may be equal."""
        found: dict[bytes, int] = {}
        for line in self._file(self._git / "logs" / "HEAD").splitlines():
            names = line.split(b" ", 2)
            if len(names) > 1 and _OID.fullmatch(names[1]):
                found.setdefault(bytes.fromhex(names[1].decode()), len(found))
        return found

    def info_exclude(self) -> bytes:
        """The content of its exclude file: what the tool never saved, so that a restore must keep it."""
        return self._file(self._common / "info" / "exclude")

    def _refs(self) -> Iterator[bytes]:
        for line in self._file(self._common / "packed-refs").splitlines():
            if line[:1] not in (b"#", b"^"):
                yield line.partition(b" ")[0]
        for path in _regular_files(self._common / "refs"):
            if path.suffix != ".lock":
                yield self._file(path)

    def _logs(self) -> Iterator[bytes]:
        for path in _regular_files(self._common / "logs"):
            yield self._file(path)

    def _file(self, path: Path) -> bytes:
        try:
            return durable.read_file(path, max_bytes=_NAMED_MAX_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}", hint="Check its permissions.") from None


def _check_version(git: Path, settings: Mapping[str, str]) -> None:
    """Refused for a version of the repository format, or an extension of it, that may store objects in another way."""
    version = settings.get("core.repositoryformatversion", "0")
    if version not in ("0", "1"):
        raise Refused(
            f"{git} has the repository format version {escape(version)}, which is unknown",
            hint="The known versions are 0 and 1.",
        )
    extensions = {name for name in settings if name.startswith("extensions.")}
    if unknown := sorted(extensions - {f"extensions.{name}" for name in _EXTENSIONS}):
        raise Refused(f"{git} needs {escape(unknown[0])}, which is unknown", hint="Only SHA-1 objects can be imported.")


def _check_regular(folder: Path) -> None:
    """Refused if a folder contains a pipe or a device: libgit2 would wait for it."""
    stack = [os.fspath(folder)]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                elif not entry.is_file() and not entry.is_dir() and os.path.exists(entry.path):
                    raise Refused(f"{entry.path} is not a regular file", hint="git never creates such a file.")


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a folder. Unavailable if a folder cannot be read: it may name commits."""
    for where, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise Unavailable(f"{error.filename} cannot be read: {error.strerror}", hint="Check its permissions.")


def _folder(entry: TreeEntry | None) -> bytes | None:
    return entry.oid if entry is not None and entry.mode == FOLDER_MODE else None


def _plain_mode(mode: int) -> int:
    """Old versions of git wrote other permissions than these two."""
    return (0o100755 if mode & 0o100 else 0o100644) if stat.S_ISREG(mode) else mode


def _decoded(text: bytes, coding: bytes) -> str:
    try:
        return text.decode("utf-8" if coding.lower() == b"utf-8" else "latin-1")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")


def _damaged(oid: bytes, error: Exception) -> Damaged:
    why = "is missing" if isinstance(error, KeyError) else f"cannot be read ({error})"
    return Damaged(f"object {oid.hex()[:10]} {why}", hint=_FSCK)
