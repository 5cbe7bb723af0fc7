"""Reading the state of the user's git (P6): without `GIT_*` variables, the git program, or anything git would run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.project.types import GitState
from holdfast.scan import user_git
from holdfast.scan.git_head import Head, read_head
from holdfast.workspace.capture.scanner import look_around

_MAX_DIRTY = 10_000


def read_git_state(root: Path, *, home: Path, config_home: Path) -> GitState:
    """Read HEAD and the dirty files of the repository that a folder is in. What cannot be read is in the note."""
    try:
        repository = look_around(root, home, config_home).repository
    except OSError as error:  # the folder itself: saving or restoring it reports that
        return GitState(note=f"git cannot be read: {error.strerror}")
    git = user_git.git_dir(repository) if repository is not None else None
    if repository is None or git is None:
        return GitState(note=_why_none(root))
    head = read_head(git)
    if head.problem:
        return GitState(note=f"git cannot be read: {head.problem}")
    dirty, note = _dirty_files(git, repository, root, head)
    return GitState(head.commit, head.branch, dirty, note=note)


def _why_none(root: Path) -> str:
    if os.path.lexists(root / ".git"):
        return f"{root / '.git'} is damaged or belongs to another user: git is ignored"
    if (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir():
        return f"{root} is a bare repository without a working tree: git is ignored"
    return "not in a git repository"


def _dirty_files(git: Path, repository: Path, root: Path, head: Head) -> tuple[list[str], str]:
    """What differs from the commit, as paths relative to `root`; and a note, if that failed or is not all."""
    from pygit2 import GitError  # late: importing it takes longer than a small checkpoint

    try:
        changed = set(_changed(os.fspath(git), os.fspath(repository), has_commit=bool(head.commit)))
    except (GitError, OSError, ValueError, KeyError) as error:
        return [], f"dirty files could not be read: {error}"
    inner = os.fspath(root.relative_to(repository))
    found = sorted(_below(changed, "" if inner == "." else f"{inner}/"))
    more = len(found) - _MAX_DIRTY
    return found[:_MAX_DIRTY], f"{more} more files are dirty" if more > 0 else ""


def _changed(git: str, root: str, *, has_commit: bool) -> Iterator[str]:
    """Staged, unstaged and new files, by calls that release the GIL and write nothing.

    libgit2 runs no program that a repository's settings name (P7); a `core.worktree` there is ignored.
    """
    from pygit2 import Repository, Tree
    from pygit2.enums import DiffOption

    repository = Repository(git)
    repository.workdir = root
    index = repository.index
    diffs = [index.diff_to_workdir(DiffOption.INCLUDE_UNTRACKED)]
    if has_commit:
        diffs.append(index.diff_to_tree(repository.head.peel(Tree)))
    for diff in diffs:
        yield from (os.fsdecode(delta.new_file.raw_path) for delta in diff.deltas)
    if not has_commit:
        yield from (entry.path for entry in index)


def _below(paths: Iterable[str], prefix: str) -> Iterator[str]:
    """The paths inside a folder, relative to it; the folder itself (`./`) if all of it is untracked."""
    for path in paths:
        if path.startswith(prefix):
            yield path[len(prefix) :] or "./"
        elif path.endswith("/") and prefix.startswith(path):
            yield "./"
