"""A guarded step: a checkpoint before it, and a restore if it fails."""

from __future__ import annotations

import functools
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import ContextDecorator, ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from holdfast import durable
from holdfast.errors import HoldfastError, Refused
from holdfast.model import Checkpoint, Restored

if TYPE_CHECKING:
    from holdfast.scan.git_head import Head
    from holdfast.workspace.requests import SaveRequest
    from holdfast.workspace.workspace import Workspace

E = TypeVar("E")
T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_SHOWN = 5


class GuardedStep(ABC, Generic[E]):
    """A step with a checkpoint before it, and a restore if it fails; for `with` and `async with`.

    Every exception is a failure, Ctrl-C and a cancelled task included; not a `SystemExit` of success, nor the closing
    of a generator. The failure is raised in any case, with a note of what was restored. A subclass says how to save
    and how to restore.
    """

    @abstractmethod
    def __enter__(self) -> E:
        """Save, and protect the checkpoint from pruning until the step has ended."""

    @abstractmethod
    def _succeed(self) -> None:
        """End the protection of the checkpoint."""

    @abstractmethod
    def _fail(self, error: BaseException) -> None:
        """Restore, note on the error what was done, and end the protection. Raises nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not _is_failure(error):
            self._succeed()
        else:
            self._fail(error)

    async def __aenter__(self) -> E:
        from asyncio import CancelledError  # late: asyncio takes longer to import than all of this

        try:
            return await self._to_the_end(self.__enter__)
        except CancelledError:  # nothing exits what was never entered
            await self._to_the_end(self._abandon)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._to_the_end(lambda: self.__exit__(kind, error, trace))

    def _abandon(self) -> None:
        """Undo `__enter__`, for a step that will not run."""
        self._succeed()

    async def _to_the_end(self, work: Callable[[], T]) -> T:
        """Run in a thread, and wait even if cancelled: whatever comes next finds the folder at rest."""
        from holdfast.durable.aio import wait_to_the_end  # late: asyncio

        return await wait_to_the_end(self._in_thread(work))

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        from holdfast.durable.aio import in_thread  # late: asyncio

        return in_thread(work)


class Guard(GuardedStep[Checkpoint], ContextDecorator):
    """Saves on entering, and restores when the step fails; `with`, `async with`, or a decorator of a function.

    If the restore fails, the note says so, and the checkpoint stays to be restored by hand.
    """

    def __init__(self, workspace: Workspace, request: SaveRequest) -> None:
        self._workspace = workspace
        self._request = request
        self._protection = ExitStack()
        self._git: GitPosition | None = None
        self.checkpoint: Checkpoint | None = None
        """What was saved before the step."""
        self.restored: Restored | None = None
        """What was restored after it failed."""

    def __enter__(self) -> Checkpoint:
        self.restored = None
        self._git = git_position(self._workspace)
        first_saves, actor = self._workspace.first_saves, self._request.actor
        author, metadata = first_saves.attribute(actor)  # what is there before the first step was not made by its actor
        self.checkpoint = self._workspace.save_request(self._request.replace(actor=author, metadata=metadata))
        first_saves.note(actor)
        self._protection.enter_context(self._workspace.hold(self.checkpoint.id))  # the step may save, and others prune
        return self.checkpoint

    def _succeed(self) -> None:
        self._protection.close()

    def _fail(self, error: BaseException) -> None:
        with self._protection:
            if self.checkpoint is not None:
                self._restore(self.checkpoint.id, error)

    def _restore(self, checkpoint_id: str, error: BaseException) -> None:
        try:
            self.restored = restore_after_failure(self._workspace, checkpoint_id)
        except HoldfastError as worse:
            error.add_note(f"holdfast: {self._workspace.path} could not be restored to {checkpoint_id}: {worse}")
        else:
            about_git = git_since(self._git, git_position(self._workspace), undo="Workspace.undo()")
            error.add_note(f"holdfast: {_summary(self._workspace, self.restored)}" + (about_git and f"; {about_git}"))

    def _recreate_cm(self) -> Guard:
        """A guard of its own for each call of a decorated function."""
        return Guard(self._workspace, self._request)

    def __call__(self, func: _Function) -> _Function:
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise Refused(
                f"{func.__qualname__} is a generator, which runs after the guard has ended",
                hint="Use `with ws.guard(…)` inside it.",
            )
        if not inspect.iscoroutinefunction(func):
            return super().__call__(func)

        @functools.wraps(func)
        async def guarded(*args: Any, **options: Any) -> Any:
            async with self._recreate_cm():
                return await func(*args, **options)

        return guarded  # type: ignore[return-value]  # the same signature, which functools.wraps cannot say


def restore_after_failure(workspace: Workspace, checkpoint_id: str) -> Restored:
    """Restore a folder after a failed step; recreate the folder first if the step removed it."""
    if not os.path.lexists(workspace.path):
        with suppress(OSError):  # it is on a disk that is gone: the restore says so
            durable.disk().mkdir(str(workspace.path))
    return workspace.restore(checkpoint_id)


class GitPosition(NamedTuple):
    """Commit and branch of the user's own repository, and the operation in progress there."""

    head: Head
    under_way: str

    def __str__(self) -> str:
        at = self.head.commit[:7] or "no commit"
        return f"{at} on {self.head.branch}" if self.head.branch else at


def git_position(workspace: Workspace) -> GitPosition | None:
    """Read the position of the user's git; None if there is no repository, or it cannot be read."""
    from holdfast.scan import (
        git_head,  # as late as the rest of what looks at a folder
        user_git,
    )

    try:
        repository = user_git.repository_of(workspace.path)
        git = user_git.git_dir(repository) if repository is not None else None
    except OSError:
        return None
    return GitPosition(git_head.read_head(git), git_head.under_way(git)) if git is not None else None


def git_since(before: GitPosition | None, now: GitPosition | None, *, undo: str) -> str:
    """Describe how git changed in a step whose files were restored; empty if it did not. Git is only read (P6)."""
    from holdfast.scan.git_head import ending

    if before is None or now is None or before == now:
        return ""
    if now.under_way and now.under_way != before.under_way:
        return (
            f"git is in the middle of {now.under_way}, which the step began, and only files were restored:"
            f" end it with `{ending(now.under_way)}`, or get its files back with `{undo}` and go on"
        )
    left = f", in the middle of {now.under_way}" if now.under_way else ""
    return f"git moved from {before} to {now}{left}, and stays there: only files were restored"


def _is_failure(error: BaseException) -> bool:
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return not isinstance(error, GeneratorExit)


def _summary(workspace: Workspace, done: Restored) -> str:
    text = f"{workspace.path} was restored to {done.checkpoint}"
    text += f" ({len(done.written)} written, {len(done.removed)} removed; undo() reverts that)"
    if done.failed:
        some = ", ".join(list(done.failed)[:_SHOWN]) + (", …" if len(done.failed) > _SHOWN else "")
        text += f"; {len(done.failed)} could not be restored: {some}"
    return text
