"""What the user's git has lost since a checkpoint, and bringing it back as new branches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict, NotFound, Unavailable
from holdfast.model import Checkpoint, CheckpointRef
from holdfast.scan import user_git
from holdfast.scan.git_refs import GitRefs, decode_git_refs, read_git_refs
from holdfast.workspace.stored.repository import Repository

if TYPE_CHECKING:
    from pygit2 import Repository as UserRepository

_HEADS = "refs/heads/"
_RESCUED = "refs/heads/rescued/"


@dataclass(frozen=True, slots=True)
class GitLoss:
    """A commit that a ref or a stash named, and that no ref reaches now."""

    what: str
    """`branch`, `tag`, `ref`, `stash` or `HEAD`."""
    name: str
    commit: str
    deleted: bool
    """Whether the name is gone; otherwise it moved, and the commit is reachable from nothing."""
    available: bool
    """Whether the commit is still in the repository."""


@dataclass(frozen=True, slots=True)
class GitLosses:
    """The losses since a checkpoint, and what could not be compared."""

    checkpoint: Checkpoint
    losses: list[GitLoss]
    removed: bool
    """Whether the repository itself is gone."""
    problems: list[str]


@dataclass(frozen=True, slots=True)
class RescuedRef:
    """A new branch, and the loss that it brings back."""

    ref: str
    loss: GitLoss


def find_losses(repository: Repository, root: Path, ref: CheckpointRef | None) -> GitLosses:
    """Compare the user's git with what a checkpoint recorded; None: the newest that recorded it."""
    checkpoint, before = _recorded(repository, ref)
    git = _git_dir(root)
    if git is None:
        every = _commits(before)
        losses = [GitLoss(*loss, deleted=True, available=False) for loss in every]
        return GitLosses(checkpoint, losses, removed=True, problems=[before.problem] if before.problem else [])
    now, _ = read_git_refs(git)
    problems = [problem for problem in (before.problem, now.problem) if problem]
    if problems:  # without the refs, everything would look lost
        return GitLosses(checkpoint, [], removed=False, problems=list(dict.fromkeys(problems)))
    kept = {commit for _, _, commit in _commits(now)}
    named = {(what, name) for what, name, _ in _commits(now) if what != "stash"}
    candidates = [loss for loss in _commits(before) if loss[2] not in kept or _is_deleted(loss, named, kept)]
    losses, problem = _unreached(git, candidates, kept, named)
    return GitLosses(checkpoint, losses, removed=False, problems=[problem] if problem else [])


def rescue(found: GitLosses, root: Path) -> list[RescuedRef]:
    """Make a branch for each loss that is still in the repository. A name that is taken gets a number."""
    git = _git_dir(root)
    wanted = [loss for loss in found.losses if loss.available]
    if git is None or not wanted:
        return []
    user = _opened(git)
    made = []
    for loss in wanted:
        name = loss.name.removeprefix("refs/").removeprefix("heads/").replace("@{", "-").replace("}", "")
        made.append(RescuedRef(_create(user, _RESCUED + name, loss.commit), loss))
    return made


def _create(user: UserRepository, wanted: str, commit: str) -> str:
    """Create a ref, or return one of this name that has the commit already, so that a second rescue adds none."""
    from pygit2 import AlreadyExistsError, GitError

    for number in range(1, 1000):
        name = wanted if number == 1 else f"{wanted}-{number}"
        existing = user.references.get(name)
        if existing is not None and str(existing.target) == commit:
            return name
        if existing is None:
            try:
                user.references.create(name, commit)  # fails if another process made it meanwhile
            except (AlreadyExistsError, ValueError):
                continue
            except (GitError, OSError) as error:
                raise Unavailable(f"cannot create {name}: {error}", hint="Branches made so far stay.") from error
            return name
    raise Conflict(f"{wanted} and 998 more names are taken", hint="Delete some of these branches.")


def _recorded(repository: Repository, ref: CheckpointRef | None) -> tuple[Checkpoint, GitRefs]:
    if ref is not None:
        candidates = [repository.find(ref)]
    else:
        rows = repository.catalog.newest(limit=None, session=None, safety=True)
        candidates = [repository.checkpoint(row) for row in rows]
    for checkpoint in candidates:
        if oid := repository.contents(checkpoint).git:
            try:
                return checkpoint, decode_git_refs(repository.objects.blob(oid))
            except (json.JSONDecodeError, KeyError, TypeError, ValueError):
                continue
    which = f"checkpoint {candidates[0].id}" if ref is not None else "any checkpoint"
    raise NotFound(f"git was not recorded in {which}", hint="Checkpoints of a folder in a git repository record it.")


def _git_dir(root: Path) -> Path | None:
    repository = user_git.repository_of(root)
    return user_git.git_dir(repository) if repository is not None else None


def _commits(refs: GitRefs) -> list[tuple[str, str, str]]:
    """Return (what, name, commit) of everything that keeps a commit alive."""
    found = []
    for name, commit in sorted(refs.refs.items()):
        if not commit.startswith("ref: ") and name != "refs/stash":
            kinds = {_HEADS: "branch", "refs/tags/": "tag"}
            what = next((kind for prefix, kind in kinds.items() if name.startswith(prefix)), "ref")
            found.append((what, name, commit))
    found += [("stash", f"stash@{{{place}}}", commit) for place, (commit, _) in enumerate(refs.stashes)]
    if refs.head and not refs.head.startswith("ref: "):
        found.append(("HEAD", "HEAD", refs.head))
    return found


def _is_deleted(loss: tuple[str, str, str], named: set[tuple[str, str]], kept: set[str]) -> bool:
    what, name, commit = loss
    return commit not in kept if what == "stash" else what != "HEAD" and (what, name) not in named


def _unreached(
    git: Path, candidates: list[tuple[str, str, str]], kept: set[str], named: set[tuple[str, str]]
) -> tuple[list[GitLoss], str]:
    """Return the losses among the candidates: deleted names, and commits that no ref reaches. And a problem."""
    if not candidates:
        return [], ""
    from pygit2 import GitError

    try:
        user = _opened(git)
        tips = [target for commit in kept if (target := _commit_id(user, commit)) is not None]
        found = []
        for loss in candidates:
            deleted = _is_deleted(loss, named, kept)
            target = _commit_id(user, loss[2])
            if deleted or target is None or not any(t == target or user.descendant_of(t, target) for t in tips):
                found.append(GitLoss(*loss, deleted=deleted, available=loss[2] in user))
    except (GitError, Unavailable, OSError, ValueError, KeyError) as error:
        return [], f"commits could not be compared: {error}"
    return found, ""


def _commit_id(user: UserRepository, text: str) -> Any:
    """Return the id of the commit that an object is or that a tag names; None if there is none."""
    from pygit2 import Commit, GitError

    try:
        return user[text].peel(Commit).id
    except (KeyError, GitError, ValueError):
        return None


def _opened(git: Path) -> UserRepository:
    """Open the user's repository with libgit2, which runs no hook and no program that its settings name (P7)."""
    from pygit2 import GitError, Repository

    try:
        return Repository(str(git))
    except GitError as error:
        raise Unavailable(f"{git} cannot be opened: {error}", hint="SHA-256 repositories are not supported.") from None
