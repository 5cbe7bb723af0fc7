"""NumPy arrays and scalars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training.frameworks.interface import ArrayParts, Extent, PlainArray
from holdfast.training.stored.shards import Payload

NAME = "numpy"

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
_OF_ML_DTYPES = {
    "bcomplex32", "complex32", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e8m0fnu", "int1", "int2", "int4", "uint1", "uint2", "uint4",
}  # fmt: skip
"""Types of `ml_dtypes` that other readers of safetensors do not know: stored as bytes, with the name of the type."""


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def decompose_all(arrays: Iterable[tuple[Any, str]]) -> list[ArrayParts | PlainArray]:
    return [decompose(value, where) for value, where in arrays]


def decompose(value: Any, where: str) -> ArrayParts:
    """Decompose one array."""
    details: dict[str, Any] = {}
    if isinstance(value, np.generic):
        details["scalar"] = True
        value = np.asarray(value)
    if type(value) not in (np.ndarray, np.memmap):
        raise Refused(f"{where} cannot be saved: it is a {type(value).__name__}", hint="Save np.asarray(x) instead.")
    return _decompose_array(value, where, details)


def _decompose_array(value: np.ndarray, where: str, details: dict[str, Any]) -> ArrayParts:
    dtype = value.dtype
    code = _CODES.get(dtype.name) if dtype.isnative else None
    name = code or _name(dtype)
    if name is None:
        raise Refused(
            f"{where} cannot be saved: it is an array of {dtype}",
            hint="Save its columns as separate arrays of numbers.",
        )
    if value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous:
        details["order"] = "F"
    if code is None:
        details["dtype"] = name
        details["shape"] = list(value.shape)
    shape = value.shape if code else (*value.shape, dtype.itemsize)
    steps = None if value.flags.c_contiguous else value.strides
    extent = Extent("cpu", value.__array_interface__["data"][0], value.shape, steps, dtype.itemsize)
    return ArrayParts((Payload(where, code or "U8", shape, value, bytes_of),), details, extent)


def _name(dtype: np.dtype) -> str | None:
    """Return a text that identifies a type; None if there is none."""
    if dtype.name in _OF_ML_DTYPES:
        return str(dtype.name)
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or dtype.kind == "T":
        return None
    if not dtype.itemsize:  # arrays without bytes cannot be rebuilt
        return None
    try:
        return str(dtype.str) if np.dtype(dtype.str) == dtype else None
    except TypeError:  # a type that another package registered with NumPy, without a name
        return None


def bytes_of(value: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order; a copy only if it has another order."""
    flat = np.ascontiguousarray(value).reshape(-1)
    return memoryview(flat.view(np.uint8)) if flat.size else memoryview(b"")


def rebuild(details: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], device: Any) -> Any:
    [(data, code, shape)] = parts
    if details.get("dtype"):
        dtype, shape = _plain_dtype(details["dtype"]), tuple(details["shape"])
    else:
        dtype = dtype_of(code)
    if dtype.itemsize * math.prod(shape) != len(data):
        raise Damaged("stored array is corrupt: its size does not match its shape", hint="Use another checkpoint.")
    found = np.frombuffer(data, dtype=dtype).reshape(shape)
    if details.get("order") == "F":
        found = np.asfortranarray(found)
    return found[()] if details.get("scalar") else found


def view(base: Any, details: Mapping[str, Any]) -> Any:
    if "stride" not in details:
        return base.view()
    strides = [stride * base.itemsize for stride in details["stride"]]
    offset = details["offset"] * base.itemsize
    return np.ndarray(tuple(details["shape"]), base.dtype, buffer=base.reshape(-1), offset=offset, strides=strides)


def dtype_of(code: str) -> np.dtype:
    """Return the NumPy type of a code of the format; types that NumPy lacks come from `ml_dtypes`."""
    name = next(name for name, known in _CODES.items() if known == code)
    try:
        return np.dtype(name)
    except TypeError:
        return _of_ml_dtypes(name)


def _of_ml_dtypes(name: str) -> np.dtype:
    try:
        import ml_dtypes  # optional: needed only for such arrays

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise Unavailable(
            f"this checkpoint contains an array of {name}, which NumPy alone does not have",
            hint="pip install -U ml_dtypes",
        ) from None


def _plain_dtype(text: Any) -> np.dtype:
    if text in _OF_ML_DTYPES:
        return _of_ml_dtypes(text)
    found = np.dtype(str(text))
    if found.hasobject or found.names is not None or found.subdtype is not None:
        raise Damaged(f"stored array is corrupt: its type is {text!r}", hint="Use another checkpoint.")
    return found


def capture_rng() -> dict[str, Any]:
    """Return the global random state; of another generator than the default one, in its own form."""
    found = np.random.get_state(legacy=False)
    if found["bit_generator"] != "MT19937":
        return {"bit_generator": found}
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {"name": name, "keys": keys, "position": position, "has_gauss": has_gauss, "cached": float(cached)}


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    """Restore it. Return what could not be restored (P4)."""
    other = captured.get("bit_generator")
    name = other["bit_generator"] if other else captured["name"]
    if np.random.get_state(legacy=False)["bit_generator"] != name:
        return [f"the random state of NumPy is not restored: it is one of {name}, and another generator is in use"]
    own = tuple(captured[key] for key in ("name", "keys", "position", "has_gauss", "cached")) if not other else ()
    np.random.set_state(other or own)
    return []


def allocate(n_bytes: int) -> Any:
    """Allocate memory to copy into."""
    return np.empty(n_bytes, np.uint8)


def bytes_at(buffer: Any, start: int, n_bytes: int) -> memoryview:
    """Return a part of it."""
    return memoryview(np.asarray(buffer))[start : start + n_bytes]


def copy_into(buffer: Any, start: int, source: Any) -> None:
    """Copy the bytes of an array, in order."""
    if source.size:
        target = np.asarray(buffer)[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
        np.copyto(target, source)


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    """Return the greatest change of an element, and the norms of the change and of the old array."""
    before, after = (rebuild({}, [part], None).astype(np.complex128) for part in (old, new))
    change = np.abs(after - before)
    return float(change.max(initial=0.0)), float(np.linalg.norm(change)), float(np.linalg.norm(before))


def share_elements(one: Extent, other: Extent) -> bool:
    """Whether two arrays, of any framework, have an element in common; True if that is too hard to compute."""
    (first, end), (other_first, other_end) = one.span, other.span
    start = min(first, other_first)
    buffer = np.empty(max(end, other_end) - start, np.uint8)  # never touched, so no memory is allocated
    stand_ins = [
        np.ndarray(extent.shape, f"V{extent.item_bytes}", buffer, extent.address - start, extent.strides)
        for extent in (one, other)
    ]
    try:
        return bool(np.shares_memory(*stand_ins, _MOST_WORK))
    except np.exceptions.TooHardError:
        return True


_MOST_WORK = 1_000_000
