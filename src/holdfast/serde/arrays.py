"""numpy arrays and scalars: dtype, shape, order and bytes. The only file that imports numpy."""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import Unavailable
from holdfast.serde.cannot import Cannot


def is_array(kind: type) -> bool:
    return kind.__module__ == "numpy" and kind is _numpy().ndarray


def is_scalar(kind: type) -> bool:
    return kind.__module__ == "numpy" and issubclass(kind, _numpy().generic)


def take_array(array: Any) -> Any:
    """[dtype, shape, order, bytes]: Fortran's order is kept; an array that has neither is laid out as C has it."""
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return [_descr(array.dtype), list(array.shape), order, array.tobytes(order)]


def make_array(data: Any) -> Any:
    """An array over a copy of the bytes, so that it can be written to."""
    descr, shape, order, raw = data
    dtype = _dtype(descr)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(raw):
        raise ValueError("an array whose bytes are not of its shape")
    return _numpy().ndarray(tuple(shape), dtype, buffer=bytearray(raw), order=order)


def take_scalar(scalar: Any) -> Any:
    return [_descr(scalar.dtype), scalar.tobytes()]


def make_scalar(data: Any) -> Any:
    descr, raw = data
    return make_array([descr, [], "C", raw])[()]


def _descr(dtype: Any) -> Any:
    """A dtype as text, or as a list of [name, dtype] and [name, dtype, shape]; Cannot unless it comes back the same."""
    if dtype.hasobject or dtype.metadata:
        raise Cannot(f"an array of dtype {dtype} holds more than numbers and text")
    try:
        data = _listed(_numpy().lib.format.dtype_to_descr(dtype))
        same = _dtype(data)
    except (ValueError, TypeError) as error:
        raise Cannot(f"dtype {dtype}: {error}") from None
    if same != dtype or same.type is not dtype.type:
        raise Cannot(f"dtype {dtype} would not come back the same")
    return data


def _listed(descr: Any) -> Any:
    return [_listed(part) for part in descr] if isinstance(descr, list | tuple) else descr


def _dtype(data: Any) -> Any:
    return _numpy().lib.format.descr_to_dtype(_field_tuples(data) if isinstance(data, list) else data)


def _field_tuples(fields: Any) -> Any:
    """Fields as numpy spells them: tuples of a name (or title and name), a dtype and perhaps a shape."""
    return [(_tupled(name), _inner(dtype), *map(_tupled, shape)) for name, dtype, *shape in fields]


def _inner(dtype: Any) -> Any:
    return _field_tuples(dtype) if isinstance(dtype, list) else dtype


def _tupled(data: Any) -> Any:
    return tuple(data) if isinstance(data, list) else data


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise Unavailable("a numpy array is stored here", hint="Install numpy.") from None
    return numpy
