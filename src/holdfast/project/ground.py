"""What a project stands on: its workspace, how long its checkpoints are kept, and how one is put together."""

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
from holdfast.project import record
from holdfast.project.nouns import Checkpoint, CheckpointType, GitState
from holdfast.project.papers import FEATURES, OUTSIDE, Paper, find_papers, keep_outside, read_list
from holdfast.project.position import read_position
from holdfast.project.rules import Retention, as_policy, is_limited, with_safety
from holdfast.workspace import Workspace
from holdfast.workspace.config import Settings, read_settings
from holdfast.workspace.stored.spelling import Spelling

if TYPE_CHECKING:
    from holdfast.retention import Policy

Place = str | os.PathLike[str]
_log = logging.getLogger("holdfast")


class Ground:
    """One project's folder and store. Nothing is opened before it is needed."""

    def __init__(
        self,
        folder: Path,
        papers: Mapping[str, str | None],
        *,
        store: Place | None,
        retention: Retention | None,
        home: Path,
        environ: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> None:
        self.folder = folder
        self.environ = environ
        self._papers = dict(papers)
        self._store = store
        self._retention = retention
        self._home = home
        self._options = dict(options)
        self.spelling = Spelling(options.get("registry"), on_unknown=options.get("on_unknown", "raise"))
        self._workspace: Workspace | None = None
        self._policy: Policy | None = None
        self._are_rules_said = False
        self.misconfigured: HoldfastError | None = None
        """What is wrong with the configuration, which is not used then; nothing can be saved until it is fixed."""
        self._opening = threading.Lock()
        self.recovered: list[str] = []
        """What interruptions left to do, and how that was dealt with, for people."""

    def at(self, directory: Place, *, store: Place | None) -> Ground:
        """The ground of another folder, told the same."""
        folder = Path(os.path.abspath(directory))
        said: dict[str, Any] = {"store": store, "retention": self._retention, "home": self._home}
        return Ground(folder, self._papers, environ=self.environ, options=self._options, **said)

    # the workspace

    @property
    def workspace(self) -> Workspace:
        """Opened, or made, when it is first asked for."""
        with self._opening:
            return self._workspace or self._opened()

    def reopened(self) -> Workspace:
        """The workspace, opened anew: an interrupted restore is ended by that."""
        with self._opening:
            return self._opened()

    def _opened(self) -> Workspace:
        try:
            settings, self.misconfigured = read_settings(self.folder), None
        except HoldfastError as error:
            settings, self.misconfigured = Settings(), error  # must not keep anybody from going back
        self._policy = as_policy(self._retention, settings.retention)
        self._workspace = self._open(create=True, **settings.options())
        return self._workspace

    def _open(self, **options: Any) -> Workspace:
        fixed: dict[str, Any] = {"store": self._store, "home": self._home, "environ": self.environ}
        return Workspace(self.folder, **fixed, **self._options, **options)

    def has_store(self) -> bool:
        """Whether there is one; none is made."""
        try:
            self._open(create=False)
        except NotFound:
            return False
        return True

    def close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()

    # what belongs to the project

    def position(self) -> GitState:
        """Where the user's own git stands now."""
        config_home = Path(self.environ.get("XDG_CONFIG_HOME") or self._home / ".config")
        return read_position(self.workspace.path, home=self._home, config_home=config_home)

    def papers(self) -> list[Paper]:
        """Where the feature list and the progress file are."""
        return find_papers(self.workspace.path, self._papers)

    def last_state(self) -> dict[str, JSON]:
        """The named state that was saved, or brought back, last."""
        head = self.workspace.head()
        return record.without_ours(head.state) if head is not None else {}

    def ours(self, checkpoint_id: str, name: str) -> JSON:
        """A state of our own, None if there is none; those of the caller may need classes that are not known here."""
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
        paper = next((each for each in self.papers() if each.role == FEATURES), None)
        list_at = paper.stored_at if paper is not None and paper.path.is_file() else ""
        position = self.position() if git is None else git
        said = context or {}
        return record.metadata(kind, name, description, position, read_list(paper), list_at, said, not_held or [])

    # making checkpoints

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
        **said: Any,
    ) -> model.Checkpoint:
        """Save the project as it is, with `more` metadata than is written anyway.

        What the first save of an actor finds was there before it looked, and is not attributed to it.
        """
        papers = self.papers()
        if self.misconfigured is not None:
            self.reopened()  # it may be fixed by now
        if self.misconfigured is not None:
            raise self.misconfigured
        self._say_rules()
        outside, not_held = keep_outside(papers)
        whose, by = self.workspace.first_looks.attribute(actor)
        saved = self.workspace.save(
            f"{name}: {description}" if description else name,
            state={**(state or {}), OUTSIDE: outside} if outside else state,
            metadata={**self.describe(kind, name, description, context, not_held), **(more or {}), **by},
            allow_empty=True,
            include=[paper.inside for paper in papers if paper.inside is not None],
            actor=whose,
            **said,
        )
        self.workspace.first_looks.note(actor)
        return saved

    def _say_rules(self) -> None:
        """Have the store know how long each type is kept, so that nobody prunes it by other rules."""
        if self._policy is not None and not self._are_rules_said:
            self.workspace.set_kind_rules(self._policy.by_kind)
            self._are_rules_said = True

    def pruned(self, checkpoint: Checkpoint) -> Checkpoint:
        """Apply the rules, where a new checkpoint lets them take something. It does not fail because pruning did."""
        policy = self._policy
        try:
            if policy is not None and is_limited(policy, checkpoint.checkpoint_type):
                self.workspace.prune(with_safety(policy), dry_run=False, lazily=True)
        except HoldfastError as error:
            _log.warning("pruning failed: %s", error)
            return replace(checkpoint, notes=(*checkpoint.notes, f"pruning failed: {error}"))
        return checkpoint
