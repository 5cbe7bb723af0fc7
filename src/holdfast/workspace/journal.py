"""The restore journal: says that a restore is under way, so that one that was interrupted is found (P3).

`journal.json` is there from before the workspace is touched until all of it is durable; then it is renamed to
`journal.done`, which only says that a stage may be left to remove.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Unavailable

STAGE_PREFIX = ".holdfast-restore-"
_STAGE = re.compile(re.escape(STAGE_PREFIX) + r"[0-9a-f]{8}")


def is_stage(name: str) -> bool:
    """Whether a folder at the top of a workspace is one that a restore made."""
    return _STAGE.fullmatch(name) is not None


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


class Journal:
    """One file: there while a restore is under way, gone otherwise."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.json"
        self._done = folder / "journal.done"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    @property
    def leaves_a_stage(self) -> bool:
        """Whether a restore has ended, and what it left may not be removed yet."""
        return self._done.exists()

    def read(self) -> Entry | None:
        """The restore that has not ended."""
        return _read(self._path)

    def read_done(self) -> Entry:
        """The restore that has ended, whose stage may still be there."""
        found = _read(self._done)
        if found is None:
            raise Unavailable("no restore has ended", hint="Try again.")
        return found

    def open(self, entry: Entry) -> None:
        """Begin; durable before the workspace is touched."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def finish(self) -> None:
        """End; everything before this is durable. What is left is to remove the stage, and then `close`."""
        durable.disk().rename(str(self._path), str(self._done))
        durable.sync_folder(self._path.parent)

    def close(self) -> None:
        """Forget it: nothing was done, or nothing is left to do."""
        if self._path.exists():
            durable.disk().unlink(str(self._path))
            durable.sync_folder(self._path.parent)
        elif self._done.exists():
            durable.disk().unlink(str(self._done))  # one that comes back after a crash does no harm


def _read(path: Path) -> Entry | None:
    try:
        entry = Entry(**json.loads(path.read_bytes()))
        if is_stage(entry.stage) and isinstance(entry.safety + entry.target + entry.verb, str):
            return entry
        problem = "it names a stage that is none"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        problem = type(error).__name__
    raise Unavailable(
        f"the restore journal {path} cannot be read ({problem})",
        hint="A restore was interrupted. Remove the file to go on; every state is in `holdfast log --all`.",
    )
