"""Values that are neither tensors nor containers of them, as JSON: those that the shared serializer knows (P7).

JSON's own types stand for themselves; everything else is an object with one key that begins with `$`. The plainest
values are written here, so that a machine without the serializer's libraries can still save tensors.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections import Counter, OrderedDict, defaultdict
from typing import Any

from holdfast.errors import Damaged, Refused

_HINT = "Save something else in its place, or register its class with holdfast.serde.register."

_CONTAINERS = (dict, list, tuple, OrderedDict, defaultdict, Counter)

_INT_MAX_BITS = 14_000
"""What Python writes as digits, and reads again, is limited to 4,300 of them."""


def encode(value: Any, where: str) -> Any:
    """What stands for a value in JSON; Refused, with its path, if nothing does."""
    kind = type(value)
    if kind is int and value.bit_length() > _INT_MAX_BITS:
        raise Refused(f"{where} cannot be saved: it is a number of too many digits", hint="Save it as bytes.")
    if value is None or kind is bool or kind is int or (kind is str and _is_text(value)):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    try:
        from holdfast.serde import Serde, to_json  # its libraries, for what is not plain
    except ImportError:
        what = f"{where} cannot be saved: its type is {kind.__module__}.{kind.__qualname__}"
        raise Refused(what, hint="Install holdfast with its dependencies, or save a plainer value.") from None
    what = f"{where} cannot be saved: its type is {kind.__module__}.{kind.__qualname__}"
    try:
        found = json.loads(to_json(Serde().encode(value, where)))
    except Refused as error:
        raise Refused(what, hint=_HINT) from error
    # P2: a container of a class of its own is not taken for a plain one, which `tree` writes and reads in its own way
    if isinstance(value, dict | list | tuple) and kind not in _CONTAINERS and "$object" not in found:
        raise Refused(what, hint=_HINT)
    return found


def decode(mark: str, value: Any) -> Any:
    """The value of an object with one key `mark`; Damaged if it is none that `encode` makes."""
    try:
        if mark == "$float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
        if mark == "$bytes":
            return base64.b64decode(value, validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Damaged(f"{mark} does not hold what it should: {error}", hint="Use another checkpoint.") from None
    from holdfast.serde import Serde, from_json  # as above

    return Serde().decode(from_json(json.dumps({mark: value})))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
