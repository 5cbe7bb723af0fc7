"""PraisonAI's `CheckpointService`, over a `Workspace`.

No method raises an error of the library: `save`, `restore` and `rewind` return it, `initialize` and `delete_all` return
False and log it. Events are emitted before a call returns.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from holdfast import durable, model
from holdfast.compat.praisonai.checkpoint_types import (
    MAX_FILE_SIZE,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)
from holdfast.durable.aio import ReadWriteThreads
from holdfast.durable.os_errors import os_errors
from holdfast.errors import HoldfastError, NotFound
from holdfast.events import Listeners
from holdfast.retention import Policy
from holdfast.workspace import Workspace
from holdfast.workspace.config import read_settings
from holdfast.workspace.service import navigation

T = TypeVar("T")
Reference = str | Checkpoint | CheckpointResult
"""What `restore`, `diff` and `get_checkpoint` take: an id, a prefix of one, or what `save` returned."""

PROTECTED_PATHS = [os.path.expanduser(path) for path in ("~", "~/Desktop", "~/Documents", "~/Downloads")] + [
    "/",
    "/tmp",
    "/var",
    "/etc",
]
"""Folders that PraisonAI does not save. `Workspace` refuses these and more by itself."""

NOT_INITIALIZED = "Service not initialized"
NO_CHANGES = "No changes to checkpoint"
STORE_NAME = "holdfast.git"
"""In the folder of a workspace, beside the `.git` of PraisonAI, which is never opened."""
INITIAL = "praisonai.initial"
"""In the metadata of the checkpoint that `initialize` makes."""
_KEEP_FOR = timedelta(days=7)
_STEP = re.compile(r"^\[step-(\d+)\]\s*")
_log = logging.getLogger("holdfast")


@dataclass
class _Open:
    """What is there between `initialize` and `cleanup`."""

    workspace: Workspace
    threads: ReadWriteThreads


class CheckpointService:
    """Saves, lists, compares and restores checkpoints of a folder."""

    def __init__(
        self,
        workspace_dir: str,
        storage_dir: str | None = None,
        enabled: bool = True,
        auto_checkpoint: bool = True,
        max_checkpoints: int = 100,
        user_name: str = "PraisonAI Checkpoints",
        user_email: str = "checkpoints@praison.ai",
        max_file_size: int = MAX_FILE_SIZE,
    ) -> None:
        self.config = CheckpointConfig(
            workspace_dir=workspace_dir,
            storage_dir=storage_dir,
            enabled=enabled,
            auto_checkpoint=auto_checkpoint,
            max_checkpoints=max_checkpoints,
            user_name=user_name,
            user_email=user_email,
            max_file_size=max_file_size,
        )
        self._open: _Open | None = None
        self._listeners: Listeners[Any] = Listeners()

    @property
    def workspace_dir(self) -> str:
        return self.config.workspace_dir

    @property
    def checkpoint_dir(self) -> str:
        """The folder that `delete_all` removes."""
        return self.config.get_checkpoint_dir()

    @property
    def git_dir(self) -> str:
        """The store, which is a bare git repository."""
        return os.path.join(self.checkpoint_dir, STORE_NAME)

    @property
    def is_initialized(self) -> bool:
        return self._open is not None

    def on(self, event: CheckpointEvent, handler: Callable[[Any], object]) -> None:
        """Call a handler, sync or async, for each event of a kind. One that fails is logged."""
        self._listeners.on(CheckpointEvent(event), handler)

    async def initialize(self) -> bool:
        """Open the store, or create it with a first checkpoint of the folder. False if that is not possible."""
        if not self.config.enabled:
            return False
        if self.config.max_file_size != MAX_FILE_SIZE:
            _log.warning("max_file_size is not applied: files of every size are saved; use exclude_patterns")
        if self._open is None:
            threads = ReadWriteThreads("holdfast-praisonai", owner="checkpoint service")
            try:
                self._open = _Open(await threads.call(self._open_workspace, reads=False), threads)
            except HoldfastError as error:
                threads.close()
                _log.error("checkpoints of %s are not possible: %s", self.workspace_dir, error)
                return False
        await self._emit(CheckpointEvent.INITIALIZED, {"workspace": self.workspace_dir})
        return True

    async def save(self, message: str, allow_empty: bool = False, step: int | None = None) -> CheckpointResult:
        """Save the folder. A step is found again by `restore(step=…)`; it is written into the message, too.

        Fails if nothing has changed since the last checkpoint, unless `allow_empty`.
        """
        if self._open is None:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if step is not None and step < 0:
            return CheckpointResult.fail("step must be a non-negative integer")
        text = message if step is None else f"[step-{step}] {_STEP.sub('', message)}"
        return await self._save(text, allow_empty=allow_empty)

    async def _save(self, message: str, *, allow_empty: bool, **label: Any) -> CheckpointResult:
        """Save, with a session and metadata; see `Workspace.save`."""
        pruned = 0

        def work(workspace: Workspace) -> CheckpointResult:
            nonlocal pruned
            as_asked = allow_empty or _is_first(workspace)
            saved = workspace.save(message, step=_step_of(message), allow_empty=as_asked, **label)
            if saved.is_new and (as_asked or saved.files_changed):
                pruned = self._prune(workspace)
                return CheckpointResult.ok(_translated(saved))
            if saved.is_new:
                workspace.delete(saved.id)  # only times or excluded files changed: no change to PraisonAI's programs
            return CheckpointResult.fail(NO_CHANGES)

        result = await self._change(work)
        if result.checkpoint is not None:
            await self._emit(CheckpointEvent.CHECKPOINT_CREATED, result.checkpoint)
        if pruned:
            await self._emit(CheckpointEvent.CHECKPOINTS_PRUNED, {"action": "pruned", "removed_count": pruned})
        return result

    async def restore(self, checkpoint_id: Reference | None = None, step: int | None = None) -> CheckpointResult:
        """Make the folder as it is in a checkpoint, given by id or by step.

        What is there now is saved first: `holdfast --store GIT_DIR undo` restores it. Newer checkpoints stay. If the
        checkpoint does not exist, nothing is changed.
        """
        if self._open is None:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if checkpoint_id is not None and step is not None:
            return CheckpointResult.fail("Give checkpoint_id or step, not both")
        if checkpoint_id is None and step is None:
            return CheckpointResult.fail("No checkpoint id or step given")

        def find(workspace: Workspace) -> model.Checkpoint | None:
            return _find(workspace, checkpoint_id) if step is None else _find_step(workspace, step)

        return await self._restore(find, missing=f"No checkpoint found for step {step}")

    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Restore the checkpoint `steps` before the one that was saved or restored last."""
        if self._open is None:
            return CheckpointResult.fail(NOT_INITIALIZED)
        if steps < 1:
            return CheckpointResult.fail("steps must be >= 1")

        def find(workspace: Workspace) -> model.Checkpoint | None:
            with suppress(NotFound):
                return navigation.find_back(workspace, steps, past=False)
            return None

        return await self._restore(find, missing=f"Cannot rewind {steps} step(s): there are fewer checkpoints")

    async def _restore(self, find: Callable[[Workspace], model.Checkpoint | None], *, missing: str) -> CheckpointResult:
        def work(workspace: Workspace) -> CheckpointResult:
            target = find(workspace)
            if target is None:
                return CheckpointResult.fail(missing)
            done = workspace.restore(target.id)
            result = CheckpointResult.ok(_translated(target))
            if done.failed:  # P4: PraisonAI would call this a success
                result.success, result.error = False, _told(done)
            return result

        result = await self._change(work)
        if result.checkpoint is not None:
            await self._emit(CheckpointEvent.CHECKPOINT_RESTORED, result.checkpoint)
        if result.checkpoint is not None and result.error is not None:
            await self._emit(CheckpointEvent.ERROR, {"error": result.error})
        return result

    async def diff(self, from_id: Reference | None = None, to_id: Reference | None = None) -> CheckpointDiff:
        """Compare two checkpoints; by default the one before the last with the folder as it is now.

        If that fails, `error` of the result says why, and there is an event.
        """
        if self._open is None:
            return CheckpointDiff("", "", error=NOT_INITIALIZED)
        workspace_dir = self.workspace_dir

        def look(workspace: Workspace) -> CheckpointDiff:
            first = _find(workspace, from_id).id if from_id is not None else _previous(workspace)
            found = workspace.diff(first, None if to_id is None else _find(workspace, to_id).id)
            return CheckpointDiff(found.from_id, found.to_id, _files(found, workspace_dir))

        failed, found = await self._look(look, CheckpointDiff("", ""))
        found.error = failed
        return found

    async def list_checkpoints(self, limit: int = 50) -> list[Checkpoint]:
        """Checkpoints, newest first. Restoring an older one hides none."""

        def look(workspace: Workspace) -> list[Checkpoint]:
            return [_translated(each) for each in workspace.list(limit)]

        return (await self._look(look, list[Checkpoint]()))[1]

    async def get_checkpoint(self, checkpoint_id: Reference) -> Checkpoint | None:
        """A checkpoint by its id or a prefix that only it has; None if there is none."""

        def look(workspace: Workspace) -> Checkpoint | None:
            with suppress(NotFound):
                return _translated(_find(workspace, checkpoint_id))
            return None

        return (await self._look(look, None))[1]

    async def get_checkpoint_by_step(self, step: int) -> Checkpoint | None:
        """The newest checkpoint of a step; None if there is none."""

        def look(workspace: Workspace) -> Checkpoint | None:
            found = _find_step(workspace, step)
            return None if found is None else _translated(found)

        return (await self._look(look, None))[1]

    async def cleanup(self) -> None:
        """Close the store. `initialize` opens it again."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.threads.aclose()
            opened.workspace.close()

    async def delete_all(self) -> bool:
        """Delete all checkpoints of this workspace. Those of PraisonAI itself, in the same folder, stay."""
        await self.cleanup()
        threads = ReadWriteThreads("holdfast-praisonai", owner="checkpoint service")
        try:
            await threads.call(lambda: _delete(Path(self.git_dir)), reads=False)
            return True
        except HoldfastError as error:
            _log.error("the checkpoints of %s were not deleted: %s", self.workspace_dir, error)
            return False
        finally:
            threads.close()

    # in threads

    def _open_workspace(self) -> Workspace:
        store = Path(self.git_dir)
        settings = read_settings(self.workspace_dir)
        options = settings.options()
        for key in {"ignored_file_max_bytes", "ignored_total_max_bytes"} - settings.keys_in_file:
            options[key] = 0  # PraisonAI neither saves nor restores what .gitignore names
        options["exclude_patterns"] = [*settings.exclude_patterns, *self.config.exclude_patterns]
        workspace = Workspace(self.workspace_dir, store=store, **options)
        if not workspace.list(1, safety=True):
            workspace.save("Initial checkpoint", metadata={INITIAL: True})
            if (store.parent / ".git").exists():
                _log.info("%s has checkpoints of PraisonAI, which holdfast import can read", store.parent)
        return workspace

    def _prune(self, workspace: Workspace) -> int:
        """Delete what is neither among the newest nor younger than a week; return how many."""
        most = self.config.max_checkpoints
        if most < 1 or len(workspace.list(most + 1)) <= most:
            return 0
        try:
            return len(workspace.prune(Policy(keep_last=most, keep_for=_KEEP_FOR), dry_run=False, lazily=True).removed)
        except HoldfastError as error:  # the checkpoint is saved all the same
            _log.warning("pruning failed: %s", error)
            return 0

    async def _change(self, work: Callable[[Workspace], CheckpointResult]) -> CheckpointResult:
        opened = self._open
        if opened is None:
            return CheckpointResult.fail(NOT_INITIALIZED)
        try:
            return await opened.threads.call(lambda: work(opened.workspace), reads=False)
        except HoldfastError as error:
            await self._emit(CheckpointEvent.ERROR, {"error": str(error)})
            return CheckpointResult.fail(str(error))

    async def _look(self, look: Callable[[Workspace], T], default: T) -> tuple[str | None, T]:
        """Read something: the error, if there is one, and the answer."""
        opened = self._open
        if opened is None:
            return NOT_INITIALIZED, default
        try:
            return None, await opened.threads.call(lambda: look(opened.workspace), reads=True)
        except HoldfastError as error:
            _log.error("checkpoints of %s could not be read: %s", self.workspace_dir, error)
            await self._emit(CheckpointEvent.ERROR, {"error": str(error)})
            return str(error), default

    async def _emit(self, event: CheckpointEvent, data: object) -> None:
        """Call the handlers, and await those that are async."""
        for answer in self._listeners.tell(event, data):
            if inspect.isawaitable(answer):
                try:
                    await answer
                except Exception:
                    _log.exception("an async handler of %s failed", event)


def _delete(store: Path) -> None:
    """Delete a store, and its folder if nothing else is there. Renamed first: a kill leaves no half of a store (P3)."""
    gone = store.with_name(f"{store.name}-deleted")
    with os_errors(store, "delete"):
        durable.remove_tree(str(gone))  # left by a process that was killed here
        if store.exists():
            durable.disk().rename(str(store), str(gone))
            durable.sync_folder(store.parent)
            durable.remove_tree(str(gone))
        with suppress(OSError):  # PraisonAI's own store is there
            durable.disk().rmdir(str(store.parent))


def _is_first(workspace: Workspace) -> bool:
    """Whether there is only the checkpoint of `initialize`, with files: to the caller, all of them are new."""
    head = workspace.head()
    return head is not None and INITIAL in head.metadata and bool(head.files_changed)


def _previous(workspace: Workspace) -> str:
    """The checkpoint before the last one; the last one itself if there is only that."""
    try:
        return navigation.find_back(workspace, 1, past=False).id
    except NotFound:
        return "latest"


def _find(workspace: Workspace, reference: Reference | None) -> model.Checkpoint:
    """A checkpoint by its id, or by what `save` returned."""
    if isinstance(reference, CheckpointResult):
        reference = reference.checkpoint
    try:
        return workspace.get(reference.id if isinstance(reference, Checkpoint) else str(reference))
    except NotFound as error:
        raise NotFound(error.message, hint="See list_checkpoints().") from None


def _find_step(workspace: Workspace, step: int) -> model.Checkpoint | None:
    """The newest checkpoint of a step; imported ones have it only in their message."""
    return next((each for each in workspace.list(None) if _step_of(each.message) == step), None)


def _step_of(message: str) -> int | None:
    found = _STEP.match(message)
    return int(found[1]) if found else None


def _translated(saved: model.Checkpoint) -> Checkpoint:
    count = len(saved.files_changed)
    return Checkpoint(
        saved.id, saved.id[:8], saved.message, saved.timestamp, files_changed=count, step=_step_of(saved.message)
    )


def _told(done: model.Restored) -> str:
    path, reason = next(iter(done.failed.items()))
    more = f", and {len(done.failed) - 1} more" if len(done.failed) > 1 else ""
    return f"restored, except {path} ({reason}){more}"


def _files(found: model.CheckpointDiff, folder: str) -> list[FileDiff]:
    """The changed files, sorted; a renamed one is a deleted and an added one."""
    status = dict.fromkeys(found.added_files, "added") | dict.fromkeys(found.modified_files, "modified")
    status |= dict.fromkeys(found.deleted_files, "deleted")
    for each in found.renamed_files:
        status |= {each.old: "deleted", each.new: "added"}
    files = []
    for path in sorted(status):
        lines = found.line_counts.get(path)
        added, removed = (lines.added or 0, lines.removed or 0) if lines else (0, 0)
        files.append(FileDiff(path, os.path.join(folder, path), status[path], added, removed))
    return files
