"""The restore journal: says that a restore is under way, so that one that was interrupted is found (P3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Unavailable


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


class Journal:
    """One file: there while a restore is under way, gone otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> Entry | None:
        """The restore that has not ended."""
        try:
            return Entry(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise Unavailable(
                f"the restore journal {self._path} cannot be read ({error.__class__.__name__})",
                hint="A restore was interrupted. Remove the file to go on; every state is in `holdfast log --all`.",
            ) from None

    def open(self, entry: Entry) -> None:
        """Begin; durable before the workspace is touched."""
        durable.write_atomically(self._path, json.dumps(entry._asdict(), indent=1).encode())

    def close(self) -> None:
        """End; everything before this is durable."""
        durable.disk().unlink(str(self._path))
        durable.sync_folder(self._path.parent)
