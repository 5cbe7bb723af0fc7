"""An attempt: an automatic checkpoint, something risky, and a rollback if that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, Refused
from holdfast.project.nouns import Checkpoint, CheckpointType, RolledBack
from holdfast.workspace.guard import is_failure, to_its_end

if TYPE_CHECKING:
    from holdfast.project.manager import SyncCheckpointManager

Elsewhere = Callable[[Callable[[], Any]], Awaitable[Any]]


class Attempt:
    """`with` or `async with`: success goes on, failure rolls back and is raised with a note of that.

    What counts as failing: every exception, Ctrl-C and a cancelled task included; not a `SystemExit` that says success.
    While it is under way its checkpoint is pinned, so that nothing prunes it, however many are made meanwhile.
    """

    def __init__(
        self,
        manager: SyncCheckpointManager,
        description: str,
        *,
        elsewhere: Elsewhere | None = None,
        **said: Any,
    ) -> None:
        self._manager = manager
        self._elsewhere = elsewhere
        self._said = said
        self.description = description
        self.checkpoint: Checkpoint | None = None
        """What was saved before it."""
        self.rolled_back: RolledBack | None = None
        """What was rolled back after it failed."""
        self.outcome = "not begun"
        """`not begun`, `under way`, `succeeded`, `rolled back`, or `failed, and could not be rolled back`."""
        self.notes: list[str] = []

    @property
    def ok(self) -> bool | None:
        """Whether it succeeded; None while that is open."""
        return {"not begun": None, "under way": None}.get(self.outcome, self.outcome == "succeeded")

    @property
    def message(self) -> str:
        """How it went, for people."""
        rolled = (self.rolled_back.message,) if self.rolled_back else ()
        return "; ".join((f"{self.description}: {self.outcome}", *rolled, *self.notes))

    def __enter__(self) -> Attempt:
        if self.outcome == "under way":
            raise Refused(f"the attempt {self.description!r} is under way", hint="Make another one.")
        name = f"before {self.description}" if self.description else "before an attempt"
        self.checkpoint = self._manager.create_checkpoint(
            name,
            type=CheckpointType.AUTOMATIC,
            pinned=True,
            **self._said,
        )
        self.outcome, self.rolled_back, self.notes = "under way", None, []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.checkpoint is None:
            return
        if error is None or not is_failure(error):
            self.outcome = "succeeded"
        else:
            self._roll_back(self.checkpoint, error)
        if self.outcome != "failed, and could not be rolled back":  # then it is still needed
            self._let_go(self.checkpoint)

    def _roll_back(self, checkpoint: Checkpoint, error: BaseException) -> None:
        try:
            self.rolled_back = self._manager.rollback(checkpoint.id)
        except (HoldfastError, OSError) as worse:  # what failed is raised, whatever came of it
            self.outcome = "failed, and could not be rolled back"
            self.notes.append(str(worse))
        else:
            self.outcome = "rolled back"
        error.add_note(f"holdfast: {self.message}")

    def _let_go(self, checkpoint: Checkpoint) -> None:
        """From now on the rules decide about it. What was attempted does not fail because of that."""
        try:
            self._manager.let_go(checkpoint)
        except HoldfastError as error:
            self.notes.append(f"{checkpoint.id} stays pinned: {error}")

    async def __aenter__(self) -> Attempt:
        from asyncio import CancelledError

        try:
            await self._do(self.__enter__)
        except CancelledError:  # nobody will leave what was never entered
            if self.checkpoint is not None:
                made, self.outcome = self.checkpoint, "not begun"
                await self._do(lambda: self._let_go(made))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._do(lambda: self.__exit__(kind, error, trace))

    async def _do(self, work: Callable[[], Any]) -> None:
        """Elsewhere than in the loop, to its end however often it is cancelled meanwhile."""
        import asyncio

        await to_its_end(self._elsewhere(work) if self._elsewhere else asyncio.to_thread(work))
