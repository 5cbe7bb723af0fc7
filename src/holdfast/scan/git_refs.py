"""What the user's git would lose: HEAD, branches, tags, stashes, the index, an operation in progress.

Only reads (P6), and needs no git program, so no hook and no setting of the repository can run (P7). Remote-tracking
refs are left out: a fetch brings them back.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.scan.git_head import under_way
from holdfast.scan.git_index import read_index
from holdfast.scan.user_git import RACY_NS, common_dir, own_settings

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_BYTES = 256 << 20  # packed-refs of a repository with millions of tags
_READS = 3
_REMOTES = "refs/remotes"
_STASH_LOG = "logs/refs/stash"
_PSEUDO_REF = re.compile(r"[A-Z_]+_HEAD|AUTO_MERGE|MERGE_AUTOSTASH")
AUTOSTASHES = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")
"""Where git keeps uncommitted work that it put aside for a rebase or a merge: on no list until that has ended."""
_OPERATION_FILES = (
    "rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/amend", "rebase-merge/stopped-sha",
    "rebase-apply/onto", "rebase-apply/orig-head", "sequencer/head", *AUTOSTASHES[:2],
)  # fmt: skip

Stats = list[list[int]]


class GitRefs(NamedTuple):
    """The refs of a repository at one moment."""

    head: str
    """The text of HEAD: `ref: refs/heads/NAME`, or a commit."""
    refs: dict[str, str]
    stashes: list[tuple[str, str]]
    """The commit and the message of each stash, newest first."""
    operation: str
    problem: str = ""
    """Why some of it could not be read."""
    others: Mapping[str, str] = MappingProxyType({})
    """Commits that no ref names: ORIG_HEAD, MERGE_HEAD, those of a rebase, work put aside for it, a detached HEAD of
    another worktree."""
    index_digest: str = ""
    """A digest of what is staged, without the times of files; empty if there is no index."""
    object_format: str = "sha1"
    gaps: Sequence[str] = ()
    """What of this repository is not recorded."""


class Watched(NamedTuple):
    """The files and folders that change when git changes a ref, and their status."""

    folders: list[str]
    stats: Stats


def read_git_refs(git: Path, *, clock: Callable[[], int] = time.time_ns) -> tuple[GitRefs, Watched | None]:
    """Read the refs of a git directory; and what to watch, or None if it may change without a new status.

    If git writes meanwhile, read again, three times at most; then the problem says so (P4). `clock`: nanoseconds, of
    the clock that stamps files.
    """
    for _ in range(_READS):
        folders = _watched_folders(common_dir(git))
        before = watched_stats(git, folders)
        found = _read_once(git)
        if watched_stats(git, folders) == before:
            newest = max((max(each[2:]) for each in before if each), default=0)
            return found, Watched(folders, before) if newest < clock() - RACY_NS else None
    return found._replace(problem=found.problem or "git changed its refs while they were read"), None


def watched_stats(git: Path, folders: list[str]) -> Stats:
    """Return the status of what git changes with a ref. A ref is replaced by a rename, which changes its folder."""
    shared = common_dir(git)
    places = [git / "HEAD", git / "index", shared / "packed-refs", shared / _STASH_LOG]
    places += [shared / "reftable" / "tables.list", shared / "config", git / "ORIG_HEAD", git / "MERGE_HEAD"]
    places += [
        git / "CHERRY_PICK_HEAD",
        git / "REVERT_HEAD",
        git / "MERGE_AUTOSTASH",
        git / "rebase-merge",
        git / "rebase-apply",
    ]
    return [_status(place) for place in (*places, *(shared / folder for folder in folders))]


def encode_git_refs(found: GitRefs) -> bytes:
    """`git.json`."""
    value = {"format": 2, **found._asdict(), "others": dict(found.others), "gaps": list(found.gaps)}
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def decode_git_refs(data: bytes) -> GitRefs:
    """Read `git.json`. ValueError, KeyError or TypeError if it is damaged."""
    row: dict[str, Any] = durable.parse_json(data)
    stashes = [(str(commit), str(message)) for commit, message in row["stashes"]]
    others = {str(name): str(commit) for name, commit in dict(row.get("others", {})).items()}
    refs = {str(name): str(commit) for name, commit in dict(row["refs"]).items()}
    texts = {name: str(row[name]) for name in ("index_digest", "object_format") if name in row}
    gaps = [str(each) for each in row.get("gaps", ())]
    head, operation, problem = str(row["head"]), str(row["operation"]), str(row["problem"])
    return GitRefs(head, refs, stashes, operation, problem, others=others, gaps=gaps, **texts)


def remote_tips(git: Path) -> set[str]:
    """Return the commits of all remote-tracking refs."""
    shared = common_dir(git)
    found = {}
    for line in _text(shared / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name.startswith(f"{_REMOTES}/"):
            found[name] = commit
    for folder in _remote_folders(shared):  # P1: a loose ref replaces the packed one, which a remote may have no more
        found |= {f"{folder}/{name}": _text(shared / folder / name) for name in _names(shared / folder, folders=False)}
    return {text for text in found.values() if _HASH.fullmatch(text)}


def _read_once(git: Path) -> GitRefs:
    shared = common_dir(git)
    head = _text(git / "HEAD")
    operation = under_way(git)
    is_sha256 = own_settings(git).get("extensions.objectformat", "").lower() == "sha256"
    index = read_index(git, hash_bytes=32 if is_sha256 else 20).digest
    others, gaps, kind = _others(git, shared), _gaps(shared), "sha256" if is_sha256 else "sha1"
    if os.path.isdir(shared / "reftable"):
        problem = "its refs are in a reftable, which Holdfast does not read"
        return GitRefs(head, {}, [], operation, problem, others, index, kind, gaps)
    loose: dict[str, str] = {}
    for folder in _ref_folders(shared):  # before packed-refs: git adds a ref there before it removes the file
        for name in _names(shared / folder, folders=False):
            text = _text(shared / folder / name)
            if _HASH.fullmatch(text) or text.startswith("ref: "):
                loose[f"{folder}/{name}"] = text
    refs: dict[str, str] = {}
    for line in _text(shared / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if _HASH.fullmatch(commit) and not name.startswith(f"{_REMOTES}/"):
            refs[name] = commit
    problem = "" if head else "HEAD cannot be read"
    return GitRefs(head, refs | loose, _stashes(shared), operation, problem, others, index, kind, gaps)


def _others(git: Path, shared: Path) -> dict[str, str]:
    names = [name for name in _names(git, folders=False) if _PSEUDO_REF.fullmatch(name) and name != "FETCH_HEAD"]
    found = {}
    for name in (*names, *_OPERATION_FILES):
        for number, line in enumerate(_text(git / name).splitlines()):  # an octopus merge has several
            found[f"{name}~{number}" if number else name] = line.strip()
    for name in _names(shared / "worktrees", folders=True):
        if (shared / "worktrees" / name) != git:
            found[f"worktrees/{name}/HEAD"] = _text(shared / "worktrees" / name / "HEAD")
    if shared != git:
        found["main-worktree/HEAD"] = _text(shared / "HEAD")
    return {name: text for name, text in found.items() if _HASH.fullmatch(text)}


def _gaps(shared: Path) -> list[str]:
    """Return what is not recorded: repositories of submodules."""
    return [f"submodule {name}: its own repository" for name in _names(shared / "modules", folders=True)]


def _stashes(shared: Path) -> list[tuple[str, str]]:
    found = []
    for line in _text(shared / _STASH_LOG).splitlines():
        before, _, message = line.partition("\t")
        words = before.split(" ", 2)
        if len(words) == 3 and _HASH.fullmatch(words[1]):
            found.append((words[1], message))
    return found[::-1]


def _watched_folders(shared: Path) -> list[str]:
    """Return the folders of all refs, that of the worktrees, and the HEAD of each."""
    heads = [f"worktrees/{name}/HEAD" for name in _names(shared / "worktrees", folders=True)]
    return sorted([*_ref_folders(shared), *_remote_folders(shared), "worktrees", *heads])


def _ref_folders(shared: Path) -> list[str]:
    return [folder for folder in _folders_below(shared, "refs") if not folder.startswith(_REMOTES)]


def _remote_folders(shared: Path) -> list[str]:
    return _folders_below(shared, _REMOTES)


def _folders_below(shared: Path, top: str) -> list[str]:
    found, rest = [], [top]
    while rest:
        folder = rest.pop()
        found.append(folder)
        rest += [f"{folder}/{name}" for name in _names(shared / folder, folders=True)]
    return found


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            kept = [each.name for each in entries if each.is_dir(follow_symlinks=False) == folders]
    except OSError:
        return []
    return sorted(name for name in kept if not name.endswith(".lock"))


def _status(path: Path) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _text(path: Path) -> str:
    try:
        return os.fsdecode(durable.read_file(path, max_bytes=_MAX_BYTES)).strip()
    except OSError:
        return ""
