"""Files that are saved whatever the ignore rules say."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from holdfast.scan import user_git
from holdfast.scan.dir_handles import upwards

Memo = dict[str, list[Any]]
"""By repository: the key of its index, and answers that are valid as long as the key is the same."""

_OUTER = ".."  # stands for the repository that the workspace is a folder of


class HeldAnyway:
    """Files that the user's git tracks, that the last checkpoint contains, or that a restore is about to replace."""

    def __init__(
        self,
        root: Path,
        *,
        held: Callable[[str], bool | None],
        force: Set[str] = frozenset(),
        memo: Memo | None = None,
        repository: Path | None = None,
    ) -> None:
        """`held` says whether the last checkpoint has a path: True for a folder, False for anything else, None if not.

        `repository` is the root of the git repository that the workspace is in.
        """
        self._root = root
        self._outer = repository if repository != root else None
        self._held = held
        self._force = force
        self._above_force = {above for path in force for above in upwards(path)} - force
        self._memo = memo or {}
        self._tracked: dict[str, user_git.Tracked | None] = {}

    @property
    def may_override(self) -> bool:
        return bool(self._force)

    def file(self, path: str, *, hard: bool) -> bool:
        if self._is_forced(path):
            return True
        return not hard and (self._held(path) is False or self._is_tracked(path, is_folder=False))

    def folder(self, path: str, *, hard: bool) -> bool:
        if self._is_forced(path) or path in self._above_force:
            return True
        return not hard and (self._held(path) is True or self._is_tracked(path, is_folder=True))

    def because(self, path: str, *, is_folder: bool) -> str:
        """Return why a path is saved although a rule ignores it; empty if it is not."""
        if self._held(path) is is_folder:
            return "the last checkpoint contains it"
        return "git tracks it" if self._is_tracked(path, is_folder=is_folder) else ""

    def is_stale(self) -> bool:
        """Whether a git index that was read earlier has changed since."""
        return any(
            (tracked := self._repository(folder)) is None or not tracked.key or tracked.key.hex() != key
            for folder, (key, _) in self._memo.items()
        )

    def memo(self) -> Memo:
        """Return what was read from the user's git indexes, to be cached."""
        found = dict(self._memo)
        for folder, tracked in self._tracked.items():
            if tracked is not None:
                found[folder] = [tracked.key.hex(), tracked.memo]
        return found

    def _is_forced(self, path: str) -> bool:
        return bool(self._force) and any(above in self._force for above in upwards(path))

    def _is_tracked(self, path: str, *, is_folder: bool) -> bool:
        for folder in (*upwards(path.rpartition("/")[0]), ""):
            tracked = self._repository(folder)
            if tracked is not None:
                inner = path[len(folder) + 1 :] if folder else path
                return tracked.folder(inner) if is_folder else tracked.file(inner)
        if self._outer is not None and (tracked := self._repository(_OUTER)) is not None:
            inner = os.fspath((self._root / path).relative_to(self._outer))
            return tracked.folder(inner) if is_folder else tracked.file(inner)
        return False

    def _repository(self, folder: str) -> user_git.Tracked | None:
        if folder not in self._tracked:
            where = user_git.git_dir(self._outer if self._outer and folder == _OUTER else self._root / folder)
            key, answers = self._memo.get(folder, ("", {}))
            self._tracked[folder] = user_git.Tracked(where, answers, bytes.fromhex(key)) if where else None
        return self._tracked[folder]
