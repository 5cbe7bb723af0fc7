"""More of what people and programs call: a mixin of `Workspace`, one short method a verb."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast.workspace import given

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.model import (
        JSON,
        Bisected,
        Blame,
        Checkpoint,
        Exported,
        Match,
        Progress,
        Why,
    )
    from holdfast.workspace.bisect import Tell, Test
    from holdfast.workspace.engine import Engine
    from holdfast.workspace.guard import Guard
    from holdfast.workspace.scope import Paths
    from holdfast.workspace.stored.repository import Repository
    from holdfast.workspace.workspace import Workspace

Place = str | os.PathLike[str]


class Verbs:
    """What a workspace can do beside saving, listing and restoring."""

    path: Path
    _repository: Repository
    _clock: Callable[[], datetime]

    if TYPE_CHECKING:

        @property
        def _engine(self) -> Engine: ...
        def _reading(self) -> AbstractContextManager[None]: ...
        def _writing(self) -> AbstractContextManager[None]: ...

    def guard(
        self,
        message: str = "",
        *,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
        step: int | None = None,
    ) -> Guard:
        """Save, and restore if what is done under it fails: `with ws.guard("risky step"):`, or as a decorator.

        The error is raised all the same, with a note of what was restored. Gives the checkpoint that was saved.
        """
        from holdfast.workspace.guard import Guard

        return Guard(cast("Workspace", self), message, state=state, session=session, actor=actor, step=step)

    @contextmanager
    def hold(self, ref: str) -> Iterator[Checkpoint]:
        """Meanwhile, have no prune of any process take a checkpoint: `with ws.hold(ref):`. `delete` does not ask."""
        with ExitStack() as held:
            with self._writing():  # not between the plan of a prune and its deed, which would not see it
                checkpoint = self._repository.find(ref)
                held.enter_context(self._repository.holds.hold(checkpoint.id))
            yield checkpoint

    def state(self, ref: str, name: str) -> JSON:
        """One named state of a checkpoint; NotFound if it has none of that name. The others are not read."""

        def look() -> JSON:
            return self._repository.one_state(self._repository.find(ref), name)

        with self._reading():
            return self._repository.consistently(look)

    def why(self, path: Place) -> Why:
        """Whether a save made now would hold a path, and which rule says so. Nothing is read but ignore files."""
        from holdfast.workspace.why import why

        with self._reading():
            return why(given.a_path(path, "the path"), self._repository, self._engine.scanner)

    def export(
        self,
        ref: str,
        directory: Place,
        paths: Paths | None = None,
        *,
        skip_damaged: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write a checkpoint's files, or some of them, exactly as they were, into a new or empty folder elsewhere.

        All of it is there, or nothing. What could not be written is in `failed`, what the checkpoint does not hold
        in `missing`.
        """
        from holdfast.workspace.export import Exporter
        from holdfast.workspace.scope import as_text

        chosen = as_text(paths)

        def look() -> Exported:
            exporter = Exporter(self._repository, self.path)
            target = self._repository.find(ref)
            return exporter.export(target, directory, chosen, skip_damaged=skip_damaged, progress=progress)

        with self._reading():
            return self._repository.consistently(look)

    def search(
        self,
        text: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        paths: Paths | None = None,
        limit: int = 1000,
        skip_damaged: bool = False,
        progress: Progress | None = None,
    ) -> list[Match]:
        """Which files and states of which checkpoints have a text, from where to where, and who brought it and took it
        away. A state is named `(state) NAME`, as a path.

        Safety checkpoints are searched too; binary files are not. At most `limit` matches, by path.
        """
        from holdfast.workspace.scope import as_text, open_scope
        from holdfast.workspace.search import Needle, Searcher

        limit = given.a_count(limit, "limit", optional=False) or 0
        needle, scope = Needle(text, regex=regex, ignore_case=ignore_case), open_scope(as_text(paths), self.path)

        def look() -> list[Match]:
            searcher = Searcher(self._repository, needle, scope, limit=limit, skip_damaged=skip_damaged)
            return searcher.run(progress)

        with self._reading():
            return self._repository.consistently(look)

    def beginning(self, agent: str | None = None, *, whole_session: bool = False) -> Checkpoint:
        """The checkpoint from which an agent (None: the one at work last) set out on its latest turn, or session.

        For `restore(…, keep_mine=True)`. Where no turn is told, its session; where that is not told either, its
        windows in a row. NotFound if it did nothing that the folder comes from.
        """
        from holdfast.workspace.stored.windows import beginning

        def look() -> Checkpoint:
            with self._repository.catalog.kept_open():
                return beginning(self._repository, agent, whole_session=whole_session)

        given.a_text(agent, "agent")
        with self._reading():
            return self._repository.consistently(look)

    def blame(self, path: Place, ref: str | None = None) -> Blame:
        """Which actor and checkpoint each line of a file came from; of the file as it is, or as a checkpoint has it.

        Binary files are answered for as a whole. NotFound if there is no such file.
        """
        from holdfast.workspace.blame import Blamer
        from holdfast.workspace.scope import inside

        name = inside(given.a_path(path, "path"), self.path)

        def look() -> Blame:
            with self._repository.catalog.kept_open():
                blamer = Blamer(self._repository)
                if ref is None:
                    return blamer.blame_now(name, os.fspath(self.path))
                return blamer.blame(name, self._repository.find(ref))

        with self._reading():
            return self._repository.consistently(look)

    def bisect(
        self, good: str, bad: str, test: Test, *, tell: Tell | None = None, scratch: Place | None = None
    ) -> Bisected:
        """Find the first checkpoint at which something fails, by halves.

        `test` is called with a folder that holds a checkpoint's files, and the checkpoint; it says whether that is
        good, or None if it cannot be told. `tell` hears of each. Refused if GOOD is not good or BAD is not bad.
        """
        from holdfast.workspace.bisect import bisect

        above = None if scratch is None else Path(scratch)
        return bisect(cast("Workspace", self), good, bad, test, tell=tell, scratch=above)

    def import_from(
        self, other: Workspace, ref: str, message: str = "", *, metadata: Mapping[str, JSON] | None = None
    ) -> Checkpoint:
        """Take over a checkpoint of another workspace, files and state, as a new one of this.

        The folder is not touched; `restore` brings it there.
        """
        from holdfast.workspace.capture.save import make_label
        from holdfast.workspace.importing import import_checkpoint

        label = make_label(message, session=None, actor=None, step=None, metadata=metadata, name=None, pinned=False)
        found, source = other.get(ref), other._repository
        with self._writing():
            return import_checkpoint(self._repository, source, found, label, self._clock())

    def next_undo(self) -> Checkpoint | None:
        """The safety checkpoint that `undo` would restore; None if there is nothing to undo."""
        with self._reading():
            done = self._repository.history().done
            return done[-1] if done else None
