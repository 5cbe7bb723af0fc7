"""The manager of a project's checkpoints, for plain scripts. `holdfast.project.loop` has the same for an event loop.

Everything of the folder is done by a `Workspace`. Here it is told what else belongs to a checkpoint (where git stands,
the feature list, the progress file, the context), how long each type is kept, and what a rollback does besides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import model
from holdfast.errors import NotFound, Refused
from holdfast.model import JSON, CheckpointDiff, Plan, VerifyReport
from holdfast.project import record
from holdfast.project.attempt import Attempt
from holdfast.project.ground import Ground
from holdfast.project.nouns import Adopted, Checkpoint, CheckpointType, Forked, RolledBack, type_of
from holdfast.project.papers import FEATURES, PROGRESS
from holdfast.project.rollback import Rollback
from holdfast.project.rules import Retention, as_policy
from holdfast.workspace import Workspace, given
from holdfast.workspace.place import home_folder
from holdfast.workspace.stored.ids import looks_like_id
from holdfast.workspace.stored.spelling import OnUnknown, Spelling

if TYPE_CHECKING:
    from holdfast.serde import Registry

_Path = str | os.PathLike[str]
Approve = Callable[[Plan], object]


class SyncCheckpointManager:
    """Checkpoints of a project: made, rolled back to, tried out, forked. Nothing is opened before the first call."""

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
        """`feature_list` and `progress_file` are meant from the project's folder. `retention` is a policy, or says by
        type how many are kept (None: for ever). `registry` and `on_unknown` are about classes in states, as `Workspace`
        has them."""
        self.project_dir = Path(os.path.abspath(project_dir))
        as_policy(retention, None)  # Refused now, not with the first checkpoint
        self._ground = Ground(
            self.project_dir,
            {FEATURES: _text(feature_list), PROGRESS: _text(progress_file)},
            store=store,
            retention=retention,
            home=Path(home) if home is not None else home_folder(),
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
        """The workspace that does the work; opened, or made, when it is first asked for."""
        return self._ground.workspace

    @property
    def spelling(self) -> Spelling:
        """How the values of states are stored and made again."""
        return self._ground.spelling

    @property
    def recovered(self) -> tuple[str, ...]:
        """What interrupted rollbacks left to do, and how that was dealt with, for people."""
        return tuple(self._ground.recovered)

    # making checkpoints

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
        """Keep the project as it is now: git's position, files, feature list, progress file, context and named state.

        Checkpoints that the rules of their types no longer keep are pruned then.
        """
        kind = type_of(type)
        _check(name, description, context, state)
        with self._rollback().settled(strict=False) as notes:
            saved = self._ground.save(
                kind, name, description, context, state, session=session, actor=actor, pinned=pinned
            )
        view = record.view(saved)
        return self._ground.pruned(replace(view, notes=(*view.notes, *notes)))

    # finding them

    def list(
        self,
        limit: int | None = 50,
        *,
        type: CheckpointType | str | None = None,  # noqa: A002  as the predecessor's key is called
        session: str | None = None,
    ) -> list[Checkpoint]:
        """The project's checkpoints, newest first; those of one type, or of one session."""
        limit = given.a_count(limit, "limit")
        kind = None if type is None else type_of(type)
        found = filter(record.is_typed, self.workspace.list(None, session=session))
        chosen = [view for view in map(record.view, found) if kind is None or view.checkpoint_type is kind]
        return chosen[:limit]

    def get(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by id, unique beginning of an id, or name; of several with one name the newest."""
        return record.view(self._find(checkpoint_id))

    def state(self, checkpoint_id: str) -> dict[str, JSON]:
        """The named state that was saved with a checkpoint: conversation, todos, plan."""
        return record.without_ours(self._find(checkpoint_id).state)

    def _find(self, ref: str) -> model.Checkpoint:
        """The stored checkpoint that a reference names; a name goes before the beginning of an id."""
        if isinstance(ref, str) and not (looks_like_id(ref) and "-" in ref):
            for saved in filter(record.is_typed, self.workspace.list(None)):
                if record.view(saved).name == ref:
                    return saved
        return self.workspace.get(ref)

    def diff(self, from_id: str, to_id: str | None = None) -> CheckpointDiff:
        """What differs between two checkpoints, or between one and the project as it is now."""
        return self.workspace.diff(self._find(from_id).id, None if to_id is None else self._find(to_id).id)

    def verify(self, checkpoint_id: str | None = None) -> VerifyReport:
        """Read every byte of the store and name what is damaged; of one checkpoint, only what touches that."""
        found = None if checkpoint_id is None else self._find(checkpoint_id).id
        report = self.workspace.verify()
        if found is None:
            return report
        return replace(report, problems=[each for each in report.problems if found in each.checkpoints])

    def delete(self, checkpoint_id: str, *, permanent: bool = False) -> Checkpoint:
        """Delete a checkpoint. Refused for a feature's, which is kept for ever, unless `permanent` says that it is
        meant."""
        saved = self._find(checkpoint_id)
        view = record.view(saved)
        if view.checkpoint_type is CheckpointType.FEATURE and not permanent:
            raise Refused(
                f"{saved.id} is the checkpoint of a feature, which is kept for ever",
                hint="Pass permanent=True if it is to go all the same.",
            )
        self.workspace.delete(saved.id)
        return view

    # going back

    def preview(self, checkpoint_id: str) -> Plan:
        """What `rollback` would do to the files; nothing is touched."""
        return self.workspace.preview(self._find(checkpoint_id).id)

    def rollback(
        self,
        checkpoint_id: str,
        *,
        git: str = "keep",
        confirm: bool = False,
        keep_new: bool = False,
        touch: bool = False,
        state: Mapping[str, JSON] | None = None,
    ) -> RolledBack:
        """Bring back files, feature list, progress file and state, all or nothing; `undo` takes it back.

        The user's branch, index and HEAD stay where they are; `head_moved` and `message` say if that is elsewhere than
        it was. `git="reset"` with `confirm=True` sets the branch back too. Refused if that would lose commits. `state`
        is the named state as it is now: it is kept for `undo`. `keep_new` and `touch` are as in `Workspace.restore`.
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
            raise NotFound("the project has no checkpoint yet", hint="Make one with create_checkpoint().")
        return self.rollback(latest[0].id, git=git, confirm=confirm, state=state)

    def undo(self, *, git: str = "keep", confirm: bool = False, touch: bool = False) -> RolledBack:
        """Take back the last rollback that was not taken back yet; with `git="reset"` also the move of the branch."""
        back = self._rollback()
        with back.settled():
            return back.undo(git=git, confirm=confirm, touch=touch)

    def recover(self) -> tuple[str, ...]:
        """Go on with what an interruption left; every call that changes something does this first."""
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
        """An automatic checkpoint before something risky, and a rollback to it if that fails: `with` or a call."""
        return Attempt(self, description, context=context, state=state, session=session, actor=actor)

    # side by side

    def fork(self, checkpoint_id: str, directory: _Path, *, store: _Path | None = None) -> Forked:
        """A checkpoint, files and state, in a new or empty folder with a store of its own that knows where it came
        from."""
        from holdfast.project.fork import fork

        return fork(self._ground, self._find(checkpoint_id), directory, store=store)

    def adopt(
        self,
        directory: _Path,
        *,
        store: _Path | None = None,
        state: Mapping[str, JSON] | None = None,
        approve: Approve | None = None,
    ) -> Adopted:
        """Make a fork's files and state those of the project: a checkpoint here, and a rollback to it.

        What the project had is saved first; `undo` brings it back. Refused for what is no fork of this project.
        `approve` is shown what would be done to the files; what it raises ends everything, with nothing changed.
        """
        from holdfast.project.fork import adopt

        return adopt(self._ground, self._rollback(), directory, store=store, state=state, approve=approve)

    def let_go(self, checkpoint: Checkpoint) -> None:
        """No longer pin what an attempt pinned, and let the rules decide about it."""
        self.workspace.pin(checkpoint.id, pinned=False)
        self._ground.pruned(checkpoint)

    def close(self) -> None:
        """End what `Workspace.watch` began, and close every file of the store; what is called later opens it again."""
        self._ground.close()

    def _rollback(self) -> Rollback:
        return Rollback(self._ground)


def _text(path: _Path | None) -> str | None:
    return None if path is None else os.fsdecode(path)


def _check(name: object, description: object, context: object, state: object) -> None:
    for what, value in (("name", name), ("description", description)):
        if not isinstance(value, str):
            raise Refused(f"{what} is not text", hint=f"It is of type {type(value).__name__}.")
    if not name:
        raise Refused("a checkpoint needs a name", hint="Give a short one, such as before-refactor.")
    for what, value in (("context", context), ("state", state)):
        if value is not None and not isinstance(value, Mapping):
            raise Refused(f"{what} is not a mapping", hint=f"It is of type {type(value).__name__}.")
    ours = [key for key in state if str(key).startswith("holdfast.")] if isinstance(state, Mapping) else []
    if ours:
        raise Refused(f"a state is named {ours[0]!r}", hint="Names that begin with `holdfast.` are taken.")
