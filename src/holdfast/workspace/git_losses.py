"""What the user's git has lost since a checkpoint. Only reads (P6)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.errors import Damaged, NotFound, Unavailable
from holdfast.model import Checkpoint, CheckpointRef
from holdfast.scan import user_git
from holdfast.scan.git_refs import AUTOSTASHES, GitRefs, decode_git_refs, read_git_refs, remote_tips
from holdfast.scan.git_scratch import GitScratch
from holdfast.workspace.stored.git_data import GitData, read_git_data
from holdfast.workspace.stored.record import read_contents
from holdfast.workspace.stored.repository import Repository

HEADS = "refs/heads/"
_LOOK_BACK = 1000  # checkpoints among which earlier losses are looked for
RESUMED = "holdfast-rescue"
"""A file of a git directory that a rescue made, while it lacks commits that only a remote has: the checkpoint's id."""


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
    """Whether the commit is still in the repository, or held in the store."""
    held: bool = False
    """Whether the store holds it."""
    message: str = ""
    """Of a stash."""
    checkpoint: str = ""
    """The id of the newest checkpoint that recorded it."""


@dataclass(frozen=True, slots=True)
class GitLosses:
    """The losses since a checkpoint, and what could not be compared."""

    checkpoint: Checkpoint
    losses: list[GitLoss]
    removed: bool
    """Whether the repository itself is gone."""
    problems: list[str]
    index_differs: bool = False
    """Whether something else is staged now than the checkpoint recorded."""
    not_held: str = ""
    """Why objects that the checkpoint names are not in the store; empty if they are."""
    operation: str = ""
    """What was in progress at the checkpoint, such as `a rebase`, and is not now; its commits are recorded, not its
    files."""
    earlier: list[GitLoss] = field(default_factory=list)
    """Commits that only older checkpoints recorded, and that no ref reaches now: what was lost before this one."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The user's git as a checkpoint recorded it."""

    checkpoint: Checkpoint
    refs: GitRefs
    data: GitData

    @property
    def not_held(self) -> str:
        waits = f"the objects of {len(self.data.wanted)} refs are not in the store yet" if self.data.wanted else ""
        return "; ".join(filter(None, (waits, self.data.problem)))


def find_losses(repository: Repository, root: Path, ref: CheckpointRef | None, program: str | None) -> GitLosses:
    """Compare the user's git with what a checkpoint recorded; None: the newest that recorded it, and then also find
    what older ones recorded."""
    recorded = read_recorded(repository, ref, root)
    git = git_dir_now(root, recorded)
    before, held = recorded.refs, recorded.data.tips
    key = recorded.checkpoint.id
    nothing = GitLosses(recorded.checkpoint, [], removed=git is None, problems=[], not_held=recorded.not_held)
    if git is None:
        every = named_commits(before)
        losses = [_loss(each, deleted=True, present=False, held=held, checkpoint=key) for each in every]
        return replace(nothing, losses=losses, problems=list(filter(None, [before.problem])))
    now, _ = read_git_refs(git)
    problems = list(dict.fromkeys(filter(None, (before.problem, now.problem))))
    if not problems and before.object_format != now.object_format:
        problems = [f"the repository had {before.object_format} objects, and has {now.object_format} objects now"]
    losses, earlier = [], []
    if not problems:  # without the refs, everything would look lost
        try:
            losses = _unreached(git, recorded, now, program)
            if ref is None:
                earlier = _lost_earlier(repository, git, recorded, now, program)
        except (Unavailable, OSError) as error:
            problems = [f"commits could not be compared: {error}"]
    problems += [f"not recorded: {gap}" for gap in before.gaps]
    is_other = before.index_digest != now.index_digest
    ended = before.operation if before.operation != now.operation else ""
    done = replace(nothing, losses=losses, problems=problems, index_differs=is_other)
    return replace(done, operation=ended, earlier=earlier)


def read_recorded(repository: Repository, ref: CheckpointRef | None, root: Path) -> Recorded:
    """Read what a checkpoint recorded; None: the one that an unfinished rescue was from, or the newest that did."""
    if ref is None and (git := _git_dir_of(root)) is not None:
        ref = _resumed(repository, git)
    if ref is not None:
        candidates = [repository.find(ref)]
    else:
        rows = repository.catalog.newest(limit=None, session=None, safety=True)
        candidates = [repository.checkpoint(row) for row in rows]
    for checkpoint in candidates:
        contents = repository.contents(checkpoint)
        if contents.git:
            try:
                refs = decode_git_refs(repository.objects.blob(contents.git))
                tree = contents.git_data
                return Recorded(checkpoint, refs, read_git_data(repository.objects, tree) if tree else GitData())
            except (KeyError, TypeError, ValueError):
                continue
    which = f"checkpoint {candidates[0].id}" if ref is not None else "any checkpoint"
    raise NotFound(f"git was not recorded in {which}", hint="Checkpoints of a folder in a git repository record it.")


def _resumed(repository: Repository, git: Path) -> CheckpointRef | None:
    try:
        return repository.find((git / RESUMED).read_text("ascii").strip()).id
    except (OSError, ValueError, NotFound, Damaged):
        return None


def git_dir_now(root: Path, recorded: Recorded) -> Path | None:
    """Return the git directory that a checkpoint recorded; None if it is gone, even if the folder is now in another."""
    git, place = _git_dir_of(root), recorded.data.place
    if git is None or not place or os.path.lexists(root / place):
        return git
    return None if place in (".git", "../.git") or place.endswith("/.git") else git


def _git_dir_of(root: Path) -> Path | None:
    repository = user_git.repository_of(root)
    return user_git.git_dir(repository) if repository is not None else None


def named_commits(refs: GitRefs) -> list[tuple[str, str, str, str]]:
    """Return (what, name, commit, message) of everything that keeps a commit alive."""
    found = []
    for name, commit in sorted(refs.refs.items()):
        if not commit.startswith("ref: ") and name != "refs/stash":
            kinds = {HEADS: "branch", "refs/tags/": "tag"}
            what = next((kind for prefix, kind in kinds.items() if name.startswith(prefix)), "ref")
            found.append((what, name, commit, ""))
    found += [("stash", f"stash@{{{place}}}", *stash) for place, stash in enumerate(refs.stashes)]
    found += [("stash", "autostash", refs.others[each], "autostash") for each in AUTOSTASHES if each in refs.others]
    if refs.head and not refs.head.startswith("ref: "):
        found.append(("HEAD", "HEAD", refs.head, ""))
    heads = [each for each in refs.others if each.endswith("/HEAD")]
    return found + [("HEAD", name, refs.others[name], "") for name in heads]  # of other worktrees


def _loss(
    named: tuple[str, str, str, str], *, deleted: bool, present: bool, held: set[str], checkpoint: str
) -> GitLoss:
    what, name, commit, message = named
    return GitLoss(what, name, commit, deleted, present or commit in held, commit in held, message, checkpoint)


def _unreached(git: Path, recorded: Recorded, now: GitRefs, program: str | None) -> list[GitLoss]:
    """Return deleted names, and commits that no ref reaches. Unavailable or OSError if that cannot be found out."""
    kept = {commit for _, _, commit, _ in named_commits(now)}
    every = named_commits(recorded.refs)
    candidates = [each for each in every if each[2] not in kept or _is_deleted(each, now, kept)]
    present, unreached = _compare(git, [each[2] for each in candidates], now, program)
    found = []
    for each in candidates:
        deleted = _is_deleted(each, now, kept)
        if deleted or each[2] in unreached or each[2] not in present:
            key, held = recorded.checkpoint.id, recorded.data.tips
            found.append(_loss(each, deleted=deleted, present=each[2] in present, held=held, checkpoint=key))
    return found


def _lost_earlier(
    repository: Repository, git: Path, newest: Recorded, now: GitRefs, program: str | None
) -> list[GitLoss]:
    """Return commits that only older checkpoints recorded and that no ref reaches; none that another of them leads to,
    and none that was lost since the newest. A deleted name whose commits are reached is no loss here: merged branches
    are deleted every day."""
    kept = {commit for _, _, commit, _ in named_commits(now)}
    last = {commit for _, _, commit, _ in named_commits(newest.refs)}
    candidates: dict[str, tuple[tuple[str, str, str, str], str, bytes]] = {}
    for key, refs, tree in _older(repository, newest):
        if refs.object_format == now.object_format and not refs.problem:
            for each in named_commits(refs):
                if each[2] not in kept and each[2] not in last:
                    candidates.setdefault(each[2], (each, key, tree))
    # with what the newest recorded: what leads to it, or what it leads to, is found by comparing with that one
    present, unreached = _compare(git, [*candidates, *(last - kept)], now, program, newest=True)
    found = []
    for commit, (each, key, tree) in candidates.items():
        if commit in unreached or commit not in present:
            held = _held_tips(repository, tree)
            deleted = _is_deleted(each, now, kept)
            found.append(_loss(each, deleted=deleted, present=commit in present, held=held, checkpoint=key))
    return found


def _held_tips(repository: Repository, tree: bytes) -> set[str]:
    """Return what a checkpoint holds of git; nothing if that is damaged, which `verify` names."""
    with contextlib.suppress(Damaged, NotFound, KeyError, TypeError, ValueError):
        return read_git_data(repository.objects, tree).tips if tree else set()
    return set()


def _older(repository: Repository, newest: Recorded) -> Iterator[tuple[str, GitRefs, bytes]]:
    """Yield records of git that differ, newest first: of which checkpoint, the refs, and what is kept of git."""
    seen = set()
    for key, commit in repository.catalog.commits(limit=_LOOK_BACK, session=None, safety=True):
        if key >= newest.checkpoint.id:
            continue
        with contextlib.suppress(Damaged, NotFound, KeyError, TypeError, ValueError):  # `verify` names what is damaged
            contents = read_contents(repository.objects, repository.objects.commit(bytes.fromhex(commit)))
            if contents.git and contents.git not in seen:
                seen.add(contents.git)
                yield key, decode_git_refs(repository.objects.blob(contents.git)), contents.git_data


def _is_deleted(named: tuple[str, str, str, str], now: GitRefs, kept: set[str]) -> bool:
    what, name, commit, _ = named
    if what == "stash":
        return commit not in kept
    return what != "HEAD" and name not in now.refs


def _compare(
    git: Path, commits: list[str], now: GitRefs, program: str | None, *, newest: bool = False
) -> tuple[set[str], set[str]]:
    """Return which commits are there, and which no ref reaches; with `newest`, none that another of these leads to.

    Unavailable or OSError if git cannot tell.
    """
    if not commits:
        return set(), set()
    if program is None:
        raise Unavailable("the git program was not found", hint="Install git.")
    kept = {commit for _, _, commit, _ in named_commits(now)} | remote_tips(git)
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as folder:
        scratch = GitScratch(Path(folder, "scratch"), program, git, now.object_format)
        return scratch.unreached(commits, kept, newest=newest)
