"""What a checkpoint records of git and of the feature list, read without saving anything; and rolling back."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.compat.skill.manager import CheckpointManager, FeatureState, GitState
from holdfast.project.git_state import read_git_state
from holdfast.project.tracked_files import FEATURES, PROGRESS, find_tracked_files, read_feature_list
from holdfast.workspace.store_paths import home_folder

_NAMES = {FEATURES: "feature_list.json", PROGRESS: "claude-progress.txt"}
_Path = str | os.PathLike[str]


class GitSnapshot:
    """The state of a project's git. Only read."""

    def __init__(self, project_dir: _Path) -> None:
        self.project_dir = Path(project_dir).expanduser()

    def capture(self) -> GitState:
        """Commit, branch and dirty files; empty outside of git."""
        home = home_folder()
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        found = read_git_state(self.project_dir.resolve(), home=home, config_home=config)
        return GitState(found.commit_hash, found.branch, list(found.dirty_files))


class StateSnapshot:
    """The state of a project's feature list and progress file."""

    def __init__(self, project_dir: _Path) -> None:
        self.project_dir = Path(project_dir).expanduser()
        self._files = {file.role: file for file in find_tracked_files(self.project_dir.resolve(), _NAMES)}

    def capture(self) -> FeatureState:
        """Which features are complete and which is in progress. `snapshot_path` is the file itself."""
        file = self._files[FEATURES]
        found = read_feature_list(file)
        return FeatureState(found.current, list(found.completed), str(file.path) if file.path.is_file() else "")

    def progress(self) -> str:
        """The text of the progress file; empty if there is none."""
        path = self._files[PROGRESS].path
        return path.read_text(errors="replace") if path.is_file() else ""


class RollbackHandler(CheckpointManager):
    """Rolls a project back. It is the manager, which does that itself."""
