"""The checkpoint service: the workspace for a program that runs an event loop.

Everything is done by a `Workspace`, which is the same thing without `async`; here its calls are made in two threads,
one for what changes something, in the order asked for, and one for what only looks. Whoever stops waiting (a task that
is cancelled, a loop that ends) does not stop the work: it is done whole, and its event is told.
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

from holdfast.errors import HoldfastError, Refused
from holdfast.model import JSON, Checkpoint, CheckpointDiff, Plan, Restored
from holdfast.retention import Policy
from holdfast.workspace.config import Settings, read_settings
from holdfast.workspace.given import a_path
from holdfast.workspace.scope import Paths
from holdfast.workspace.service import trail
from holdfast.workspace.service.config import CheckpointConfig, CheckpointEvent, event_of
from holdfast.workspace.service.conversation import as_state, copied
from holdfast.workspace.service.dispatch import Dispatch, Done
from holdfast.workspace.service.loaded import loaded
from holdfast.workspace.service.opening import open_workspace
from holdfast.workspace.service.protection import Ahead, Nothing, Tool, protect
from holdfast.workspace.stored.spelling import OnUnknown, Spelling
from holdfast.workspace.upkeep.undoing import UNDO_STEPS
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.serde import Registry

T = TypeVar("T")
_Path = str | os.PathLike[str]
_log = logging.getLogger("holdfast")
_OFF = Nothing()
_MOST = 100  # a policy that counts none is asked once there are so many


class CheckpointService:
    """Checkpoints of a folder for a long-lived program: saved, restored, rewound, pruned, without holding up its loop.

    Opening happens with `initialize`, or with the first call. Errors are those of the library, and are raised.
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
        """Nothing is read or written yet. `storage_dir` is a folder of stores, or one store; a keyword that is also
        in `config` stands in its place there. With `watch` the kernel tells what changes, as by `Workspace.watch`;
        `registry` and `on_unknown` are about classes in states, as `Workspace` has them."""
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
        return self._workspace is not None

    @property
    def workspace(self) -> Workspace:
        """The workspace itself, for synchronous use. Refused before it is opened."""
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
        """Open the store, or make it; whether the service is on. An interrupted restore is finished or taken back."""
        if self.config.enabled:
            await self._change(lambda _: Done(None))
        return self.config.enabled

    async def close(self) -> None:
        """Wait for what was begun, and take nothing more."""
        await self._dispatch.close()
        if self._workspace is not None:
            self._workspace.close()

    def on(self, event: CheckpointEvent | str, handler: Callable[[Any], object]) -> Callable[[], None]:
        """Tell a handler, sync or async, of each event of a kind; returns what ends that.

        A handler that fails is logged, and breaks nothing.
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
        """Keep the folder as it is now, and the state (a conversation, or named values) with it.

        With nothing changed this returns the checkpoint that the folder is at; one with a step or a turn is made all
        the same, to be found by it. What the first save of an `actor` finds was there before it looked: that
        checkpoint has no actor, and `saved_by` in its metadata.
        """
        options: dict[str, Any] = {
            "step": step,
            "session": session,
            "name": name,
            "pinned": pinned,
            "rehash": rehash,
        }
        options |= {"state": copied(as_state(state), self._spelling)}
        told = trail.with_turn(metadata, turn)
        empty = (step is not None or turn is not None) if allow_empty is None else allow_empty

        def work(workspace: Workspace) -> Done[Checkpoint]:
            workspace = self._configured(workspace)
            whose, more = workspace.first_looks.attribute(actor)
            said = {**(told or {}), **more} if more else told
            saved, new = _save(workspace, message, empty, {**options, "actor": whose, "metadata": said})
            workspace.first_looks.note(actor)
            self._standing = saved.id, False
            return Done(saved, self._created(workspace, saved) if new else ())

        return await self._change(work)

    async def delete(self, checkpoint_id: str) -> Checkpoint:
        """Delete one checkpoint; others are not touched."""

        def work(workspace: Workspace) -> Done[Checkpoint]:
            deleted = workspace.delete(checkpoint_id)
            return Done(deleted, [(CheckpointEvent.DELETED, deleted)])

        return await self._change(work)

    # before tools

    def protect(self, tool: Tool, *, message: str | None = None) -> Tool:
        """A callable, sync or async, that saves a checkpoint before each call; the callable itself where that is off.

        If the checkpoint cannot be made the tool does not run. A sync one waits for its checkpoint: call it in a
        thread (`asyncio.to_thread`) where a loop must go on meanwhile.
        """
        return protect(tool, self, message) if self.is_automatic else tool

    @overload
    def auto_checkpoint(self, what: Tool) -> Tool: ...
    @overload
    def auto_checkpoint(self, what: str | None = None) -> Ahead: ...
    def auto_checkpoint(self, what: Any = None) -> Any:
        """A checkpoint before a tool or a block touches files: `@service.auto_checkpoint`, with or without a message,
        `with service.auto_checkpoint("edit"):` and `async with`. Does nothing where that is off."""
        if callable(what):
            return self.protect(what)
        return Ahead(self, what) if self.is_automatic else _OFF

    @property
    def is_automatic(self) -> bool:
        """Whether tools are preceded by checkpoints."""
        return self.config.enabled and self.config.auto_checkpoint

    async def ahead(self, tool: str, message: str | None, **label: Any) -> Checkpoint:
        """Save what is there before a tool runs. `label` is of what `Workspace.save` takes: actor, session, step …"""
        return await self._change(self._ahead(tool, message, label))

    def ahead_blocking(self, tool: str, message: str | None) -> Checkpoint:
        """The same, for code without a loop."""
        work = self._ahead(tool, message, {})
        return self._dispatch.change_blocking(lambda: self._on_workspace(work))

    def _ahead(
        self, tool: str, message: str | None, label: Mapping[str, Any]
    ) -> Callable[[Workspace], Done[Checkpoint]]:
        message = message if message is not None else f"before {tool}" if tool else "before changes"
        options = {**label, "metadata": {**(label.get("metadata") or {}), trail.BEFORE: tool or message}}

        def work(workspace: Workspace) -> Done[Checkpoint]:
            workspace = self._configured(workspace)
            saved, new = _save(workspace, message, False, options)
            self._standing = saved.id, True
            return Done(saved, self._created(workspace, saved) if new else ())

        return work

    def _created(self, workspace: Workspace, saved: Checkpoint) -> list[tuple[CheckpointEvent, object]]:
        return [(CheckpointEvent.CREATED, saved), *self._pruned(workspace)]

    def _pruned(self, workspace: Workspace) -> list[tuple[CheckpointEvent, object]]:
        """Prune, if there are too many now, of saves or of safety checkpoints; what is to be told. Nothing fails
        because pruning did."""
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
        self, limit: int | None = 50, *, session: str | None = None, before: str | None = None
    ) -> list[Checkpoint]:
        """Checkpoints, newest first; with `before`, those older than that one. Restoring an older one hides none."""
        return await self._look(lambda ws: ws.list(limit, session=session, before=before))

    async def get(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by id, unique prefix, name, `latest` or `latest~2`, with its files and state read already."""
        return await self._look(lambda ws: loaded(ws.get(checkpoint_id)))

    async def diff(self, from_id: str | None = None, to_id: str | None = None) -> CheckpointDiff:
        """What differs between two checkpoints; from the latest, and to the folder as it is, where none is named."""
        return await self._look(lambda ws: ws.diff("latest" if from_id is None else from_id, to_id))

    # going back

    async def preview(self, checkpoint_id: str = "latest", *, keep_new: bool = False) -> Plan:
        """What `restore` would do to the files; nothing is touched."""
        return await self._look(lambda ws: ws.preview(checkpoint_id, keep_new=keep_new))

    async def restore(
        self,
        checkpoint_id: str | None = None,
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
        """Bring back a checkpoint, by id, step or turn; the latest where none is named.

        The files become as they were, and the state that was saved with them is in the result; either alone, if the
        other is False. `state` is the conversation as it is now: it is kept with the files, for `undo`.
        """
        if sum(given is not None for given in (checkpoint_id, step, turn)) > 1:
            raise Refused("a checkpoint is named in two ways", hint="Give its id, its step or its turn, not both.")
        if not files and not conversation:
            raise Refused("neither files nor conversation are to be restored", hint="Leave one of them True.")
        if not files and (paths is not None or keep_new):
            raise Refused("paths and keep_new are about files", hint="Leave files=True.")
        now = copied(as_state(state), self._spelling)

        def work(workspace: Workspace) -> Done[Restored]:
            if step is not None:
                target = trail.find_step(workspace, step, session)
            elif turn is not None:
                target = trail.find_turn(workspace, turn, session)
            else:
                target = workspace.get("latest" if checkpoint_id is None else checkpoint_id)
            if not files:
                restored = Restored(target.id, "", [], [], {}, {}, {}, target.state)
            else:
                restored = workspace.restore(target.id, paths, keep_new=keep_new, state=now)
            return self._moved(workspace, restored, conversation=conversation, files=files)

        return await self._change(work)

    async def rewind(self, steps: int = 1, *, conversation: bool = True, state: JSON = None) -> Restored:
        """Go so many checkpoints back from where the folder stands. The newer ones stay, and `undo` goes forth again.

        After a protected tool has run, one step back is what was there before it.
        """
        now = copied(as_state(state), self._spelling)

        def work(workspace: Workspace) -> Done[Restored]:
            head = workspace.head()
            standing = self._standing
            past = standing[1] if head and standing and standing[0] == head.id else None
            restored = workspace.restore(trail.find_back(workspace, steps, past=past).id, state=now)
            return self._moved(workspace, restored, conversation=conversation)

        return await self._change(work)

    async def undo(self) -> Restored:
        """Take back the last restore or rewind, files and state."""
        return await self._change(lambda ws: self._moved(ws, ws.undo()))

    async def redo(self) -> Restored:
        """Take back the last undo."""
        return await self._change(lambda ws: self._moved(ws, ws.redo()))

    def _moved(
        self, workspace: Workspace, restored: Restored, *, conversation: bool = True, files: bool = True
    ) -> Done[Restored]:
        """What is to be told after going back; with `files` it has made a safety checkpoint."""
        events: list[tuple[CheckpointEvent, object]] = [(CheckpointEvent.RESTORED, restored)]
        if files:
            self._standing = None
            events += self._pruned(workspace)
        return Done(restored if conversation else replace(restored, state={}), events)

    # doing it elsewhere

    async def _change(self, work: Callable[[Workspace], Done[T]]) -> T:
        return await self._dispatch.change(lambda: self._on_workspace(work))

    async def _look(self, look: Callable[[Workspace], T]) -> T:
        return await self._dispatch.look(lambda: self._on_workspace(lambda workspace: Done(look(workspace))))

    def _on_workspace(self, work: Callable[[Workspace], Done[T]]) -> Done[T]:
        """Do work in a lane, and add what is to be told of the opening."""
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
                self._workspace = open_workspace(
                    self.workspace_dir, self._storage_dir, self.config, settings, watch=self._watch, **self._options
                )
                most = self.config.max_checkpoints
                self._policy = None if most is None else Policy(keep_last=most)
                if settings.retention is not None and not self._is_told_how_many:
                    self._policy = settings.retention
                if self._misconfigured is not None and not self._is_told_how_many:
                    self._policy = None  # what it says of keeping is not known, so nothing is pruned (P1)
            return self._workspace

    def _settings(self) -> Settings:
        """The configuration of the folder. One that makes no sense must not keep anybody from going back."""
        try:
            settings, self._misconfigured = read_settings(self.workspace_dir), None
        except HoldfastError as error:
            _log.warning("the configuration is not used: %s", error)
            settings, self._misconfigured = Settings(), error
        return settings

    def _configured(self, workspace: Workspace) -> Workspace:
        """The workspace for a save; raises what is wrong with the configuration, unless that is mended by now."""
        if self._misconfigured is None:
            return workspace
        read_settings(self.workspace_dir)
        with self._opening:
            self._workspace = None
        workspace.close()
        return self._opened()


def _absolute(path: _Path, what: str) -> Path:
    """A path by where the program stands now."""
    return Path(os.path.abspath(a_path(path, what)))


def _save(workspace: Workspace, message: str, allow_empty: bool, options: Mapping[str, Any]) -> tuple[Checkpoint, bool]:
    """Save, and whether that made a checkpoint."""
    before = workspace.list(1, safety=True)
    saved = workspace.save(message, allow_empty=allow_empty, **options)
    return saved, not before or saved.sequence > before[0].sequence


def _are_many(workspace: Workspace, most: int) -> bool:
    """Whether there are more saves than so many, or more safety checkpoints than that and than an undo needs."""
    found = workspace.list(2 * max(most, UNDO_STEPS) + 1, safety=True)
    saves = sum(each.operation is None for each in found)
    return saves > most or len(found) - saves > max(most, UNDO_STEPS)
