"""`HoldfastWriter`: saves for `torch.distributed.checkpoint`."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from holdfast.adapters.dcp.metadata_json import (
    WrittenItem,
    encode_metadata,
    encode_value,
    piece_name,
    state_tree,
    step_of_id,
)
from holdfast.errors import Refused, Unavailable
from holdfast.training.checkpoints import open_run
from holdfast.training.frameworks import torch_tensors
from holdfast.training.metrics import check_metrics
from holdfast.training.run_store import RunStore, SaveStart
from holdfast.training.save import PendingSave, SaveOptions
from holdfast.training.shard_writer import WrittenShard
from holdfast.training.state_tree import FlatState
from holdfast.training.stored.layout import check_step
from holdfast.training.stored.shards import Payload
from holdfast.training.threads import check_threads

WAIT_S = 600.0
"""How long a save waits for one of another thread."""


class HoldfastWriter(StorageWriter):  # type: ignore[misc]  # an extra, whose types are not read
    """Writes one checkpoint of a run for each `dcp.save` or `dcp.async_save`.

    The step is given here, or with each save as `checkpoint_id` (a number, or a path that ends in one). Metrics and
    retention are as in `save_checkpoint`.
    """

    def __init__(
        self, out_dir: str | os.PathLike[str], *, step: int | None = None, metrics: Mapping[str, float] | None = None,
        best_key: str | None = None, mode: str = "min", keep_last_k: int | None = None, keep_best_k: int | None = 1,
        keep_every: int | None = None, rewind: bool = False, adopt: bool = False,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._out_dir = open_run(out_dir).path  # not the store: DCP may pickle this object
        self._step = None if step is None else check_step(step)
        self._metrics = check_metrics(metrics, best_key, mode)
        self._request = SaveOptions(
            best_key=best_key, mode=mode, keep_last_k=keep_last_k, keep_best_k=keep_best_k, keep_every=keep_every,
            rewind=rewind, adopt=adopt, threads=check_threads(threads),
        )  # fmt: skip
        _ = self._request.keep  # Refused if it is invalid
        self._rank = 0
        self._start = SaveStart()

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """Begin another save."""
        if checkpoint_id is not None:
            self._step = step_of_id(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """On the coordinator, take the lock and begin the save. No rank writes before all have come this far."""
        if kwargs.get("use_collectives") is False:
            raise Refused("use_collectives is False", hint="Leave it out: one checkpoint of all ranks needs it.")
        if self._step is None:
            raise Refused("no step is given", hint="Pass step= to HoldfastWriter, or checkpoint_id= to dcp.save.")
        self._rank = int(kwargs.get("rank") or 0)
        self._is_coordinator = is_coordinator
        if is_coordinator:
            store = open_run(self._out_dir)
            _take_lock(store, self)
            try:
                self._start = store.begin_save(self._pending(FlatState(None)))
            except BaseException:
                _free_lock(self._out_dir)
                raise

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what this rank has. An error is raised, so that no rank gets a checkpoint (P3)."""
        try:
            results = self._results(plan, planner)
        except BaseException:
            if self._is_coordinator:
                _free_lock(self._out_dir)
            raise
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _results(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        payloads, names, results = [], {}, []
        for item in plan.items:
            where = item.index.fqn
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                results.append(WriteResult(item.index, 0, WrittenItem(value=encode_value(data, where))))
                continue
            if data.layout is not torch.strided:
                raise Refused(f"{where} cannot be saved: its layout is {data.layout}", hint="Save x.to_dense().")
            names[item.index] = piece_name(item.index)
            payload = torch_tensors.payload_of(data.detach().contiguous(), where)
            payloads.append(payload._replace(name=names[item.index]))
        written = self._write(payloads)
        for index, name in names.items():
            shard = written[name]
            results.append(WriteResult(index, shard.tensors[name].bytes, WrittenItem(name, shard)))
        return results

    def _write(self, payloads: list[Payload]) -> dict[str, WrittenShard]:
        assert self._step is not None
        store = open_run(self._out_dir)
        found, _ = store.scan()
        shards = store.write_shards(self._step, payloads, found, threads=self._request.threads, rank=self._rank)
        return {name: shard for shard in shards for name in shard.tensors}

    def finish(self, metadata: dcp_metadata.Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint. DCP calls this on the coordinator only, after every rank has written."""
        written = [result for rank in results for result in rank]
        items = {result.index: result.storage_data for result in written}
        found = (result.storage_data.shard for result in written)
        shards = {
            shard.name: shard for shard in found if shard is not None
        }  # each once, though several items are in it
        about = encode_metadata(metadata, items)
        pending = self._pending(FlatState(state_tree(about)), {"dcp": about})
        try:
            store = open_run(self._out_dir)
            self.saved = store.commit_save(pending, [shards[name] for name in sorted(shards)], self._start)
        finally:
            _free_lock(self._out_dir)

    def _pending(self, flat: FlatState, extra: dict[str, Any] | None = None) -> PendingSave:
        assert self._step is not None
        return PendingSave(self._step, self._request, flat, self._metrics, extra=extra or {})

    def storage_meta(self) -> dcp_metadata.StorageMeta | None:
        return None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it names a step."""
        try:
            step_of_id(checkpoint_id)
        except Refused:
            return False
        return True


# The lock of a run, which the coordinator holds from the beginning of a save to its end. DCP does not tell a writer
# that another rank has failed. So the lock is also freed when the same thread begins its next save, when the thread
# that took it has ended, and when its writer is gone.


@dataclass(frozen=True, slots=True, eq=False)
class _HeldLock:
    stack: contextlib.ExitStack
    thread: threading.Thread


_held: dict[Any, _HeldLock] = {}
"""By path of the run; not in the writer, which DCP may pickle."""


def _take_lock(store: RunStore, writer: object) -> None:
    """Take the lock of a run for a writer, after waiting for a save that another thread is making."""
    path = store.path
    held = _held.get(path)
    if held is not None:
        if held.thread is not threading.current_thread():
            held.thread.join(WAIT_S)
            if held.thread.is_alive() and _held.get(path) is held:
                what = f"another thread is still saving to {path}"
                raise Unavailable(what, hint="Wait for its future before you save again.")
        _release(path, held)
    stack = contextlib.ExitStack()
    stack.enter_context(store.writing())
    held = _held[path] = _HeldLock(stack, threading.current_thread())
    weakref.finalize(writer, _release, path, held)


def _free_lock(path: Any) -> None:
    """Free the lock, if this thread holds it."""
    held = _held.get(path)
    if held is not None and held.thread is threading.current_thread():
        _release(path, held)


def _release(path: Any, held: _HeldLock) -> None:
    if _held.get(path) is held:
        del _held[path]
    held.stack.close()
