"""Holdfast as the storage of `torch.distributed.checkpoint`: atomic, verified, shared, and without a pickle on disk.

    dcp.save(state, storage_writer=HoldfastWriter("runs/exp1/checkpoints", step=1200))
    dcp.load(state, storage_reader=HoldfastReader("runs/exp1/checkpoints", step="latest"))

All ranks see one file system. Each writes its own shards; the coordinator alone makes the checkpoint (`finish`), so
that a rank that dies before that leaves the folder as it was.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from holdfast.errors import Damaged, Refused
from holdfast.training.checkpoints import folder_of
from holdfast.training.folder import Found, TrainingFolder
from holdfast.training.frameworks import torch_side
from holdfast.training.loading import Opened, find
from holdfast.training.metrics import check_metrics
from holdfast.training.resume.environment import capture_environment
from holdfast.training.retaining import Keep
from holdfast.training.saving import Wish, conclude, prepare
from holdfast.training.stored import digests
from holdfast.training.stored.layout import check_step, step_of
from holdfast.training.stored.shards import Payload, arrange
from holdfast.training.tree import Builder, flatten
from holdfast.training.writing import Earlier, WrittenShard, write_shards


@dataclass(frozen=True, slots=True)
class _Written:
    """What one item became; sent to the coordinator."""

    name: str = ""
    shard: WrittenShard | None = None
    value: Any = None


_open: dict[Path, contextlib.ExitStack] = {}
"""Folders that a save of this process holds the lock of."""


class HoldfastWriter(StorageWriter):  # type: ignore[misc]
    """Writes one checkpoint of a run for each `dcp.save` or `dcp.async_save`.

    The step is given here, or with each save as `checkpoint_id` (a number, or a path that ends in one). Metrics and
    what to keep are as in `save_checkpoint`.
    """

    def __init__(
        self, out_dir: str | os.PathLike[str], *, step: int | None = None, metrics: Mapping[str, float] | None = None,
        best_key: str | None = None, mode: str = "min", keep_last_k: int | None = None, keep_best_k: int | None = 1,
        keep_every: int | None = None, rewind: bool = False, threads: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._out_dir = folder_of(out_dir)
        self._step = None if step is None else check_step(step)
        self._options: dict[str, Any] = {
            "metrics": check_metrics(metrics, best_key, mode), "best_key": best_key, "mode": mode, "rewind": rewind,
            "keep": Keep(keep_last_k, keep_best_k, keep_every), "threads": threads,
        }  # fmt: skip
        self._rank = 0
        self._found: list[Found] = []

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """Begin another save."""
        if checkpoint_id is not None:
            self._step = _step(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The coordinator takes the lock and makes the stage; no rank writes before all have come this far."""
        if kwargs.get("use_collectives") is False:
            raise Refused("use_collectives is False", hint="Leave it: one checkpoint of all ranks needs them together.")
        if self._step is None:
            raise Refused("the step is not said", hint="Pass step= to HoldfastWriter, or checkpoint_id= to dcp.save.")
        self._rank = int(kwargs.get("rank") or 0)
        self._is_coordinator = is_coordinator
        if is_coordinator:
            self._end()  # of a save of this process that another rank brought to an end
            folder = TrainingFolder(self._out_dir)
            stack = _open[self._out_dir] = contextlib.ExitStack()
            stack.enter_context(folder.writing())
            try:
                self._found = prepare(folder, self._wish())
                folder.stage()
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        stack = _open.pop(self._out_dir, None)
        if stack is not None:
            stack.close()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what this rank has. An error is raised, never swallowed: then no rank has a checkpoint."""
        payloads, names, values = [], {}, {}
        for item in plan.items:
            where = item.index.fqn
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                values[item.index] = _plain(data, where)
                continue
            lowered = torch_side.lower(data.detach().contiguous(), where)
            name = _name(item.index, lowered.about)
            [part] = lowered.parts
            payloads.append(Payload(name, part.dtype, part.shape, part.read))
            names[item.index] = name
        written = self._write(payloads)
        results = [WriteResult(index, 0, _Written(value=value)) for index, value in values.items()]
        for index, name in names.items():
            shard = written[name]
            results.append(WriteResult(index, shard.tensors[name].bytes, _Written(name, shard)))
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write(self, payloads: list[Payload]) -> dict[str, WrittenShard]:
        folder = TrainingFolder(self._out_dir)
        found = self._found if self._is_coordinator else folder.look()[0]
        earlier = Earlier(found[-1].path, found[-1].manifest) if found else None
        shards = write_shards(
            folder.staged, arrange(payloads), earlier, algorithm=digests.preferred(),
            threads=self._options["threads"], name=lambda at, total: f"model-rank{self._rank:05d}-{at:05d}.safetensors",
        )  # fmt: skip
        return {name: shard for shard in shards for name in shard.tensors}

    def finish(self, metadata: dcp_metadata.Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint: only the coordinator is asked to, once every rank has written."""
        everything = {result.index: result.storage_data for rank in results for result in rank}
        shards = {each.shard.name: each.shard for each in everything.values() if each.shard is not None}
        wish = self._wish(tree=_tree(metadata, everything), beside={"dcp": _described(metadata, everything)})
        folder = TrainingFolder(self._out_dir)
        try:
            self.saved = conclude(folder, folder.staged, wish, [shards[name] for name in sorted(shards)], self._found)
        finally:
            self._end()

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
            _step(checkpoint_id)
        except Refused:
            return False
        return True


class HoldfastReader(StorageReader):  # type: ignore[misc]
    """Reads a checkpoint for `dcp.load`, on any number of ranks. Every byte that is used is verified."""

    def __init__(self, path: str | os.PathLike[str], *, step: int | str | None = None, verify: bool = True) -> None:
        super().__init__()
        self._path = folder_of(path)
        self._step = step
        self._verify = verify
        self._opened: Opened | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """Begin another load."""
        self._opened = None
        if checkpoint_id is not None:
            self._step = _step(checkpoint_id)

    def _document(self) -> dict[str, Any]:
        if self._opened is None:
            self._opened = Opened(find(self._path, self._step), verify=self._verify)
        found = self._opened.document().get("dcp")
        if not isinstance(found, dict):
            raise Refused(
                f"{self._opened.found.path} was not saved by torch.distributed.checkpoint",
                hint="Load it with holdfast.training.load_checkpoint.",
            )
        return found

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp_metadata.Metadata:
        """What there is, as DCP describes it; made of JSON, not unpickled."""
        found = self._document()
        try:
            described = {fqn: _storage(about) for fqn, about in found["tensors"].items()}
            described |= {fqn: dcp_metadata.BytesStorageMetadata() for fqn in found["values"]}
            planner = {fqn: tuple(path) for fqn, path in found["paths"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"what {self._path} says of its tensors makes no sense: {error}") from None
        names = {
            dcp_metadata.MetadataIndex(fqn, torch.Size(chunk["offsets"])): chunk["name"]
            for fqn, about in found["tensors"].items()
            for chunk in about["chunks"]
        }
        return dcp_metadata.Metadata(described, planner_data=planner, storage_data=names)

    def set_up_storage_reader(
        self, metadata: dcp_metadata.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._names = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what this rank needs."""
        document = self._document()
        assert self._opened is not None
        reader = self._opened.reader
        tensors = [request for request in plan.items if request.type != LoadItemType.BYTE_IO]
        reader.prepare(dict.fromkeys(self._names[request.storage_index] for request in tensors))
        pieces: dict[str, Any] = {}
        for request in tensors:
            name = self._names[request.storage_index]
            if name not in pieces:
                about = {"dtype": document["tensors"][request.storage_index.fqn]["stored_as"]}
                pieces[name] = torch_side.raise_(about, [reader.fetch(name)], None)
            piece = pieces[name]
            for axis, (start, size) in enumerate(zip(request.storage_offsets, request.lengths, strict=True)):
                piece = piece.narrow(axis, start, size)
            target = planner.resolve_tensor(request).detach()
            target.copy_(piece)
            planner.commit_tensor(request, target)
        for request in plan.items:
            if request.type == LoadItemType.BYTE_IO:
                planner.load_bytes(request, _packed(document["values"][request.storage_index.fqn]))
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return HoldfastWriter.validate_checkpoint_id(checkpoint_id)


def _step(checkpoint_id: Any) -> int:
    """The step that a checkpoint_id says."""
    if isinstance(checkpoint_id, int):
        return check_step(checkpoint_id)
    name = os.path.basename(os.fspath(checkpoint_id).rstrip("/"))
    step = step_of(name) if step_of(name) is not None else int(name) if name.isdecimal() else None
    if step is None:
        raise Refused(f"checkpoint_id is {checkpoint_id!r}", hint="Give a step, or a path that ends in one.")
    return step


def _name(index: dcp_metadata.MetadataIndex, about: dict[str, Any]) -> str:
    """The name of a piece: that of its tensor, and where it begins in it."""
    offsets = index.offset
    at_start = offsets is None or not any(offsets)
    return index.fqn if at_start else f"{index.fqn}@{','.join(map(str, offsets))}"


def _plain(data: io.BytesIO, where: str) -> Any:
    """The value that DCP has pickled, as JSON: no pickle goes to the disk."""
    try:
        data.seek(0)
        value = torch.load(data, weights_only=True)
    except Exception as error:
        what = f"{where} cannot be saved: it is more than plain values ({type(error).__name__})"
        raise Refused(what, hint="Save numbers, text, lists and dicts of them beside the tensors.") from None
    flat = flatten(value)
    if flat.payloads:
        raise Refused(f"{where} cannot be saved: it hides tensors", hint="Put them into dicts and lists.")
    return flat.tree


def _packed(tree: Any) -> io.BytesIO:
    """A value as DCP's planner takes it: pickled here and now, of plain values that we made ourselves."""

    def no_tensor(name: str) -> Any:
        raise Damaged(f"{name} is a tensor where none can be", hint="Use another checkpoint.")

    packed = io.BytesIO()
    torch.save(Builder(tree, no_tensor).build(), packed)
    packed.seek(0)
    return packed


def _chunks(fqn: str, about: Any, written: dict[Any, _Written]) -> list[dict[str, Any]]:
    found = []
    for chunk in about.chunks:
        entry = written[dcp_metadata.MetadataIndex(fqn, chunk.offsets)]
        found.append({"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "name": entry.name})
    return found


def _described(metadata: dcp_metadata.Metadata, written: dict[Any, _Written]) -> dict[str, Any]:
    """DCP's own description, as JSON."""
    tensors, values = {}, {}
    for fqn, about in metadata.state_dict_metadata.items():
        if isinstance(about, dcp_metadata.BytesStorageMetadata):
            values[fqn] = written[dcp_metadata.MetadataIndex(fqn)].value
            continue
        dtype = str(about.properties.dtype).removeprefix("torch.")
        tensors[fqn] = {
            "dtype": dtype, "stored_as": torch_side.stored_as(about.properties.dtype), "size": list(about.size),
            "requires_grad": about.properties.requires_grad, "chunks": _chunks(fqn, about, written),
        }  # fmt: skip
    planner = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    return {"tensors": tensors, "values": values, "paths": {fqn: list(path) for fqn, path in planner.items()}}


def _storage(about: dict[str, Any]) -> dcp_metadata.TensorStorageMetadata:
    dtype = getattr(torch, str(about["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise Damaged(f"there is no type {about['dtype']!r}", hint="Use another checkpoint.")
    chunks = [
        dcp_metadata.ChunkStorageMetadata(torch.Size(chunk["offsets"]), torch.Size(chunk["sizes"]))
        for chunk in about["chunks"]
    ]
    properties = dcp_metadata.TensorProperties(dtype=dtype, requires_grad=bool(about["requires_grad"]))
    return dcp_metadata.TensorStorageMetadata(properties, torch.Size(about["size"]), chunks)


def _tree(metadata: dcp_metadata.Metadata, written: dict[Any, _Written]) -> Any:
    """The state as `load_checkpoint` puts it together, on one machine and without DCP."""
    described = _described(metadata, written)
    root = _Branch()
    for fqn in metadata.state_dict_metadata:
        if fqn in described["values"]:
            leaf = described["values"][fqn]
        else:
            about = described["tensors"][fqn]
            node = {"names": [chunk["name"] for chunk in about["chunks"]], "kind": "torch", "shape": about["size"]}
            node["chunks"] = [chunk["offsets"] for chunk in about["chunks"]]
            if about["stored_as"]:
                node["dtype"] = about["stored_as"]
            leaf = {"$tensor": node}
        _put(root, described["paths"].get(fqn) or [fqn], leaf)
    return _listed(root)


def _put(root: dict[Any, Any], path: list[Any], leaf: Any) -> None:
    for step in path[:-1]:
        root = root.setdefault(step, _Branch())
    root[path[-1]] = leaf


class _Branch(dict[Any, Any]):
    """A dict that is not yet known to be a list."""


def _listed(tree: Any) -> Any:
    """Numbers for keys mean that it was a list."""
    if not isinstance(tree, _Branch):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [_listed(tree[key]) for key in sorted(tree)]
    plain = {key: _listed(value) for key, value in tree.items()}
    if any(key.startswith("$") for key in plain):
        return {"$dict": [[key, value] for key, value in plain.items()]}
    return plain
