"""numpy arrays and scalars: dtype, shape, order and bytes. The only file that imports numpy."""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import Unavailable
from holdfast.serde.types import Unstorable


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
    """[dtype, bytes]; of text the text, since numpy takes zeros at the end for padding."""
    if type(scalar) is _numpy().str_:
        return ["str", "".join(scalar)]
    if type(scalar) is _numpy().bytes_:
        return ["bytes", bytes(scalar)]
    return [_descr(scalar.dtype), scalar.tobytes()]


def make_scalar(data: Any) -> Any:
    descr, raw = data
    if descr == "str" and type(raw) is str:
        return _numpy().str_(raw)
    if descr == "bytes" and type(raw) is bytes:
        return _numpy().bytes_(raw)
    return make_array([descr, [], "C", raw])[()]


def _descr(dtype: Any) -> Any:
    """A dtype as text, or as a list of [name, dtype] and [name, dtype, shape], or with all that it says as a dict;
    Unstorable unless it comes back the same."""
    if dtype.hasobject or _has_metadata(dtype):
        raise Unstorable(f"an array of dtype {dtype} contains more than numbers and text")
    for describe in (_numpy().lib.format.dtype_to_descr, _whole):
        try:
            data = _listed(describe(dtype))
            same = _dtype(data)
        except (ValueError, TypeError):
            continue
        if repr(same) == repr(dtype) and same == dtype and same.type is dtype.type:
            return data
    raise Unstorable(f"dtype {dtype} would not come back the same")


def _has_metadata(dtype: Any) -> bool:
    if dtype.subdtype is not None:
        return bool(dtype.metadata) or _has_metadata(dtype.subdtype[0])
    return bool(dtype.metadata) or any(_has_metadata(field[0]) for field in (dtype.fields or {}).values())


def _whole(dtype: Any) -> Any:
    """What a list of fields leaves out: whether they are aligned, where they lie, whether they are a record."""
    if dtype.subdtype is not None:
        return {"base": _whole(dtype.subdtype[0]), "shape": dtype.subdtype[1]}
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": dtype.names,
        "formats": [_whole(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [field[2] if len(field) > 2 else None for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
        "record": dtype.type is _numpy().record,
    }


def _made_whole(data: Any) -> Any:
    numpy = _numpy()
    if isinstance(data, str):
        return numpy.dtype(data)
    if "base" in data:
        return numpy.dtype((_made_whole(data["base"]), tuple(data["shape"])))
    said = {name: data[name] for name in ("names", "offsets", "titles", "itemsize")}
    made = numpy.dtype(said | {"formats": [_made_whole(each) for each in data["formats"]]}, align=data["aligned"])
    return numpy.dtype((numpy.record, made)) if data["record"] else made


def _listed(descr: Any) -> Any:
    if isinstance(descr, dict):
        return {name: _listed(part) for name, part in descr.items()}
    return [_listed(part) for part in descr] if isinstance(descr, list | tuple) else descr


def _dtype(data: Any) -> Any:
    if isinstance(data, dict):
        return _made_whole(data)
    return _numpy().lib.format.descr_to_dtype(_field_tuples(data) if isinstance(data, list) else data)


def _field_tuples(fields: Any) -> Any:
    """Fields as numpy writes them: tuples of a name (or title and name), a dtype and perhaps a shape."""
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
