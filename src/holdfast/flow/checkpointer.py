"""The async facade: the verbs of `States` in worker threads, behind the interface that flow engines know."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar
from urllib.parse import quote

from holdfast.flow.model import Checkpoint, Copied
from holdfast.flow.opening import open_states
from holdfast.flow.states import States
from holdfast.flow.threads import Threads

P = ParamSpec("P")
R = TypeVar("R")
Checkpoints: TypeAlias = list[Checkpoint]  # `list` is a verb of the classes below


class BaseCheckpointer(ABC):
    """What a flow engine asks of a place for its checkpoints."""

    @abstractmethod
    async def save(self, checkpoint: Checkpoint) -> Any:
        """Save a checkpoint."""

    @abstractmethod
    async def load(self, session_id: str, checkpoint_id: str | None = None) -> Checkpoint | None:
        """A checkpoint by its id, or the newest of its session; None where there is none."""

    @abstractmethod
    async def list(self, session_id: str, limit: int = 10) -> Checkpoints:
        """The checkpoints of a session, newest first."""

    @abstractmethod
    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> Any:
        """Delete one checkpoint, or all of a session."""

    @abstractmethod
    async def clear_all(self) -> None:
        """Delete everything."""


def _threaded(
    verb: Callable[Concatenate[States, P], R],
) -> Callable[Concatenate[Checkpointer, P], Coroutine[Any, Any, R]]:
    """A verb of `States` that is awaited."""

    @wraps(verb)
    async def call(self: Checkpointer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.call(lambda: verb(self.states, *args, **kwargs))

    return call


class Checkpointer(BaseCheckpointer):
    """A store for programs with an event loop; opened when it is first used, closed by `async with` or `close`."""

    def __init__(self, open_: Callable[[], States], *, threads: int = 16) -> None:
        """`threads`: how many calls run at once."""
        self._open = open_
        self._states: States | None = None
        self._lock = threading.Lock()
        self._threads = Threads(threads, "holdfast-flow")

    @property
    def states(self) -> States:
        """The same store, synchronously."""
        with self._lock:
            if self._states is None:
                self._states = self._open()
            return self._states

    save = _threaded(States.save)
    load = _threaded(States.load)
    list = _threaded(States.list)
    metadata = _threaded(States.metadata)
    sessions = _threaded(States.sessions)
    delete = _threaded(States.delete)
    delete_runs = _threaded(States.delete_runs)
    reopen = _threaded(States.reopen)
    clear_all = _threaded(States.clear_all)
    put_writes = _threaded(States.put_writes)
    writes = _threaded(States.writes)
    fork = _threaded(States.fork)
    diff = _threaded(States.diff)
    prune = _threaded(States.prune)
    expire = _threaded(States.expire)
    usage = _threaded(States.usage)
    weigh = _threaded(States.weigh)
    load_encoded = _threaded(States.load_encoded)
    verify = _threaded(States.verify)

    async def copy_to(self, other: Checkpointer, **options: Any) -> Copied:
        """Copy everything to another store, of whatever kind; the options are those of `States.copy_to`."""
        return await self._threads.call(lambda: self.states.copy_to(other.states, **options))

    async def close(self) -> None:
        """Wait for what is under way, and close."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        if self._states is not None:
            self._states.close()

    async def __aenter__(self) -> Self:
        await self._threads.call(lambda: self.states)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def open_checkpointer(url: str, **options: Any) -> Checkpointer:
    """Open a store by its URL for `async with`; the options are those of `open_states`."""
    return Checkpointer(lambda: open_states(url, **options))


class InMemoryCheckpointer(Checkpointer):
    """Checkpoints that end with the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: open_states("memory://", **options))


class SQLiteCheckpointer(Checkpointer):
    """Checkpoints in one file."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        url = f"sqlite:///{quote(os.fsencode(path))}"  # of any characters: none is taken for a part of a URL
        super().__init__(lambda: open_states(url, **options))


class PostgresCheckpointer(Checkpointer):
    """Checkpoints in PostgreSQL."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(lambda: open_states(url, **options))


class RedisCheckpointer(Checkpointer):
    """Checkpoints in Redis."""

    def __init__(self, url: str = "redis://localhost:6379/0", **options: Any) -> None:
        super().__init__(lambda: open_states(url, **options))
