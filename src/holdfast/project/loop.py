"""The manager of a project's checkpoints for a program that runs an event loop.

Everything is done by a `SyncCheckpointManager`, in the two threads of a checkpoint service: one for what changes
something, in the order asked for, one for what only looks. Whoever stops waiting does not stop the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.model import JSON, CheckpointDiff, Plan, VerifyReport
from holdfast.project.attempt import Attempt
from holdfast.project.manager import SyncCheckpointManager
from holdfast.project.nouns import Adopted, Checkpoint, CheckpointType, Forked, RolledBack
from holdfast.project.rules import Retention
from holdfast.workspace.service.conversation import copied
from holdfast.workspace.service.dispatch import Dispatch, Done
from holdfast.workspace.stored.spelling import OnUnknown, Spelling

if TYPE_CHECKING:
    from holdfast.serde import Registry

T = TypeVar("T")
_Path = str | os.PathLike[str]
_State = Mapping[str, JSON] | None


class CheckpointManager:
    """Checkpoints of a project: made, rolled back to, tried out, forked, without holding up the loop.

    Takes what `SyncCheckpointManager` takes, and does what that does; `sync` is that one. Context and state are copied
    when a call is made, so that they may go on changing.
    """

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
        options: dict[str, Any] = {"allow_home": allow_home, "home": home, "environ": environ, "clock": clock}
        options |= {"trust_store": trust_store, "registry": registry, "on_unknown": on_unknown}
        self.sync = SyncCheckpointManager(
            project_dir, feature_list, progress_file, store=store, retention=retention, **options
        )
        self._dispatch = Dispatch()

    def __repr__(self) -> str:
        return f"CheckpointManager({os.fspath(self.sync.project_dir)!r})"

    async def __aenter__(self) -> CheckpointManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for what was begun, and take nothing more."""
        await self._dispatch.close()
        self.sync.close()

    # making checkpoints

    async def create_checkpoint(
        self,
        name: str,
        description: str = "",
        *,
        type: CheckpointType | str = CheckpointType.MANUAL,  # noqa: A002  as the predecessor's key is called
        context: _State = None,
        state: _State = None,
        session: str | None = None,
        actor: str | None = None,
        pinned: bool = False,
    ) -> Checkpoint:
        """Keep the project as it is now: git's position, files, feature list, progress file, context, named state."""
        said: dict[str, Any] = {"session": session, "actor": actor, "pinned": pinned}
        said |= {"type": type, "context": _copied(context), "state": self._copied(state)}
        return await self._change(lambda: self.sync.create_checkpoint(name, description, **said))

    def attempt(
        self,
        description: str,
        *,
        context: _State = None,
        state: _State = None,
        session: str | None = None,
        actor: str | None = None,
    ) -> Attempt:
        """`async with`: an automatic checkpoint before something risky, and a rollback to it if that fails."""
        said: dict[str, Any] = {"context": _copied(context), "state": self._copied(state)}
        return Attempt(self.sync, description, elsewhere=self._change, session=session, actor=actor, **said)

    async def delete(self, checkpoint_id: str, *, permanent: bool = False) -> Checkpoint:
        """Delete a checkpoint; of a feature's only if `permanent` says that it is meant."""
        return await self._change(lambda: self.sync.delete(checkpoint_id, permanent=permanent))

    # finding them

    async def list(
        self,
        limit: int | None = 50,
        *,
        type: CheckpointType | str | None = None,  # noqa: A002  as the predecessor's key is called
        session: str | None = None,
    ) -> list[Checkpoint]:
        """The project's checkpoints, newest first; those of one type, or of one session."""
        kind = type
        return await self._look(lambda: self.sync.list(limit, type=kind, session=session))

    async def get(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by id, unique beginning of an id, or name; of several with one name the newest."""
        return await self._look(lambda: self.sync.get(checkpoint_id))

    async def state(self, checkpoint_id: str) -> dict[str, JSON]:
        """The named state that was saved with a checkpoint: conversation, todos, plan."""
        return await self._look(lambda: self.sync.state(checkpoint_id))

    async def diff(self, from_id: str, to_id: str | None = None) -> CheckpointDiff:
        """What differs between two checkpoints, or between one and the project as it is now."""
        return await self._look(lambda: self.sync.diff(from_id, to_id))

    async def verify(self, checkpoint_id: str | None = None) -> VerifyReport:
        """Read every byte of the store and name what is damaged; of one checkpoint, only what touches that."""
        return await self._look(lambda: self.sync.verify(checkpoint_id))

    async def preview(self, checkpoint_id: str) -> Plan:
        """What `rollback` would do to the files; nothing is touched."""
        return await self._look(lambda: self.sync.preview(checkpoint_id))

    # going back

    async def rollback(
        self,
        checkpoint_id: str,
        *,
        git: str = "keep",
        confirm: bool = False,
        keep_new: bool = False,
        touch: bool = False,
        state: _State = None,
    ) -> RolledBack:
        """Bring back files, feature list, progress file and state, all or nothing; `undo` takes it back."""
        now = self._copied(state)
        return await self._change(
            lambda: self.sync.rollback(
                checkpoint_id, git=git, confirm=confirm, keep_new=keep_new, touch=touch, state=now
            )
        )

    async def rollback_to_latest(self, *, git: str = "keep", confirm: bool = False, state: _State = None) -> RolledBack:
        """Roll back to the newest checkpoint of the project. NotFound if there is none."""
        now = self._copied(state)
        return await self._change(lambda: self.sync.rollback_to_latest(git=git, confirm=confirm, state=now))

    async def undo(self, *, git: str = "keep", confirm: bool = False, touch: bool = False) -> RolledBack:
        """Take back the last rollback that was not taken back yet."""
        return await self._change(lambda: self.sync.undo(git=git, confirm=confirm, touch=touch))

    async def recover(self) -> tuple[str, ...]:
        """Go on with what an interruption left; every call that changes something does this first."""
        return await self._change(self.sync.recover)

    # side by side

    async def fork(self, checkpoint_id: str, directory: _Path, *, store: _Path | None = None) -> Forked:
        """A checkpoint, files and state, in a new or empty folder with a store of its own."""
        return await self._change(lambda: self.sync.fork(checkpoint_id, directory, store=store))

    async def adopt(
        self,
        directory: _Path,
        *,
        store: _Path | None = None,
        state: _State = None,
        approve: Callable[[Plan], object] | None = None,
    ) -> Adopted:
        """Make a fork's files and state those of the project; `undo` takes it back. `approve` is called in a thread."""
        now = self._copied(state)
        return await self._change(lambda: self.sync.adopt(directory, store=store, state=now, approve=approve))

    # doing it elsewhere

    async def _change(self, work: Callable[[], T]) -> T:
        return await self._dispatch.change(lambda: Done(work()))

    async def _look(self, look: Callable[[], T]) -> T:
        return await self._dispatch.look(lambda: Done(look()))

    def _copied(self, state: _State) -> _State:
        return _copied(state, self.sync.spelling)


def _copied(values: _State, spelling: Spelling | None = None) -> _State:
    """A copy that later changes do not reach; what is no mapping is for the manager to refuse."""
    return copied(values, spelling) if isinstance(values, Mapping) else values
