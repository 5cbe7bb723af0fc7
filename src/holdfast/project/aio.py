"""The manager of a project's checkpoints for asyncio."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, TypeVar

from holdfast.durable.aio import ReadWriteThreads, awaited, constructed_like
from holdfast.model import JSON
from holdfast.project.attempt import Attempt
from holdfast.project.manager import SyncCheckpointManager
from holdfast.workspace.service.state_copy import copied

T = TypeVar("T")
_State = Mapping[str, JSON] | None


class CheckpointManager:
    """A `SyncCheckpointManager`, which is `sync`, with the same methods awaited.

    They run in two threads: one for what changes something, in the order asked for, one for what only reads. Cancelling
    a call ends the waiting, not the work. Context and state are copied when a call is made, so that they may go on
    changing.
    """

    @constructed_like(SyncCheckpointManager)
    def __init__(self, sync: SyncCheckpointManager) -> None:
        self.sync = sync
        self._threads = ReadWriteThreads("holdfast-project", owner="checkpoint manager")

    def __repr__(self) -> str:
        return f"CheckpointManager({os.fspath(self.sync.project_dir)!r})"

    async def __aenter__(self) -> CheckpointManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for calls that were made, and accept no more."""
        await self._threads.aclose()
        self.sync.close()

    create_checkpoint = awaited(SyncCheckpointManager.create_checkpoint)
    delete = awaited(SyncCheckpointManager.delete)
    rollback = awaited(SyncCheckpointManager.rollback)
    rollback_to_latest = awaited(SyncCheckpointManager.rollback_to_latest)
    undo = awaited(SyncCheckpointManager.undo)
    recover = awaited(SyncCheckpointManager.recover)
    fork = awaited(SyncCheckpointManager.fork)
    adopt = awaited(SyncCheckpointManager.adopt)
    list = awaited(SyncCheckpointManager.list, reads=True)
    get = awaited(SyncCheckpointManager.get, reads=True)
    state = awaited(SyncCheckpointManager.state, reads=True)
    diff = awaited(SyncCheckpointManager.diff, reads=True)
    verify = awaited(SyncCheckpointManager.verify, reads=True)
    preview = awaited(SyncCheckpointManager.preview, reads=True)

    def attempt(
        self,
        description: str,
        *,
        context: _State = None,
        state: _State = None,
        session: str | None = None,
        actor: str | None = None,
    ) -> Attempt:
        """`async with`: an automatic checkpoint before something risky, and a rollback to it if that fails."""
        label = self._copied({"context": context, "state": state})
        return Attempt(
            self.sync, description, run_in_thread=self._threads.changes.call, session=session, actor=actor, **label
        )

    async def _call(
        self,
        method: Callable[Concatenate[SyncCheckpointManager, ...], T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        reads: bool,
    ) -> T:
        given = self._copied(kwargs)
        return await self._threads.call(lambda: method(self.sync, *args, **given), reads=reads)

    def _copied(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments with context and state copied; anything but a mapping is refused by the manager."""
        spelling = {"context": None, "state": self.sync.spelling}
        return {
            name: copied(value, spelling[name]) if name in spelling and isinstance(value, Mapping) else value
            for name, value in kwargs.items()
        }
