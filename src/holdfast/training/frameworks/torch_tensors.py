"""PyTorch tensors."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training.frameworks.interface import ArrayParts, Extent, PlainArray, as_parts
from holdfast.training.stored.shards import Payload

NAME = "torch"

_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64", torch.uint32: "U32",
    torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
_AS_BYTES = {
    name: getattr(torch, name)
    for name in ("complex128", "complex32", "float8_e8m0fnu", "float4_e2m1fn_x2")
    if hasattr(torch, name)
}
"""Types that other readers of safetensors do not know: stored as bytes, with the name of the type."""
_OF_NUMPY = {
    torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool,
}  # fmt: skip
"""Types that NumPy has, too, and that `memoryview` has a format for."""
_PLAIN = {dtype: (_CODES[dtype], dtype.itemsize, None) for dtype in _OF_NUMPY} | {
    torch.bfloat16: ("BF16", 2, torch.int16)
}
"""By type of a plain tensor: the code, the size of an element, and the type to view it as for NumPy."""
_TYPES = {code: dtype for dtype, code in _CODES.items()}
_SPARSE = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in _SPARSE}


def is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def decompose_all(arrays: Iterable[tuple[Any, str]]) -> list[ArrayParts | PlainArray]:
    found: list[ArrayParts | PlainArray] = []
    plain, tensor = _PLAIN, torch.Tensor
    # One loop without calls to our functions: with many small tensors, Python's cost for each is most of a save
    for value, where in arrays:
        dtype = value.dtype
        if type(value) is tensor and dtype in plain and not value.requires_grad and value.is_cpu:
            code, item_bytes, same_size = plain[dtype]
            try:
                # numpy() fails for everything that is not plain memory: sparse, nested, negated, wrapped, zero tensors
                array = (value if same_size is None else value.view(same_size)).numpy()
            except (RuntimeError, TypeError):
                found.append(_decompose_any(value, where))
                continue
            n_bytes = array.nbytes
            # A tensor can be larger than its storage: engines that shard free storages between steps
            end = value.storage_offset() * item_bytes + n_bytes
            if n_bytes and value.is_contiguous() and end <= value.untyped_storage().nbytes():
                address = value.data_ptr()
                found.append((Payload(where, code, array.shape, array, _itself), address, address + n_bytes))
                continue
        found.append(_decompose_any(value, where))
    return found


def payload_of(value: Any, where: str) -> Payload:
    """The payload of a dense, contiguous tensor."""
    [payload] = as_parts(decompose_all([(value, where)])[0]).payloads
    return payload


def _itself(array: Any) -> Any:
    return array


def _decompose_any(value: Any, where: str) -> ArrayParts:
    _check_kind(value, where)
    details: dict[str, Any] = {}
    if type(value) is torch.nn.Parameter:
        details["parameter"] = True
    if value.requires_grad:
        details["requires_grad"] = True
    found = value.detach() if value.requires_grad else value
    if found.layout in _SPARSE:
        return _decompose_sparse(found, where, details)
    if found.layout is not torch.strided:
        raise Refused(f"{where} cannot be saved: its layout is {found.layout}", hint="Save x.to_dense() instead.")
    _check_memory(found, where)
    extent = _extent(found)
    transform = ""
    if found.is_conj() or found.is_neg():
        transform = f"{' conjugated' if found.is_conj() else ''}{' negated' if found.is_neg() else ''}"
        found = found.resolve_conj().resolve_neg()
    if not found.is_contiguous():
        compact = _compact(found, where)
        if compact is not found:
            details["expanded"] = list(found.shape)
        if not compact.is_contiguous():
            details["stride"] = list(compact.stride())
        found = compact
    return ArrayParts((_part(found, where, details),), details, extent, transform)


def _check_kind(value: Any, where: str) -> None:
    kind = type(value)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        hint = "Save x.detach().as_subclass(torch.Tensor), or its parts."
        if kind.__name__ == "DTensor":
            hint = "Save sharded tensors with torch.distributed.checkpoint and holdfast.adapters.dcp."
        raise Refused(f"{where} cannot be saved: it is a {kind.__module__}.{kind.__qualname__}", hint=hint)
    if value.is_quantized:
        hint = "Save x.int_repr(), its scale and its zero point instead."
        raise Refused(f"{where} cannot be saved: it is a quantized tensor ({value.dtype})", hint=hint)
    if value.is_nested or value._is_zerotensor():
        kind_of = "nested tensor" if value.is_nested else "tensor of zeros without memory"
        raise Refused(f"{where} cannot be saved: it is a {kind_of}", hint="Save its parts, or x.clone().")
    if value.is_meta:
        raise Refused(f"{where} cannot be saved: it is a meta tensor, which has no data", hint="Leave it out.")


def _check_memory(found: Any, where: str) -> None:
    """Refuse a tensor that is larger than its storage: engines that shard free storages between steps."""
    reach = found.numel()
    if reach == 0:
        return
    if not found.is_contiguous():
        reach = sum((size - 1) * stride for size, stride in zip(found.shape, found.stride(), strict=True)) + 1
    if (found.storage_offset() + reach) * found.element_size() > found.untyped_storage().nbytes():
        raise Refused(f"{where} cannot be saved: its memory was freed", hint="Gather it first, or leave it out.")


def _decompose_sparse(found: Any, where: str, details: dict[str, Any]) -> ArrayParts:
    details |= {"layout": str(found.layout).removeprefix("torch."), "shape": list(found.shape)}
    if found.layout is torch.sparse_coo:
        details["coalesced"] = found.is_coalesced()
        tensors = [found._indices(), found._values()]
    else:
        tensors = [getattr(found, name)() for name in _SPARSE[found.layout]]
    details["parts"] = [{} for _ in tensors]
    triples = zip(_SPARSE[found.layout], tensors, details["parts"], strict=True)
    parts = [_part(tensor.contiguous(), f"{where}.{name}", notes) for name, tensor, notes in triples]
    return ArrayParts(tuple(parts), details)


def _part(tensor: Any, where: str, details: dict[str, Any]) -> Payload:
    code = _CODES.get(tensor.dtype)
    if code:
        return Payload(where, code, tuple(tensor.shape), tensor, bytes_of)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _AS_BYTES:
        raise Refused(
            f"{where} cannot be saved: its type is {tensor.dtype}", hint="Save it as another type, such as torch.uint8."
        )
    details["dtype"] = name
    shape = (*tensor.shape, tensor.element_size())
    return Payload(where, "U8", shape, tensor, bytes_of)


def stored_as(dtype: Any) -> str | None:
    """Return the name of a type that is stored as bytes; None for a type that the format has."""
    return None if dtype in _CODES else str(dtype).removeprefix("torch.")


def _extent(tensor: Any) -> Extent:
    size = tensor.element_size()
    steps = None if tensor.is_contiguous() else tuple(stride * size for stride in tensor.stride())
    return Extent(_device_name(tensor.device), tensor.data_ptr(), tuple(tensor.shape), steps, size)


_device_name = functools.cache(str)


def _compact(tensor: Any, where: str) -> Any:
    """Remove the dimensions along which a tensor only repeats itself (`expand`)."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    if not tensor.is_contiguous() and _overlaps_itself(tensor):
        raise Refused(f"{where} cannot be saved: its elements overlap in memory", hint="Save x.contiguous() instead.")
    return tensor


def _overlaps_itself(tensor: Any) -> bool:
    """Whether two elements may share memory: a larger stride does not step over what the smaller ones reach."""
    reach = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def bytes_of(tensor: Any) -> memoryview:
    """Return the bytes of a tensor in order; a copy only if it is not contiguous or not in main memory."""
    if tensor.numel() == 0:
        return memoryview(b"")
    if tensor.dtype in _OF_NUMPY and tensor.is_cpu and tensor.is_contiguous():
        return memoryview(tensor.numpy()).cast("B")
    flat = tensor.cpu().contiguous().reshape(-1)
    if flat.dtype not in _CODES and flat.dtype not in _AS_BYTES.values():
        raise AssertionError(f"{flat.dtype} should have been refused")
    return memoryview(_as_bytes(flat).numpy())


def _as_bytes(tensor: Any) -> Any:
    """View a contiguous tensor as bytes. A single element may have any stride, which `view` alone rejects."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def rebuild(details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], device: Any) -> Any:
    if details.get("chunks"):
        found = _rebuild_chunks(details, parts)
    elif details.get("layout"):
        found = _rebuild_sparse(details, parts)
    else:
        [(data, code, shape)] = parts
        found = _from_bytes(data, code, shape, details.get("dtype"))
        if details.get("stride"):
            found = _strided(found, details["stride"])
        if details.get("expanded"):
            found = found.expand(details["expanded"])
    if device is not None:
        found = _moved(found, device)
    if details.get("parameter"):
        return torch.nn.Parameter(found, requires_grad=bool(details.get("requires_grad")))
    return found.requires_grad_() if details.get("requires_grad") else found


def _moved(found: Any, device: Any) -> Any:
    try:
        return found.to(device=torch.device(device))
    except (TypeError, RuntimeError, AssertionError) as error:  # PyTorch raises any of these
        reason = str(error).partition("\n")[0]
        raise Unavailable(
            f"cannot move a tensor to {device!r}: {reason}", hint='Name a device of this machine, such as "cpu".'
        ) from None


def _rebuild_chunks(details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]]) -> Any:
    """Rebuild a tensor of which several processes saved a piece each."""
    pieces = [_from_bytes(data, code, shape, details.get("dtype")) for data, code, shape in parts]
    if len(pieces) == 1 and list(pieces[0].shape) == details["shape"]:
        return pieces[0]
    if sum(piece.numel() for piece in pieces) != math.prod(details["shape"]):
        raise Damaged("stored tensor is corrupt: pieces are missing", hint="Use another checkpoint.")
    whole = torch.empty(details["shape"], dtype=pieces[0].dtype)
    for piece, offsets in zip(pieces, details["chunks"], strict=True):
        target = whole
        for axis, (start, size) in enumerate(zip(offsets, piece.shape, strict=True)):
            target = target.narrow(axis, start, size)
        target.copy_(piece)
    return whole


def _rebuild_sparse(details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]]) -> Any:
    layout = _LAYOUTS.get(details["layout"])
    if layout is None or len(parts) != len(_SPARSE[layout]):
        raise Damaged(f"unknown tensor layout: {details['layout']!r}", hint="Use another checkpoint.")
    tensors = [_from_bytes(*part, notes.get("dtype")) for part, notes in zip(parts, details["parts"], strict=True)]
    shape = tuple(details["shape"])
    try:
        if layout is torch.sparse_coo:
            coalesced = True if details["coalesced"] else None
            return torch.sparse_coo_tensor(*tensors, shape, check_invariants=True, is_coalesced=coalesced)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that the layout is new
            return torch.sparse_compressed_tensor(*tensors, shape, layout=layout, check_invariants=True)
    except RuntimeError as error:
        raise Damaged(f"stored sparse tensor is corrupt: {error}", hint="Use another checkpoint.") from None


def _from_bytes(data: memoryview, code: str, shape: tuple[int, ...], name: str | None) -> Any:
    dtype = _TYPES[code] if name is None else _AS_BYTES.get(name)
    if dtype is None:
        raise Damaged(f"unknown tensor type: {name!r}", hint="Use another checkpoint.")
    if name is not None:
        shape = shape[:-1]
    if math.prod(shape) * dtype.itemsize != len(data):
        raise Damaged("stored tensor is corrupt: its size does not match its shape", hint="Use another checkpoint.")
    if not len(data):
        return torch.empty(0, dtype=torch.uint8).view(dtype).reshape(shape)
    flat = torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()  # some processors fault on unaligned elements
    return flat.view(dtype).reshape(shape)


def _strided(found: Any, stride: list[int]) -> Any:
    try:
        made = torch.empty_strided(found.shape, stride, dtype=found.dtype)
        if _overlaps_itself(made):
            raise ValueError("elements overlap")
    except (RuntimeError, TypeError, ValueError) as error:
        raise Damaged(f"stored tensor is corrupt: bad strides: {error}", hint="Use another checkpoint.") from None
    return made.copy_(found)


def view(base: Any, details: Mapping[str, Any]) -> Any:
    found = base.detach()
    if "stride" in details:
        offset, shape, stride = details["offset"], details["shape"], details["stride"]
        span = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1 + offset
        if offset < 0 or any(step < 0 for step in stride) or span > base.numel():
            raise Damaged("stored view is corrupt: it reaches outside its tensor", hint="Use another checkpoint.")
        found = found.as_strided(shape, stride, offset)
    if details.get("parameter"):
        return torch.nn.Parameter(found, requires_grad=bool(details.get("requires_grad")))
    return found.requires_grad_() if details.get("requires_grad") else found


def rank() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; 0 and 1 if the run is not distributed."""
    group = torch.distributed
    return (group.get_rank(), group.get_world_size()) if group.is_available() and group.is_initialized() else (0, 1)


def capture_rng() -> dict[str, Any]:
    """Return the random states of the CPU and of each CUDA device in use."""
    found: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    """Restore them. Return what could not be restored (P4)."""
    torch.set_rng_state(captured["cpu"].cpu())
    states = captured.get("cuda") or []
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for device, state in enumerate(states[:devices]):
        torch.cuda.set_rng_state(state.cpu(), device)
    if len(states) > devices:
        return [f"the random states of {len(states) - devices} CUDA devices are not restored: there are only {devices}"]
    return []


def allocate(n_bytes: int) -> Any:
    """Allocate memory to copy into; pinned if there are CUDA devices, so that they can copy asynchronously."""
    return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def bytes_at(buffer: Any, start: int, n_bytes: int) -> memoryview:
    """Return a part of it."""
    return memoryview(buffer.numpy())[start : start + n_bytes]


def copy_into(buffer: Any, start: int, source: Any) -> None:
    """Copy the bytes of a tensor, in order; from a device, on the current stream."""
    n_bytes = source.numel() * source.element_size()
    if n_bytes and source.device.type == "cpu" and source.is_contiguous():
        # NumPy copies in one thread. PyTorch's threads synchronize at every tensor, which is slow on a busy machine
        buffer[start : start + n_bytes].numpy()[:] = _as_bytes(source).numpy()
    elif n_bytes:
        target = buffer[start : start + n_bytes].view(source.dtype).reshape(source.shape)
        target.copy_(source, non_blocking=source.is_cuda)
        if source.is_cuda:
            source.record_stream(
                torch.cuda.current_stream(source.device)
            )  # do not reuse its memory before it is copied


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    """Return the greatest change of an element, and the norms of the change and of the old tensor."""
    before, after = (_from_bytes(data, code, shape, None).reshape(-1) for data, code, shape in (old, new))
    wide = torch.complex128 if before.is_complex() else torch.float64
    largest, moved, length = 0.0, 0.0, 0.0
    for start in range(0, before.numel(), _AT_ONCE):
        was, now = (tensor[start : start + _AT_ONCE].to(wide) for tensor in (before, after))
        change = (now - was).abs()
        largest = max(largest, change.max().item())
        moved += change.square().sum().item()
        length += was.abs().square().sum().item()
    return largest, math.sqrt(moved), math.sqrt(length)


_AT_ONCE = 1 << 20


def device_of(map_location: Any) -> Any:
    """Return the device that a `map_location` of `torch.load` selects for a tensor in main memory; None for no device.

    It may be a device, a dict from location to location, or a function of a storage and its location.
    """
    if isinstance(map_location, Mapping):
        return map_location.get("cpu")
    if not callable(map_location) or isinstance(map_location, torch.device):
        return map_location
    shown = map_location(torch.UntypedStorage(0), "cpu")
    return None if shown is None else shown.device
