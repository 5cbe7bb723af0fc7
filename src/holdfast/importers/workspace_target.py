"""A folder that checkpoints are imported into. Its store is created with the first checkpoint, not by a plan."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import NotFound
from holdfast.model import Checkpoint, Uncovered, documents
from holdfast.workspace import Workspace
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
        self._workspace = Workspace(self.folder, create=create, **self._options)
        self._imports = self._workspace.imports()

    def _opened(self) -> Imports:
        if self._imports is None:
            raise NotFound(f"{self.folder} has no checkpoints yet")
        return self._imports
