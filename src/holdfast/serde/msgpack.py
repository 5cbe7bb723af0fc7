"""MessagePack, and what else of msgspec is used: the only file that imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import UNSET
from msgspec.msgpack import Ext

from holdfast.errors import Damaged

__all__ = [
    "UNSET",
    "Ext",
    "decode",
    "decode_byte_strings",
    "encode",
    "is_struct",
    "make_decoder",
    "make_struct",
    "struct_defaults",
]

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Exact of None, bool, int, float, str, bytes, list, dict with str keys, and Ext; of nothing else."""

_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError, MemoryError)


def make_decoder(
    ext_hook: Callable[[int, memoryview], Any] | None, kind: Any = Any
) -> Callable[[bytes | memoryview], Any]:
    """A function that reads one value; Damaged if the bytes are not one, or not one of this kind."""
    read = msgspec.msgpack.Decoder(kind, ext_hook=ext_hook).decode

    def decode(data: bytes | memoryview) -> Any:
        try:
            return read(data)
        except _MALFORMED as error:
            raise Damaged(f"stored data is corrupt: {error}", hint="Use another checkpoint.") from None

    return decode


decode = make_decoder(None)
"""Reads a value with its extensions as `Ext`, untouched."""
decode_byte_strings: Callable[[bytes | memoryview], list[bytes]] = make_decoder(None, list[bytes])
"""Reads an array of byte strings."""


def is_struct(cls: type) -> bool:
    return issubclass(cls, msgspec.Struct)


def struct_defaults(cls: type) -> dict[str, Callable[[], Any] | None]:
    """The names of a struct's fields, each with what gives its default (None: it has none)."""
    return {each.name: _default(each) for each in msgspec.structs.fields(cast("type[msgspec.Struct]", cls))}


def make_struct(cls: type, given: dict[str, Any], fields: dict[str, Any]) -> Any:
    """Make a struct whose fields are these, whatever its `__post_init__` makes of those that it is given."""
    made = cls(**given)
    for name, value in fields.items():
        msgspec.structs.force_setattr(made, name, value)
    return made


def _default(field: Any) -> Callable[[], Any] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        return cast("Callable[[], Any]", field.default_factory)
    return None if field.default is msgspec.NODEFAULT else lambda: field.default
