"""Names of checkpoints: ids that sort by sequence, and the references people type."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import Refused

_ALPHABET = "0123456789abcdefhjkmnpqrstuvwxyz"  # 32 characters; no g, so that git does not read a description into it
_RANDOM = 8
_ID = r"([a-z])([1-9][0-9]*)-[0-9a-z]{8}"
_ID_PREFIX = r"[a-i][1-9][0-9]*(-[0-9a-z]*)?"  # of up to a thousand million checkpoints; `v1` is a name
_LATEST = r"latest(?:~0*([0-9]{1,18}))?"  # one further back than any store has is no checkpoint
_NAME = r"[^\x00-\x1f\x7f~\ud800-\udfff]{1,200}"


class Latest(NamedTuple):
    """The newest checkpoint, or one so many before it."""

    back: int


def new_id(sequence: int) -> str:
    """An id such as `c123-x7k2mqrs`: how many digits (a letter), the sequence number, chance.

    Ids sort as text in the order of their sequence numbers, and the part before the dash is a unique prefix.
    """
    digits = str(sequence)
    chance = "".join(_ALPHABET[byte % 32] for byte in os.urandom(_RANDOM))
    return f"{chr(ord('a') + len(digits) - 1)}{digits}-{chance}"


def sequence_of(checkpoint_id: str) -> int | None:
    """The sequence number in an id; None if it is not one."""
    match = re.fullmatch(_ID, checkpoint_id)
    return int(match[2]) if match and ord(match[1]) - ord("a") + 1 == len(match[2]) else None


def greatest_sequence(names: Iterable[str]) -> int:
    """The greatest number among ids; whatever is none is passed over. Ids sort by number, so few of them are read."""
    return next((number for name in sorted(names, reverse=True) if (number := sequence_of(name))), 0)


def parse_latest(ref: str) -> Latest | None:
    """Read `latest` and `latest~2`."""
    match = re.fullmatch(_LATEST, ref)
    return Latest(int(match[1] or 0)) if match else None


def looks_like_id(ref: str) -> bool:
    """Whether a text is an id or the beginning of one, and so the name of nothing."""
    return re.fullmatch(_ID_PREFIX, ref) is not None


def check_name(name: str) -> None:
    """Refused unless a name can be told from an id and from `latest`."""
    if not isinstance(name, str):
        raise Refused("a checkpoint's name is not text", hint=f"It is of type {type(name).__name__}.")
    if not re.fullmatch(_NAME, name) or name.strip() != name or looks_like_id(name) or name.startswith("latest"):
        raise Refused(
            f"{name!r} cannot name a checkpoint",
            hint="Use up to 200 characters without ~ or control characters; not `latest`, not something like an id.",
        )
