"""`HoldfastReader`: loads for `torch.distributed.checkpoint`."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from holdfast.adapters.dcp.metadata_json import decode_planner_data, pickle_value, step_of_id, tensor_metadata
from holdfast.adapters.dcp.writer import HoldfastWriter
from holdfast.errors import Conflict, Damaged, Refused
from holdfast.training.checkpoints import folder_of, is_url, open_checkpoint
from holdfast.training.frameworks import torch_tensors
from holdfast.training.load import OpenCheckpoint


class HoldfastReader(StorageReader):  # type: ignore[misc]  # an extra, whose types are not read
    """Reads a checkpoint for `dcp.load`, on any number of ranks. Every byte that is read is verified."""

    def __init__(self, path: str | os.PathLike[str], *, step: int | str | None = None, verify: bool = True) -> None:
        super().__init__()
        self._path = path if is_url(path) else folder_of(path)
        self._step = step
        self._verify = verify
        self._opened: OpenCheckpoint | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        """Begin another load."""
        self._opened = None
        if checkpoint_id is not None:
            self._step = step_of_id(checkpoint_id)

    def _document(self) -> dict[str, Any]:
        if self._opened is None:
            self._opened = open_checkpoint(self._path, self._step, verify=self._verify)
        found = self._opened.document().get("dcp")
        if not isinstance(found, dict):
            raise Refused(
                f"{self._opened.found.path} was not saved by torch.distributed.checkpoint",
                hint="Load it with holdfast.training.load_checkpoint.",
            )
        return found

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp_metadata.Metadata:
        """Return the metadata, which is stored as JSON (P7)."""
        if "rank" in kwargs:  # DCP retries like this after a failure; a rank that goes on alone would hang the others
            raise Refused("ranks have no metadata of their own", hint="See the previous error.")
        found = self._document()
        try:
            described = {fqn: tensor_metadata(about) for fqn, about in found["tensors"].items()}
            described |= {fqn: dcp_metadata.BytesStorageMetadata() for fqn in found["values"]}
            planner = decode_planner_data(found)
            names = {
                dcp_metadata.MetadataIndex(fqn, torch.Size(chunk["offsets"])): chunk["name"]
                for fqn, about in found["tensors"].items()
                for chunk in about["chunks"]
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Damaged(f"{self._path} is corrupt: bad tensor metadata: {error}") from None
        return dcp_metadata.Metadata(described, planner_data=planner, storage_data=names)

    def set_up_storage_reader(
        self, metadata: dcp_metadata.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._names = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Tell the coordinator which checkpoint this rank has found: `latest` may change at any time."""
        assert self._opened is not None
        manifest = self._opened.found.manifest
        return dataclasses.replace(plan, storage_data=(manifest.step, manifest.sequence))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Raise Conflict unless all ranks have found the same checkpoint."""
        found = {plan.storage_data for plan in plans if plan.storage_data is not None}
        if len(found) > 1:
            steps = " and ".join(str(step) for step, _ in sorted(found))
            raise Conflict(f"the ranks have found different checkpoints: {steps}", hint="Load again, with step=….")
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
                pieces[name] = torch_tensors.rebuild(about, [reader.fetch(name)], None)
            piece = pieces[name]
            for axis, (start, size) in enumerate(zip(request.storage_offsets, request.lengths, strict=True)):
                piece = piece.narrow(axis, start, size)
            target = planner.resolve_tensor(request).detach()
            if target.shape != piece.shape:
                what = f"{name} has shape {list(piece.shape)}, and {list(target.shape)} is asked for"
                raise Refused(what, hint="Load it into a state of the same shapes.")
            target.copy_(piece)
            planner.commit_tensor(request, target)
        for request in plan.items:
            if request.type == LoadItemType.BYTE_IO:
                planner.load_bytes(request, pickle_value(document["values"][request.storage_index.fqn]))
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return HoldfastWriter.validate_checkpoint_id(checkpoint_id)
