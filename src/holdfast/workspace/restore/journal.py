"""The restore journal: a file that exists during a restore, so that an interrupted one is found (P3).

It is written before the workspace changes. When everything is durable it is marked as done in place, which needs no
sync of the folder; from then on it only says that a stage may have to be removed.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Remedy, Unavailable

STAGE_PREFIX = ".holdfast-restore-"
_STAGE = re.escape(STAGE_PREFIX) + r"[0-9a-f]{8}"


def is_stage(name: str) -> bool:
    """Whether a folder at the top of a workspace is the stage of a restore."""
    return re.fullmatch(_STAGE, name) is not None


class JournalEntry(NamedTuple):
    """A restore that has begun and has not ended."""

    verb: str
    target: str
    safety: str
    paths: list[str] | None
    made: list[str]
    keep_new: bool
    stage: str
    """The folder at the top of the workspace for new files and replaced ones."""
    root: str
    inode: int
    """The path and the inode of the workspace, to recognise it."""
    root_mtime_ns: int
    """The modification time of the workspace folder in the end; removing the stage changes it."""
    touch_ns: int | None = None
    """The modification time for files whose content changes; None stands for the stored one."""
    done: bool = False
    """Everything is durable; only the stage has to be removed."""


_LAST = b'"done": false\n}'  # `done` is the last field, and has the same length either way
_MARK = b'"done": true \n}'


def _has_its_types(entry: JournalEntry) -> bool:
    texts = [entry.verb, entry.target, entry.safety, entry.root, *(entry.paths or ()), *entry.made]
    lists, numbers = (entry.paths or [], entry.made), (entry.inode, entry.root_mtime_ns, entry.touch_ns or 0)
    return (
        all(type(each) is list for each in lists)
        and all(type(each) is str for each in texts)
        and all(type(each) is int for each in numbers)
    )


class Journal:
    """The journal file; it exists only during a restore."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> JournalEntry | None:
        """Return the restore that has not ended, or has left a stage; None if there is none."""
        try:
            entry = JournalEntry(**durable.parse_json(self._path.read_bytes()))
            if is_stage(entry.stage) and _has_its_types(entry):
                return entry
            problem = "invalid values"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            problem = type(error).__name__
        raise Unavailable(
            f"the restore journal {self._path} cannot be read ({problem})",
            hint="A restore was interrupted. Remove the file to go on.",
            remedy=Remedy("list_all"),
        )

    def open(self, entry: JournalEntry) -> None:
        """Write the journal; it is durable before the workspace changes."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def finish(self) -> None:
        """Mark the restore as done: everything before this is durable, and it must not be repeated."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            durable.disk().pwrite(fd, _MARK, os.fstat(fd).st_size - len(_LAST))
            durable.disk().fsync(fd)
        finally:
            os.close(fd)

    def close(self, *, done: bool = False) -> None:
        """Remove the journal. Without `done` durably; with it, a journal that reappears after a crash does no harm."""
        durable.disk().unlink(str(self._path))
        if not done:
            durable.sync_folder(self._path.parent)
