"""Moving the user's branch: the one place where their git is written to, because they asked for it and confirmed.

The git program does it, so that its locks, its reflog and its formats are its own. Nothing is lost: commits that no
other ref leads to, and staged content that is nowhere else, are reasons to refuse.

Order of writes (P3), after the files are restored and while the journal is there: the branch, from the commit at which
it was found to the recorded one, in one step that fails if it has moved; then the index. Killed in between, the next
call finds the branch at either commit and does what is left; at a third, it leaves everything and says so.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Conflict, NotFound, Refused, Unavailable
from holdfast.project.nouns import GitState
from holdfast.scan.githead import read_head, under_way
from holdfast.scan.usergit import git_dir, git_program, repository_of

HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHOWN = 5
_WHY = "holdfast: rollback"


class Move(NamedTuple):
    """A branch that is to go from one commit to another."""

    branch: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.branch} from {self.before[:7]} to {self.after[:7]}"


class UserGit:
    """The git program on the repository that a folder is in. No `GIT_*` variable, hook or monitor has a say; nothing is
    fetched; filters run where git itself runs them."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        program = git_program(environ)
        if program is None:
            raise Unavailable("the git program is not there", hint='Leave git="reset" out, or install git.')
        repository = repository_of(root)
        self._git = git_dir(repository) if repository is not None else None
        if repository is None or self._git is None:
            raise Refused(f"{root} is not in a git repository", hint='Leave git="reset" out.')
        settings = (
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "submodule.recurse=false",
            "gc.auto=0",
            "maintenance.auto=false",
            "core.fsync=all",
        )  # durable before the journal goes
        switches = [part for setting in settings for part in ("-c", setting)]
        self._command = [program, f"--git-dir={self._git}", f"--work-tree={repository}", *switches]
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        self._environ |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
        # P7: a commit that is missing from a partial clone is missing, and not fetched by what its settings name
        self._environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
        self._cwd = repository

    # deciding

    def plan(self, recorded: GitState, found: GitState) -> Move | None:
        """How the branch gets back; None if it is there. Refused if it cannot, or something would be lost."""
        if not recorded.commit_hash or not recorded.branch:
            raise Refused(
                f"the checkpoint names no branch and commit to set back to ({recorded})",
                hint='Leave git="reset" out; the files come back without it.',
            )
        if found.branch != recorded.branch:
            raise Refused(
                f"HEAD is {found}, and the checkpoint was made on {recorded.branch}",
                hint=f"Run `git switch {recorded.branch}` first; nothing was changed.",
            )
        if found.commit_hash == recorded.commit_hash:
            return None
        move = Move(recorded.branch, found.commit_hash, recorded.commit_hash)
        self._check(move)
        return move

    def _check(self, move: Move) -> None:
        """Refused, or NotFound, unless a move loses nothing."""
        if self._git is not None and (what := under_way(self._git)):
            raise Refused(f"{what} is under way in git", hint="End it first; nothing was changed.")
        if self._run("cat-file", "-e", f"{move.after}^{{commit}}", check=False).returncode:
            raise NotFound(f"git no longer has the commit {move.after}", hint='Leave git="reset" out.')
        if lost := self._lost(move):
            some = _some([each[:7] for each in lost])
            raise Refused(
                f"moving {move} would lose commits that nothing else leads to: {some}",
                hint=f"Keep them first, such as with `git branch kept {move.before[:7]}`; nothing was changed.",
            )
        if staged := self._only_staged():
            raise Refused(
                f"what is staged is nowhere else: {_some(staged)}",
                hint="Commit or unstage it first; nothing was changed.",
            )

    def _lost(self, move: Move) -> list[str]:
        """The commits that only this branch leads to, and that it would no longer lead to.

        A name for another ref moves along with it, and a stash is there to be dropped: neither keeps anything.
        """
        listed = self._run("for-each-ref", "--format=%(refname) %(objecttype) %(*objecttype) %(symref)").stdout
        refs = [line.split(" ") for line in listed.splitlines()]
        names = {ref: symref for ref, *_, symref in refs if symref}
        moved = f"refs/heads/{move.branch}"
        while moved in names:  # the branch may be such a name itself: what it names is moved
            moved = names.pop(moved)
        own = (moved, "refs/stash")
        others = [ref for ref, *kinds, symref in refs if ref not in own and not symref and "commit" in kinds]
        asked = "\n".join((move.before, f"^{move.after}", *(f"^{ref}" for ref in others))) + "\n"
        return self._run("rev-list", "--stdin", given=asked).stdout.split()

    def _only_staged(self) -> list[str]:
        """What is staged, and neither in the commit nor, as it is staged, in the folder, or git does not look."""
        staged = self._differing("--cached")
        return sorted(staged & (self._differing() | self._not_looked_at())) if staged else []

    def _not_looked_at(self) -> set[str]:
        """What is marked with `--assume-unchanged` or `--skip-worktree`."""
        listed = (line.partition(" ") for line in self._run("ls-files", "-v", "-z").stdout.split("\0"))
        return {path for tag, _, path in listed if tag == "S" or tag.islower()}

    def _differing(self, *against: str) -> set[str]:
        quietly = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")  # P7: git would run `status` in those
        names = self._run("diff", *against, *quietly, "--no-renames", "--name-only", "-z")
        return set(filter(None, names.stdout.split("\0")))

    # doing

    def carry_out(self, move: Move) -> bool:
        """Move the branch, or go on with it; False if it is at a third commit by now, and was left there."""
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
                    hint="The files are restored. Remove what is in the way; the next call goes on with it.",
                )
        self._run("reset", "--mixed", "--quiet")  # the index; HEAD is where it belongs already
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
            said = (done.stderr.strip().splitlines() or ["no reason given"])[0].rstrip(".")
            raise Unavailable(
                f"`git {arguments[0]}` failed: {said}",
                hint="Fix that; the next call continues what was begun.",
            )
        return done


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
