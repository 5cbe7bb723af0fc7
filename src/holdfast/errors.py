"""The errors of Holdfast: one leaf for each reaction a caller can have.

HoldfastError
├── NotFound      no such checkpoint, name or path: name another
├── Conflict      something changed since you read it: read it again
├── Damaged       stored bytes are not what was written: use another checkpoint, run verify
├── Refused       the request is wrong: change it
│   └── UnknownOption  a call has no such keyword: correct its name
└── Unavailable   the disk, a lock or a permission prevents it: fix that, try again
    └── NotInstalled  an optional package is missing: install the extra that is named
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it: what this file imports, every start of the program pays for
if TYPE_CHECKING:
    from types import TracebackType


class Remedy:
    """What to do about an error: a code and its arguments. Each face (library, command line, MCP) has words for it."""

    def __init__(self, code: str, **arguments: str) -> None:
        self.code = code
        self.arguments = arguments


class HoldfastError(Exception):
    """What happened, in one sentence, and what to do next.

    hint: advice that is the same everywhere. remedy: advice that each face words in its own terms.
    """

    def __init__(self, message: str, *, hint: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = hint
        self.remedy = remedy

    @property
    def hint(self) -> str:
        """What to do next, in words for a Python caller. `remedies.word_hint` has those for other faces."""
        if self.remedy is None:
            return self.advice
        from holdfast.remedies import word_hint  # start-up cost: this file is part of every start of the program

        return word_hint(self)

    def __str__(self) -> str:
        hint = self.hint
        return f"{self.message}. {hint}" if hint else self.message


class NotFound(HoldfastError):
    """There is no such checkpoint, name or path."""


class Conflict(HoldfastError):
    """Something changed since it was read, or the name is taken."""


class Damaged(HoldfastError):
    """Stored bytes are not the bytes that were written."""


class Refused(HoldfastError):
    """The request would do harm, or makes no sense."""


class UnknownOption(Refused, TypeError):
    """A call has no such keyword. Also a TypeError, which Python raises for this."""


class Unavailable(HoldfastError):
    """Something outside Holdfast is in the way."""


class NotInstalled(Unavailable, ImportError):
    """An optional package is missing. Also an ImportError, for callers who catch that."""


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
