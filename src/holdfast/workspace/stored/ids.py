"""Names of checkpoints: ids that sort by sequence, and the references people type."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import Refused
from holdfast.validation import check_text

_ALPHABET = (
    "0123456789abcdefhjkmnpqrstuvwxyz"  # 32 characters; no g, so that git does not take an id for `git describe` output
)
_RANDOM = 8
_ID = r"([a-z])([1-9][0-9]*)-[0-9a-z]{8}"
_ID_PREFIX = r"[a-i][1-9][0-9]*(-[0-9a-z]*)?"  # up to 10^9 checkpoints; `v1` is a name
_LATEST = r"latest(?:~0*([0-9]{1,18}))?"  # more digits than any store has checkpoints
_SHORT = r"([a-i])([1-9][0-9]{0,8})(-[0-9a-z]*)?"
_NAME = r"[^\x00-\x1f\x7f~\ud800-\udfff]{1,200}"


class Latest(NamedTuple):
    """A reference to the newest save, or to the one `back` before it."""

    back: int


def new_id(sequence: int) -> str:
    """Make an id such as `c123-x7k2mqrs`: the number of digits (as a letter), the sequence number, a random part.

    Ids sort as text in the order of their sequence numbers, and the part before the dash is a unique prefix.
    """
    digits = str(sequence)
    chance = "".join(_ALPHABET[byte % 32] for byte in os.urandom(_RANDOM))
    return f"{_letter(digits)}{digits}-{chance}"


def _letter(digits: str) -> str:
    return chr(ord("a") + len(digits) - 1)


def sequence_of(checkpoint_id: str) -> int | None:
    """Return the sequence number in an id; None if the text is not an id."""
    match = re.fullmatch(_ID, checkpoint_id)
    return int(match[2]) if match and ord(match[1]) - ord("a") + 1 == len(match[2]) else None


def stored_prefix(ref: str) -> str | None:
    """Return the beginning of the stored id that a short id stands for; None if the text is no short id.

    People see and type the letter `a`, whatever the number of digits: `a14` and `b14` are both `b14-…`.
    """
    match = re.fullmatch(_SHORT, ref)
    if match is None:
        return None
    letter = _letter(match[2])
    return f"{letter}{match[2]}{match[3] or '-'}" if match[1] in ("a", letter) else None


def greatest_sequence(names: Iterable[str]) -> int:
    """Return the greatest number among ids; other texts are skipped. Ids sort by number, so few are parsed."""
    return next((number for name in sorted(names, reverse=True) if (number := sequence_of(name))), 0)


def parse_latest(ref: str) -> Latest | None:
    """Read `latest` and `latest~2`."""
    match = re.fullmatch(_LATEST, ref)
    return Latest(int(match[1] or 0)) if match else None


def looks_like_id(ref: str) -> bool:
    """Whether a text is an id or a prefix of one, and so cannot be a name."""
    return re.fullmatch(_ID_PREFIX, ref) is not None


def check_name(name: str) -> None:
    """Refuse a name that could be taken for an id or for `latest`."""
    check_text(name, "a checkpoint's name")
    is_reserved = looks_like_id(name) or name.startswith(("latest", "last-green", "@"))
    if not re.fullmatch(_NAME, name) or name.strip() != name or is_reserved:
        raise Refused(
            f"{name!r} cannot name a checkpoint",
            hint="Use up to 200 characters without ~ or control characters; not latest…, last-green…, @… or"
            " something like an id.",
        )
