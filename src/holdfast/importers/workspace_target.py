"""A folder that checkpoints are imported into, and the import of sources that are a few files.

A folder's store is created with the first checkpoint, not by a plan.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.escaping import escape_path
from holdfast.importers.model import Imported, ImportPlan, Losses, NotCarried
from holdfast.model import Checkpoint, Progress, Uncovered, documents
from holdfast.workspace import Workspace
from holdfast.workspace.config import read_settings
from holdfast.workspace.imports import Imports, OutsideCheckpoint, origin_of

_PERMISSIONS = 0o7777


class WorkspaceTarget:
    """A workspace, opened when it is first needed."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._options = options
        self._workspace: Workspace | None = None
        self._imports: Imports | None = None

    def known(self) -> Mapping[str, str]:
        """The ids of the checkpoints that were imported before, by origin. Creates nothing."""
        if self._workspace is None:
            try:
                self._open(create=False)
            except NotFound:
                return {}
        return self._opened().known()

    def add(self, given: OutsideCheckpoint) -> Checkpoint:
        """Add a checkpoint, or return the one that was imported from the same origin."""
        if self._workspace is None:
            self._open(create=True)
        return self._opened().add(given)

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Get a checkpoint; None if it was deleted meanwhile."""
        try:
            return self._workspace.get(checkpoint_id) if self._workspace else None
        except NotFound:
            return None

    def uncovered(self, checkpoint_id: str | None) -> Sequence[Uncovered]:
        """What a checkpoint does not cover."""
        found = self.get(checkpoint_id) if checkpoint_id is not None else None
        return found.uncovered if found is not None else ()

    def save_folder(self, message: str) -> list[str]:
        """Save the folder as it is if the newest checkpoint is an imported one; return what there is to say about it.

        The newest checkpoint is what `latest` means and what a save compares with (P10).
        """
        head = self._workspace.head() if self._workspace else None
        if self._workspace is None or head is None or origin_of(head) is None:
            return []
        saved = self._workspace.save(message)
        shown = documents.short(saved.id)
        lines = [f"The folder as it is now is saved as {shown}, so that it stays the latest checkpoint."]
        if not saved.complete:
            lines.append(f"{shown} does not contain everything; it lists what is missing.")
        return lines

    def permissions(self, path: str, mode: int) -> int:
        """The permissions for an imported file: those of the file that is there now, since git stores only one bit."""
        try:
            there = os.lstat(self.folder / path)
        except (OSError, ValueError):
            return mode
        if stat.S_IFMT(there.st_mode) != stat.S_IFMT(mode) or (there.st_mode ^ mode) & stat.S_IXUSR:
            return mode
        return stat.S_IFMT(mode) | (there.st_mode & _PERMISSIONS)

    def close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()

    def _open(self, *, create: bool) -> None:
        settings = read_settings(self.folder).options()  # for the save of the folder at the end
        self._workspace = Workspace(self.folder, create=create, **{**settings, **self._options})
        self._imports = self._workspace.imports()

    def _opened(self) -> Imports:
        if self._imports is None:
            raise NotFound(f"{self.folder} has no checkpoints yet")
        return self._imports


class OutsideEntry(NamedTuple):
    """A checkpoint of a source, which is read when it is needed."""

    origin: str
    name: str
    """What to call it in a report."""
    build: Callable[[Mapping[str, str]], OutsideCheckpoint]
    """Reads it; the argument has the ids of those that are imported, by origin. Damaged or Refused if that fails."""


class WorkspaceImport:
    """Imports the checkpoints of a source that is read as a whole when it is opened."""

    def __init__(
        self,
        kind: str,
        title: str,
        source: str,
        target: WorkspaceTarget,
        entries: Sequence[OutsideEntry],
        *,
        losses: Iterable[NotCarried] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """`losses`: what reading the source has found already."""
        self._kind = kind
        self._title = title
        self._source = source
        self._target = target
        self._entries = entries
        self._found = tuple(losses)
        self._notes = list(notes)

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Read every checkpoint, so that what cannot be carried over is known before anything is written."""
        losses = Losses(self._found)
        known = self._target.known()
        carried = present = size = 0
        for number, entry in enumerate(self._entries, 1):
            if progress is not None:
                progress("reading", number, len(self._entries))
            outside = self._built(entry, known, losses)
            if outside is not None:
                carried += 1
                present += entry.origin in known
                size += sum(each.size for each in outside.edits.values() if each is not None)
        if not carried:
            found = losses.all()
            why = f": {found[0].why}" if found else ""
            raise Damaged(f"cannot import anything from {self._source}{why}", hint="Nothing was imported.")
        return ImportPlan(
            self._kind,
            self._title,
            self._source,
            os.fspath(self._target.folder),
            carried,
            present,
            losses.all(),
            self._notes,
            size,
        )

    def run(self, progress: Progress | None = None) -> Imported:
        """Add the checkpoints that the workspace lacks; then save the folder, so that it stays the latest."""
        losses = Losses(self._found)
        known = dict(self._target.known())
        added = present = 0
        for number, entry in enumerate(self._entries, 1):
            if progress is not None:
                progress("importing", number, len(self._entries))
            outside = self._built(entry, known, losses)
            if outside is None:
                continue
            try:
                checkpoint = self._target.add(outside)
            except (Damaged, Refused) as error:
                losses.add(entry.name, error.message)
                continue
            known[entry.origin] = checkpoint.id
            added += checkpoint.is_new
            present += not checkpoint.is_new
        notes = [*self._notes, *self._target.save_folder(f"the folder when {self._source} was imported")]
        return Imported(added, present, losses.all(), notes)

    def close(self) -> None:
        self._target.close()

    def _built(self, entry: OutsideEntry, known: Mapping[str, str], losses: Losses) -> OutsideCheckpoint | None:
        try:
            outside = entry.build(known)
        except (Damaged, Refused) as error:
            losses.add(entry.name, error.message)
            return None
        for each in outside.uncovered:
            losses.add(escape_path(each.path), each.detail)
        return outside
