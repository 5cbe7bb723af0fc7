"""The context of a project: its workspace, its retention rules, and how one of its checkpoints is composed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import model
from holdfast.errors import HoldfastError, NotFound
from holdfast.model import JSON
from holdfast.project import metadata
from holdfast.project.git_state import read_git_state
from holdfast.project.retention import Retention, as_policy, is_limited, with_safety
from holdfast.project.tracked_files import (
    FEATURES,
    OUTSIDE,
    TrackedFile,
    find_tracked_files,
    read_feature_list,
    save_outside,
)
from holdfast.project.types import Checkpoint, CheckpointType, GitState
from holdfast.validation import check_place
from holdfast.workspace import Workspace
from holdfast.workspace.config import Settings, read_settings
from holdfast.workspace.stored.state_json import Spelling

if TYPE_CHECKING:
    from holdfast.retention import Policy

Place = str | os.PathLike[str]
_log = logging.getLogger("holdfast")


class ProjectContext:
    """One project's folder and store. Nothing is opened before it is needed."""

    def __init__(
        self,
        folder: Path,
        tracked: Mapping[str, str | None],
        *,
        store: Place | None,
        retention: Retention | None,
        home: Path,
        environ: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> None:
        self.folder = folder
        self.environ = environ
        self._tracked = dict(tracked)
        self._store = store
        self._retention = retention
        self._home = home
        self._options = dict(options)
        self.spelling = Spelling(options.get("registry"), on_unknown=options.get("on_unknown", "raise"))
        self._workspace: Workspace | None = None
        self._policy: Policy | None = None
        self._are_rules_stored = False
        self.misconfigured: HoldfastError | None = None
        """Why the configuration is invalid and not used; nothing can be saved until it is fixed."""
        self._opening = threading.Lock()
        self.recovered: list[str] = []
        """What interrupted calls left unfinished, and how it was resolved, for people."""

    def at(self, directory: Place, *, store: Place | None) -> ProjectContext:
        """The context of another folder, with the same options."""
        folder = Path(os.path.abspath(check_place(directory, "the folder")))
        options: dict[str, Any] = {"store": store, "retention": self._retention, "home": self._home}
        return ProjectContext(folder, self._tracked, environ=self.environ, options=self._options, **options)

    # the workspace

    @property
    def workspace(self) -> Workspace:
        """The workspace, opened or created on first use."""
        with self._opening:
            return self._workspace or self._opened()

    def reopened(self) -> Workspace:
        """The workspace, reopened, which finishes or reverts an interrupted restore."""
        with self._opening:
            return self._opened()

    def _opened(self) -> Workspace:
        try:
            settings, self.misconfigured = read_settings(self.folder), None
        except HoldfastError as error:
            settings, self.misconfigured = Settings(), error  # a bad configuration must not prevent a rollback
        self._policy = as_policy(self._retention, settings.retention)
        self._workspace = self._open(create=True, **settings.options())
        return self._workspace

    def _open(self, **options: Any) -> Workspace:
        fixed: dict[str, Any] = {"store": self._store, "home": self._home, "environ": self.environ}
        return Workspace(self.folder, **fixed, **self._options, **options)

    def has_store(self) -> bool:
        """Whether a store exists; none is created."""
        try:
            self._open(create=False)
        except NotFound:
            return False
        return True

    def close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()

    # what a checkpoint contains besides files

    def git_state(self) -> GitState:
        """The state of the user's git: commit, branch, dirty files."""
        config_home = Path(self.environ.get("XDG_CONFIG_HOME") or self._home / ".config")
        return read_git_state(self.workspace.path, home=self._home, config_home=config_home)

    def tracked_files(self) -> list[TrackedFile]:
        """The feature list and the progress file."""
        return find_tracked_files(self.workspace.path, self._tracked)

    def last_state(self) -> dict[str, JSON]:
        """The named state of the last save or restore."""
        head = self.workspace.head()
        return metadata.without_own_names(head.state) if head is not None else {}

    def ours(self, checkpoint_id: str, name: str) -> JSON:
        """A state of Holdfast's own, or None. The caller's are not read: their classes may not be registered."""
        try:
            return self.workspace.state(checkpoint_id, name)
        except NotFound:
            return None

    def describe(
        self,
        kind: CheckpointType,
        name: str,
        description: str = "",
        context: Mapping[str, JSON] | None = None,
        not_held: list[str] | None = None,
        git: GitState | None = None,
    ) -> dict[str, JSON]:
        """The metadata of a checkpoint of the project as it is now."""
        file = next((each for each in self.tracked_files() if each.role == FEATURES), None)
        list_at = file.stored_at if file is not None and file.path.is_file() else ""
        return metadata.metadata(
            kind,
            name,
            description,
            self.git_state() if git is None else git,
            read_feature_list(file),
            list_at,
            context or {},
            not_held or [],
        )

    # saving

    def save(
        self,
        kind: CheckpointType,
        name: str,
        description: str = "",
        context: Mapping[str, JSON] | None = None,
        state: Mapping[str, JSON] | None = None,
        more: Mapping[str, JSON] | None = None,
        *,
        actor: str | None = None,
        **options: Any,
    ) -> model.Checkpoint:
        """Save the project, with `more` metadata added.

        What the first save of an actor finds was there before, and is not attributed to it.
        """
        files = self.tracked_files()
        if self.misconfigured is not None:
            self.reopened()  # it may have been fixed
        if self.misconfigured is not None:
            raise self.misconfigured
        self._store_rules()
        outside, not_held = save_outside(files)
        whose, by = self.workspace.first_saves.attribute(actor)
        saved = self.workspace.save(
            f"{name}: {description}" if description else name,
            state={**(state or {}), OUTSIDE: outside} if outside else state,
            metadata={**self.describe(kind, name, description, context, not_held), **(more or {}), **by},
            allow_empty=True,
            include=[file.inside for file in files if file.inside is not None],
            actor=whose,
            **options,
        )
        self.workspace.first_saves.note(actor)
        return saved

    def _store_rules(self) -> None:
        """Write the retention of each type into the store, so that no other program prunes by other rules."""
        if self._policy is not None and not self._are_rules_stored:
            self.workspace.set_kind_rules(self._policy.by_kind)
            self._are_rules_stored = True

    def pruned(self, checkpoint: Checkpoint) -> Checkpoint:
        """Prune, if a new checkpoint of this type can make others expire. A failure to prune becomes a note."""
        policy = self._policy
        try:
            if policy is not None and is_limited(policy, checkpoint.checkpoint_type):
                self.workspace.prune(with_safety(policy), dry_run=False, lazily=True)
        except HoldfastError as error:
            _log.warning("pruning failed: %s", error)
            return replace(checkpoint, notes=(*checkpoint.notes, f"pruning failed: {error}"))
        return checkpoint
