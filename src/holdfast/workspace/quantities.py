"""Sizes and times as people write them: `2 GiB`, `30d`."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import Refused

_SIZE = r"(\d+(?:\.\d+)?)\s*([kmgt]i?b|b|)"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SPAN = r"(\d+(?:\.\d+)?)\s*([smhdw])"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_size(text: str, what: str) -> int:
    """Bytes, from `1048576`, `500 MB` or `2 GiB`. Refused, with the name of what it is, if it is none."""
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise Refused(
            f"{what} is {text!r}, which is not a size", hint="Write a number of bytes, or a size such as 500 MB, 2 GiB."
        )
    unit = match[2].lower()
    base = 1024 if "i" in unit else 1000
    return int(float(match[1]) * base ** _POWERS[unit.rstrip("ib")])


def parse_span(text: str, what: str) -> timedelta:
    """A time, from `30d`, `12h`, `2w`. Refused, with the name of what it is, if it is none."""
    match = re.fullmatch(_SPAN, text.strip(), re.ASCII)
    if match is None:
        raise Refused(
            f"{what} is {text!r}, which is not a duration", hint="Write a number and s, m, h, d or w, such as 30d."
        )
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise Refused(f"{what} is {text!r}, which is too long", hint="Leave it out to keep for ever.") from None
