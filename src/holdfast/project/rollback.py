"""Going back: the folder by a restore, then what lies outside it, then, if asked for and confirmed, the user's branch.

Order of writes (P3): where there is more to do than the restore, the rollback journal first. Then the restore, which is
old or new by itself and has its own journal. Then each file outside, in one step each; then the branch; then the index;
then the journal goes. Each of these can be done again without harm. Killed anywhere, whoever comes next ends the
restore first, and then either finds it done and does the rest, or finds that it never was and forgets the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from holdfast import model
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.model import JSON, Plan, Restored
from holdfast.project import record
from holdfast.project.ground import Ground
from holdfast.project.journal import Entry, Journal
from holdfast.project.nouns import GitState, RolledBack
from holdfast.project.papers import OUTSIDE, bring_back, keep_outside
from holdfast.project.reset import Move, UserGit

_WAYS = ("keep", "reset")


class Rollback:
    """Goes back in one project. Everything but `settled` is done under it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._journal = Journal(ground.workspace.store)

    @contextlib.contextmanager
    def settled(self, *, strict: bool = True) -> Iterator[tuple[str, ...]]:
        """The project to oneself, after what an interruption left is done.

        If that cannot be done yet, for what only saves (not `strict`) that is no error; gives what is to be said of it.
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

    # what was asked for

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
        """Roll back to a checkpoint; with a plan, Conflict if that is no longer what would be done."""

        def act() -> Restored:
            now = self._state_now(found, state)
            return self._ground.workspace.restore(target.id, plan=plan, keep_new=keep_new, touch=touch, state=now)

        found, recorded = self._ground.position(), self._recorded(target)
        move = self._plan(git, confirm, recorded, found)
        return self._go(Entry("restore", target.id, self._newest(), move), target, recorded, found, act)

    def undo(self, *, git: str, confirm: bool, touch: bool) -> RolledBack:
        """Take back the last rollback."""
        target = self._ground.workspace.next_undo()
        if target is None:
            raise NotFound("there is no rollback to undo", hint="See list().")
        found, recorded = self._ground.position(), self._recorded(target)
        move = self._plan(git, confirm, recorded, found)
        entry = Entry("undo", target.id, self._newest(), move)

        def act() -> Restored:
            return self._ground.workspace.undo(touch=touch, state=self._state_now(found, None))

        return self._go(entry, target, recorded, found, act)

    def _recorded(self, target: model.Checkpoint) -> GitState:
        """Where git stood when a checkpoint, or the safety checkpoint of a rollback, was made."""
        if target.operation is None:
            return record.view(target).git_state
        return record.git_of(self._ground.ours(target.id, record.POSITION))

    def _plan(self, git: str, confirm: bool, recorded: GitState, found: GitState) -> Move | None:
        if git not in _WAYS:
            raise Refused(f"git is {git!r}", hint='Give "keep", which leaves it alone, or "reset".')
        if git == "keep":
            return None
        move = UserGit(self._ground.workspace.path, self._ground.environ).plan(recorded, found)
        if move is not None and confirm is not True:
            raise Refused(f"this would move {move} in your own git", hint="Pass confirm=True if that is meant.")
        return move

    def _state_now(self, found: GitState, given: Mapping[str, JSON] | None) -> dict[str, JSON]:
        """What `undo` is to bring back: the state as it is now (else as it was saved last), git's position, and what
        lies outside."""
        state = dict(given) if given is not None else self._ground.last_state()
        outside, _ = keep_outside(self._ground.papers())
        if found:
            state[record.POSITION] = found.to_dict()
        return state | ({OUTSIDE: outside} if outside else {})

    def _newest(self) -> int:
        newest = self._ground.workspace.list(1, safety=True)
        return newest[0].sequence if newest else 0

    # doing it

    def _go(
        self,
        entry: Entry,
        target: model.Checkpoint,
        recorded: GitState,
        found: GitState,
        act: Callable[[], Restored],
    ) -> RolledBack:
        has_more = entry.move is not None or any(paper.inside is None for paper in self._ground.papers())
        if has_more:
            self._journal.open(entry)
        try:
            restored = act()
        except BaseException:
            if has_more:
                with contextlib.suppress(HoldfastError, OSError):  # then the next call does it
                    self._settle()
            raise
        notes, moved = self._rest(entry, restored.undo_id) if has_more else ([], False)
        if self._ground.misconfigured is not None:
            notes = [*notes, f"the configuration is not used: {self._ground.misconfigured}"]
        self._journal.close()
        done = replace(restored, state=record.without_ours(restored.state))
        return RolledBack(record.view(target), done, recorded, found, moved, tuple(notes), self._ground.spelling)

    def _rest(self, entry: Entry, safety: str) -> tuple[list[str], bool]:
        """What is to be done once the folder is restored; all of it may have been done already."""
        kept, saved = (self._ground.ours(each, OUTSIDE) for each in (entry.target, safety))
        notes = bring_back(self._ground.papers(), kept, saved)
        if entry.move is None:
            return notes, False
        if UserGit(self._ground.workspace.path, self._ground.environ).carry_out(entry.move):
            return notes, True
        return [*notes, f"{entry.move.branch} is at another commit by now, and was left there"], False

    def _settle(self) -> None:
        """End what an interruption left. Needs the lock."""
        entry = self._journal.read()
        if entry is None:
            return
        workspace = self._ground.reopened()  # which ends an interrupted restore, or says why it cannot
        if workspace.recovery_error is not None:
            raise workspace.recovery_error
        done = workspace.recovered is None or workspace.recovered.outcome == "finished"
        safety = self._safety_of(workspace.list(None, safety=True), entry) if done else None
        if safety is None:
            self._journal.close()
            self._ground.recovered.append(f"an interrupted {entry.verb} to {entry.target} had changed nothing")
            return
        notes, moved = self._rest(entry, safety)
        self._journal.close()
        git = [f"git was moved: {entry.move}"] if moved else []
        said = f"an interrupted {entry.verb} to {entry.target} was finished"
        self._ground.recovered.append("; ".join((said, *git, *notes)))

    def _safety_of(self, newest_first: list[model.Checkpoint], entry: Entry) -> str | None:
        """The safety checkpoint of what has begun; None if it never took place."""
        for each in newest_first:
            if each.operation and entry.is_of(each.operation.verb, each.operation.target, each.sequence):
                return each.id
        return None
