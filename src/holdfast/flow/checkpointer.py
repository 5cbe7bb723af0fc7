"""The async facade: the verbs of `States` in worker threads, behind the interface that flow engines know."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Self, TypeAlias, TypeVar
from urllib.parse import quote

from holdfast.durable.aio import WorkerThreads, awaited, in_thread
from holdfast.flow.model import Checkpoint, Copied
from holdfast.flow.states import States
from holdfast.flow.urls import check_store_options, open_states
from holdfast.validation import check_known, checked_options, parameters_of

R = TypeVar("R")
Checkpoints: TypeAlias = list[Checkpoint]  # `list` is a verb of the classes below
_STATES_OPTIONS = [name for name in parameters_of(open_states) if name != "url"]


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
        """The checkpoints of a session, newest first, up to `limit`."""

    @abstractmethod
    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> Any:
        """Delete one checkpoint, or all of a session."""

    @abstractmethod
    async def clear_all(self) -> None:
        """Delete everything."""


@checked_options
class Checkpointer(BaseCheckpointer):
    """A store for programs with an event loop; opened when it is first used, closed by `async with` or `close`."""

    def __init__(self, open_: Callable[[], States], *, threads: int = 16) -> None:
        """`threads`: how many calls run at once."""
        self._open = open_
        self._states: States | None = None
        self._lock = threading.Lock()
        self._threads = WorkerThreads(threads, "holdfast-flow", owner="store", drop_cancelled=True)

    @property
    def states(self) -> States:
        """The same store, synchronously."""
        with self._lock:
            if self._states is None:
                self._states = self._open()
            return self._states

    save = awaited(States.save)
    load = awaited(States.load)
    list = awaited(States.list)
    metadata = awaited(States.metadata)
    sessions = awaited(States.sessions)
    delete = awaited(States.delete)
    delete_runs = awaited(States.delete_runs)
    reopen = awaited(States.reopen)
    clear_all = awaited(States.clear_all)
    put_writes = awaited(States.put_writes)
    writes = awaited(States.writes)
    fork = awaited(States.fork)
    diff = awaited(States.diff)
    prune = awaited(States.prune)
    expire = awaited(States.expire)
    usage = awaited(States.usage)
    sizes = awaited(States.sizes)
    load_encoded = awaited(States.load_encoded)
    verify = awaited(States.verify)

    async def copy_to(self, other: Checkpointer, **options: Any) -> Copied:
        """Copy everything to another store, of whatever kind; the options are those of `States.copy_to`."""
        check_known(options, parameters_of(States.copy_to), "copy_to")
        return await self._threads.call(lambda: self.states.copy_to(other.states, **options))

    async def close(self) -> None:
        """Wait for what is under way, and close."""
        await self._threads.aclose()
        if self._states is not None:
            await in_thread(self._states.close)

    async def _call(
        self,
        method: Callable[Concatenate[States, ...], R],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        reads: bool,
    ) -> R:
        return await self._threads.call(lambda: method(self.states, *args, **kwargs))

    async def __aenter__(self) -> Self:
        await self._threads.call(lambda: self.states)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def open_checkpointer(url: str, **options: Any) -> Checkpointer:
    """Open a store by its URL for `async with`; the options are those of `open_states`."""
    return Checkpointer(_opener(url, options))


def _opener(url: str, options: dict[str, Any]) -> Callable[[], States]:
    """A function that opens a store. Options are checked now, not when it is first used."""
    check_store_options(url, options, more=_STATES_OPTIONS)
    return lambda: open_states(url, **options)


class InMemoryCheckpointer(Checkpointer):
    """Checkpoints that end with the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(_opener("memory://", options))


class SQLiteCheckpointer(Checkpointer):
    """Checkpoints in one file."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        url = f"sqlite:///{quote(os.fsencode(path))}"  # of any characters: none is taken for a part of a URL
        super().__init__(_opener(url, options))


class PostgresCheckpointer(Checkpointer):
    """Checkpoints in PostgreSQL."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(_opener(url, options))


class RedisCheckpointer(Checkpointer):
    """Checkpoints in Redis."""

    def __init__(self, url: str = "redis://localhost:6379/0", **options: Any) -> None:
        super().__init__(_opener(url, options))
