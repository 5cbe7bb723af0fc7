"""What a checkpoint does not hold, and why.

Apart from the checkpoint, so that who only lists them does not pay for these classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a checkpoint does not hold a path."""

    EXCLUDED = "excluded"  # by exclude_patterns or a .holdfastignore
    DEPENDENCIES = "dependencies"  # a dependency or build folder
    IGNORED_LARGE = "ignored-large"  # ignored by git's rules, and above the size limit
    IGNORED_MANY = "ignored-many"  # ignored, and above the limit for all ignored files together
    GIT_DIRECTORY = "git-directory"  # a repository's own folder, .git or by another name
    OTHER_FILESYSTEM = "other-filesystem"  # a mount point
    SOCKET = "socket"  # has no content that could be kept
    RULES_NOT_APPLIED = "rules-not-applied"  # an ignore file that is too large: held, but its rules are not followed
    UNREADABLE = "unreadable"
    CHANGED = "changed-while-read"
    LIVE_DATABASE = "live-database"  # held, but written to while it was read: may be torn
    NOTHING_HELD = "nothing-held"  # the rules left every file out
    PURGED = "purged"  # was held, and was taken out of every checkpoint for good

    @property
    def is_failure(self) -> bool:
        """Whether this was meant to be held and is not (rather than left out by a rule)."""
        return self in _FAILURES


_FAILURES = frozenset({Reason.UNREADABLE, Reason.CHANGED, Reason.LIVE_DATABASE, Reason.NOTHING_HELD})


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A path that a checkpoint does not hold, and why. A folder stands for everything in it."""

    path: str
    reason: Reason
    detail: str = ""
