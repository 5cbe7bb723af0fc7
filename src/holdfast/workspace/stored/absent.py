"""What to say of a reference that finds nothing: was it deleted, is it misspelt, is anything saved at all?"""

from __future__ import annotations

import difflib
import re

from holdfast.errors import NotFound
from holdfast.workspace.stored.catalog import Catalog
from holdfast.workspace.stored.ids import new_id, parse_latest

_NUMBERED = re.compile(r"([a-i][1-9][0-9]{0,8})(-.*)?")
_SHOWN_MAX_CHARS = 100
_LOG = "See `holdfast log`."


def absence(ref: str, catalog: Catalog, *, floor: int) -> NotFound:
    """The error for a reference, with the best hint. `floor` is the greatest number a deleted checkpoint had."""
    shown = repr(ref if len(ref) <= _SHOWN_MAX_CHARS else ref[: _SHOWN_MAX_CHARS - 1] + "…")
    greatest = catalog.greatest()
    if greatest is None:
        return NotFound(f"there is no checkpoint {shown}", hint="Nothing is saved yet: `holdfast save`.")
    if parse_latest(ref) is not None:
        saves = catalog.saves()
        hint = f"The oldest save is latest~{saves - 1}." if saves else "See `holdfast log --all`."
        return NotFound(f"there is no checkpoint {shown}", hint=hint)
    number = _number(ref)
    if number is not None:
        other = catalog.by_prefix(f"{ref.partition('-')[0]}-")
        if other:
            return NotFound(f"there is no checkpoint {shown}", hint=f"That number belongs to {other[0].id}.")
        if number <= max(greatest.sequence, floor):
            return NotFound(
                f"there is no checkpoint {shown} any more",
                hint="It was deleted or pruned, and its number is not given again. " + _LOG,
            )
    near = difflib.get_close_matches(ref, [*catalog.names(), "latest"], n=1) if ref.isprintable() else []
    return NotFound(f"there is no checkpoint {shown}", hint=f"Did you mean {near[0]}?" if near else _LOG)


def _number(ref: str) -> int | None:
    """The number in an id or in its beginning; None if there is none, or its letter does not fit."""
    match = _NUMBERED.fullmatch(ref)
    if match is None:
        return None
    number = int(match[1][1:])
    return number if new_id(number).startswith(f"{match[1]}-") else None
