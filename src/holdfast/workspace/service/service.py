"""The checkpoint service: the workspace for a program that runs an event loop.

A `Workspace` does everything; the service calls it in two threads, one for changes, in the order of the calls, and one
for reads. A caller that stops waiting (a cancelled task, a loop that ends) does not stop the work: it is completed, and
its event handlers are called.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.model import JSON, Checkpoint, CheckpointDiff, CheckpointRef, LoadedParts, Plan, Restored
from holdfast.retention import Policy
from holdfast.validation import check_known, check_place, checked_options, parameters_of
from holdfast.workspace import store_paths
from holdfast.workspace.config import Settings, read_settings
from holdfast.workspace.pathspec import Paths
from holdfast.workspace.requests import SaveRequest
from holdfast.workspace.service import navigation
from holdfast.workspace.service.config import CheckpointConfig, CheckpointEvent, event_of
from holdfast.workspace.service.dispatch import Dispatch, Done
from holdfast.workspace.service.protection import CheckpointBefore, NoCheckpoint, Tool, protect
from holdfast.workspace.service.state_copy import as_state, copied
from holdfast.workspace.stored.state_json import OnUnknown, Spelling
from holdfast.workspace.upkeep.type_policies import BEFORE, PROTECTION
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.serde import Registry


T = TypeVar("T")
_Path = str | os.PathLike[str]
_log = logging.getLogger("holdfast")
_OFF = NoCheckpoint()
_MOST = 100  # a policy without `keep_last` is applied once there are more than this


@checked_options
class CheckpointService:
    """Saves, restores, rewinds and prunes checkpoints of a folder without blocking the event loop.

    `initialize` opens the workspace, or the first call does. Raises the errors of the library.
    """

    def __init__(
        self,
        workspace_dir: _Path,
        storage_dir: _Path | None = None,
        config: CheckpointConfig | None = None,
        *,
        enabled: bool | None = None,
        auto_checkpoint: bool | None = None,
        max_checkpoints: int | None = None,
        exclude_patterns: Sequence[str] | None = None,
        watch: bool | None = None,
        allow_home: bool = False,
        trust_store: bool = False,
        registry: Registry | None = None,
        on_unknown: OnUnknown = "raise",
        home: _Path | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """Configure the service; nothing is read or written yet.

        `storage_dir` is a folder of stores, or one store. A keyword overrides the same option in `config`. `watch` is
        `Workspace.watch`; `registry` and `on_unknown` are those of `Workspace`.
        """
        given: dict[str, Any] = {
            "enabled": enabled,
            "auto_checkpoint": auto_checkpoint,
            "max_checkpoints": max_checkpoints,
            "exclude_patterns": exclude_patterns,
        }
        said = {name: value for name, value in given.items() if value is not None}
        self.config = replace(config or CheckpointConfig(), **said)
        self.workspace_dir = _absolute(workspace_dir, "workspace_dir")
        self._storage_dir = None if storage_dir is None else _absolute(storage_dir, "storage_dir")
        self._spelling = Spelling(registry, on_unknown=on_unknown)
        self._options: dict[str, Any] = {"allow_home": allow_home, "home": home, "environ": environ, "clock": clock}
        self._options |= {"trust_store": trust_store, "registry": registry, "on_unknown": on_unknown}
        self._watch = watch
        self._is_told_how_many = config is not None or max_checkpoints is not None
        self._policy: Policy | None = None
        self._workspace: Workspace | None = None
        self._misconfigured: HoldfastError | None = None
        self._opening = threading.Lock()
        self._is_announced = False
        self._dispatch = Dispatch()
        self._standing: tuple[str, bool] | None = None  # a checkpoint, and whether a tool has run since

    def __repr__(self) -> str:
        return f"CheckpointService({os.fspath(self.workspace_dir)!r})"

    @property
    def is_initialized(self) -> bool:
        """Whether the workspace was opened."""
        return self._workspace is not None

    @property
    def workspace(self) -> Workspace:
        """The workspace, for synchronous use. Refused before it is opened."""
        if self._workspace is None:
            raise Refused("the service is not initialized", hint="Await initialize() first.")
        return self._workspace

    async def __aenter__(self) -> CheckpointService:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def initialize(self) -> bool:
        """Open or create the store; return whether the service is enabled. Recovers an interrupted restore."""
        if self.config.enabled:
            await self._change(lambda _: Done(None))
        return self.config.enabled

    async def close(self) -> None:
        """Wait for work that has begun, and accept no more."""
        await self._dispatch.close()
        if self._workspace is not None:
            self._workspace.close()

    def on(self, event: CheckpointEvent | str, handler: Callable[[Any], object]) -> Callable[[], None]:
        """Call a handler, sync or async, for each event of a kind; returns a function that removes it.

        A handler that fails is logged, and has no other effect.
        """
        if not callable(handler):
            raise Refused(f"the handler {handler!r} cannot be called", hint="Give a function.")
        return self._dispatch.listeners.on(event_of(event), handler)

    # making checkpoints

    async def save(
        self,
        message: str = "",
        state: JSON = None,
        step: int | None = None,
        turn: int | None = None,
        session: str | None = None,
        metadata: Mapping[str, JSON] | None = None,
        *,
        name: str | None = None,
        pinned: bool = False,
        actor: str | None = None,
        allow_empty: bool | None = None,
        rehash: bool = False,
    ) -> Checkpoint:
        """Save the folder as it is now, with state (a conversation, or named values).

        If nothing changed, return the checkpoint that the folder is at (`is_new` is False); one with a step or a turn
        is saved in any case, so that it can be found. What the first save of an `actor` finds was there before: that
        checkpoint has no actor, and `saved_by` in its metadata.
        """
        values = copied(as_state(state), self._spelling)
        told = navigation.with_turn(metadata, turn)

        def work(workspace: Workspace) -> Done[Checkpoint]:
            workspace = self._configured(workspace)
            whose, more = workspace.first_saves.attribute(actor)
            request = SaveRequest(
                message,
                state=values,
                session=session,
                actor=whose,
                step=step,
                metadata={**(told or {}), **more} if more else told,
                name=name,
                pinned=pinned,
                allow_empty=(step is not None or turn is not None) if allow_empty is None else allow_empty,
                rehash=rehash,
            )
            saved = workspace.save_request(request)
            workspace.first_saves.note(actor)
            self._standing = saved.id, False
            return Done(saved, self._created(workspace, saved) if saved.is_new else ())

        return await self._change(work)

    async def delete(self, checkpoint_id: CheckpointRef) -> Checkpoint:
        """Delete one checkpoint; other checkpoints do not change."""

        def work(workspace: Workspace) -> Done[Checkpoint]:
            deleted = workspace.delete(checkpoint_id)
            return Done(deleted, [(CheckpointEvent.DELETED, deleted)])

        return await self._change(work)

    # before tools

    def protect(self, tool: Tool, *, message: str | None = None) -> Tool:
        """Wrap a callable, sync or async, so that each call saves a checkpoint first; unchanged if that is off.

        If the checkpoint cannot be saved the tool does not run. A sync tool blocks until the checkpoint is saved: call
        it in a thread (`asyncio.to_thread`) to keep the loop running.
        """
        return protect(tool, self, message) if self.is_automatic else tool

    @overload
    def auto_checkpoint(self, what: Tool) -> Tool: ...
    @overload
    def auto_checkpoint(self, what: str | None = None) -> CheckpointBefore: ...
    def auto_checkpoint(self, what: Any = None) -> Any:
        """Save a checkpoint before a tool or a block: `@service.auto_checkpoint`, with or without a message,
        `with service.auto_checkpoint("edit"):` and `async with`. Does nothing if that is off."""
        if callable(what):
            return self.protect(what)
        return CheckpointBefore(self, what) if self.is_automatic else _OFF

    @property
    def is_automatic(self) -> bool:
        """Whether checkpoints are saved before tools."""
        return self.config.enabled and self.config.auto_checkpoint

    async def save_before(self, tool: str, message: str | None, **label: Any) -> Checkpoint:
        """Save before a tool runs. `label`: arguments of `Workspace.save` such as actor, session, step."""
        check_known(label, set(parameters_of(Workspace.save)) - {"message"}, "save_before")
        return await self._change(self._save_before(tool, message, label))

    def save_before_blocking(self, tool: str, message: str | None) -> Checkpoint:
        """Do the same for synchronous callers."""
        work = self._save_before(tool, message, {})
        return self._dispatch.change_blocking(lambda: self._on_workspace(work))

    def _save_before(
        self, tool: str, message: str | None, label: Mapping[str, Any]
    ) -> Callable[[Workspace], Done[Checkpoint]]:
        message = message if message is not None else f"before {tool}" if tool else "before changes"
        options = {**label, "metadata": {**(label.get("metadata") or {}), BEFORE: tool or message, PROTECTION: True}}

        def work(workspace: Workspace) -> Done[Checkpoint]:
            workspace = self._configured(workspace)
            saved = workspace.save(message, **options)
            self._standing = saved.id, True
            return Done(saved, self._created(workspace, saved) if saved.is_new else ())

        return work

    def _created(self, workspace: Workspace, saved: Checkpoint) -> list[tuple[CheckpointEvent, object]]:
        return [(CheckpointEvent.CREATED, saved), *self._pruned(workspace)]

    def _pruned(self, workspace: Workspace) -> list[tuple[CheckpointEvent, object]]:
        """Prune if there are too many saves or safety checkpoints; return the events. A failure to prune is logged
        and reported as an event."""
        policy = self._policy
        try:
            if policy and _are_many(workspace, policy.keep_last or _MOST):
                pruned = workspace.prune(policy, dry_run=False, lazily=True)
                return [(CheckpointEvent.PRUNED, pruned)] if pruned else []
        except HoldfastError as error:
            _log.warning("pruning failed: %s", error)
            return [(CheckpointEvent.ERROR, error)]
        return []

    # finding them

    async def list(
        self, limit: int | None = None, *, session: str | None = None, before: CheckpointRef | None = None
    ) -> list[Checkpoint]:
        """List all checkpoints, newest first. Restoring an older one hides none.

        In pages: `limit` is how many at most, and `before` the last checkpoint of the page before.
        """
        return await self._look(lambda ws: ws.list(limit, session=session, before=before))

    async def get(self, checkpoint_id: CheckpointRef) -> Checkpoint:
        """Get a checkpoint by id, unique prefix, name, `latest` or `latest~2`, with files and state already read."""
        return await self._look(lambda ws: _loaded(ws.get(checkpoint_id)))

    async def diff(self, from_id: CheckpointRef | None = None, to_id: CheckpointRef | None = None) -> CheckpointDiff:
        """Compare two checkpoints; by default the latest with the folder as it is now."""
        return await self._look(lambda ws: ws.diff("latest" if from_id is None else from_id, to_id))

    # going back

    async def preview(self, checkpoint_id: CheckpointRef = "latest", *, keep_new: bool = False) -> Plan:
        """Compute what `restore` would do to the files."""
        return await self._look(lambda ws: ws.preview(checkpoint_id, keep_new=keep_new))

    async def restore(
        self,
        checkpoint_id: CheckpointRef | None = None,
        step: int | None = None,
        turn: int | None = None,
        files: bool = True,
        conversation: bool = True,
        *,
        session: str | None = None,
        paths: Paths | None = None,
        keep_new: bool = False,
        state: JSON = None,
    ) -> Restored:
        """Restore a checkpoint, by id, step or turn; the latest by default.

        Restores the files, and returns the state that was saved with them; only one of the two if `files` or
        `conversation` is False. `state` is the present conversation: it is saved with the files, for `undo`.
        """
        if sum(given is not None for given in (checkpoint_id, step, turn)) > 1:
            raise Refused("more than one of checkpoint_id, step and turn is given", hint="Give only one of them.")
        if not files and not conversation:
            raise Refused("files and conversation are both False", hint="Leave one of them True.")
        if not files and (paths is not None or keep_new):
            raise Refused("paths and keep_new need files=True", hint="Leave files=True.")
        now = copied(as_state(state), self._spelling)

        def work(workspace: Workspace) -> Done[Restored]:
            if step is not None:
                target = navigation.find_step(workspace, step, session)
            elif turn is not None:
                target = navigation.find_turn(workspace, turn, session)
            else:
                target = workspace.get("latest" if checkpoint_id is None else checkpoint_id)
            if not files:
                restored = Restored(target.id, "", [], [], {}, {}, {}, target.state, {}, [])
            else:
                restored = workspace.restore(target.id, paths, keep_new=keep_new, state=now)
            return self._moved(workspace, restored, conversation=conversation, files=files)

        return await self._change(work)

    async def rewind(self, steps: int = 1, *, conversation: bool = True, state: JSON = None) -> Restored:
        """Restore the checkpoint `steps` steps back. Newer checkpoints stay, and `undo` reverts the rewind.

        After a protected tool has run, one step back is the state before it.
        """
        now = copied(as_state(state), self._spelling)

        def work(workspace: Workspace) -> Done[Restored]:
            head = workspace.head()
            standing = self._standing
            past = standing[1] if head and standing and standing[0] == head.id else None
            restored = workspace.restore(navigation.find_back(workspace, steps, past=past).id, state=now)
            return self._moved(workspace, restored, conversation=conversation)

        return await self._change(work)

    async def undo(self) -> Restored:
        """Undo the last restore or rewind, files and state."""
        return await self._change(lambda ws: self._moved(ws, ws.undo()))

    async def redo(self) -> Restored:
        """Redo what the last undo reverted."""
        return await self._change(lambda ws: self._moved(ws, ws.redo()))

    def _moved(
        self, workspace: Workspace, restored: Restored, *, conversation: bool = True, files: bool = True
    ) -> Done[Restored]:
        """Return a restore with its events; with `files` it has saved a safety checkpoint."""
        events: list[tuple[CheckpointEvent, object]] = [(CheckpointEvent.RESTORED, restored)]
        if files:
            self._standing = None
            events += self._pruned(workspace)
        return Done(restored if conversation else restored._replace(state={}), events)

    # threads

    async def _change(self, work: Callable[[Workspace], Done[T]]) -> T:
        return await self._dispatch.change(lambda: self._on_workspace(work))

    async def _look(self, look: Callable[[Workspace], T]) -> T:
        return await self._dispatch.look(lambda: self._on_workspace(lambda workspace: Done(look(workspace))))

    def _on_workspace(self, work: Callable[[Workspace], Done[T]]) -> Done[T]:
        """Do work in a thread, and add the event of the opening."""
        done = work(self._opened())
        if self._is_announced:
            return done
        self._is_announced = True
        opened = CheckpointEvent.INITIALIZED, {"workspace": os.fspath(self.workspace.path)}
        return done._replace(events=[opened, *done.events])

    def _opened(self) -> Workspace:
        if not self.config.enabled:
            raise Refused("checkpoints are switched off", hint="Make the service with enabled=True.")
        with self._opening:
            if self._workspace is None:
                settings = self._settings()
                self._workspace = _open_workspace(
                    self.workspace_dir, self._storage_dir, self.config, settings, watch=self._watch, **self._options
                )
                most = self.config.max_checkpoints
                self._policy = None if most is None else Policy(keep_last=most)
                if settings.retention is not None and not self._is_told_how_many:
                    self._policy = settings.retention
                if self._misconfigured is not None and not self._is_told_how_many:
                    self._policy = None  # P1: its retention is unknown, so nothing is pruned
            return self._workspace

    def _settings(self) -> Settings:
        """Read the configuration of the folder. An invalid one is logged: it must not prevent a restore."""
        try:
            settings, self._misconfigured = read_settings(self.workspace_dir), None
        except HoldfastError as error:
            _log.warning("the configuration is not used: %s", error)
            settings, self._misconfigured = Settings(), error
        return settings

    def _configured(self, workspace: Workspace) -> Workspace:
        """Return the workspace for a save; raises if the configuration is invalid and not fixed meanwhile."""
        if self._misconfigured is None:
            return workspace
        read_settings(self.workspace_dir)
        with self._opening:
            self._workspace = None
        workspace.close()
        return self._opened()


def _absolute(path: _Path, what: str) -> Path:
    """Return an absolute path, by the present working directory."""
    return Path(os.path.abspath(check_place(path, what)))


def _are_many(workspace: Workspace, most: int) -> bool:
    """Whether there are more than `most` saves, or more safety checkpoints than that and than undo needs."""
    from holdfast.workspace.upkeep.prune import UNDO_STEPS  # start-up cost: not before the first save

    found = workspace.list(2 * max(most, UNDO_STEPS) + 1, safety=True)
    saves = sum(each.operation is None for each in found)
    return saves > most or len(found) - saves > max(most, UNDO_STEPS)


def _loaded(checkpoint: Checkpoint) -> Checkpoint:
    """Read the state, the changed files and the uncovered paths now. Parts that fail raise when they are used."""
    try:
        parts = LoadedParts(checkpoint.state, checkpoint.files_changed, checkpoint.uncovered)
    except (Damaged, Refused, Unavailable):
        return checkpoint
    return checkpoint.replace(_lazy=parts)


def _open_workspace(
    folder: Path,
    storage: Path | None,
    config: CheckpointConfig,
    settings: Settings,
    *,
    watch: bool | None,
    **options: Any,
) -> Workspace:
    """Open the workspace, or create its store. `storage` is a folder of stores, or one store."""
    options = settings.options() | options
    options["exclude_patterns"] = [*settings.exclude_patterns, *config.exclude_patterns]
    options["watch"] = settings.watch if watch is None else watch
    return Workspace(folder, store=_store(folder, storage), **options)


def _store(workspace: Path, storage: Path | None) -> Path | None:
    """Return the store of a workspace in a folder of stores; the folder itself if it is a store."""
    if storage is None or (storage / "holdfast").is_dir():
        return storage
    return store_paths.store_folder(
        workspace.resolve(), store=None, environ={"HOLDFAST_STORE_ROOT": os.fspath(storage)}
    )
