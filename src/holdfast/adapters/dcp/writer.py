"""Saving: `HoldfastWriter`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from holdfast.adapters.dcp import holding, storing
from holdfast.adapters.dcp.described import Written, described, piece_name, plain, step_said
from holdfast.adapters.dcp.tree import tree_of
from holdfast.errors import Refused
from holdfast.training.checkpoints import run_of
from holdfast.training.frameworks import torch_side
from holdfast.training.metrics import check_metrics
from holdfast.training.resume.environment import capture_environment
from holdfast.training.retaining import Keep
from holdfast.training.saving import Wish
from holdfast.training.stored.layout import check_step
from holdfast.training.stored.shards import Payload
from holdfast.training.threads import check_threads
from holdfast.training.writing import WrittenShard


class HoldfastWriter(StorageWriter):  # type: ignore[misc]  # an extra, whose types are not read
    """Writes one checkpoint of a run for each `dcp.save` or `dcp.async_save`.

    The step is given here, or with each save as `checkpoint_id` (a number, or a path that ends in one). Metrics and
    what to keep are as in `save_checkpoint`.
    """

    def __init__(
        self, out_dir: str | os.PathLike[str], *, step: int | None = None, metrics: Mapping[str, float] | None = None,
        best_key: str | None = None, mode: str = "min", keep_last_k: int | None = None, keep_best_k: int | None = 1,
        keep_every: int | None = None, rewind: bool = False, adopt: bool = False,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._out_dir = run_of(out_dir).path  # a path or a URL: what speaks to a store cannot be pickled
        self._step = None if step is None else check_step(step)
        self._options: dict[str, Any] = {
            "metrics": check_metrics(metrics, best_key, mode), "best_key": best_key, "mode": mode, "rewind": rewind,
            "keep": Keep(keep_last_k, keep_best_k, keep_every), "threads": check_threads(threads), "adopt": adopt,
        }  # fmt: skip
        self._rank = 0
        self._begun = storing.Begun()

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """Begin another save."""
        if checkpoint_id is not None:
            self._step = step_said(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The coordinator takes the lock and makes the stage; no rank writes before all have come this far."""
        if kwargs.get("use_collectives") is False:
            raise Refused("use_collectives is False", hint="Leave it: one checkpoint of all ranks needs them together.")
        if self._step is None:
            raise Refused("no step is given", hint="Pass step= to HoldfastWriter, or checkpoint_id= to dcp.save.")
        self._rank = int(kwargs.get("rank") or 0)
        self._is_coordinator = is_coordinator
        if is_coordinator:
            folder = run_of(self._out_dir)
            holding.take(folder, self)
            try:
                self._begun = storing.begin(folder, self._wish())
            except BaseException:
                holding.let_go(self._out_dir)
                raise

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what this rank has. An error is raised, never swallowed: then no rank has a checkpoint."""
        try:
            results = self._results(plan, planner)
        except BaseException:
            if self._is_coordinator:
                holding.let_go(self._out_dir)
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
                results.append(WriteResult(item.index, 0, Written(value=plain(data, where))))
                continue
            if data.layout is not torch.strided:
                raise Refused(f"{where} cannot be saved: its layout is {data.layout}", hint="Save x.to_dense().")
            [part] = torch_side.lower(data.detach().contiguous(), where).parts
            names[item.index] = piece_name(item.index)
            payloads.append(Payload(names[item.index], part.dtype, part.shape, part.source, part.bytes_of))
        written = self._write(payloads)
        for index, name in names.items():
            shard = written[name]
            results.append(WriteResult(index, shard.tensors[name].bytes, Written(name, shard)))
        return results

    def _write(self, payloads: list[Payload]) -> dict[str, WrittenShard]:
        assert self._step is not None
        folder, threads = run_of(self._out_dir), self._options["threads"]
        shards = storing.write(folder, self._step, payloads, rank=self._rank, threads=threads)
        return {name: shard for shard in shards for name in shard.tensors}

    def finish(self, metadata: dcp_metadata.Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint: only the coordinator is asked to, once every rank has written."""
        written = [result for rank in results for result in rank]
        everything = {result.index: result.storage_data for result in written}
        found = (result.storage_data.shard for result in written)
        shards = {shard.name: shard for shard in found if shard is not None}  # of each rank, also what two have written
        about = described(metadata, everything)
        wish = self._wish(tree=tree_of(about), beside={"dcp": about})
        try:
            self.saved = storing.finish(
                run_of(self._out_dir), wish, [shards[name] for name in sorted(shards)], self._begun
            )
        finally:
            holding.let_go(self._out_dir)

    def _wish(self, tree: Any = None, beside: dict[str, Any] | None = None) -> Wish:
        assert self._step is not None
        return Wish(
            step=self._step, payloads=(), tree=tree, resume=None, created_at=datetime.now(UTC).isoformat(),
            environment=capture_environment(Path.cwd()), beside=beside or {}, **self._options,
        )  # fmt: skip

    def storage_meta(self) -> dcp_metadata.StorageMeta | None:
        return None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it says a step."""
        try:
            step_said(checkpoint_id)
        except Refused:
            return False
        return True
