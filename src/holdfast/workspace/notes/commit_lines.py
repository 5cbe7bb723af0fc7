"""Which lines a commit of the user's git added: against its parent; for a merge, against all of its parents.

Everything is read with libgit2, which runs no hook, filter or program that the repository's settings name (P6, P7).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.escaping import escape
from holdfast.scan import user_git
from holdfast.workspace.blame import changed_lines
from holdfast.workspace.stored.object_sink import TEXT_MAX_BYTES
from holdfast.workspace.stored.text_merge import is_text, split_lines

if TYPE_CHECKING:
    from pygit2 import Repository as UserRepository

MOST_COMMITS = 10_000
_SUBMODULE = 0o160000
_SHALLOW = "A shallow or partial clone lacks objects; git fetch --unshallow brings them."
_MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class AddedLines:
    """A file of a commit that differs from every parent."""

    path: str
    """In the repository."""
    oid: bytes
    """The blob, as git names it."""
    text: bytes | None
    """None: binary, or larger than 4 MiB; then it counts as a whole."""
    lines: tuple[int, ...]
    """The lines that no parent has there, from 0."""
    former_paths: tuple[str, ...] = ()
    """What git takes the file to have been called in a parent."""


@dataclass(frozen=True, slots=True)
class CommitLines:
    """What a commit added."""

    commit: str
    author_email: str
    authored: datetime
    files: list[AddedLines]
    removed_paths: list[str] = field(default_factory=list)
    """Files that the commit deleted: lines may have moved from there."""


def open_repository(root: Path) -> tuple[UserRepository, str]:
    """Open the repository that a folder is in; return it, and the folder's path in it with a slash, or nothing."""
    repository = user_git.repository_of(root)
    git = user_git.git_dir(repository) if repository is not None else None
    if repository is None or git is None:
        raise NotFound(f"{root} is not in a git repository", hint="Notes belong to commits of a repository.")
    from pygit2 import GitError, Repository  # start-up cost: libgit2

    try:
        user = Repository(os.fspath(git))
    except GitError as error:
        hint = "SHA-256 repositories and reftables are not supported."
        raise Unavailable(f"{git} cannot be opened: {error}", hint=hint) from None
    inner = os.fspath(root.relative_to(repository))
    return user, "" if inner == "." else f"{inner}/"


def find_commits(user: UserRepository, names: list[str]) -> list[str]:
    """Return the commits that names and ranges (`A..B`) mean, in their order, each once. NotFound if one has none."""
    found: dict[str, None] = {}
    for name in names or ["HEAD"]:
        for commit in _range(user, name) if ".." in name else [_commit(user, name)]:
            found[commit] = None
            if len(found) > MOST_COMMITS:
                raise Refused(f"more than {MOST_COMMITS:,} commits are in this range", hint="Name a shorter range.")
    return list(found)


def _range(user: UserRepository, name: str) -> list[str]:
    """The commits of `A..B`, oldest first."""
    from pygit2.enums import SortMode

    older, _, newer = name.partition("..")
    if newer.startswith("."):
        raise Refused(f"{escape(name)} is a symmetric difference", hint="Name a range as A..B.")
    walker = user.walk(_commit(user, newer or "HEAD"), SortMode.TOPOLOGICAL | SortMode.REVERSE)
    walker.hide(_commit(user, older or "HEAD"))
    return [str(commit.id) for _, commit in zip(range(MOST_COMMITS + 1), walker, strict=False)]


def _commit(user: UserRepository, name: str) -> str:
    from pygit2 import Commit, GitError

    try:
        return str(user.revparse_single(name).peel(Commit).id)
    except (KeyError, GitError, ValueError):
        hint = "Name a commit as git does: HEAD, a branch, a tag or a hash."
        raise NotFound(f"git has no commit {escape(name)}", hint=hint) from None


def read_commit(user: UserRepository, commit_id: str) -> CommitLines:
    """Read what a commit added. Unavailable if an object is missing, as in a shallow or partial clone."""
    from pygit2 import GitError

    try:
        return _read(user, commit_id)
    except (GitError, KeyError, ValueError, OSError) as error:
        raise Unavailable(f"commit {commit_id[:10]} cannot be read: {error}", hint=_SHALLOW) from None


def _read(user: UserRepository, commit_id: str) -> CommitLines:
    commit: Any = user[commit_id]
    parents: list[Any] = [user[each] for each in commit.parent_ids]
    trees = [each.tree for each in parents] or [None]  # a first commit is compared with nothing
    compared = [_deltas(tree, commit.tree) for tree in trees]
    paths = set.intersection(*(set(each) for each in compared))
    if len(paths) > _MOST_FILES:
        raise Refused(f"commit {commit_id[:10]} changes more than {_MOST_FILES:,} files", hint="That is too many.")
    files, removed = [], []
    for path in sorted(paths):
        deltas = [each[path] for each in compared]
        if not deltas[0].is_there:
            removed.append(path)
            continue
        found = _added(user, path, deltas)
        if found.text is None or found.lines:
            files.append(found)
    when = datetime.fromtimestamp(commit.author.time, UTC)
    return CommitLines(commit_id, commit.author.email, when, files, removed)


def content_in(user: UserRepository, commit_id: str, path: str) -> tuple[bytes, frozenset[bytes]] | None:
    """Return the id and the lines of a file as a commit has it, without line ends; None if it has none.

    Unavailable if it cannot be read.
    """
    from pygit2 import GitError

    try:
        found: Any = user[commit_id]
        found = found.tree
        for name in os.fsencode(path).split(b"/"):
            entries = found if found.type_str == "tree" else ()
            entry = next((each for each in entries if each.raw_name == name), None)
            if entry is None or entry.filemode == _SUBMODULE:
                return None
            found = user[entry.id]
        text = _text(user, found.id) if found.type_str == "blob" else None
    except (GitError, KeyError, ValueError, OSError) as error:
        raise Unavailable(f"commit {commit_id[:10]} cannot be read: {error}", hint=_SHALLOW) from None
    return bytes(found.id.raw), frozenset((text or b"").replace(b"\r\n", b"\n").split(b"\n"))


@dataclass(frozen=True, slots=True)
class _Delta:
    is_there: bool
    oid: Any
    old_path: str
    old_oid: Any
    """None: the file is new."""


def _deltas(before: Any, after: Any) -> dict[str, _Delta]:
    """Return the files that differ between two trees, by their new path; submodules aside."""
    from pygit2.enums import DeltaStatus

    if before is None:
        diff = after.diff_to_tree(swap=True)
    else:
        diff = before.diff_to_tree(after)
        diff.find_similar()
    found = {}
    for delta in diff.deltas:
        old, new = delta.old_file, delta.new_file
        is_there = delta.status != DeltaStatus.DELETED
        if (new if is_there else old).mode == _SUBMODULE:
            continue
        has_old = delta.status != DeltaStatus.ADDED and old.mode != _SUBMODULE
        old_path = os.fsdecode(old.raw_path)
        path = os.fsdecode(new.raw_path) if is_there else old_path
        found[path] = _Delta(is_there, new.id, old_path, old.id if has_old else None)
    return found


def _added(user: UserRepository, path: str, deltas: list[_Delta]) -> AddedLines:
    oid = deltas[0].oid
    former = tuple(sorted({each.old_path for each in deltas if each.old_oid is not None} - {path}))
    text = _text(user, oid)
    if text is None:
        is_same = any(each.old_oid == oid for each in deltas)  # it was only renamed, or got another mode
        return AddedLines(path, bytes(oid.raw), b"" if is_same else None, (), former)
    lines = set(range(len(split_lines(text))))
    for delta in deltas:
        before = _text(user, delta.old_oid) if delta.old_oid is not None else None
        if before is not None:
            hunks = changed_lines(before, text)
            lines &= {line for hunk in hunks for line in range(hunk.new_start, hunk.new_end)}
    return AddedLines(path, bytes(oid.raw), text, tuple(sorted(lines)), former)


def _text(user: UserRepository, oid: Any) -> bytes | None:
    blob: Any = user[oid]
    if blob.size > TEXT_MAX_BYTES:
        return None
    data: bytes = blob.data
    return data if is_text(data) else None
