"""The errors of Holdfast: one leaf for each reaction a caller can have.

HoldfastError
├── NotFound      no such checkpoint, name or path: ask for another
├── Conflict      the world moved since you looked: look again
├── Damaged       stored bytes are not what was stored: use another checkpoint, run verify
├── Refused       this would be wrong as asked: ask differently
└── Unavailable   the disk, a lock or a permission is in the way: mend it, try again
"""

from __future__ import annotations


class HoldfastError(Exception):
    """What is so, in one sentence, and what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class NotFound(HoldfastError):
    """There is no such thing."""


class Conflict(HoldfastError):
    """Something changed since it was looked at, or is taken already."""


class Damaged(HoldfastError):
    """Stored bytes are not the bytes that were stored."""


class Refused(HoldfastError):
    """The request is understood and would do harm, or makes no sense."""


class Unavailable(HoldfastError):
    """Something outside Holdfast is in the way."""
