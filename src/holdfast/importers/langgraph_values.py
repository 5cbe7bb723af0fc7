"""Reading the values that LangGraph's serializer wrote, without importing or calling what they name (P7).

A value names its class by module and name. Those of a closed table are made: plain types of Python, LangGraph's and
LangChain's own classes, and classes that the caller passes. Of any other class the plain values are kept, and reported.
"""

from __future__ import annotations

import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from holdfast.adapters.langgraph.classes import Classes
from holdfast.errors import Damaged, HoldfastError
from holdfast.escaping import escape
from holdfast.importers.model import Losses
from holdfast.safe_pickle import read_pickle
from holdfast.serde import arrays
from holdfast.serde.msgpack import make_decoder

_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_1, _PYDANTIC_2, _ARRAY, _DELTA = range(8)
_PATHS = {"Path": pathlib.Path, "PosixPath": pathlib.PosixPath, "PurePosixPath": pathlib.PurePosixPath}
_TABLE: dict[tuple[str, str], Callable[..., Any]] = {
    ("datetime", "datetime"): datetime.fromisoformat,
    ("datetime", "date"): date,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("uuid", "UUID"): uuid.UUID,
    ("decimal", "Decimal"): Decimal,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("collections", "deque"): deque,
    ("zoneinfo", "ZoneInfo"): zoneinfo.ZoneInfo,
    ("re", "compile"): re.compile,
    **{
        ("ipaddress", f"IPv{version}{what}"): getattr(ipaddress, f"IPv{version}{what}")
        for version in (4, 6)
        for what in ("Address", "Network", "Interface")
    },
    **{(module, name): cls for module in ("pathlib", "pathlib._local") for name, cls in _PATHS.items()},
}


class ValueReader:
    """Reads the values of one source."""

    def __init__(self, classes: Classes, schemas: Iterable[type] = ()) -> None:
        """`schemas`: classes of the caller, which are registered in `classes`."""
        known = [*classes.classes(), *schemas]
        self._classes = {(cls.__module__, cls.__name__): cls for cls in known}
        self._by_name = {cls.__name__: cls for cls in classes.classes()}
        self._losses = Losses()
        self._decode = make_decoder(self._extension)

    def read(self, kind: str | None, data: bytes | None, losses: Losses) -> Any:
        """Read a value of one of LangGraph's types. Damaged or Refused if that is not possible."""
        self._losses = losses
        if kind is None or data is None or kind in ("null", "empty"):
            return None
        if kind == "bytes":
            return data
        if kind == "bytearray":
            return bytearray(data)
        if kind == "msgpack":
            return self._decode(data)
        if kind == "json":
            return self.read_json(data, losses)
        if kind == "pickle":
            return read_pickle(data)
        why = "it is encrypted" if "+" in kind else f"its type {escape(kind)!r} is unknown"
        raise Damaged(f"a value cannot be read: {why}")

    def read_json(self, text: bytes | str, losses: Losses) -> Any:
        """Read JSON in which objects may stand for classes, as older versions wrote it."""
        self._losses = losses
        try:
            return json.loads(text, object_hook=self._from_json)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"a value is not JSON: {error}") from None

    def _extension(self, code: int, data: memoryview) -> Any:
        inner = self._decode(data)
        try:
            if code == _DELTA:
                return _DeltaSnapshot(inner)
            if code == _ARRAY:
                return arrays.make_array(inner)
            module, name, argument, *_ = inner
            if code in (_SINGLE, _METHOD):
                return self._made(module, name, (argument,), {}, argument)
            if code == _POSITIONAL:
                return self._made(module, name, tuple(argument), {}, argument)
            if code in (_KEYWORDS, _PYDANTIC_1, _PYDANTIC_2):
                return self._made(module, name, (), dict(argument), argument)
        except HoldfastError:
            raise
        except Exception as error:  # hostile arguments may lead to any error of a constructor in the table
            raise Damaged(f"a value cannot be read ({type(error).__name__}: {error})") from None
        raise Damaged(f"a value has the unknown extension {code}")

    def _made(self, module: Any, name: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: Any) -> Any:
        make = _TABLE.get((module, name))
        if make is not None:
            return make(*args, **kwargs)
        cls = self._classes.get((module, name))
        if cls is None:
            self._losses.add(
                f"class {escape(str(module))}.{escape(str(name))}",
                "it is not known here, so its plain values are carried over",
            )
            return plain
        return _object(cls, args, kwargs)

    def _from_json(self, value: dict[str, Any]) -> Any:
        names = value.get("id")
        if value.get("lc") not in (1, 2) or value.get("type") != "constructor" or not isinstance(names, list):
            return value
        if not names or not all(isinstance(each, str) for each in names):
            return value
        args, kwargs = value.get("args") or (), value.get("kwargs") or {}
        module, name = ".".join(names[:-1]), names[-1]
        try:
            if value["lc"] == 1 and name in self._by_name:  # LangChain's own form, with names of old modules
                return _object(self._by_name[name], (), dict(kwargs))
            return self._made(module, name, tuple(args), dict(kwargs), kwargs or list(args))
        except HoldfastError:
            raise
        except Exception as error:  # as above
            raise Damaged(f"a value cannot be read ({type(error).__name__}: {error})") from None


def _object(cls: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """An object of a class in the table."""
    if cls is Send and len(args) == 3:
        return Send(args[0], args[1], timeout=args[2])
    if not hasattr(cls, "model_construct"):
        return cls(*args, **kwargs)
    try:
        return cls(**kwargs)
    except ValueError:  # it was valid when it was saved; the class has changed since
        return cls.model_construct(**kwargs)
