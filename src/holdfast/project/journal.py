"""The rollback journal: says that more is to be done once the folder is restored, so that none of it is forgotten (P3).

It is there from before the restore begins until everything is done. Whoever finds it asks the store whether that
restore took place: if it did, the rest is done; if not, nothing was, and the journal goes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Unavailable
from holdfast.project.reset import HASH, Move


class Entry(NamedTuple):
    """What has begun and has not ended."""

    verb: str
    target: str
    after: int
    """The greatest number of a checkpoint before it began: a safety checkpoint of it has a greater one."""
    move: Move | None

    def is_of(self, verb: str, target: str, sequence: int) -> bool:
        """Whether a safety checkpoint is the one that this made."""
        return (verb, target) == (self.verb, self.target) and sequence > self.after


class Journal:
    """One file in the store: there while a rollback is under way that does more than restore the folder."""

    def __init__(self, store: Path) -> None:
        self._path = store / "holdfast" / "rollback.json"
        self.lock = durable.Lock(store / "holdfast" / "rollback.lock")

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> Entry | None:
        """What has not ended."""
        try:
            said = json.loads(self._path.read_bytes())
            move = _move(said["move"])
            return Entry(str(said["verb"]), str(said["target"]), int(said["after"]), move)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            raise Unavailable(
                f"the rollback journal {self._path} cannot be read",
                hint="A rollback was interrupted. Remove the file to go on; the folder itself is in order.",
            ) from None

    def open(self, entry: Entry) -> None:
        """Begin; durable before anything is touched."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def close(self) -> None:
        """End: everything is done, or nothing was."""
        if self.exists:
            durable.disk().unlink(str(self._path))
            durable.sync_folder(self._path.parent)


def _move(said: Any) -> Move | None:
    """A move as it was written down. ValueError for what is none: it goes to the git program."""
    if said is None:
        return None
    move = Move(*map(str, said))
    if not (HASH.fullmatch(move.before) and HASH.fullmatch(move.after)):
        raise ValueError("no commits")
    return move
