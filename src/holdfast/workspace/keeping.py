"""Keeping a store small and sound: a mixin of `Workspace`, one short method a verb."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from holdfast.workspace import given

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.errors import HoldfastError
    from holdfast.model import Checkpoint, Compacted, Progress, Pruned, Purged, PurgePlan, Usage, VerifyReport
    from holdfast.retention import Policy
    from holdfast.workspace.stored.repository import Repository
    from holdfast.workspace.upkeep.purge import Purger
    from holdfast.workspace.verbs import Place


class Keeping:
    """What is done to a store rather than to the folder."""

    path: Path
    _repository: Repository
    _clock: Callable[[], datetime]
    _environ: Mapping[str, str]
    purge_error: HoldfastError | None
    """Why an interrupted purge could not be continued; `purge` tries again, and so does whoever opens next."""

    if TYPE_CHECKING:

        def _reading(self) -> AbstractContextManager[None]: ...
        def _writing(self) -> AbstractContextManager[None]: ...

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of the store and name what is damaged, and which checkpoints that touches."""
        from holdfast.workspace.upkeep.verify import Verifier

        with self._reading():
            return Verifier(self._repository, progress).run()

    def prune(
        self, policy: Policy, dry_run: bool = True, *, lazily: bool = False, plan: Pruned | None = None
    ) -> Pruned:
        """Take away the checkpoints that a policy has no reason to keep, and free their disk. A dry run only tells.

        Never taken: what is pinned or named, the current and the latest, what an undo, a redo or an interrupted
        restore needs. With `plan`, nothing that is not in it. `lazily` leaves the disk to a later call until so many
        are gone that it is worth the work. Damaged if it cannot be told what the others need.
        """
        from holdfast.workspace.upkeep.prune import Upkeep

        upkeep, now = Upkeep(self._repository), self._clock()
        if dry_run:
            with self._reading():
                return self._repository.consistently(lambda: upkeep.plan(policy, now))
        with self._writing():
            only = None if plan is None else {checkpoint.id for checkpoint in plan.removed}
            return upkeep.prune(policy, now, lazily=lazily, only=only)

    def compact(self) -> Compacted:
        """Make the store as small as it gets: the git program, where there is one, makes deltas. Takes its time."""
        from holdfast.scan.usergit import git_program
        from holdfast.workspace.upkeep.prune import Upkeep

        git = git_program(self._environ)
        with self._writing():
            return Upkeep(self._repository).compact(git)

    def merge(self) -> None:
        """Merge all packs into one now, rather than as they accumulate, and free what deleted checkpoints held."""
        from holdfast.workspace.upkeep.prune import Upkeep

        with self._writing():
            Upkeep(self._repository).merge()

    def pin(self, ref: str, pinned: bool = True) -> Checkpoint:
        """Mark a checkpoint to be kept when others are pruned, or no longer. Its id, number and time stay."""
        from holdfast.workspace.upkeep.prune import Upkeep

        with self._writing():
            return Upkeep(self._repository).pin(self._repository.find(ref), pinned=pinned)

    def usage(self, *, paths: int | None = 20) -> Usage:
        """Where the bytes are: in the files of the store, by checkpoint, and by path (the largest so many).

        Reads every folder that any checkpoint holds, once: seconds where thousands of checkpoints differ.
        """
        from holdfast.workspace.upkeep.usage import measure

        paths = given.a_count(paths, "paths")
        with self._reading():
            return self._repository.consistently(lambda: measure(self._repository, paths=paths))

    @overload
    def purge(
        self, *paths: Place, dry_run: Literal[True], lines: bool = False, progress: Progress | None = None
    ) -> PurgePlan: ...

    @overload
    def purge(
        self, *paths: Place, dry_run: Literal[False] = False, lines: bool = False, progress: Progress | None = None
    ) -> Purged: ...

    def purge(
        self, *paths: Place, dry_run: bool = False, lines: bool = False, progress: Progress | None = None
    ) -> PurgePlan | Purged:
        """Take the content of files, folders or globs out of every checkpoint, for good; the folder is not touched.

        The checkpoints keep their ids and say what was taken out. With `dry_run` only the plan is made. NotFound if no
        checkpoint has it. States, messages and metadata that repeat all of it, or a word that looks like a key, have
        that cut out; with `lines`, whole lines of it too. An interrupted purge is continued by the next call that
        writes. Conflict if a ref that somebody made in the store needs it.
        """
        from holdfast.workspace.scope import as_text

        chosen = as_text(paths) or []
        if dry_run:
            with self._reading():
                return self._repository.consistently(
                    lambda: self._purger().plan(chosen, lines=lines, progress=progress)
                )
        with self._writing():
            done = self._purger().purge(chosen, lines=lines, progress=progress)
            self.purge_error = None
            return done

    def kind_rules(self) -> dict[str, Policy | None]:
        """How long each kind of checkpoint is kept in this store, whoever prunes; None: for ever."""
        from holdfast.workspace.upkeep.kinds import read_kinds

        return read_kinds(self._repository.own)

    def set_kind_rules(self, kinds: Mapping[str, Policy | None]) -> None:
        """Say how long each kind of checkpoint is kept in this store, where a policy has no rule for it."""
        from holdfast.workspace.upkeep.kinds import write_kinds

        with self._writing():
            write_kinds(self._repository.own, kinds)

    def _purger(self) -> Purger:
        from holdfast.workspace.upkeep.purge import Purger

        return Purger(self._repository, self.path)

    def _resume_purge(self) -> None:
        """Go on with a purge that was interrupted; once, if that fails, since it is much work. Needs the lock."""
        if not self._repository.is_purging:
            self.purge_error = None
        elif self.purge_error is None:
            self.purge_error = self._purger().resume()
