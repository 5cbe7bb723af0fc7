"""An attempt: an automatic checkpoint, something risky, and a rollback if that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError, Refused
from holdfast.project.types import Checkpoint, CheckpointType, RolledBack
from holdfast.workspace.guard import GuardedStep

if TYPE_CHECKING:
    from holdfast.project.manager import SyncCheckpointManager

T = TypeVar("T")
RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
_NOT_BEGUN, _UNDER_WAY, _SUCCEEDED, _ROLLED_BACK = "not begun", "under way", "succeeded", "rolled back"
_NOT_ROLLED_BACK = "failed, and could not be rolled back"


class Attempt(GuardedStep["Attempt"]):
    """`with` or `async with`: a checkpoint, and a rollback to it on failure, which is raised with a note of that.

    The checkpoint is pinned until the attempt ends, so that nothing prunes it, however many are saved meanwhile.
    """

    def __init__(
        self,
        manager: SyncCheckpointManager,
        description: str,
        *,
        run_in_thread: RunInThread | None = None,
        **label: Any,
    ) -> None:
        """`label` is passed to `create_checkpoint`."""
        self._manager = manager
        self._run_in_thread = run_in_thread
        self._label = label
        self.description = description
        self.checkpoint: Checkpoint | None = None
        """What was saved before it."""
        self.rolled_back: RolledBack | None = None
        """What was rolled back after it failed."""
        self.outcome = _NOT_BEGUN
        """`not begun`, `under way`, `succeeded`, `rolled back`, or `failed, and could not be rolled back`."""
        self.notes: list[str] = []

    @property
    def ok(self) -> bool | None:
        """Whether it succeeded; None before it ends."""
        return None if self.outcome in (_NOT_BEGUN, _UNDER_WAY) else self.outcome == _SUCCEEDED

    @property
    def message(self) -> str:
        """How it went, for people."""
        rolled = (self.rolled_back.message,) if self.rolled_back else ()
        return "; ".join((f"{self.description}: {self.outcome}", *rolled, *self.notes))

    def __enter__(self) -> Attempt:
        if self.outcome == _UNDER_WAY:
            raise Refused(f"the attempt {self.description!r} is under way", hint="Make another one.")
        name = f"before {self.description}" if self.description else "before an attempt"
        self.checkpoint = self._manager.create_checkpoint(
            name, type=CheckpointType.AUTOMATIC, pinned=True, **self._label
        )
        self.outcome, self.rolled_back, self.notes = _UNDER_WAY, None, []
        return self

    def _succeed(self) -> None:
        self._end(_SUCCEEDED)

    def _abandon(self) -> None:
        self._end(_NOT_BEGUN)

    def _fail(self, error: BaseException) -> None:
        if self.checkpoint is None:
            return
        try:
            self.rolled_back = self._manager.rollback(self.checkpoint.id)
        except (HoldfastError, OSError) as worse:  # the step's own error is raised, whatever happens here
            self.outcome = _NOT_ROLLED_BACK  # the checkpoint is still needed and stays pinned
            self.notes.append(str(worse))
            error.add_note(f"holdfast: {self.message}")
        else:
            self.outcome = _ROLLED_BACK
            error.add_note(f"holdfast: {self.message}")
            self._end(_ROLLED_BACK)

    def _end(self, outcome: str) -> None:
        """Unpin the checkpoint, so that retention decides about it. A failure to unpin does not fail the step."""
        if self.checkpoint is None:
            return
        self.outcome = outcome
        try:
            self._manager.unpin(self.checkpoint)
        except HoldfastError as error:
            self.notes.append(f"{self.checkpoint.id} stays pinned: {error}")

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return self._run_in_thread(work) if self._run_in_thread else super()._in_thread(work)
