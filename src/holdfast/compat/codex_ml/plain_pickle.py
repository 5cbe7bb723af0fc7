"""Plain values of a pickle, read from its opcodes: nothing is unpickled, imported or called (P7)."""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from pickle import UnpicklingError
from typing import Any

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_KNOWN = frozenset({("collections", "OrderedDict"), ("_codecs", "encode")})
"""What a pickle may name: how Python writes an ordered dict, and bytes in old protocols."""


def read_plain(data: bytes) -> Any:
    """Return the plain value of a pickle. UnpicklingError, with the name, if it needs a class or a function."""
    try:
        return _Reader().read(data)
    except UnpicklingError:
        raise
    except Exception as error:  # whatever bad bytes lead to
        raise UnpicklingError(f"this is not a pickle of plain values: {type(error).__name__}: {error}") from None


class _Reader:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        for opcode, argument, at in pickletools.genops(data):
            name = opcode.name
            if name == "STOP":
                if at != len(data) - 1:
                    raise UnpicklingError("something follows the pickle")  # such as an old file of PyTorch
                [value] = self._stack
                return value
            self._step(name, argument)
        raise UnpicklingError("the pickle is cut short")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("LIST", "TUPLE", "FROZENSET", "DICT"):
            items = self._from_mark()
            made = (
                dict(_pairs(items))
                if name == "DICT"
                else {"LIST": list, "TUPLE": tuple, "FROZENSET": frozenset}[name](items)
            )
            stack.append(made)
        elif name in ("APPEND", "SETITEM"):
            count = 1 if name == "APPEND" else 2
            items, stack[-count:] = stack[-count:], []
            self._extend(items)
        elif name in ("APPENDS", "SETITEMS", "ADDITEMS"):
            self._extend(self._from_mark())
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name.endswith("PUT"):
            self._memo[argument] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self._memo[argument])
        elif name == "POP":
            stack.pop()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._name(argument)
        elif name == "REDUCE":
            self._reduce()
        elif name not in ("PROTO", "FRAME"):
            raise UnpicklingError(f"opcode {name} makes objects, which are not plain values")

    def _from_mark(self) -> list[Any]:
        at = len(self._stack) - 1 - self._stack[::-1].index(_MARK)
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, dict):
            target.update(_pairs(items))
        elif isinstance(target, set):
            target.update(items)
        else:
            target.extend(items)

    def _name(self, argument: str | None) -> None:
        if argument is None:
            name, module = self._stack.pop(), self._stack.pop()
        else:
            module, _, name = argument.partition(" ")
        if (module, name) not in _KNOWN:
            raise UnpicklingError(f"Class {module}.{name} not in whitelist: only plain values are read")
        self._stack.append((_MARK, name))

    def _reduce(self) -> None:
        arguments, (_, name) = self._stack.pop(), self._stack.pop()
        if name == "encode":
            text, encoding = arguments
            self._stack.append(text.encode(encoding))
        else:
            self._stack.append(OrderedDict(*arguments))


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=True))
