"""The workspace: what people and programs call."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import durable
from holdfast.errors import HoldfastError, NotFound, Unavailable
from holdfast.workspace import given, place
from holdfast.workspace.attribution import FirstLooks
from holdfast.workspace.keeping import Keeping
from holdfast.workspace.plainly import plain_errors
from holdfast.workspace.restore.journal import Journal
from holdfast.workspace.stored.repository import Repository, plain_text
from holdfast.workspace.stored.spelling import OnUnknown, Spelling
from holdfast.workspace.trust import check_private
from holdfast.workspace.verbs import Verbs

if TYPE_CHECKING:
    from holdfast.model import (
        JSON,
        Checkpoint,
        CheckpointDiff,
        Plan,
        Progress,
        Recovery,
        Restored,
    )
    from holdfast.serde import Registry
    from holdfast.workspace.capture.save import Details
    from holdfast.workspace.capture.watching import Watching
    from holdfast.workspace.engine import Engine
    from holdfast.workspace.restore.restore import Wish
    from holdfast.workspace.scope import Paths


class Workspace(Verbs, Keeping):
    """A folder whose states are kept: saved, listed, compared, restored, undone, verified.

    Any number of processes and threads may use one workspace at once. Writers wait for each other; readers wait for
    nobody. An interrupted restore is finished, or taken back, before anything else; `recovered` says which, and
    `recovery_error` why that could not be done yet: until it is, checkpoints can be read and nothing can be written.
    An interrupted purge is continued before anything is written; `purge_error` says why it could not be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store: str | os.PathLike[str] | None = None,
        exclude_patterns: Sequence[str] = (),
        ignored_file_max_bytes: int = 1 << 20,
        ignored_total_max_bytes: int = 64 << 20,
        allow_home: bool = False,
        trust_store: bool = False,
        create: bool = True,
        watch: bool = False,
        registry: Registry | None = None,
        on_unknown: OnUnknown = "raise",
        home: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """Open a folder's store, or make it (unless `create` is False: NotFound). With `watch`, as by `watch()`.

        `registry`: your classes that may be in a state; None stands for those of `holdfast.serde.register`.
        `on_unknown`: what is made of others that are met in one: "raise", "keep" them opaque, or make nothing, and have
        such states as `Tagged` JSON.
        Refused for the home folder and places of the system, for a store inside the workspace, and for a store that
        others made or may change or read, unless `trust_store`.
        """
        environ = os.environ if environ is None else environ
        home = Path(home) if home is not None else place.home_folder()
        exclude_patterns = given.patterns(exclude_patterns)
        self.path = place.real_workspace(path, home=home, allow_home=allow_home, store=store, environ=environ)
        self.store = place.store_folder(self.path, store=store, environ=environ)
        if not trust_store:
            with plain_errors(self.store):
                check_private(self.store, environ)  # P7: before anything in it is read
        self._repository = Repository(self.store, Spelling(registry, on_unknown=on_unknown))
        self._clock = clock or _now
        self._environ = environ
        self._engine_options: dict[str, Any] = {
            "exclude_patterns": exclude_patterns,
            "ignored_max_bytes": (
                given.a_count(ignored_file_max_bytes, "ignored_file_max_bytes", optional=False) or 0,
                given.a_count(ignored_total_max_bytes, "ignored_total_max_bytes", optional=False) or 0,
            ),
            "home": home,
            "config_home": Path(environ.get("XDG_CONFIG_HOME") or home / ".config"),
        }
        self._engine_made: Engine | None = None
        self._engine_lock = threading.Lock()
        self.first_looks = FirstLooks()
        self.recovered: Recovery | None = None
        self.recovery_error: HoldfastError | None = None
        self.purge_error = None
        with plain_errors(self.store):
            self._open(create=create)
        if watch:
            self.watch()

    def __repr__(self) -> str:
        return f"Workspace({os.fspath(self.path)!r})"

    # making checkpoints

    def save(
        self,
        message: str = "",
        *,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
        step: int | None = None,
        metadata: Mapping[str, JSON] | None = None,
        name: str | None = None,
        pinned: bool = False,
        allow_empty: bool = False,
        rehash: bool = False,
        include: Paths = (),
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Keep the folder as it is now, with named state (any values that `holdfast.serde` knows), in one checkpoint.

        With nothing changed this returns the checkpoint that the folder stands at (the latest, or what was restored),
        unless `allow_empty` (or a name or a pin asks for one of its own). `rehash` reads every file instead of
        trusting times; what `include` names is held whatever the rules say. What could not be held is in the result's
        `uncovered`, and `complete` is then False (P4). On an error nothing is left behind.
        """
        from holdfast.workspace.capture.save import make_label
        from holdfast.workspace.scope import as_text, inside

        wanted = [inside(path, self.path) for path in as_text(include) or ()]
        label = make_label(
            message, session=session, actor=actor, step=step, metadata=metadata, name=name, pinned=pinned
        )
        with self._writing():
            return self._engine.saver.save(
                label, state=state, allow_empty=allow_empty, rehash=rehash, progress=progress, include=wanted
            )

    def save_changes(
        self,
        message: str = "",
        *,
        details: Callable[[], Details],
        session: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint | None:
        """Keep the folder as it is now if it is not as `head()` holds it; None if it is.

        For whoever says who changed what: unlike `save`, an older checkpoint that holds the same is no reason to make
        none. `details` is called once, only if there is something to save, and under the store's lock.
        """
        from holdfast.workspace.capture.save import make_label

        label = make_label(message, session=session, actor=actor, step=None, metadata=None, name=None, pinned=False)
        with self._writing():
            return self._engine.saver.save_changes(label, details=details, progress=progress)

    def delete(self, ref: str) -> Checkpoint:
        """Delete a checkpoint; its id is never used again. Others are not touched."""
        with self._writing():
            checkpoint = self._repository.find(ref)
            self._repository.delete(checkpoint)
            return checkpoint

    # finding them

    def list(
        self,
        limit: int | None = 50,
        *,
        session: str | None = None,
        actor: str | None = None,
        safety: bool = False,
        before: str | None = None,
    ) -> list[Checkpoint]:
        """Checkpoints, newest first; with `safety` also those taken before restores.

        `actor` is an agent, whose sub-agents count with it, or `user`. `before` is any reference: only what is older
        is listed, so that the last of one page begins the next; the id of one that was deleted meanwhile does as well.
        """
        limit, session = given.a_count(limit, "limit"), plain_text(given.a_text(session, "session"))
        actor = plain_text(given.a_text(actor, "actor"))
        with self._reading():
            older = None if before is None else self._repository.page_end(before)
            rows = self._repository.catalog.newest(
                limit=limit, session=session, actor=actor, safety=safety, before=older
            )
            return [self._repository.checkpoint(row) for row in rows]

    def get(self, ref: str) -> Checkpoint:
        """A checkpoint by id, unique prefix of an id, name, `latest` or `latest~2`."""
        with self._reading():
            return self._repository.find(ref)

    def head(self) -> Checkpoint | None:
        """The checkpoint that the folder was last made equal to: the newest save, or what the last restore went to."""
        with self._reading():
            return self._repository.head()

    def diff(self, a: str, b: str | None = None, paths: Paths | None = None) -> CheckpointDiff:
        """What differs between two checkpoints, or between one and the folder as it is now."""
        from holdfast.workspace.comparing import compare

        with self._reading():
            return self._repository.consistently(lambda: compare(self._repository, self._engine.scanner, a, b, paths))

    # going back

    def preview(
        self,
        ref: str,
        paths: Paths | None = None,
        *,
        keep_new: bool = False,
        keep_mine: bool = False,
        agent: str | None = None,
        unsaved_by: str | None = None,
    ) -> Plan:
        """What `restore` would do; nothing is touched. Hand the plan to `restore` to be held to it."""
        from holdfast.workspace.restore.restore import Wish
        from holdfast.workspace.restore.reversal import make_reversal
        from holdfast.workspace.scope import as_text

        chosen = as_text(paths)

        def look() -> Plan:
            target = self._repository.find(ref)
            reversal = make_reversal(target, keep_mine=keep_mine, agent=agent, unsaved_by=unsaved_by)
            return self._engine.restorer.preview(Wish("restore", target, chosen, keep_new, reversal=reversal))

        with self._reading():
            return self._repository.consistently(look)

    def restore(
        self,
        ref: str,
        paths: Paths | None = None,
        plan: Plan | None = None,
        *,
        keep_new: bool = False,
        keep_mine: bool = False,
        agent: str | None = None,
        unsaved_by: str | None = None,
        skip_damaged: bool = False,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Make the folder, or some paths of it, exactly as a checkpoint holds them.

        What is there now is saved first, so that `undo` brings it back (P1); `state` is saved with it. Files made
        since are removed, unless `keep_new`; ignored files, what the checkpoint does not hold, and repositories
        cloned since stay and are named in `kept`. Conflict if the folder no longer matches a given `plan`. On an
        error everything is as it was. With `touch`, files that get another content get the present time instead of
        their own, so that build tools which compare times build again; ignored outputs that are newer than what was
        replaced are in `stale_outputs`.

        With `keep_mine` only what an agent did since is undone (None: every actor but the user), and everything else
        stays; what cannot be told apart is left as it is and named in `conflicts`. What no checkpoint has yet is the
        user's, unless `unsaved_by` says whose it is.
        """
        from holdfast.workspace.restore.restore import Wish
        from holdfast.workspace.restore.reversal import make_reversal
        from holdfast.workspace.scope import as_text

        with self._writing():
            target = self._repository.find(ref)
            if plan is not None:
                keep_new, paths = keep_new or plan.keep_new, paths if paths is not None else plan.paths
                keep_mine, agent = keep_mine or plan.keep_mine, agent or plan.agent
                unsaved_by = unsaved_by or plan.unsaved_by
            reversal = make_reversal(target, keep_mine=keep_mine, agent=agent, unsaved_by=unsaved_by)
            said = None if state is None else dict(state)
            wish = Wish("restore", target, as_text(paths), keep_new, skip_damaged, state=said, reversal=reversal)
            wish = wish._replace(touch_ns=self._touch_ns(touch))
            return self._restore(wish, plan=plan, progress=progress)

    def undo(
        self, *, touch: bool = False, state: Mapping[str, JSON] | None = None, progress: Progress | None = None
    ) -> Restored:
        """Take back the last restore that was not taken back yet. NotFound if there is none.

        What is there now is saved first, and `state` with it. `touch` is as in `restore`.
        """
        with self._writing():
            wish = self._engine.restorer.wish_to_undo()
            said = None if state is None else dict(state)
            return self._restore(wish._replace(state=said, touch_ns=self._touch_ns(touch)), progress=progress)

    def redo(self, *, touch: bool = False, progress: Progress | None = None) -> Restored:
        """Take back the last undo. NotFound if there is none since the last restore."""
        with self._writing():
            wish = self._engine.restorer.wish_to_redo()
            return self._restore(wish._replace(touch_ns=self._touch_ns(touch)), progress=progress)

    def _touch_ns(self, touch: bool) -> int | None:
        return self._engine.saver.now_ns() if touch else None

    def _restore(self, wish: Wish, *, plan: Plan | None = None, progress: Progress | None) -> Restored:
        """Restore; what was interrupted in the midst of a step is finished or taken back at once, from what the disk
        says, and by the next call if that is interrupted too. Needs the lock."""
        try:
            return self._engine.restorer.restore(wish, plan=plan, progress=progress)
        except HoldfastError:
            raise
        except BaseException:
            if self._engine.recoverer.is_interrupted:
                with contextlib.suppress(HoldfastError, OSError):
                    self.recovered = self._engine.recoverer.recover()
            raise

    # watching

    def watch(self) -> Watching:
        """From now on have the kernel tell what changes, so that a save costs what changed, not what there is.

        For processes that save more than once. Only a hint: wherever it leaves a doubt, everything is looked at.
        """
        return self._engine.scanner.watch()

    def close(self) -> None:
        """End `watch` and close every file of the store. Everything works on, and opens again what it needs."""
        watching = self._engine_made and self._engine_made.scanner.watching
        if watching:
            watching.close()
        self._repository.close()

    # opening and locking

    @property
    def _engine(self) -> Engine:
        with self._engine_lock:
            if self._engine_made is None:
                from holdfast.workspace.engine import Engine  # who only reads checkpoints does not pay for it

                self._engine_made = Engine(self.path, self._repository, clock=self._clock, **self._engine_options)
            return self._engine_made

    def _open(self, *, create: bool) -> None:
        if self._repository.exists:
            place.check_is_store(self.store)
        else:
            if not create:
                raise NotFound(f"{self.path} has no checkpoints yet", hint="Make the first with `holdfast save`.")
            self._create()
        place.check_owner(self.store, self.path)
        self._repository.sync()
        if Journal(self._repository.own).exists and self._repository.lock.acquire(wait=False):
            try:
                with plain_errors(self.store):
                    self.recovered = self._engine.recoverer.recover()
            except HoldfastError as error:
                self.recovery_error = error  # reading goes on; whoever writes meets it again
            finally:
                self._repository.lock.release()

    def _create(self) -> None:
        place.check_room(self.store)
        durable.make_folder(self._repository.own)
        with self._repository.lock:
            if not self._repository.exists:
                place.check_owner(self.store, self.path)
                place.write_owner(self.store, self.path, self._environ)
                for folder in (self.store, *self.store.parents[:3]):
                    with contextlib.suppress(PermissionError):  # who made it may have died before it was durable
                        durable.sync_folder(folder)
                self._repository.objects.create()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with plain_errors(self.store):
            self._check_is_there()
            self._repository.sync()
            yield

    def _check_is_there(self) -> None:
        if not self._repository.exists:
            raise Unavailable(f"the store {self.store} is gone", hint="Open the workspace anew to make another.")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """The store, alone; what dead writers left is swept, and what they interrupted is finished first."""
        with plain_errors(self.store):
            self._check_is_there()
            with self._repository.lock:
                place.check_owner(self.store, self.path)
                self._repository.objects.refresh()
                self._repository.sweep()
                with self._repository.catalog.kept_open():
                    self._repository.sync()
                    if Journal(self._repository.own).exists:
                        self.recovered = self._engine.recoverer.recover() or self.recovered
                    # not before: only the folder itself can end a restore
                    place.write_owner(self.store, self.path, self._environ)
                    self._resume_purge()
                    yield


def _now() -> datetime:
    return datetime.now(UTC)
