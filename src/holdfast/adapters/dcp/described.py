"""What `torch.distributed.checkpoint` says of a state, as JSON and back."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata

from holdfast.errors import Damaged, Refused
from holdfast.training.frameworks import torch_side
from holdfast.training.stored.layout import check_step, step_of
from holdfast.training.tree import Builder, flatten
from holdfast.training.writing import WrittenShard

_PIECE = re.compile(r"@[\d,]*$")


@dataclass(frozen=True, slots=True)
class Written:
    """What one item became; sent to the coordinator."""

    name: str = ""
    shard: WrittenShard | None = None
    value: Any = None


def step_said(checkpoint_id: Any) -> int:
    """The step that a checkpoint_id says."""
    if isinstance(checkpoint_id, int):
        return check_step(checkpoint_id)
    name = os.path.basename(os.fspath(checkpoint_id).rstrip("/"))
    step = step_of(name) if step_of(name) is not None else int(name) if name.isdecimal() else None
    if step is None:
        raise Refused(f"checkpoint_id is {checkpoint_id!r}", hint="Give a step, or a path that ends in one.")
    return step


def piece_name(index: dcp_metadata.MetadataIndex) -> str:
    """The name of a piece: that of its tensor, and where it begins in it unless that is the start.

    A tensor whose own name ends like that of a piece always has it, so that no two have one name.
    """
    offsets = index.offset or ()
    if not any(offsets) and not _PIECE.search(index.fqn):
        return str(index.fqn)
    return f"{index.fqn}@{','.join(map(str, offsets))}"


def plain(data: io.BytesIO, where: str) -> Any:
    """The value that DCP has pickled, as JSON: no pickle goes to the disk."""
    try:
        data.seek(0)
        value = torch.load(data, weights_only=True)
    except Exception as error:  # whatever unpickling raises for a class that it may not make
        what = f"{where} cannot be saved: it is more than plain values ({type(error).__name__})"
        raise Refused(what, hint="Save numbers, text, lists and dicts of them beside the tensors.") from None
    flat = flatten(value)
    if flat.payloads:
        raise Refused(f"{where} cannot be saved: it hides tensors", hint="Put them into dicts and lists.")
    return flat.tree


def packed(tree: Any) -> io.BytesIO:
    """A value as DCP's planner takes it: pickled here and now, of plain values that we made ourselves."""
    found = io.BytesIO()
    torch.save(Builder(tree, _no_tensor).build(), found)
    found.seek(0)
    return found


def _no_tensor(name: str) -> Any:
    raise Damaged(f"{name} is a tensor where none can be", hint="Use another checkpoint.")


def _chunks(fqn: str, about: Any, written: dict[Any, Written]) -> list[dict[str, Any]]:
    found = []
    for chunk in about.chunks:
        entry = written[dcp_metadata.MetadataIndex(fqn, chunk.offsets)]
        found.append({"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "name": entry.name})
    return found


def described(metadata: dcp_metadata.Metadata, written: dict[Any, Written]) -> dict[str, Any]:
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
    return {"tensors": tensors, "values": values, **_planned(metadata.planner_data)}


def _planned(data: Any) -> dict[str, Any]:
    """What the planner keeps: the places of flattened values, or whatever a planner of somebody else wants again."""
    if data is None:
        return {"paths": {}, "planner": None}
    if isinstance(data, dict) and all(isinstance(path, tuple) for path in data.values()):
        return {"paths": {fqn: list(path) for fqn, path in data.items()}}
    flat = flatten(data)
    if flat.payloads:
        raise Refused("the planner keeps tensors", hint="Let its planner_data be plain values.")
    return {"paths": {}, "planner": flat.tree}


def planned(found: dict[str, Any]) -> Any:
    """The same again, for the planner that loads."""
    if "planner" in found:
        return Builder(found["planner"], _no_tensor).build()
    return {fqn: tuple(path) for fqn, path in found["paths"].items()}


def storage_of(about: dict[str, Any]) -> dcp_metadata.TensorStorageMetadata:
    dtype = getattr(torch, str(about["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise Damaged(f"there is no type {about['dtype']!r}", hint="Use another checkpoint.")
    chunks = [
        dcp_metadata.ChunkStorageMetadata(torch.Size(chunk["offsets"]), torch.Size(chunk["sizes"]))
        for chunk in about["chunks"]
    ]
    properties = dcp_metadata.TensorProperties(dtype=dtype, requires_grad=bool(about["requires_grad"]))
    return dcp_metadata.TensorStorageMetadata(properties, torch.Size(about["size"]), chunks)
