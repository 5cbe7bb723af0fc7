"""PyTorch tensors."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training.frameworks.pieces import Extent, Lowered, Part

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
"""Types that readers of the format do not know: stored as bytes, and named."""
_OF_NUMPY = {
    torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool,
}  # fmt: skip
"""Types that NumPy has too, and `memoryview` a letter for."""
_TYPES = {code: dtype for dtype, code in _CODES.items()}
_SPARSE = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in _SPARSE}


def claims(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def lower(value: Any, where: str) -> Lowered:
    return _lower_plain(value) or _lower_any(value, where)


def _lower_plain(value: Any) -> Lowered | None:
    """The same, in a third of the time, for what nearly all are: of main memory, in one piece, of a type of NumPy.

    None for what it would not know to refuse or to describe.
    """
    dtype = value.dtype
    if (
        type(value) is not torch.Tensor
        or dtype not in _OF_NUMPY
        or not value.is_cpu
        or value.layout is not torch.strided
        or value.is_nested
        or value.requires_grad
        or value._is_zerotensor()
        or value.is_neg()
        or not value.is_contiguous()
        or value.storage_offset() * dtype.itemsize + value.nbytes > value.untyped_storage().nbytes()
    ):
        return None
    shape = tuple(value.shape)
    part = Part(_CODES[dtype], shape, value, bytes_of)
    return Lowered((part,), {}, Extent("cpu", value.data_ptr(), shape, None, dtype.itemsize), "")


def _lower_any(value: Any, where: str) -> Lowered:
    _check_kind(value, where)
    about: dict[str, Any] = {}
    if type(value) is torch.nn.Parameter:
        about["parameter"] = True
    if value.requires_grad:
        about["requires_grad"] = True
    found = value.detach() if value.requires_grad else value
    if found.layout in _SPARSE:
        return _lower_sparse(found, where, about)
    if found.layout is not torch.strided:
        raise Refused(f"{where} cannot be saved: its layout is {found.layout}", hint="Save x.to_dense() instead.")
    _check_memory(found, where)
    extent = _extent(found)
    twist = ""
    if found.is_conj() or found.is_neg():
        twist = f"{' conjugated' if found.is_conj() else ''}{' negated' if found.is_neg() else ''}"
        found = found.resolve_conj().resolve_neg()
    if not found.is_contiguous():
        compact = _compact(found, where)
        if compact is not found:
            about["expanded"] = list(found.shape)
        if not compact.is_contiguous():
            about["stride"] = list(compact.stride())
        found = compact
    return Lowered((_part(found, where, about),), about, extent, twist)


def _check_kind(value: Any, where: str) -> None:
    kind = type(value)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        hint = "Save x.detach().as_subclass(torch.Tensor), or what it is made of."
        if kind.__name__ == "DTensor":
            hint = "Save sharded tensors with torch.distributed.checkpoint and holdfast.adapters.dcp."
        raise Refused(f"{where} cannot be saved: it is a {kind.__module__}.{kind.__qualname__}", hint=hint)
    if value.is_quantized:
        hint = "Save x.int_repr(), its scale and its zero point instead."
        raise Refused(f"{where} cannot be saved: it is a quantised tensor ({value.dtype})", hint=hint)
    if value.is_nested or value._is_zerotensor():
        kind_of = "nested tensor" if value.is_nested else "tensor of zeros that has no memory"
        raise Refused(f"{where} cannot be saved: it is a {kind_of}", hint="Save what it is made of, or x.clone().")
    if value.is_meta:
        raise Refused(f"{where} cannot be saved: it is a meta tensor, which has no content", hint="Leave it out.")


def _check_memory(found: Any, where: str) -> None:
    """A tensor can say that it is larger than the memory that it has: engines that shard free it between steps."""
    reach = found.numel()
    if reach == 0:
        return
    if not found.is_contiguous():
        reach = sum((size - 1) * stride for size, stride in zip(found.shape, found.stride(), strict=True)) + 1
    if (found.storage_offset() + reach) * found.element_size() > found.untyped_storage().nbytes():
        raise Refused(f"{where} cannot be saved: its memory was given back", hint="Gather it first, or leave it out.")


def _lower_sparse(found: Any, where: str, about: dict[str, Any]) -> Lowered:
    about |= {"layout": str(found.layout).removeprefix("torch."), "shape": list(found.shape)}
    if found.layout is torch.sparse_coo:
        about["coalesced"] = found.is_coalesced()
        tensors = [found._indices(), found._values()]
    else:
        tensors = [getattr(found, name)() for name in _SPARSE[found.layout]]
    inner: list[dict[str, Any]] = [{} for _ in tensors]
    parts = []
    for name, tensor, notes in zip(_SPARSE[found.layout], tensors, inner, strict=True):
        part = _part(tensor.contiguous(), f"{where}.{name}", notes)
        parts.append(part._replace(suffix=f".{name}"))
    about["parts"] = inner
    return Lowered(tuple(parts), about)


def _part(tensor: Any, where: str, about: dict[str, Any]) -> Part:
    code = _CODES.get(tensor.dtype)
    if code:
        return Part(code, tuple(tensor.shape), tensor, bytes_of)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _AS_BYTES:
        raise Refused(
            f"{where} cannot be saved: its type is {tensor.dtype}", hint="Save it as another type, such as torch.uint8."
        )
    about["dtype"] = name
    shape = (*tensor.shape, tensor.element_size())
    return Part("U8", shape, tensor, bytes_of)


def stored_as(dtype: Any) -> str | None:
    """The name of a type that is stored as bytes; None of one that the format has."""
    return None if dtype in _CODES else str(dtype).removeprefix("torch.")


def _extent(tensor: Any) -> Extent:
    size = tensor.element_size()
    steps = None if tensor.is_contiguous() else tuple(stride * size for stride in tensor.stride())
    return Extent(_device_name(tensor.device), tensor.data_ptr(), tuple(tensor.shape), steps, size)


_device_name = functools.cache(str)


def _compact(tensor: Any, where: str) -> Any:
    """The tensor without the dimensions along which it only repeats itself (`expand`)."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    if not tensor.is_contiguous() and _overlaps_itself(tensor):
        raise Refused(f"{where} cannot be saved: its elements overlap in memory", hint="Save x.contiguous() instead.")
    return tensor


def _overlaps_itself(tensor: Any) -> bool:
    """Whether two elements may lie at one place: larger strides do not step over all that smaller ones reach."""
    reach = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def bytes_of(tensor: Any) -> memoryview:
    """The bytes of a tensor in order; a copy only if they do not lie so, or not in this memory."""
    if tensor.numel() == 0:
        return memoryview(b"")
    if tensor.dtype in _OF_NUMPY and tensor.is_cpu and tensor.is_contiguous():
        return memoryview(tensor.numpy()).cast("B")
    flat = tensor.cpu().contiguous().reshape(-1)
    if flat.dtype not in _CODES and flat.dtype not in _AS_BYTES.values():
        raise AssertionError(f"{flat.dtype} was not refused")
    return memoryview(_as_bytes(flat).numpy())


def _as_bytes(tensor: Any) -> Any:
    """The bytes of a tensor that lies in one piece. One element may have any stride, which a view does not like."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def raise_(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], place: Any) -> Any:
    if about.get("chunks"):
        found = _raise_chunks(about, parts)
    elif about.get("layout"):
        found = _raise_sparse(about, parts)
    else:
        [(data, code, shape)] = parts
        found = _from_bytes(data, code, shape, about.get("dtype"))
        if about.get("stride"):
            found = _strided(found, about["stride"])
        if about.get("expanded"):
            found = found.expand(about["expanded"])
    if place is not None:
        found = _moved(found, place)
    if about.get("parameter"):
        return torch.nn.Parameter(found, requires_grad=bool(about.get("requires_grad")))
    return found.requires_grad_() if about.get("requires_grad") else found


def _moved(found: Any, place: Any) -> Any:
    try:
        return found.to(device=torch.device(place))
    except (TypeError, RuntimeError, AssertionError) as error:  # PyTorch raises any of them
        reason = str(error).partition("\n")[0]
        raise Unavailable(
            f"a tensor cannot be brought to {place!r}: {reason}", hint='Name a device that is here, such as "cpu".'
        ) from None


def _raise_chunks(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]]) -> Any:
    """A tensor of which several processes saved a piece each."""
    pieces = [_from_bytes(data, code, shape, about.get("dtype")) for data, code, shape in parts]
    if len(pieces) == 1 and list(pieces[0].shape) == about["shape"]:
        return pieces[0]
    if sum(piece.numel() for piece in pieces) != math.prod(about["shape"]):
        raise Damaged("the pieces of a tensor are not the whole of it", hint="Use another checkpoint.")
    whole = torch.empty(about["shape"], dtype=pieces[0].dtype)
    for piece, offsets in zip(pieces, about["chunks"], strict=True):
        target = whole
        for axis, (start, size) in enumerate(zip(offsets, piece.shape, strict=True)):
            target = target.narrow(axis, start, size)
        target.copy_(piece)
    return whole


def _raise_sparse(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]]) -> Any:
    layout = _LAYOUTS.get(about["layout"])
    if layout is None or len(parts) != len(_SPARSE[layout]):
        raise Damaged(f"there is no layout {about['layout']!r}", hint="Use another checkpoint.")
    tensors = [_from_bytes(*part, notes.get("dtype")) for part, notes in zip(parts, about["parts"], strict=True)]
    shape = tuple(about["shape"])
    try:
        if layout is torch.sparse_coo:
            coalesced = True if about["coalesced"] else None
            return torch.sparse_coo_tensor(*tensors, shape, check_invariants=True, is_coalesced=coalesced)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the layout is new is no news to whoever saved it
            return torch.sparse_compressed_tensor(*tensors, shape, layout=layout, check_invariants=True)
    except RuntimeError as error:
        raise Damaged(f"a sparse tensor makes no sense: {error}", hint="Use another checkpoint.") from None


def _from_bytes(data: memoryview, code: str, shape: tuple[int, ...], name: str | None) -> Any:
    dtype = _TYPES[code] if name is None else _AS_BYTES.get(name)
    if dtype is None:
        raise Damaged(f"there is no type {name!r}", hint="Use another checkpoint.")
    if name is not None:
        shape = shape[:-1]
    if math.prod(shape) * dtype.itemsize != len(data):
        raise Damaged("a tensor is not as large as its shape says", hint="Use another checkpoint.")
    if not len(data):
        return torch.empty(0, dtype=torch.uint8).view(dtype).reshape(shape)
    flat = torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()  # the processor may fault on an element that lies across its own size
    return flat.view(dtype).reshape(shape)


def _strided(found: Any, stride: list[int]) -> Any:
    try:
        made = torch.empty_strided(found.shape, stride, dtype=found.dtype)
        if _overlaps_itself(made):
            raise ValueError("its elements overlap")
    except (RuntimeError, TypeError, ValueError) as error:
        raise Damaged(f"a tensor has strides that make no sense: {error}", hint="Use another checkpoint.") from None
    return made.copy_(found)


def view(base: Any, about: Mapping[str, Any]) -> Any:
    found = base.detach()
    if "stride" in about:
        offset, shape, stride = about["offset"], about["shape"], about["stride"]
        span = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1 + offset
        if offset < 0 or any(step < 0 for step in stride) or span > base.numel():
            raise Damaged("a view reaches outside its tensor", hint="Use another checkpoint.")
        found = found.as_strided(shape, stride, offset)
    if about.get("parameter"):
        return torch.nn.Parameter(found, requires_grad=bool(about.get("requires_grad")))
    return found.requires_grad_() if about.get("requires_grad") else found


def rank() -> tuple[int, int]:
    """Which of how many processes of a distributed run this is; 0 and 1 where there is one only."""
    group = torch.distributed
    return (group.get_rank(), group.get_world_size()) if group.is_available() and group.is_initialized() else (0, 1)


def capture_rng() -> dict[str, Any]:
    """The random states of the processor and of each CUDA device that is in use."""
    found: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    """Set them back; returns what could not be."""
    torch.set_rng_state(captured["cpu"].cpu())
    states = captured.get("cuda") or []
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for device, state in enumerate(states[:devices]):
        torch.cuda.set_rng_state(state.cpu(), device)
    if len(states) > devices:
        return [f"the random states of {len(states) - devices} CUDA devices, which are not here, are not restored"]
    return []


def make_room(n_bytes: int) -> Any:
    """Memory to copy into; pinned where a device copies into it by itself."""
    return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def bytes_in(room: Any, start: int, n_bytes: int) -> memoryview:
    """A stretch of it."""
    return memoryview(room.numpy())[start : start + n_bytes]


def copy_into(room: Any, start: int, source: Any) -> None:
    """Copy a tensor there, in order; from a device, on the stream that is current."""
    n_bytes = source.numel() * source.element_size()
    if n_bytes and source.device.type == "cpu" and source.is_contiguous():
        # By NumPy, in one thread: PyTorch's own threads wait for each other at every tensor, which is slow where
        # others work too
        room[start : start + n_bytes].numpy()[:] = _as_bytes(source).numpy()
    elif n_bytes:
        target = room[start : start + n_bytes].view(source.dtype).reshape(source.shape)
        target.copy_(source, non_blocking=source.is_cuda)
        if source.is_cuda:
            source.record_stream(torch.cuda.current_stream(source.device))  # it is not reused before it is copied


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    """The greatest change of an element, the length of the difference, and the length of the old."""
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


def device_meant(map_location: Any) -> Any:
    """The device that a `map_location` of `torch.load` means for what lies in main memory, as all that we load does.

    It may be a device, a dict from places to places, or a function that is shown a storage and its place; None is none.
    """
    if isinstance(map_location, Mapping):
        return map_location.get("cpu")
    if not callable(map_location) or isinstance(map_location, torch.device):
        return map_location
    shown = map_location(torch.UntypedStorage(0), "cpu")
    return None if shown is None else shown.device
