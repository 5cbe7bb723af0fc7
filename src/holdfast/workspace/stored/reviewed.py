"""Marks of what a person has reviewed, kept with the checkpoint: a small file beside it in the store.

A mark is a digest, so that the file contains neither names nor contents. The file is replaced atomically under the
store's lock: a kill leaves the old marks or the new ones (P3). It goes when the checkpoint goes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable
from hashlib import sha256
from pathlib import Path

from holdfast import durable

_DIGEST_CHARS = 24


class ReviewMarks:
    """The marks of the checkpoints of one store."""

    def __init__(self, own: Path) -> None:
        self._folder = own / "reviewed"

    def read(self, checkpoint_id: str) -> frozenset[str]:
        """Return the digests of what is marked; none if the file is not there or damaged."""
        try:
            found = durable.parse_json((self._folder / checkpoint_id).read_bytes())
        except (OSError, ValueError):
            return frozenset()
        return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()

    def change(self, checkpoint_id: str, marks: Iterable[str], *, is_reviewed: bool) -> frozenset[str]:
        """Add or remove marks, and return all. Needs the store's lock."""
        changed = {digest_of(each) for each in marks}
        before = self.read(checkpoint_id)
        after = before | changed if is_reviewed else before - changed
        if after != before:
            durable.make_folder(self._folder)
            data = json.dumps(sorted(after), separators=(",", ":")).encode()
            durable.write_atomically(self._folder / checkpoint_id, data)
        return after

    def sweep(self, there: Collection[str]) -> None:
        """Remove the marks of checkpoints that are gone. Needs the store's lock."""
        with contextlib.suppress(FileNotFoundError):
            for path in list(self._folder.iterdir()):
                if path.name not in there:
                    durable.disk().unlink(str(path))


def digest_of(mark: str) -> str:
    """What is stored of a mark."""
    return sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
