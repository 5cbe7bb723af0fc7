"""The manager of a project's checkpoints. `holdfast.project.aio` has the same for asyncio.

A `Workspace` saves and restores the folder. This adds the rest of a checkpoint (git state, feature list, progress file,
context), the retention of each type, and what a rollback does besides restoring the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import model
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.model import JSON, CheckpointDiff, CheckpointRef, Plan, VerifyReport
from holdfast.project import metadata
from holdfast.project.attempt import Attempt
from holdfast.project.context import ProjectContext
from holdfast.project.retention import Retention, as_policy
from holdfast.project.rollback import Rollback
from holdfast.project.tracked_files import FEATURES, PROGRESS
from holdfast.project.types import Adopted, Checkpoint, CheckpointType, Forked, RolledBack, type_of
from holdfast.validation import check_limit, check_mapping, check_place, check_text, checked_options
from holdfast.workspace import Workspace
from holdfast.workspace.store_paths import home_folder
from holdfast.workspace.stored.ids import looks_like_id
from holdfast.workspace.stored.state_json import OnUnknown, Spelling

if TYPE_CHECKING:
    from holdfast.serde import Registry

_Path = str | os.PathLike[str]
Approve = Callable[[Plan], object]
_STAMP = re.compile(r"checkpoint-\d{8}-\d{6}")


@checked_options
class SyncCheckpointManager:
    """Saves, rolls back, forks and prunes the checkpoints of a project. Nothing is opened before the first call."""

    def __init__(
        self,
        project_dir: _Path,
        feature_list: _Path | None = "feature_list.json",
        progress_file: _Path | None = "claude-progress.txt",
        *,
        store: _Path | None = None,
        retention: Retention | None = None,
        allow_home: bool = False,
        trust_store: bool = False,
        registry: Registry | None = None,
        on_unknown: OnUnknown = "raise",
        home: _Path | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """`feature_list` and `progress_file` are relative to the project's folder. `retention` is a policy, or the
        number to keep of each type (None: all). `registry` and `on_unknown` are those of `Workspace`, for classes
        in states."""
        self.project_dir = Path(os.path.abspath(check_place(project_dir, "project_dir")))
        as_policy(retention, None)  # Refused now, not with the first checkpoint
        self._project = ProjectContext(
            self.project_dir,
            {FEATURES: _text(feature_list), PROGRESS: _text(progress_file)},
            store=store,
            retention=retention,
            home=Path(check_place(home, "the home folder")) if home is not None else home_folder(),
            environ=os.environ if environ is None else environ,
            options={
                "allow_home": allow_home,
                "trust_store": trust_store,
                "clock": clock,
                "registry": registry,
                "on_unknown": on_unknown,
            },
        )

    def __repr__(self) -> str:
        return f"SyncCheckpointManager({os.fspath(self.project_dir)!r})"

    @property
    def workspace(self) -> Workspace:
        """The workspace of the project's folder, opened or created on first use."""
        return self._project.workspace

    @property
    def spelling(self) -> Spelling:
        """How the values of states are encoded and decoded."""
        return self._project.spelling

    @property
    def recovered(self) -> tuple[str, ...]:
        """What interrupted rollbacks left unfinished, and how it was resolved, for people."""
        return tuple(self._project.recovered)

    # saving

    def create_checkpoint(
        self,
        name: str,
        description: str = "",
        *,
        type: CheckpointType | str = CheckpointType.MANUAL,  # noqa: A002  as the predecessor's key is called
        context: Mapping[str, JSON] | None = None,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
        pinned: bool = False,
    ) -> Checkpoint:
        """Save the project: files, git state, feature list, progress file, context and named state.

        Then prune the checkpoints that the retention of their types no longer keeps.
        """
        kind = type_of(type)
        _check(name, description, context, state)
        with self._rollback().settled(strict=False) as notes:
            saved = self._project.save(
                kind, name, description, context, state, session=session, actor=actor, pinned=pinned
            )
        view = metadata.view(saved)
        return self._project.pruned(replace(view, notes=(*view.notes, *notes)))

    # reading

    def list(
        self,
        limit: int | None = None,
        *,
        type: CheckpointType | str | None = None,  # noqa: A002  as the predecessor's key is called
        session: str | None = None,
    ) -> list[Checkpoint]:
        """All checkpoints of the project, newest first; those of one type, or of one session. At most `limit`."""
        limit = check_limit(limit)
        kind = None if type is None else type_of(type)
        found = filter(metadata.is_typed, self.workspace.list(None, session=session))
        chosen = [view for view in map(metadata.view, found) if kind is None or view.checkpoint_type is kind]
        return chosen[:limit]

    def get(self, checkpoint_id: CheckpointRef) -> Checkpoint:
        """A checkpoint by id, unique prefix of an id, name (the newest of that name), or `stamp`.

        Wherever an id is taken, the checkpoint itself may be given instead.
        """
        return metadata.view(self._find(checkpoint_id))

    def state(self, checkpoint_id: CheckpointRef) -> dict[str, JSON]:
        """The named state that was saved with a checkpoint: conversation, todos, plan."""
        return metadata.without_own_names(self._find(checkpoint_id).state)

    def _find(self, ref: CheckpointRef) -> model.Checkpoint:
        """The stored checkpoint that a reference names; a name takes precedence over the prefix of an id."""
        if isinstance(ref, str) and not (looks_like_id(ref) and "-" in ref):
            for saved in filter(metadata.is_typed, self.workspace.list(None)):
                if metadata.view(saved).name == ref:
                    return saved
        text = ref if isinstance(ref, str) else getattr(ref, "id", "")
        return self._find_stamp(text) if _STAMP.fullmatch(str(text)) else self.workspace.get(ref)

    def _find_stamp(self, stamp: str) -> model.Checkpoint:
        """The checkpoint that was saved in a second: `checkpoint-20250115-103000`. Conflict if there are several."""
        found = [saved for saved in self.workspace.list(None) if metadata.view(saved).stamp == stamp]
        if not found:
            raise NotFound(f"there is no checkpoint {stamp!r}", hint="See list(); the time is in UTC.")
        if len(found) > 1:
            ids = ", ".join(each.id for each in found)
            raise Conflict(f"{stamp!r} is ambiguous: {ids}", hint="Give one of these ids.")
        return found[0]

    def diff(self, from_id: CheckpointRef, to_id: CheckpointRef | None = None) -> CheckpointDiff:
        """What differs between two checkpoints, or between one and the project as it is now."""
        return self.workspace.diff(self._find(from_id).id, None if to_id is None else self._find(to_id).id)

    def verify(self, checkpoint_id: CheckpointRef | None = None) -> VerifyReport:
        """Read every byte of the store and report damage; for one checkpoint, only what affects it."""
        found = None if checkpoint_id is None else self._find(checkpoint_id).id
        report = self.workspace.verify()
        if found is None:
            return report
        return replace(report, problems=[each for each in report.problems if found in each.checkpoints])

    def delete(self, checkpoint_id: CheckpointRef, *, permanent: bool = False) -> Checkpoint:
        """Delete a checkpoint. Refused for a feature checkpoint unless `permanent`."""
        saved = self._find(checkpoint_id)
        view = metadata.view(saved)
        if view.checkpoint_type is CheckpointType.FEATURE and not permanent:
            raise Refused(
                f"{saved.id} is a feature checkpoint, which is kept permanently",
                hint="Pass permanent=True to delete it anyway.",
            )
        self.workspace.delete(saved.id)
        return view

    # rolling back

    def preview(self, checkpoint_id: CheckpointRef) -> Plan:
        """What `rollback` would do to the files; nothing is touched."""
        return self.workspace.preview(self._find(checkpoint_id).id)

    def rollback(
        self,
        checkpoint_id: CheckpointRef,
        *,
        git: str = "keep",
        confirm: bool = False,
        keep_new: bool = False,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
    ) -> RolledBack:
        """Restore files, feature list, progress file and state, all or nothing; `undo` reverts it.

        The user's branch, index and HEAD are not changed; `head_moved` and `message` say if HEAD has moved since.
        `git="reset"` with `confirm=True` resets the branch too; Refused if that would lose commits. `state` is the
        current named state, saved for `undo`. `keep_new` and `touch` are as in `Workspace.restore`.
        """
        back = self._rollback()
        with back.settled():
            return back.restore(
                self._find(checkpoint_id), git=git, confirm=confirm, keep_new=keep_new, touch=touch, state=state
            )

    def rollback_to_latest(
        self, *, git: str = "keep", confirm: bool = False, state: Mapping[str, JSON] | None = None
    ) -> RolledBack:
        """Roll back to the newest checkpoint of the project. NotFound if there is none."""
        latest = self.list(1)
        if not latest:
            raise NotFound("the project has no checkpoint yet", hint="Save one with create_checkpoint().")
        return self.rollback(latest[0].id, git=git, confirm=confirm, state=state)

    def undo(self, *, git: str = "keep", confirm: bool = False, touch: bool = False) -> RolledBack:
        """Undo the last rollback that was not undone yet; with `git="reset"` also the move of the branch."""
        back = self._rollback()
        with back.settled():
            return back.undo(git=git, confirm=confirm, touch=touch)

    def recover(self) -> tuple[str, ...]:
        """Finish an interrupted rollback; every call that changes something does this first."""
        with self._rollback().settled():
            return self.recovered

    def attempt(
        self,
        description: str,
        *,
        context: Mapping[str, JSON] | None = None,
        state: Mapping[str, JSON] | None = None,
        session: str | None = None,
        actor: str | None = None,
    ) -> Attempt:
        """`with`: an automatic checkpoint before something risky, and a rollback to it if that fails."""
        return Attempt(self, description, context=context, state=state, session=session, actor=actor)

    # forks

    def fork(self, checkpoint_id: CheckpointRef, directory: _Path, *, store: _Path | None = None) -> Forked:
        """Copy a checkpoint, files and state, to a new or empty folder with its own store, which records the origin."""
        from holdfast.project.fork import fork

        return fork(self._project, self._find(checkpoint_id), directory, store=store)

    def adopt(
        self,
        directory: _Path,
        *,
        store: _Path | None = None,
        state: Mapping[str, JSON] | None = None,
        approve: Approve | None = None,
    ) -> Adopted:
        """Make a fork's files and state those of the project: a checkpoint here, and a rollback to it.

        The project is saved first; `undo` restores it. Refused if the folder is no fork of this project. `approve` gets
        the plan for the files; if it raises, nothing is changed.
        """
        from holdfast.project.fork import adopt

        return adopt(self._project, self._rollback(), directory, store=store, state=state, approve=approve)

    def unpin(self, checkpoint: Checkpoint) -> None:
        """Unpin the checkpoint of an attempt, and let retention decide about it."""
        self.workspace.pin(checkpoint.id, pinned=False)
        self._project.pruned(checkpoint)

    def close(self) -> None:
        """Stop watching, and close every file of the store; a later call opens it again."""
        self._project.close()

    def _rollback(self) -> Rollback:
        return Rollback(self._project)


def _text(path: _Path | None) -> str | None:
    return None if path is None else os.path.expanduser(os.fsdecode(path))


def _check(name: object, description: object, context: object, state: object) -> None:
    for what, value in (("name", name), ("description", description)):
        check_text(value, what)
    if not name:
        raise Refused("a checkpoint needs a name", hint="Pass a short one, such as before-refactor.")
    for what, value in (("context", context), ("state", state)):
        if value is not None:
            check_mapping(value, what)
    ours = [key for key in state if str(key).startswith("holdfast.")] if isinstance(state, Mapping) else []
    if ours:
        raise Refused(f"a state is named {ours[0]!r}", hint="Names that begin with `holdfast.` are reserved.")
