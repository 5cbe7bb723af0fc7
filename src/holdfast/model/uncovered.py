"""What a checkpoint does not contain, and why.

In a file of its own, so that listing checkpoints does not load these classes (start-up cost).
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Why a checkpoint does not contain a path."""

    EXCLUDED = "excluded"  # by exclude_patterns or a .holdfastignore
    DEPENDENCIES = "dependencies"  # a dependency or build folder
    IGNORED_LARGE = "ignored-large"  # ignored by git's rules, and above the size limit
    IGNORED_MANY = "ignored-many"  # ignored, and above the limit for all ignored files together
    GIT_DIRECTORY = "git-directory"  # a repository's own folder, .git or by another name
    OTHER_FILESYSTEM = "other-filesystem"  # a mount point
    SOCKET = "socket"  # has no content
    RULES_NOT_APPLIED = "rules-not-applied"  # an ignore file that is too large: saved, but its rules are not applied
    UNREADABLE = "unreadable"
    CHANGED = "changed-while-read"
    LIVE_DATABASE = "live-database"  # saved, but written to while it was read: may be inconsistent
    NOTHING_HELD = "nothing-held"  # the rules exclude every file
    PURGED = "purged"  # was saved, and was removed from every checkpoint for good

    @property
    def is_failure(self) -> bool:
        """Whether this should have been saved (rather than being excluded by a rule)."""
        return self in _FAILURES


_FAILURES = frozenset({Reason.UNREADABLE, Reason.CHANGED, Reason.LIVE_DATABASE, Reason.NOTHING_HELD})


class Uncovered(NamedTuple):
    """A path that a checkpoint does not contain, and why. A folder stands for everything in it."""

    path: str
    reason: Reason
    detail: str = ""
