"""`SessionCheckpointManager`: a checkpoint before each turn of a coding session, and going back by turns.

Files and conversation go back together or not at all: if the conversation cannot be rewound, the restore of the files
is undone. With a `session_id` the turns are found again by the next process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast import model
from holdfast.compat.praisonai.checkpoint_types import CheckpointDiff
from holdfast.compat.praisonai.handler import CheckpointsHandler, lines_of
from holdfast.errors import HoldfastError
from holdfast.workspace import Workspace

T = TypeVar("T")
_TURN, _MESSAGES = "turn", "praisonai.message_count"
_log = logging.getLogger("holdfast")


@dataclass
class Turn:
    """A turn, and the checkpoint before it."""

    turn: int
    checkpoint_id: str
    short_id: str
    message: str
    message_count: int | None = None
    """How many messages the conversation had; None if there is no conversation store."""


@dataclass
class SessionCheckpointManager:
    """Checkpoints before turns. Off unless `enabled`; a failure is logged, and breaks no turn."""

    workspace_dir: str
    enabled: bool = False
    verbose: bool = False
    storage_dir: str | None = None
    session_store: Any = None
    """With `get_messages(session_id)` and `revert_to_message(session_id, index)`; perhaps `clear_messages`."""
    session_id: str | None = None
    _handler: CheckpointsHandler | None = field(default=None, repr=False)
    _turns: list[Turn] | None = field(default=None, repr=False)

    @classmethod
    def from_config(
        cls,
        workspace_dir: str | None = None,
        config: Mapping[str, Any] | None = None,
        verbose: bool = False,
        session_store: Any = None,
        session_id: str | None = None,
        default: bool = False,
    ) -> SessionCheckpointManager:
        """Enabled if PRAISONAI_CHECKPOINTS says so, else `checkpoints.auto` of the configuration, else `default`."""
        section = (config or {}).get("checkpoints")
        section = section if isinstance(section, Mapping) else {}
        enabled = bool(section.get("auto", default))
        if (said := os.environ.get("PRAISONAI_CHECKPOINTS")) is not None:
            enabled = said.strip().lower() in ("1", "true", "yes", "on")
        return cls(
            workspace_dir or os.getcwd(),
            enabled=enabled,
            verbose=verbose,
            storage_dir=section.get("storage_dir"),
            session_store=session_store,
            session_id=session_id,
        )

    @property
    def turns(self) -> list[Turn]:
        """The turns that can be reverted, oldest first."""
        return list(self._timeline()) if self.enabled else []

    def checkpoint_turn(self, message: str) -> str | None:
        """Save before a turn; returns the id of the checkpoint, or None if that is off or failed."""
        if not self.enabled:
            return None
        turns = self._timeline()
        number = turns[-1].turn + 1 if turns else 1
        label, count = f"turn {number}: {message}".strip(), self._message_count()
        known = {_TURN: number, _MESSAGES: count}

        async def save() -> Any:
            service = await self._get_handler()._get_service()
            return await service._save(label, allow_empty=True, session=self.session_id, metadata=known)

        result = self._run(save())
        if result.checkpoint is None:
            _log.error("no checkpoint was saved before the turn: %s", result.error)
            return None
        turns.append(Turn(number, result.checkpoint.id, result.checkpoint.short_id, label, count))
        return str(result.checkpoint.id)

    def revert(self, n: int = 1) -> Turn | None:
        """Go back to before the last turn, or the last `n`, files and conversation; None if there are fewer."""
        target = self._target(n)
        if target is None:
            return None

        async def restore() -> bool:
            service = await self._get_handler()._get_service()
            result = await service.restore(target.checkpoint_id)
            if not result.success:
                _log.error("turn %d was not reverted: %s", target.turn, result.error)
            return result.success

        if not self._run(restore()):
            return None
        try:
            self._rewind_conversation(target.message_count)
        except Exception as error:  # whatever the store raises: files and conversation must not part
            _log.error("the conversation was not rewound, so the files were not either: %s", error)
            self._on_workspace(lambda workspace: workspace.undo())
            return None
        turns = self._timeline()
        del turns[turns.index(target) :]
        return target

    def dropped_message_count(self, n: int = 1) -> int | None:
        """How many messages `revert(n)` would take from the conversation; None without a conversation store."""
        target, now = self._target(n), self._message_count()
        if target is None or target.message_count is None or now is None:
            return None
        return max(0, now - target.message_count)

    def preview(self, n: int = 1) -> None:
        """Print what `revert(n)` would change."""
        target = self._target(n)
        if target is None:
            return
        self._run(self._get_handler().diff(target.checkpoint_id, None))
        if dropped := self.dropped_message_count(n):
            print(f"{dropped} message(s) of the conversation would be dropped too")

    def diff(self, turn_only: bool = False, path: str | None = None) -> CheckpointDiff | None:
        """What changed in this session, or since the last turn began; None if that is off or nothing was saved."""
        turns = self.turns
        if not turns:
            return None
        first = turns[-1 if turn_only else 0].checkpoint_id

        async def look() -> CheckpointDiff:
            return await (await self._get_handler()._get_service()).diff(first, None)

        found = self._run(look())
        if path is None or not path.strip():
            return found
        wanted = path.strip()
        files = [file for file in found.files if file.path == wanted or file.path.endswith(f"/{wanted}")]
        return CheckpointDiff(found.from_checkpoint, found.to_checkpoint, files, error=found.error)

    @staticmethod
    def render_diff(diff: CheckpointDiff | None, scope: str = "session") -> str:
        """A diff as text."""
        if diff is None:
            return "Checkpointing is disabled. Set `checkpoints.auto: true`, or PRAISONAI_CHECKPOINTS=on."
        if diff.error is not None:
            return f"The changes of this {scope} could not be read: {diff.error}"
        if not diff.files:
            return f"No file changes this {scope}."
        total = f"  +{diff.total_additions} / -{diff.total_deletions} across {len(diff.files)} file(s)"
        return "\n".join([f"Changes this {scope}:", "", *lines_of(diff), "", total])

    def _get_handler(self) -> CheckpointsHandler:
        if self._handler is None:
            self._handler = CheckpointsHandler(self.workspace_dir, self.verbose, self.storage_dir)
        return self._handler

    def _target(self, n: int) -> Turn | None:
        turns = self.turns
        return turns[-max(n, 1)] if 1 <= max(n, 1) <= len(turns) else None

    # the turns of this session

    def _timeline(self) -> list[Turn]:
        """The turns; with a session id, those that the store has of it when they are first asked for."""
        if self._turns is None:
            self._turns = self._stored_turns() if self.session_id is not None else []
        return self._turns

    def _stored_turns(self) -> list[Turn]:
        found = self._on_workspace(_line_to_head) or []
        return [
            Turn(each.metadata[_TURN], each.id, each.id[:8], each.message, each.metadata.get(_MESSAGES))
            for each in found
            if each.session == self.session_id and _TURN in each.metadata
        ]

    # the conversation

    def _message_count(self) -> int | None:
        store = self.session_store
        if store is None or not self.session_id:
            return None
        try:
            found = store.get_messages(self.session_id) if hasattr(store, "get_messages") else None
            if found is None and hasattr(store, "get_extended_session"):
                found = store.get_extended_session(self.session_id).messages
            return None if found is None else len(found)
        except Exception as error:  # the store is not ours; without a count only the files go back
            _log.warning("the messages of the conversation could not be counted: %s", error)
        return None

    def _rewind_conversation(self, count: int | None) -> None:
        """Keep the first `count` messages. A store that cannot be emptied is left as it is."""
        store = self.session_store
        if store is None or not self.session_id or count is None:
            return
        if count > 0 and callable(getattr(store, "revert_to_message", None)):
            store.revert_to_message(self.session_id, count - 1)  # the index of the last that stays
        elif count <= 0:
            names = ("clear_messages", "clear_history", "clear")
            clear = next((getattr(store, name) for name in names if callable(getattr(store, name, None))), None)
            if clear is not None:
                clear(self.session_id)

    # from synchronous code

    def _on_workspace(self, work: Any) -> Any:
        """Do something with the open workspace; None, and a line in the log, if that fails."""

        async def call() -> Any:
            opened = (await self._get_handler()._get_service())._open
            try:
                return None if opened is None else work(opened.workspace)
            except HoldfastError as error:
                _log.error("the checkpoints of %s cannot be used: %s", self.workspace_dir, error)
                return None

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, also where a loop is running in this thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, work).result()


def _line_to_head(workspace: Workspace) -> list[model.Checkpoint]:
    """The saves that led to the folder as it is, oldest first; without one that was restored, which is at its end."""
    every = {each.id: each for each in workspace.list(None, safety=True)}
    at = workspace.head()
    if at is not None and at.operation is None and next(iter(every), None) != at.id:
        at = every.get(at.parent or "")  # it was restored, and so its turn is reverted
    line: list[model.Checkpoint] = []
    while at is not None:
        line += [at] if at.operation is None else []
        at = every.get(at.parent or "")
    return line[::-1]
