"""Resetting the user's branch: the only place that writes to their git, on request and with confirmation.

The git program does it, with its own locks, reflog and formats. Nothing is lost (P1): it is refused if commits would
become unreachable, or if staged content exists nowhere else.

Order of writes (P3), after the files are restored and while the journal exists: the branch, from the commit where it
was found to the recorded one, in one step that fails if it has moved; then the index. After a kill in between, the next
call finds the branch at either commit and continues; if it is at a third commit, it changes nothing and says so.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Conflict, NotFound, Refused, Unavailable
from holdfast.project.types import GitState
from holdfast.scan.git_head import read_head, under_way
from holdfast.scan.user_git import git_dir, git_program, repository_of

HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHOWN = 5
_WHY = "holdfast: rollback"


class BranchMove(NamedTuple):
    """A branch to be moved from one commit to another."""

    branch: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.branch} from {self.before[:7]} to {self.after[:7]}"


class UserGit:
    """The git program on the repository that a folder is in. `GIT_*` variables, hooks and file monitors are disabled;
    nothing is fetched; filters run where git itself runs them."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        program = git_program(environ)
        if program is None:
            raise Unavailable("the git program was not found", hint='Omit git="reset", or install git.')
        repository = repository_of(root)
        self._git = git_dir(repository) if repository is not None else None
        if repository is None or self._git is None:
            raise Refused(f"{root} is not in a git repository", hint='Omit git="reset".')
        settings = (
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "submodule.recurse=false",
            "gc.auto=0",
            "maintenance.auto=false",
            "core.fsync=all",
        )  # durable before the journal is removed
        switches = [part for setting in settings for part in ("-c", setting)]
        self._command = [program, f"--git-dir={self._git}", f"--work-tree={repository}", *switches]
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        self._environ |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
        # P7: a commit missing from a partial clone is not fetched by a program that its settings name
        self._environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
        self._cwd = repository

    # planning

    def plan(self, recorded: GitState, found: GitState) -> BranchMove | None:
        """Plan the move of the branch; None if it is there already. Refused if impossible or if it loses something."""
        if not recorded.commit_hash or not recorded.branch:
            raise Refused(
                f"the checkpoint has no branch and commit to reset to ({recorded})",
                hint='Omit git="reset"; the files are restored without it.',
            )
        if found.branch != recorded.branch:
            raise Refused(
                f"HEAD is {found}, and the checkpoint was saved on {recorded.branch}",
                hint=f"Run `git switch {recorded.branch}` first; nothing was changed.",
            )
        if found.commit_hash == recorded.commit_hash:
            return None
        move = BranchMove(recorded.branch, found.commit_hash, recorded.commit_hash)
        self._check(move)
        return move

    def _check(self, move: BranchMove) -> None:
        """Raise Refused or NotFound unless the move loses nothing."""
        if self._git is not None and (what := under_way(self._git)):
            raise Refused(f"{what} is in progress in git", hint="Finish or abort it first; nothing was changed.")
        if self._run("cat-file", "-e", f"{move.after}^{{commit}}", check=False).returncode:
            raise NotFound(f"git no longer has the commit {move.after}", hint='Omit git="reset".')
        if lost := self._lost(move):
            some = _some([each[:7] for each in lost])
            raise Refused(
                f"moving {move} would lose commits that no other ref contains: {some}",
                hint=f"Keep them first, such as with `git branch kept {move.before[:7]}`; nothing was changed.",
            )
        if staged := self._only_staged():
            raise Refused(
                f"staged content exists nowhere else: {_some(staged)}",
                hint="Commit or unstage it first; nothing was changed.",
            )

    def _lost(self, move: BranchMove) -> list[str]:
        """The commits that only this branch contains, and would no longer contain after the move.

        A symbolic ref moves with its target, and a stash may be dropped: neither protects a commit.
        """
        listed = self._run("for-each-ref", "--format=%(refname) %(objecttype) %(*objecttype) %(symref)").stdout
        refs = [line.split(" ") for line in listed.splitlines()]
        names = {ref: symref for ref, *_, symref in refs if symref}
        moved = f"refs/heads/{move.branch}"
        while moved in names:  # the branch may itself be symbolic: its target is moved
            moved = names.pop(moved)
        own = (moved, "refs/stash")
        others = [ref for ref, *kinds, symref in refs if ref not in own and not symref and "commit" in kinds]
        asked = "\n".join((move.before, f"^{move.after}", *(f"^{ref}" for ref in others))) + "\n"
        return self._run("rev-list", "--stdin", given=asked).stdout.split()

    def _only_staged(self) -> list[str]:
        """What is staged, and neither in the commit nor unchanged in the folder (or hidden from git there)."""
        staged = self._differing("--cached")
        return sorted(staged & (self._differing() | self._hidden())) if staged else []

    def _hidden(self) -> set[str]:
        """Files marked `--assume-unchanged` or `--skip-worktree`."""
        listed = (line.partition(" ") for line in self._run("ls-files", "-v", "-z").stdout.split("\0"))
        return {path for tag, _, path in listed if tag == "S" or tag.islower()}

    def _differing(self, *against: str) -> set[str]:
        quietly = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")  # P7: git would run `status` in those
        names = self._run("diff", *against, *quietly, "--no-renames", "--name-only", "-z")
        return set(filter(None, names.stdout.split("\0")))

    # moving

    def apply(self, move: BranchMove) -> bool:
        """Move the branch, or continue a move; False if it is at a third commit, and was left there."""
        if self._git is None:
            return False
        head = read_head(self._git)
        if head.branch != move.branch or head.commit not in (move.before, move.after):
            return False
        ref = f"refs/heads/{move.branch}"
        if head.commit == move.before:
            moved = self._run("update-ref", "-m", _WHY, ref, move.after, move.before, check=False)
            if moved.returncode:
                raise Conflict(
                    f"git would not move {move}: {moved.stderr.strip()}",
                    hint="The files are restored. Fix that; the next call continues.",
                )
        self._run("reset", "--mixed", "--quiet")  # resets the index; HEAD is at its target already
        return True

    def _run(self, *arguments: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *arguments],
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=self._environ,
            cwd=self._cwd,
            check=False,
        )
        if check and done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0].rstrip(".")
            raise Unavailable(
                f"`git {arguments[0]}` failed: {reason}",
                hint="Fix that; the next call continues.",
            )
        return done


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
