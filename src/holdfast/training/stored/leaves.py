"""JSON of values that are neither tensors nor containers of them: those that `holdfast.serde` supports (P7).

The form is that of `holdfast.serde.jsonform`: JSON's own types are stored as they are, other values are objects with
one key that begins with `$`. Simple values are encoded here, for two reasons: a machine without the libraries of
`holdfast.serde` can still save tensors, and a large integer is stored as digits, which every JSON parser reads.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Any

from holdfast.errors import Damaged, Refused

_HINT = "Save another value instead, or register its class with holdfast.serde.register."

_CONTAINERS = (dict, list, tuple, OrderedDict, defaultdict, Counter)

_INT_MAX_BITS = 14_000
"""Python converts integers of at most 4,300 digits to and from text."""


def encode(value: Any, where: str) -> Any:
    """Return the JSON of a value. Refused, with its path, if it has none."""
    kind = type(value)
    if kind is int and value.bit_length() > _INT_MAX_BITS:
        raise Refused(f"{where} cannot be saved: it is an integer with too many digits", hint="Save it as bytes.")
    if value is None or kind is bool or kind is int or (kind is str and _is_text(value)):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    try:
        from holdfast.serde import Serde, to_tagged  # start-up cost, and optional libraries
    except ImportError:
        what = f"{where} cannot be saved: its type is {kind.__module__}.{kind.__qualname__}"
        raise Refused(what, hint="Install holdfast with its dependencies, or save a simpler value.") from None
    what = f"{where} cannot be saved: its type is {kind.__module__}.{kind.__qualname__}"
    try:
        found = to_tagged(Serde().encode(value, where))
    except Refused as error:
        raise Refused(what, hint=_HINT) from error
    # P2: a container of another class must not come back as a plain dict, list or tuple
    if isinstance(value, dict | list | tuple) and kind not in _CONTAINERS and "$object" not in found:
        raise Refused(what, hint=_HINT)
    return found


_PLAIN = frozenset(
    f"${name}"
    for name in (
        "float", "int", "complex", "scalar", "text", "bytes", "bytearray", "tuple", "set", "frozenset", "map", "dict",
        "ordered_dict", "counter",
    )
)  # fmt: skip
"""Tags of numbers, text, bytes and containers: what `torch.load(weights_only=True)` loads besides tensors."""


def is_plain(tag: str, value: Any) -> bool:
    """Whether a value, with all that it contains, is of such types: no class of anybody is needed to load it."""
    found: list[Any] = [{tag: value}]
    while found:
        each = found.pop()
        if isinstance(each, dict):
            if any(key.startswith("$") and key not in _PLAIN for key in each):
                return False
            found += each.values()
        elif isinstance(each, list):
            found += each
    return True


def decode(tag: str, value: Any) -> Any:
    """Return the value of an object with the one key `tag`. Damaged if `encode` returns no such object."""
    try:
        if tag == "$float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
        if tag == "$bytes":
            return base64.b64decode(value, validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Damaged(f"stored value is corrupt: bad {tag}: {error}", hint="Use another checkpoint.") from None
    from holdfast.serde import Serde, from_tagged  # as above

    return Serde().decode(from_tagged({tag: value}))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
