"""`ScanStart`: when a scan began, by the clock of file times and by one that nobody sets."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import time
from collections.abc import Callable
from typing import NamedTuple

_SET_BACK_NS = 25_000_000  # less than what `young` allows for; more than a clock that is only corrected loses in a scan


class ScanStart(NamedTuple):
    """A moment, by two clocks."""

    file_ns: int
    steady_ns: int

    @classmethod
    def now(cls, clock: Callable[[], int]) -> "ScanStart":
        """This moment. `clock`: nanoseconds, of the clock that stamps files."""
        return cls(clock(), time.monotonic_ns())

    def is_doubtful(self, clock: Callable[[], int]) -> bool:
        """Whether the clock was set back since: what is stamped after this moment may look older than it (P2)."""
        steady_ns = time.monotonic_ns()  # before `clock`: a pause between the two must not look like it
        return clock() - self.file_ns < steady_ns - self.steady_ns - _SET_BACK_NS
