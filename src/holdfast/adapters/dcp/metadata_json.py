"""The metadata of `torch.distributed.checkpoint` as JSON, and back."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata

from holdfast.errors import Damaged, Refused
from holdfast.training.frameworks import torch_tensors
from holdfast.training.shard_writer import WrittenShard
from holdfast.training.state_tree import Builder, flatten
from holdfast.training.stored.layout import check_step, step_of

_PIECE = re.compile(r"@[\d,]*$")


@dataclass(frozen=True, slots=True)
class WrittenItem:
    """How one item was stored. Sent to the coordinator."""

    name: str = ""
    shard: WrittenShard | None = None
    value: Any = None


def step_of_id(checkpoint_id: Any) -> int:
    """Return the step that a checkpoint_id names."""
    if isinstance(checkpoint_id, int):
        return check_step(checkpoint_id)
    name = os.path.basename(os.fspath(checkpoint_id).rstrip("/"))
    step = step_of(name) if step_of(name) is not None else int(name) if name.isdecimal() else None
    if step is None:
        raise Refused(f"checkpoint_id is {checkpoint_id!r}", hint="Give a step, or a path that ends in one.")
    return step


def piece_name(index: dcp_metadata.MetadataIndex) -> str:
    """Return the name of a piece: its tensor, and its offsets unless they are all 0.

    If the name of a tensor itself ends like that of a piece, the offsets are always added, so that names are unique.
    """
    offsets = index.offset or ()
    if not any(offsets) and not _PIECE.search(index.fqn):
        return str(index.fqn)
    return f"{index.fqn}@{','.join(map(str, offsets))}"


def encode_value(data: io.BytesIO, where: str) -> Any:
    """Return the value that DCP has pickled as JSON: no pickle is stored (P7)."""
    try:
        data.seek(0)
        value = torch.load(data, weights_only=True)
    except Exception as error:  # unpickling raises many types for a class that is not allowed
        what = f"{where} cannot be saved: it has more than plain values ({type(error).__name__})"
        raise Refused(what, hint="Besides tensors, save numbers, text, and lists and dicts of them.") from None
    flat = flatten(value)
    if flat.payloads:
        raise Refused(
            f"{where} cannot be saved: it contains tensors that DCP did not find", hint="Put them into dicts and lists."
        )
    return flat.tree


def pickle_value(tree: Any) -> io.BytesIO:
    """Pickle a value that was just built from JSON, because DCP's planner expects a pickle."""
    found = io.BytesIO()
    torch.save(Builder(tree, _no_tensor).build(), found)
    found.seek(0)
    return found


def _no_tensor(name: str) -> Any:
    raise Damaged(f"{name} is a tensor where there cannot be one", hint="Use another checkpoint.")


def _chunks(fqn: str, about: Any, written: dict[Any, WrittenItem]) -> list[dict[str, Any]]:
    found = []
    for chunk in about.chunks:
        entry = written[dcp_metadata.MetadataIndex(fqn, chunk.offsets)]
        found.append({"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "name": entry.name})
    return found


def encode_metadata(metadata: dcp_metadata.Metadata, written: dict[Any, WrittenItem]) -> dict[str, Any]:
    """Return the metadata of DCP as JSON."""
    tensors, values = {}, {}
    for fqn, about in metadata.state_dict_metadata.items():
        if isinstance(about, dcp_metadata.BytesStorageMetadata):
            values[fqn] = written[dcp_metadata.MetadataIndex(fqn)].value
            continue
        dtype = str(about.properties.dtype).removeprefix("torch.")
        tensors[fqn] = {
            "dtype": dtype, "stored_as": torch_tensors.stored_as(about.properties.dtype), "size": list(about.size),
            "requires_grad": about.properties.requires_grad, "chunks": _chunks(fqn, about, written),
        }  # fmt: skip
    return {"tensors": tensors, "values": values, **_encode_planner_data(metadata.planner_data)}


def _encode_planner_data(data: Any) -> dict[str, Any]:
    """Return the planner's data: the paths of flattened values, or what another planner has stored."""
    if data is None:
        return {"paths": {}, "planner": None}
    if isinstance(data, dict) and all(isinstance(path, tuple) for path in data.values()):
        return {"paths": {fqn: list(path) for fqn, path in data.items()}}
    flat = flatten(data)
    if flat.payloads:
        raise Refused("planner_data contains tensors", hint="Use plain values.")
    return {"paths": {}, "planner": flat.tree}


def decode_planner_data(found: dict[str, Any]) -> Any:
    """Return the planner's data, for a load."""
    if "planner" in found:
        return Builder(found["planner"], _no_tensor).build()
    return {fqn: tuple(path) for fqn, path in found["paths"].items()}


def tensor_metadata(about: dict[str, Any]) -> dcp_metadata.TensorStorageMetadata:
    dtype = getattr(torch, str(about["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise Damaged(f"unknown tensor type: {about['dtype']!r}", hint="Use another checkpoint.")
    chunks = [
        dcp_metadata.ChunkStorageMetadata(torch.Size(chunk["offsets"]), torch.Size(chunk["sizes"]))
        for chunk in about["chunks"]
    ]
    properties = dcp_metadata.TensorProperties(dtype=dtype, requires_grad=bool(about["requires_grad"]))
    return dcp_metadata.TensorStorageMetadata(properties, torch.Size(about["size"]), chunks)


def state_tree(document: dict[str, Any]) -> Any:
    """Return the tree from which `load_checkpoint` rebuilds the state, without DCP."""
    root = _Branch()
    for fqn in (*document["values"], *document["tensors"]):
        if fqn in document["values"]:
            leaf = document["values"][fqn]
        else:
            about = document["tensors"][fqn]
            node = {"names": [chunk["name"] for chunk in about["chunks"]], "kind": "torch", "shape": about["size"]}
            node["chunks"] = [chunk["offsets"] for chunk in about["chunks"]]
            if about["stored_as"]:
                node["dtype"] = about["stored_as"]
            leaf = {"$tensor": node}
        _insert(root, document["paths"].get(fqn) or [fqn], leaf)
    return _with_lists(root)


def _insert(root: dict[Any, Any], path: list[Any], leaf: Any) -> None:
    for step in path[:-1]:
        root = root.setdefault(step, _Branch())
    root[path[-1]] = leaf


class _Branch(dict[Any, Any]):
    """A dict that may turn out to be a list."""


def _with_lists(tree: Any) -> Any:
    """Turn branches with numbers as keys into lists."""
    if not isinstance(tree, _Branch):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [_with_lists(tree[key]) for key in sorted(tree)]
    plain = {key: _with_lists(value) for key, value in tree.items()}
    if any(key.startswith("$") for key in plain):
        return {"$dict": [[key, value] for key, value in plain.items()]}
    return plain
