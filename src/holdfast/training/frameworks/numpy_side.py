"""NumPy arrays and scalars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training.frameworks.pieces import Extent, Lowered, Part

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
"""Types of that package that readers of the format do not know: stored as bytes, and named."""


def claims(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def lower(value: Any, where: str) -> Lowered:
    about: dict[str, Any] = {}
    if isinstance(value, np.generic):
        about["scalar"] = True
        value = np.asarray(value)
    if type(value) not in (np.ndarray, np.memmap):
        raise Refused(
            f"{where} cannot be saved: it is a {type(value).__name__}", hint="Save np.asarray(…) of it instead."
        )
    return _lower_array(value, where, about)


def _lower_array(value: np.ndarray, where: str, about: dict[str, Any]) -> Lowered:
    dtype = value.dtype
    code = _CODES.get(dtype.name) if dtype.isnative else None
    name = code or _name(dtype)
    if name is None:
        raise Refused(
            f"{where} cannot be saved: it is an array of {dtype}",
            hint="Save its columns as arrays of numbers, one by one.",
        )
    if value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous:
        about["order"] = "F"
    if code is None:
        about["dtype"] = name
        about["shape"] = list(value.shape)
    shape = value.shape if code else (*value.shape, dtype.itemsize)
    steps = None if value.flags.c_contiguous else value.strides
    extent = Extent("cpu", value.__array_interface__["data"][0], value.shape, steps, dtype.itemsize)
    return Lowered((Part(code or "U8", shape, value, bytes_of),), about, extent)


def _name(dtype: np.dtype) -> str | None:
    """What tells a type; None where nothing does."""
    if dtype.name in _OF_ML_DTYPES:
        return str(dtype.name)
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or dtype.kind == "T":
        return None
    if not dtype.itemsize:  # what has no bytes cannot be told from them
        return None
    try:
        return str(dtype.str) if np.dtype(dtype.str) == dtype else None
    except TypeError:  # of a package that teaches NumPy types, and not their names
        return None


def bytes_of(value: np.ndarray) -> memoryview:
    """The bytes of an array in C order; a copy only if they do not lie so."""
    flat = np.ascontiguousarray(value).reshape(-1)
    return memoryview(flat.view(np.uint8)) if flat.size else memoryview(b"")


def raise_(about: Mapping[str, Any], parts: list[tuple[memoryview, str, tuple[int, ...]]], place: Any) -> Any:
    [(data, code, shape)] = parts
    if about.get("dtype"):
        dtype, shape = _plain_dtype(about["dtype"]), tuple(about["shape"])
    else:
        dtype = dtype_of(code)
    if dtype.itemsize * math.prod(shape) != len(data):
        raise Damaged("an array is not as large as its shape says", hint="Use another checkpoint.")
    found = np.frombuffer(data, dtype=dtype).reshape(shape)
    if about.get("order") == "F":
        found = np.asfortranarray(found)
    return found[()] if about.get("scalar") else found


def view(base: Any, about: Mapping[str, Any]) -> Any:
    if "stride" not in about:
        return base.view()
    strides = [stride * base.itemsize for stride in about["stride"]]
    offset = about["offset"] * base.itemsize
    return np.ndarray(tuple(about["shape"]), base.dtype, buffer=base.reshape(-1), offset=offset, strides=strides)


def dtype_of(code: str) -> np.dtype:
    """The type of NumPy that a code of the format means; those that NumPy lacks are had from `ml_dtypes`."""
    name = next(name for name, known in _CODES.items() if known == code)
    try:
        return np.dtype(name)
    except TypeError:
        return _of_ml_dtypes(name)


def _of_ml_dtypes(name: str) -> np.dtype:
    try:
        import ml_dtypes  # only those who saved such arrays need it, and they had it

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise Unavailable(
            f"this checkpoint holds an array of {name}, a type that NumPy lacks", hint="pip install -U ml_dtypes"
        ) from None


def _plain_dtype(text: Any) -> np.dtype:
    if text in _OF_ML_DTYPES:
        return _of_ml_dtypes(text)
    found = np.dtype(str(text))
    if found.hasobject or found.names is not None or found.subdtype is not None:
        raise Damaged(f"an array says that it is of {text!r}", hint="Use another checkpoint.")
    return found


def capture_rng() -> dict[str, Any]:
    """The random state of the module; of another generator than NumPy's own, as that tells it."""
    found = np.random.get_state(legacy=False)
    if found["bit_generator"] != "MT19937":
        return {"bit_generator": found}
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {"name": name, "keys": keys, "position": position, "has_gauss": has_gauss, "cached": float(cached)}


def restore_rng(captured: Mapping[str, Any]) -> list[str]:
    """Set it back; returns what could not be."""
    other = captured.get("bit_generator")
    name = other["bit_generator"] if other else captured["name"]
    if np.random.get_state(legacy=False)["bit_generator"] != name:
        return [f"the random state of NumPy is not restored: it is of {name}, which is not in use here"]
    own = tuple(captured[key] for key in ("name", "keys", "position", "has_gauss", "cached")) if not other else ()
    np.random.set_state(other or own)
    return []


def make_room(n_bytes: int) -> Any:
    """Memory to copy into."""
    return np.empty(n_bytes, np.uint8)


def bytes_in(room: Any, start: int, n_bytes: int) -> memoryview:
    """A stretch of it."""
    return memoryview(np.asarray(room))[start : start + n_bytes]


def copy_into(room: Any, start: int, source: Any) -> None:
    """Copy an array there, in order."""
    if source.size:
        target = np.asarray(room)[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
        np.copyto(target, source)


def distance(old: Any, new: Any) -> tuple[float, float, float]:
    """The greatest change of an element, the length of the difference, and the length of the old."""
    before, after = (raise_({}, [part], None).astype(np.complex128) for part in (old, new))
    change = np.abs(after - before)
    return float(change.max(initial=0.0)), float(np.linalg.norm(change)), float(np.linalg.norm(before))


def share_elements(one: Extent, other: Extent) -> bool:
    """Whether two arrays, of any framework, have an element in common; True where that is too hard to tell."""
    (first, end), (other_first, other_end) = one.span, other.span
    start = min(first, other_first)
    room = np.empty(max(end, other_end) - start, np.uint8)  # never touched, so it costs nothing
    stand_ins = [
        np.ndarray(extent.shape, f"V{extent.item_bytes}", room, extent.address - start, extent.strides)
        for extent in (one, other)
    ]
    try:
        return bool(np.shares_memory(*stand_ins, _MOST_WORK))
    except np.exceptions.TooHardError:
        return True


_MOST_WORK = 1_000_000
