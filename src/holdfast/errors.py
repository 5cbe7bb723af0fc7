"""The errors of Holdfast: one leaf for each reaction a caller can have.

HoldfastError
├── NotFound      no such checkpoint, name or path: ask for another
├── Conflict      the world moved since you looked: look again
├── Damaged       stored bytes are not what was stored: use another checkpoint, run verify
├── Refused       this would be wrong as asked: ask differently
└── Unavailable   the disk, a lock or a permission is in the way: fix that, try again
    └── NotInstalled  a package that only some need: install the extra that is named
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it: what this file imports, every start of the program pays for
if TYPE_CHECKING:
    from types import TracebackType


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


class NotInstalled(Unavailable, ImportError):
    """A package that only some need is not there; an ImportError, too, for those who look for one."""


class Extra:
    """Name the extra that brings what is imported under it: `with Extra("postgres"): import psycopg`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not isinstance(error, ImportError) or isinstance(error, NotInstalled):
            return
        missing = isinstance(error, ModuleNotFoundError) and error.name
        what = f"the package {error.name} is not installed" if missing else f"a package cannot be loaded: {error}"
        raise NotInstalled(what, hint=f"Install it with: pip install 'holdfast[{self._name}]'") from error
