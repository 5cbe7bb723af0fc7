"""Rollback: restores the folder, then the tracked files outside it, then, if confirmed, the user's branch.

Order of writes (P3): if there is more to do than the restore, the rollback journal first. Then the restore, which is
atomic and has its own journal. Then each file outside, in one step each; then the branch; then the index; then the
journal is removed. Each step can be repeated. After a kill at any point the next call first finishes or reverts the
restore; then, if the restore took place, it does the rest, else it drops the journal.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable, model
from holdfast.errors import HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import JSON, Plan, Restored
from holdfast.project import metadata
from holdfast.project.context import ProjectContext
from holdfast.project.git_reset import HASH, BranchMove, UserGit
from holdfast.project.tracked_files import OUTSIDE, restore_outside, save_outside
from holdfast.project.types import GitState, RolledBack


class RollbackEntry(NamedTuple):
    """A rollback that has started and not ended."""

    verb: str
    target: str
    after: int
    """The greatest sequence number before it started: its safety checkpoint has a greater one."""
    move: BranchMove | None

    def is_of(self, verb: str, target: str, sequence: int) -> bool:
        """Whether a safety checkpoint belongs to this rollback."""
        return (verb, target) == (self.verb, self.target) and sequence > self.after


class RollbackJournal:
    """One file in the store, which exists while a rollback runs that does more than restore the folder."""

    def __init__(self, store: Path) -> None:
        self._path = store / "holdfast" / "rollback.json"
        self.lock = durable.Lock(store / "holdfast" / "rollback.lock")

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> RollbackEntry | None:
        """The rollback that has not ended."""
        try:
            stored = durable.parse_json(self._path.read_bytes())
            move = _move(stored["move"])
            return RollbackEntry(str(stored["verb"]), str(stored["target"]), int(stored["after"]), move)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            raise Unavailable(
                f"the rollback journal {self._path} cannot be read",
                hint="A rollback was interrupted. Remove the file to continue; the folder itself is intact.",
            ) from None

    def open(self, entry: RollbackEntry) -> None:
        """Record a rollback; durable before anything is touched."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def close(self) -> None:
        """Remove the record: everything is done, or nothing was."""
        if self.exists:
            durable.disk().unlink(str(self._path))
            durable.sync_folder(self._path.parent)


def _move(stored: Any) -> BranchMove | None:
    """Decode a stored move. ValueError unless both are commit ids: they are passed to the git program."""
    if stored is None:
        return None
    move = BranchMove(*map(str, stored))
    if not (HASH.fullmatch(move.before) and HASH.fullmatch(move.after)):
        raise ValueError("no commits")
    return move


class Rollback:
    """Rolls one project back. Call everything else inside `settled`."""

    def __init__(self, project: ProjectContext) -> None:
        self._project = project
        self._journal = RollbackJournal(project.workspace.store)

    @contextlib.contextmanager
    def settled(self, *, strict: bool = True) -> Iterator[tuple[str, ...]]:
        """Lock the project, and first finish an interrupted rollback.

        If that fails, raise if `strict`; else (for a call that only saves) yield notes about it.
        """
        with self._journal.lock:
            notes: tuple[str, ...] = ()
            if self._journal.exists:
                try:
                    self._settle()
                except HoldfastError as error:
                    if strict:
                        raise
                    notes = (f"an interrupted rollback is not finished yet: {error}",)
            yield notes

    # the calls

    def restore(
        self,
        target: model.Checkpoint,
        *,
        git: str,
        confirm: bool,
        keep_new: bool,
        state: Mapping[str, JSON] | None,
        plan: Plan | None = None,
        touch: bool = False,
    ) -> RolledBack:
        """Roll back to a checkpoint; Conflict if a plan is given and no longer applies."""

        def act() -> Restored:
            now = self._state_now(found, state)
            return self._project.workspace.restore(target.id, plan=plan, keep_new=keep_new, touch=touch, state=now)

        found, recorded = self._project.git_state(), self._recorded(target)
        move = self._plan(git, confirm, recorded, found)
        return self._run(RollbackEntry("restore", target.id, self._newest(), move), target, recorded, found, act)

    def undo(self, *, git: str, confirm: bool, touch: bool) -> RolledBack:
        """Undo the last rollback."""
        target = self._project.workspace.next_undo()
        if target is None:
            raise NotFound("there is no rollback to undo", hint="See list().")
        found, recorded = self._project.git_state(), self._recorded(target)
        move = self._plan(git, confirm, recorded, found)
        entry = RollbackEntry("undo", target.id, self._newest(), move)

        def act() -> Restored:
            return self._project.workspace.undo(touch=touch, state=self._state_now(found, None))

        return self._run(entry, target, recorded, found, act)

    def _recorded(self, target: model.Checkpoint) -> GitState:
        """The git state when a checkpoint, or the safety checkpoint of a rollback, was saved."""
        if target.operation is None:
            return metadata.view(target).git_state
        return metadata.git_of(self._project.ours(target.id, metadata.GIT_STATE))

    def _plan(self, git: str, confirm: bool, recorded: GitState, found: GitState) -> BranchMove | None:
        if git not in ("keep", "reset"):
            raise Refused(f"git is {git!r}", hint='Pass "keep", which leaves it alone, or "reset".')
        if git == "keep":
            return None
        move = UserGit(self._project.workspace.path, self._project.environ).plan(recorded, found)
        if move is not None and confirm is not True:
            raise Refused(f"this would move {move} in your own git", hint="Pass confirm=True to allow it.")
        return move

    def _state_now(self, found: GitState, given: Mapping[str, JSON] | None) -> dict[str, JSON]:
        """What `undo` restores: the current state (else the last saved one), the git state, and the files outside the
        folder."""
        state = dict(given) if given is not None else self._project.last_state()
        outside, _ = save_outside(self._project.tracked_files())
        if found:
            state[metadata.GIT_STATE] = found.to_dict()
        return state | ({OUTSIDE: outside} if outside else {})

    def _newest(self) -> int:
        newest = self._project.workspace.list(1, safety=True)
        return newest[0].sequence if newest else 0

    # the steps

    def _run(
        self,
        entry: RollbackEntry,
        target: model.Checkpoint,
        recorded: GitState,
        found: GitState,
        act: Callable[[], Restored],
    ) -> RolledBack:
        has_more = entry.move is not None or any(file.inside is None for file in self._project.tracked_files())
        if has_more:
            self._journal.open(entry)
        try:
            restored = act()
        except BaseException:
            if has_more:
                with contextlib.suppress(HoldfastError, OSError):  # the next call tries again
                    self._settle()
            raise
        notes, moved = self._finish(entry, restored.undo_id) if has_more else ([], False)
        if self._project.misconfigured is not None:
            notes = [*notes, f"the configuration is invalid and not used: {self._project.misconfigured}"]
        self._journal.close()
        done = restored._replace(state=metadata.without_own_names(restored.state))
        return RolledBack(metadata.view(target), done, recorded, found, moved, tuple(notes), self._project.spelling)

    def _finish(self, entry: RollbackEntry, safety: str) -> tuple[list[str], bool]:
        """Do what follows the restore of the folder. Any part of it may have been done before."""
        kept, saved = (self._project.ours(each, OUTSIDE) for each in (entry.target, safety))
        notes = restore_outside(self._project.tracked_files(), kept, saved)
        if entry.move is None:
            return notes, False
        if UserGit(self._project.workspace.path, self._project.environ).apply(entry.move):
            return notes, True
        return [*notes, f"{entry.move.branch} has moved to another commit meanwhile, and was left there"], False

    def _settle(self) -> None:
        """Finish an interrupted rollback, or drop it if it changed nothing. Needs the lock."""
        entry = self._journal.read()
        if entry is None:
            return
        workspace = self._project.reopened()  # finishes or reverts an interrupted restore, or says why it cannot
        if workspace.recovery_error is not None:
            raise workspace.recovery_error
        done = workspace.recovered is None or workspace.recovered.outcome == "finished"
        safety = self._safety_of(workspace.list(None, safety=True), entry) if done else None
        if safety is None:
            self._journal.close()
            self._project.recovered.append(f"an interrupted {entry.verb} to {entry.target} had changed nothing")
            return
        notes, moved = self._finish(entry, safety)
        self._journal.close()
        git = [f"git was moved: {entry.move}"] if moved else []
        outcome = f"an interrupted {entry.verb} to {entry.target} was finished"
        self._project.recovered.append("; ".join((outcome, *git, *notes)))

    def _safety_of(self, newest_first: list[model.Checkpoint], entry: RollbackEntry) -> str | None:
        """The safety checkpoint of a rollback; None if its restore never took place."""
        for each in newest_first:
            if each.operation and entry.is_of(each.operation.verb, each.operation.target, each.sequence):
                return each.id
        return None
