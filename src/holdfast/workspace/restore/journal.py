"""The restore journal: says that a restore is under way, so that one that was interrupted is found (P3).

It is there from before the workspace is touched. When all is durable it is marked as done, in place, so that no name
has to be made durable for that; then it only says that a stage may be left to remove.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Unavailable

STAGE_PREFIX = ".holdfast-restore-"
_STAGE = re.escape(STAGE_PREFIX) + r"[0-9a-f]{8}"


def is_stage(name: str) -> bool:
    """Whether a folder at the top of a workspace is one that a restore made."""
    return re.fullmatch(_STAGE, name) is not None


class Entry(NamedTuple):
    """A restore that has begun and has not ended."""

    verb: str
    target: str
    safety: str
    paths: list[str] | None
    made: list[str]
    keep_new: bool
    stage: str
    """The folder at the top of the workspace in which new files wait and old ones are put aside."""
    root: str
    inode: int
    """The path and the inode of the workspace, to know it by."""
    root_mtime_ns: int
    """The time that the workspace is to have in the end, which removing the stage disturbs."""
    touch_ns: int | None = None
    """The time of files with another content; None: the one that they had."""
    done: bool = False
    """Everything is durable; what is left is to remove the stage."""


_LAST = b'"done": false\n}'  # `done` is written last, and in as many bytes whether it is true or not
_MARK = b'"done": true \n}'


class Journal:
    """One file: there while a restore is under way, gone otherwise."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> Entry | None:
        """The restore that has not ended, or has left a stage."""
        try:
            entry = Entry(**json.loads(self._path.read_bytes()))
            if is_stage(entry.stage) and isinstance(entry.safety + entry.target + entry.verb, str):
                return entry
            problem = "it names a stage that is none"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            problem = type(error).__name__
        raise Unavailable(
            f"the restore journal {self._path} cannot be read ({problem})",
            hint="A restore was interrupted. Remove the file to go on; every state is in `holdfast log --all`.",
        )

    def open(self, entry: Entry) -> None:
        """Begin; durable before the workspace is touched."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def finish(self) -> None:
        """End: everything before this is durable, and the restore is not to be done again."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            durable.disk().pwrite(fd, _MARK, os.fstat(fd).st_size - len(_LAST))
            durable.disk().fsync(fd)
        finally:
            os.close(fd)

    def close(self, *, done: bool = False) -> None:
        """Forget it: nothing was done; or, `done`, nothing is left to do, and one that comes back does no harm."""
        durable.disk().unlink(str(self._path))
        if not done:
            durable.sync_folder(self._path.parent)
