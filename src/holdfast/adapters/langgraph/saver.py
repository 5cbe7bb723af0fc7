"""HoldfastSaver: a LangGraph checkpointer over any back end of `holdfast.flow`."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Self, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.pregel import Pregel

from holdfast import flow
from holdfast.adapters.langgraph import queries, translate
from holdfast.adapters.langgraph.channels import copy_channel_values
from holdfast.adapters.langgraph.classes import Classes
from holdfast.adapters.langgraph.queries import newest, rows_of
from holdfast.adapters.langgraph.schemas import check_graph, register_schemas
from holdfast.adapters.langgraph.translate import WORKSPACE, thread_of
from holdfast.durable.aio import WorkerThreads, awaited, in_thread
from holdfast.errors import Conflict, NotFound, Refused, Unavailable
from holdfast.flow import Place, States
from holdfast.flow.store import CheckpointRow
from holdfast.flow.urls import check_store_options
from holdfast.model import Restored
from holdfast.serde import Registry, default_registry
from holdfast.validation import check_known, check_limit, checked_options, parameters_of
from holdfast.workspace import Workspace

T = TypeVar("T")
_PAGE = 8  # how many checkpoints `alist` reads at once
_TRIES = 10
_MAX_WAIT_SECONDS = 0.005
_STRATEGIES = ("keep_latest", "delete")


@checked_options
class HoldfastSaver(BaseCheckpointSaver[Any]):
    """Stores the checkpoints of graphs. Use it in `with` or `async with`, or call `close`.

    A thread is a session of the flow. Values are stored exactly, by `holdfast.serde`: LangGraph's and LangChain's own
    classes are known, others are registered, and anything else is Refused with its path.
    """

    def __init__(self, open_: Callable[[], States], *, workspace: Folder | None = None, threads: int = 16) -> None:
        """`threads`: how many async calls run at once. `from_url` is the usual way to create one."""
        super().__init__()
        self._threads = WorkerThreads(threads, "holdfast-langgraph", owner="store", drop_cancelled=True)
        copy_channel_values()
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

        `workspace`: a folder whose files are saved with each checkpoint. `registry`: your own classes. `schemas`: graph
        schemas and other classes; all classes that they name are registered by module and name. Refused if one of
        them cannot be stored. The options are those of `holdfast.flow.open_states`: `tenant`, `keys` …
        """
        check_store_options(url, options, more=parameters_of(flow.open_states))
        known = Classes(registry)
        register_schemas(known, schemas)
        return cls(lambda: flow.open_states(url, registry=known, **options), workspace=workspace, threads=threads)

    @property
    def states(self) -> States:
        """The same store with the methods of `holdfast.flow`; a thread is a session there."""
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def check(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        """Refused if a channel of a compiled graph, or of its subgraphs, names a class that cannot be stored here."""
        check_graph(self.states.codec.serde, graph)

    # saving

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint whose parent is the one that the config names; one with the same id is replaced.

        Conflict if the thread was deleted and this continues it. A checkpoint without a parent starts the thread again
        (except in a subgraph, which is part of a run that started before).
        """
        files = None if self._files is None else self._files.save(config, metadata)
        saved = translate.to_flow(config, checkpoint, metadata, files, self.states.codec.serde.registry)
        meta = saved.metadata
        try:
            self.states.save(saved, replace=True)
        except Conflict:
            if meta.parent_id is not None or meta.namespace:
                raise
            self.states.begin_anew(meta.session_id)
            self.states.save(saved, replace=True)
        return translate.config_of(Place(meta.session_id, meta.namespace, meta.checkpoint_id))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Attach what a task wrote to a checkpoint. Conflict if the thread was deleted.

        While a graph runs, another thread is about to save the next checkpoint: both are stored in one transaction.
        """
        is_replacing = translate.are_replacing(writes)
        is_followed = not is_replacing and RUNTIME in config["configurable"]
        self.states.put_writes(
            translate.place_of(config),
            translate.to_writes(writes, task_id, task_path, self.states.codec.serde.registry),
            replace=is_replacing,
            max_wait_seconds=_MAX_WAIT_SECONDS if is_followed else 0.0,
        )

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace.

        A run that finds nothing starts the thread again: from here on it may save into a thread that was deleted.
        """
        thread, namespace = translate.thread_of(config), translate.namespace_of(config)
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id:
            return self._tuple(Place(thread, namespace, checkpoint_id))
        found = self._newest_tuple(thread, namespace)
        if found is None and not namespace and RUNTIME in config["configurable"]:
            self.states.begin_again(thread)  # now: its tasks may write before its first checkpoint is saved
        return found

    def _newest_tuple(self, thread: str, namespace: str) -> CheckpointTuple | None:
        for _ in range(_TRIES):
            if self.states.is_expired(thread):
                return None
            place = newest(self.states, thread, namespace)
            if place is None:
                return None
            if found := self._tuple(place):
                return found  # else it was deleted since
        raise Unavailable("other writers keep deleting from this thread", hint="Try again.")

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread by their ids, of all threads (config=None) by when they were saved.

        Nothing is locked meanwhile: other calls are allowed between two results.
        """
        left = check_limit(limit)
        for row in () if left == 0 else self._listed(config, before, None if filter else left):
            meta = self.states.codec.metadata(row)
            if not translate.is_of_a_graph(meta) or not _matches(translate.metadata_of(meta), filter or {}):
                continue
            if found := self._tuple(row.place):
                yield found
                left = None if left is None else left - 1
                if left == 0:
                    return

    def _listed(
        self, config: RunnableConfig | None, before: RunnableConfig | None, page: int | None
    ) -> Iterator[CheckpointRow]:
        """The rows of a listing, in its order; `page`: how many are likely to be enough."""
        thread = translate.thread_of(config) if config else None
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        wanted = (get_checkpoint_id(config) or None) if config else None  # in LangGraph, None and "" mean any
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
        return None if saved is None else translate.to_langgraph(saved, self.states.writes([place])[place])

    # files

    def restore_files(self, /, config: RunnableConfig, **options: Any) -> Restored:
        """Restore the workspace as it was at a checkpoint of a graph; the options are those of `Workspace.restore`.

        NotFound if that checkpoint is not there, or has no files.
        """
        if self._files is None:
            raise Refused("this saver has no workspace", hint="Open it with workspace=….")
        check_known(options, set(parameters_of(Workspace.restore)) - {"ref"}, "restore_files")
        return self._files.restore(self.get_tuple(config), **options)

    # threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread. A graph that is still running cannot save into it; a new run can."""
        self.states.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes, in all threads.

        Refused, and nothing is deleted, if a delta channel of a later run needs them.
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
        """Keep the newest of each namespace, and what its delta channels need; with "delete", nothing."""
        if strategy not in _STRATEGIES:
            raise Refused(f"unknown strategy {strategy!r}", hint=f"Use {' or '.join(map(repr, _STRATEGIES))}.")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                queries.prune(self.states, thread_id)

    # the same for asyncio

    aput = awaited(put)
    aput_writes = awaited(put_writes)
    aget_tuple = awaited(get_tuple)
    arestore_files = awaited(restore_files)
    adelete_thread = awaited(delete_thread)
    adelete_for_runs = awaited(delete_for_runs)
    acopy_thread = awaited(copy_thread)
    aprune = awaited(prune)
    aget_delta_channel_history = awaited(BaseCheckpointSaver.get_delta_channel_history)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same as `list`, read in pages."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while page := await self._threads.call(lambda: [*islice(found, _PAGE)]):
            for each in page:
                yield each

    async def _call(
        self,
        method: Callable[Concatenate[HoldfastSaver, ...], T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        reads: bool,
    ) -> T:
        own: Callable[..., T] = getattr(self, method.__name__)  # a subclass may have overridden it
        return await self._threads.call(lambda: own(*args, **kwargs))

    # other methods of the interface

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Integers; strings if the thread came from a saver that uses those."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{random.random():016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """This saver: it never imports a class by a stored name (P7), so there is nothing to allow."""
        return self

    def close(self) -> None:
        """Wait for what is under way, and close."""
        self._threads.close(wait=True)
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
        await self._threads.call(lambda: self.states)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)


def _matches(told: Any, filter_: dict[str, Any]) -> bool:
    return all(told.get(key) == value for key, value in filter_.items())


Folder: TypeAlias = Workspace | str | os.PathLike[str]
RUNTIME, _DURABILITY = (
    "__pregel_runtime",
    "__pregel_durability",
)  # in the config of a running graph


class Files:
    """Saves a folder with each checkpoint, and restores it."""

    def __init__(self, folder: Folder) -> None:
        self._is_ours = not isinstance(folder, Workspace)
        self.workspace = folder if isinstance(folder, Workspace) else Workspace(folder)
        self._saving = threading.Lock()

    def save(self, config: RunnableConfig, metadata: CheckpointMetadata) -> str:
        """Save the files as they are now; return the id of that checkpoint."""
        _check_durability(config)
        step = metadata.get("step")
        with self._saving:
            return self.workspace.save(f"graph step {step}", session=thread_of(config), step=step).id

    def restore(self, found: CheckpointTuple | None, **options: Any) -> Restored:
        """Restore the folder as it was at a checkpoint of a graph."""
        ref = found and found.metadata.get(WORKSPACE)
        if not isinstance(ref, str):
            raise NotFound("no files were saved with that checkpoint", hint="Name one that was saved with workspace=….")
        return self.workspace.restore(ref, **options)

    def close(self) -> None:
        if self._is_ours:
            self.workspace.close()


def _check_durability(config: RunnableConfig) -> None:
    """Raise Refused if LangGraph saves while the next step runs: that step's files would be saved with this one."""
    told = config["configurable"]
    if RUNTIME in told and told.get(_DURABILITY) not in ("sync", "exit"):
        raise Refused(
            "the files of a step cannot be saved while the next one runs",
            hint='Run the graph with durability="sync": graph.invoke(…, durability="sync").',
        )
