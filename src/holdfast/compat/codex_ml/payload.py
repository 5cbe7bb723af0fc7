"""A state in one file: as `torch.save` writes it, or as lossless JSON where PyTorch is not there.

Values that `torch.load(weights_only=True)` would refuse, such as NumPy arrays and sets, are stored as bytes of
`holdfast.serde`. Reading never unpickles: PyTorch reads its files with `weights_only`, and old pickles are read if they
have only plain values (P7).
"""

from __future__ import annotations

import io
import re
from collections import OrderedDict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from holdfast.compat.codex_ml.frameworks import torch
from holdfast.errors import HoldfastError, Refused
from holdfast.safe_pickle import read_pickle
from holdfast.serde import Serde, from_json, to_json

_KEY = "__holdfast__"
_ZIP = b"PK"
_PLAIN = (bool, int, float, str, bytes, type(None))


def has_torch() -> bool:
    """Whether PyTorch is there."""
    return torch is not None


def write(value: Any, out: Any, *, use_torch: bool) -> None:
    """Write a state to an open file. Refused, with the path of the value, if something in it cannot be stored."""
    if use_torch:
        torch.save(_safe(value, "state"), out)
    else:
        out.write(to_json(Serde().encode(value, "state")).encode())


def dumps(value: Any, *, use_torch: bool) -> bytes:
    """Return what `write` writes."""
    out = io.BytesIO()
    write(value, out, use_torch=use_torch)
    return out.getvalue()


def read(path: Path, *, map_location: Any = "cpu", use_torch: bool = True) -> Any:
    """Return the state in a file of `write`, of `torch.save`, or of `pickle` if it has only plain values."""
    with path.open("rb") as file:
        is_zip = file.read(2) == _ZIP
    if torch is not None and (use_torch or is_zip):
        try:
            return _exact(torch.load(path, map_location=map_location, weights_only=True))
        except Exception as error:
            return _read_other(path.read_bytes(), error)
    return _read_other(path.read_bytes(), None)


def loads(data: bytes, *, map_location: Any = "cpu", torch_module: Any = None) -> Any:
    """Return the state in bytes, as `read` does."""
    load = getattr(torch if torch_module is None else torch_module, "load", None)
    if load is None:
        return _read_other(data, None)
    try:
        return _exact(load(io.BytesIO(data), map_location=map_location, weights_only=True))
    except Exception as error:
        return _read_other(data, error)


def _read_other(data: bytes, refused: Exception | None) -> Any:
    """Return what bytes that PyTorch has refused contain."""
    if data[:1] in (b"{", b"["):
        return Serde().decode(from_json(data.decode()))
    if data[:2] == _ZIP:
        if refused is None:
            raise RuntimeError("torch is required to load checkpoints of torch")
        if isinstance(refused, UnpicklingError):  # PyTorch's own message advises to run what the file contains
            named = re.search(r"Unsupported global: GLOBAL (\S+)", str(refused))
            what = f" such as {named[1]}" if named else ""
            raise Refused(
                f"the file contains objects{what}, and is read with weights_only", hint="Save plain values and tensors."
            ) from refused
        raise refused  # a damaged file of PyTorch
    return read_pickle(data)


def _safe(value: Any, where: str) -> Any:
    """Return a value that PyTorch reads with `weights_only`; containers in which nothing changes stay themselves."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor | torch.dtype | torch.device | torch.Size):
        return value
    if kind in (dict, OrderedDict) and _KEY not in value and all(type(key) in (str, int) for key in value):
        made = {key: _safe(each, f"{where}[{key!r}]") for key, each in value.items()}
        return value if all(made[key] is each for key, each in value.items()) else made
    if kind in (list, tuple):
        items = [_safe(each, f"{where}[{place}]") for place, each in enumerate(value)]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else kind(items)
    return {_KEY: Serde().encode(value, where)}


def _exact(value: Any) -> Any:
    """Return the value that `_safe` was given."""
    kind = type(value)
    if kind is dict and value.keys() == {_KEY}:
        return Serde().decode(value[_KEY])
    if kind is dict:
        return {key: _exact(each) for key, each in value.items()}
    return kind(map(_exact, value)) if kind in (list, tuple) else value


READ_ERRORS = (HoldfastError, OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError)
"""What reading a damaged file may raise; errors of pickle and zip files are among them or their subclasses."""
