"""Exit codes: one per reaction a caller can have. The table is in the docstring of `holdfast.cli`."""

from __future__ import annotations

import sys
from enum import IntEnum

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable


class Exit(IntEnum):
    """What the program's exit status says."""

    DONE = 0
    NO_MATCH = 1
    """As of `grep`: a script asks with it whether a text is there."""
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    DAMAGED = 5
    REFUSED = 6
    UNAVAILABLE = 7
    INCOMPLETE = 8
    BUG = 70
    """As `EX_SOFTWARE` of BSD; 1 has another meaning."""
    INTERRUPTED = 130

    @property
    def kind(self) -> str:
        """The word that an error document has for it."""
        return self.name.lower().replace("_", "-")


_OF_ERROR: dict[type[HoldfastError], Exit] = {
    NotFound: Exit.NOT_FOUND,
    Conflict: Exit.CONFLICT,
    Damaged: Exit.DAMAGED,
    Refused: Exit.REFUSED,
    Unavailable: Exit.UNAVAILABLE,
}


def of_error(error: HoldfastError) -> Exit:
    """Return the exit code of an error of the library."""
    location = sys.modules.get("holdfast.location")  # its own error, if it is loaded: most commands need none of it
    if location is not None and isinstance(error, location.InvalidOption):
        return Exit.USAGE
    return next((code for kind, code in _OF_ERROR.items() if isinstance(error, kind)), Exit.BUG)
