"""HoldfastSaver: what LangGraph asks of a checkpointer, over any back end of `holdfast.flow`."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.pregel import Pregel

from holdfast import flow
from holdfast.adapters.langgraph import pruning, translating
from holdfast.adapters.langgraph.awaiting import Awaiting
from holdfast.adapters.langgraph.channels import hand_over_copies
from holdfast.adapters.langgraph.classes import Classes
from holdfast.adapters.langgraph.files import RUNTIME, Files, Folder
from holdfast.adapters.langgraph.rows import newest, rows_of
from holdfast.adapters.langgraph.schemas import check_graph, register_schemas
from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.flow import Place, States
from holdfast.flow.names import check_limit
from holdfast.flow.store import Row
from holdfast.model import Restored
from holdfast.serde import Registry, default_registry

_TRIES = 10
_PATIENCE_SECONDS = 0.005
_STRATEGIES = ("keep_latest", "delete")


class HoldfastSaver(Awaiting):
    """Keeps the checkpoints of graphs; for `with`, for `async with`, or to be closed by `close`.

    A thread is a session of the flow. Values are stored exactly, by `holdfast.serde`: LangGraph's and LangChain's own
    classes are known, others are registered, and anything else is Refused with its path.
    """

    def __init__(self, open_: Callable[[], States], *, workspace: Folder | None = None, threads: int = 16) -> None:
        """`threads`: how many of the awaited calls run at once. Better begin with `from_url`."""
        super().__init__(threads)
        hand_over_copies()
        self._files = None if workspace is None else Files(workspace)
        self._open = open_
        self._opened: States | None = None
        self._opening = threading.Lock()

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        workspace: Folder | None = None,
        registry: Registry = default_registry,
        schemas: Sequence[Any] = (),
        threads: int = 16,
        **options: Any,
    ) -> Self:
        """A saver over `memory://`, `sqlite:///…`, `postgresql://…` or `redis://…`; opened when it is first used.

        `workspace`: a folder of which each checkpoint keeps the files, too. `registry`: your own classes. `schemas`:
        schemas of graphs, and other classes, of which all that they name is registered, by module and name; Refused if
        something in them cannot be stored. The options are those of `holdfast.flow.open_states`: `tenant`, `keys` …
        """
        known = Classes(registry)
        register_schemas(known, schemas)
        return cls(lambda: flow.open_states(url, registry=known, **options), workspace=workspace, threads=threads)

    @property
    def states(self) -> States:
        """The same store by the verbs of `holdfast.flow`; a thread is a session there."""
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def check(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        """Refused if a channel of a compiled graph, or of its subgraphs, names a class that cannot be stored here."""
        check_graph(self.states.sealer.serde, graph)

    # saving

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, on top of the one that the config names; one with the same id is replaced.

        Conflict if the thread was deleted, and this goes on with what was deleted; without a parent it begins anew (but
        for a subgraph, which is a part of a run that began before).
        """
        files = None if self._files is None else self._files.save(config, metadata)
        saved = translating.to_flow(config, checkpoint, metadata, files, self.states.sealer.serde.registry)
        meta = saved.metadata
        try:
            self.states.save(saved, replace=True)
        except Conflict:
            if meta.parent_id is not None or meta.namespace:
                raise
            self.states.reopen(meta.session_id)
            self.states.save(saved, replace=True)
        return translating.config_of(Place(meta.session_id, meta.namespace, meta.checkpoint_id))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Attach what a task wrote to a checkpoint. Conflict if the thread was deleted.

        In a graph that runs, the next checkpoint is about to be saved by another thread: both go in one transaction.
        """
        is_replacing = translating.are_replacing(writes)
        is_followed = not is_replacing and RUNTIME in config["configurable"]
        self.states.put_writes(
            translating.place_of(config),
            translating.to_writes(writes, task_id, task_path, self.states.sealer.serde.registry),
            replace=is_replacing,
            patience_seconds=_PATIENCE_SECONDS if is_followed else 0.0,
        )

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace.

        A run that finds nothing begins anew: from here on it may save into a thread that was deleted.
        """
        thread, namespace = translating.thread_of(config), translating.namespace_of(config)
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id:
            return self._tuple(Place(thread, namespace, checkpoint_id))
        found = self._newest_tuple(thread, namespace)
        if found is None and not namespace and RUNTIME in config["configurable"]:
            self._begin(thread)
        return found

    def _begin(self, thread: str) -> None:
        """Make room for a run: now, since what its tasks write may come before its first checkpoint, and must stay."""
        self.states.free_expired(thread)
        known = self.states.store.session(thread)
        if known is not None and known.is_deleted:
            self.states.reopen(thread)

    def _newest_tuple(self, thread: str, namespace: str) -> CheckpointTuple | None:
        for _ in range(_TRIES):
            if self.states.is_expired(thread):
                return None
            place = newest(self.states, thread, namespace)
            if place is None:
                return None
            if found := self._tuple(place):
                return found  # else it was deleted since
        raise Unavailable("others keep deleting from this thread", hint="Try again.")

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread by their ids, of all threads (config=None) by when they were saved.

        Nothing is locked meanwhile: save and load between two of them as you like.
        """
        left = check_limit(limit)
        for row in () if left == 0 else self._listed(config, before, None if filter else left):
            meta = self.states.sealer.metadata(row)
            if not translating.is_of_a_graph(meta) or not _matches(translating.told_of(meta), filter or {}):
                continue
            if found := self._tuple(row.place):
                yield found
                left = None if left is None else left - 1
                if left == 0:
                    return

    def _listed(self, config: RunnableConfig | None, before: RunnableConfig | None, page: int | None) -> Iterator[Row]:
        """The rows that a listing is about, in its order; `page`: how many are likely to be enough."""
        thread = translating.thread_of(config) if config else None
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        wanted = (get_checkpoint_id(config) or None) if config else None  # LangGraph's way to say any is None or ""
        end = (get_checkpoint_id(before) or None) if before else None
        if wanted is None:
            yield from rows_of(self.states, thread, namespace, before=end, page=page)
        elif thread is not None and namespace is not None:
            row = self.states.store.find(thread, namespace, wanted)
            yield from [row] if row is not None and (end is None or wanted < end) else []
        else:
            rows = rows_of(self.states, thread, namespace, before=end)
            yield from (row for row in rows if row.place.checkpoint_id == wanted)

    def _tuple(self, place: Place) -> CheckpointTuple | None:
        saved = self.states.load(place.session, place.checkpoint_id, namespace=place.namespace)
        return None if saved is None else translating.to_langgraph(saved, self.states.writes([place])[place])

    # files

    def restore_files(self, config: RunnableConfig, **options: Any) -> Restored:
        """Make the workspace as it was at a checkpoint of a graph; the options are those of `Workspace.restore`.

        NotFound if that checkpoint is not there, or has no files.
        """
        if self._files is None:
            raise Refused("this saver has no workspace", hint="Open it with workspace=….")
        return self._files.restore(self.get_tuple(config), **options)

    async def arestore_files(self, config: RunnableConfig, **options: Any) -> Restored:
        return await self._call(lambda: self.restore_files(config, **options))

    # threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread. What a graph that still runs would add to it is refused; it can begin anew."""
        self.states.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes, in all threads.

        Refused, and nothing is deleted, if a delta channel of a later run is made of them.
        """
        self.states.delete_runs([run_id for run_id in run_ids if run_id])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another, which must not exist, in one step; they share what is stored."""
        for last in self.states.metadata(str(source_thread_id), 1, namespace=None):
            self.states.fork(
                last.session_id, last.checkpoint_id, into=str(target_thread_id), namespace=last.namespace, history=True,
                reopen=True,
            )  # fmt: skip

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest of each namespace, and what its delta channels are made of; or, with "delete", nothing."""
        if strategy not in _STRATEGIES:
            raise Refused(f"{strategy!r} is not a strategy", hint=f"Say {' or '.join(map(repr, _STRATEGIES))}.")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                pruning.prune(self.states, thread_id)

    # what LangGraph asks besides

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Whole numbers; texts where a thread that came from another saver has them."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{random.random():016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """This saver: it makes no object by a name that is stored, so that there is nothing to allow."""
        return self

    def close(self) -> None:
        """Wait for what is under way, and close."""
        self._threads.shutdown()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
        if self._files is not None:
            self._files.close()

    def __enter__(self) -> Self:
        _ = self.states
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self._call(lambda: self.states)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)


def _matches(told: Any, filter_: dict[str, Any]) -> bool:
    return all(told.get(key) == value for key, value in filter_.items())
