"""Reading pickled values without unpickling: a machine for pickle's opcodes that builds plain values only (P7).

Nothing is imported and nothing is called by a stored name. A value that needs a class is Refused, with its name.
"""

from __future__ import annotations

import io
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from holdfast.errors import Damaged, Refused

NODES_MAX = 20_000_000
"""How many values one pickled value may consist of, counting each as often as it occurs: a few bytes may stand for
billions of them."""

_MARK = object()


class _Global(NamedTuple):
    module: str
    name: str


def _date(data: bytes | str) -> date:
    raw = data.encode("latin-1") if isinstance(data, str) else data
    return date(raw[0] * 256 + raw[1], raw[2], raw[3])


def _clock(raw: bytes) -> tuple[int, int, int, int]:
    return (raw[0] & 0x7F, raw[1], raw[2], int.from_bytes(raw[3:6]))


def _datetime(data: bytes | str, tzinfo: Any = None) -> datetime:
    raw = data.encode("latin-1") if isinstance(data, str) else data
    fold = raw[2] >> 7
    return datetime(raw[0] * 256 + raw[1], raw[2] & 0x7F, raw[3], *_clock(raw[4:]), tzinfo=_no_zone(tzinfo), fold=fold)


def _time(data: bytes | str, tzinfo: Any = None) -> time:
    raw = data.encode("latin-1") if isinstance(data, str) else data
    return time(*_clock(raw), tzinfo=_no_zone(tzinfo), fold=raw[0] >> 7)


def _no_zone(tzinfo: Any) -> Any:
    from datetime import tzinfo as base

    if tzinfo is not None and not isinstance(tzinfo, base):
        raise ValueError("a time zone that is none")
    return tzinfo


def _timezone(offset: timedelta, *name: str) -> Any:
    from datetime import timezone

    return timezone(offset, *name)


def _encode(text: str, coding: str) -> bytes:
    if coding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in the coding {coding}")
    return text.encode("latin-1")


def _empty_bytes() -> bytes:
    return b""  # how old protocols write it


_MAKERS: dict[tuple[str, str], Callable[..., Any]] = {
    **{
        (module, made.__name__): made
        for module in ("builtins", "__builtin__")
        for made in (set, frozenset, complex, bytearray)
    },
    **dict.fromkeys((("builtins", "bytes"), ("__builtin__", "bytes")), _empty_bytes),
    ("collections", "OrderedDict"): OrderedDict,
    ("datetime", "datetime"): _datetime,
    ("datetime", "date"): _date,
    ("datetime", "time"): _time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): _timezone,
    ("decimal", "Decimal"): Decimal,
    ("_codecs", "encode"): _encode,
}
"""What may be made. Each is called with plain values, makes a plain value and does nothing else."""


def read_pickle(data: bytes) -> Any:
    """Read a pickled value. Refused if it needs a class or a call; Damaged if it is no pickle."""
    try:
        value = _Machine().run(data)
    except (Refused, Damaged):
        raise
    except Exception as error:  # whatever hostile opcodes lead to, such as an empty stack or a key that is a list
        raise Damaged(f"a pickled value cannot be read ({type(error).__name__}: {error})") from None
    _check_size(value)
    return value


class _Machine:
    """Executes the opcodes that build plain values."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        stack = self._stack
        for opcode, argument, at in pickletools.genops(io.BytesIO(data)):
            name = opcode.name
            if name == "STOP":
                if at != len(data) - 1:
                    raise Damaged("a pickled value is followed by other bytes")  # such as an old file of PyTorch
                value = stack.pop()
                _check_plain(value)
                return value
            if name in _PUSHED:
                stack.append(argument if name not in _CONSTANTS else _CONSTANTS[name]())
            else:
                step = getattr(self, f"_{name.lower()}", None)
                if step is None:
                    raise Refused(f"a pickled value needs {name}, which is never executed")
                step(argument)
        raise Damaged("a pickled value is cut short")

    def _to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        found = self._stack[at + 1 :]
        del self._stack[at:]
        return found

    # opcodes, each named after its own

    def _proto(self, version: int) -> None:
        if version > 5:
            raise Refused(f"a pickled value is of the unknown protocol {version}")

    def _frame(self, size: int) -> None:
        pass

    def _mark(self, _: None) -> None:
        self._stack.append(_MARK)

    def _pop(self, _: None) -> None:
        self._stack.pop()

    def _pop_mark(self, _: None) -> None:
        self._to_mark()

    def _dup(self, _: None) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, key: int) -> None:
        self._memo[key] = self._stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, key: int) -> None:
        self._stack.append(self._memo[key])

    _binget = _long_binget = _get

    def _list(self, _: None) -> None:
        self._stack.append(self._to_mark())

    def _tuple(self, _: None) -> None:
        self._stack.append(tuple(self._to_mark()))

    def _tuple1(self, _: None) -> None:
        self._stack[-1:] = [tuple(self._stack[-1:])]

    def _tuple2(self, _: None) -> None:
        self._stack[-2:] = [tuple(self._stack[-2:])]

    def _tuple3(self, _: None) -> None:
        self._stack[-3:] = [tuple(self._stack[-3:])]

    def _dict(self, _: None) -> None:
        self._stack.append({})
        self._set_pairs(self._stack[-1], self._popped_before_last())

    def _popped_before_last(self) -> list[Any]:
        made = self._stack.pop()
        items = self._to_mark()
        self._stack.append(made)
        return items

    def _frozenset(self, _: None) -> None:
        self._stack.append(frozenset(self._to_mark()))

    def _append(self, _: None) -> None:
        item = self._stack.pop()
        self._of(list).append(item)

    def _appends(self, _: None) -> None:
        items = self._to_mark()
        self._of(list).extend(items)

    def _additems(self, _: None) -> None:
        items = self._to_mark()
        self._of(set).update(items)

    def _setitem(self, _: None) -> None:
        pair = self._stack[-2:]
        del self._stack[-2:]
        self._set_pairs(self._of(dict), pair)

    def _setitems(self, _: None) -> None:
        pairs = self._to_mark()
        self._set_pairs(self._of(dict), pairs)

    def _set_pairs(self, into: Any, pairs: list[Any]) -> None:
        into.update(zip(pairs[::2], pairs[1::2], strict=True))

    def _of(self, kind: type) -> Any:
        """The container on top of the stack: never an object of another kind, whose methods would run."""
        top = self._stack[-1]
        if type(top) is not kind and not (kind is dict and type(top) is OrderedDict):
            raise ValueError(f"no {kind.__name__} to add to")
        return top

    def _global(self, names: str) -> None:
        module, _, name = names.partition(" ")
        self._stack.append(_Global(module, name))

    def _stack_global(self, _: None) -> None:
        module, name = self._stack[-2:]
        self._stack[-2:] = [_Global(str(module), str(name))]

    def _reduce(self, _: None) -> None:
        arguments = self._stack.pop()
        self._stack[-1] = self._made(self._stack[-1], arguments)

    _newobj = _reduce

    def _made(self, what: Any, arguments: Any) -> Any:
        if type(what) is not _Global or type(arguments) is not tuple:
            raise ValueError("a call of what is no class")
        make = _MAKERS.get((what.module, what.name))
        if make is None:
            raise Refused(f"a pickled value needs {what.module}.{what.name}, and no class is loaded by a stored name")
        _check_plain(arguments)
        return make(*arguments)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_PUSHED = frozenset(_CONSTANTS) | {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip


def _check_plain(value: Any) -> None:
    if type(value) is _Global or value is _MARK:
        raise Refused("a pickled value contains a class or a function, which is never loaded")
    if type(value) is tuple:
        for each in value:
            _check_plain(each)


def _check_size(value: Any) -> None:
    """Refused if a value contains itself, a class, or more values than `NODES_MAX` when each counts where it occurs."""
    sizes: dict[int, int] = {}
    entered: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    while stack:
        each, is_done = stack.pop()
        if type(each) is _Global or each is _MARK:
            raise Refused("a pickled value contains a class or a function, which is never loaded")
        below = _items(each)
        if below is None or (id(each) in sizes and not is_done):
            continue
        if is_done:
            entered.discard(id(each))
            sizes[id(each)] = 1 + sum(sizes.get(id(item), 1) for item in below)
            if sizes[id(each)] > NODES_MAX:
                raise Refused(f"a pickled value has more than {NODES_MAX:,} parts")
            continue
        if id(each) in entered:
            raise Refused("a pickled value contains itself")
        entered.add(id(each))
        stack.append((each, True))
        stack += [(item, False) for item in below]


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, list | tuple | set | frozenset) else None
