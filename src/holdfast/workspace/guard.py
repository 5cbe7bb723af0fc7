"""A step under guard: saved before, and taken back if it fails."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ContextDecorator, ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast import durable
from holdfast.errors import HoldfastError, Refused
from holdfast.model import JSON, Checkpoint, Restored

if TYPE_CHECKING:
    from holdfast.scan.githead import Head
    from holdfast.workspace.workspace import Workspace

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_SHOWN = 5


class Guard(ContextDecorator):
    """Saves on entering, and restores when an error comes out; `with`, `async with`, or a decorator of a function.

    What counts as failing: every exception, Ctrl-C and a cancelled task included; not a `SystemExit` that says
    success, nor the closing of a generator. The error goes on, with a note of what was restored. If the restore
    fails, the note says that, and the checkpoint stays to be restored by hand.
    """

    def __init__(
        self,
        workspace: Workspace,
        message: str,
        *,
        state: Mapping[str, JSON] | None,
        session: str | None,
        actor: str | None,
        step: int | None,
    ) -> None:
        self._workspace = workspace
        self._message = message
        self._said: dict[str, Any] = {"state": state, "session": session, "actor": actor, "step": step}
        self._held = ExitStack()
        self._git: GitPosition | None = None
        self.checkpoint: Checkpoint | None = None
        """What was saved before the step."""
        self.restored: Restored | None = None
        """What was restored after it failed."""

    def __enter__(self) -> Checkpoint:
        self.restored = None
        self._git = git_position(self._workspace)
        looks, actor = self._workspace.first_looks, self._said["actor"]
        whose, metadata = looks.attribute(actor)  # what is there before the first step is not of who takes it
        self.checkpoint = self._workspace.save(
            self._message, **(self._said | {"actor": whose, "metadata": metadata or None})
        )
        looks.note(actor)
        self._held.enter_context(self._workspace.hold(self.checkpoint.id))  # the step may save, and others prune
        return self.checkpoint

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held:
            self._take_back(error)

    def _take_back(self, error: BaseException | None) -> None:
        if error is None or self.checkpoint is None or not is_failure(error):
            return
        try:
            self.restored = take_back(self._workspace, self.checkpoint.id)
        except HoldfastError as worse:
            error.add_note(f"holdfast: {self._workspace.path} could not be restored to {self.checkpoint.id}: {worse}")
        else:
            about_git = git_since(self._git, git_position(self._workspace), undo="Workspace.undo()")
            error.add_note(f"holdfast: {_told(self._workspace, self.restored)}" + (about_git and f"; {about_git}"))

    async def __aenter__(self) -> Checkpoint:
        import asyncio  # costs more to import than all of this; whoever comes here has it

        try:
            return await to_its_end(asyncio.to_thread(self.__enter__))
        except asyncio.CancelledError:  # nobody will leave what was never entered
            await to_its_end(asyncio.to_thread(self._held.close))
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await to_its_end(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _recreate_cm(self) -> Guard:
        """A guard of its own for each call of a decorated function."""
        return Guard(self._workspace, self._message, **self._said)

    def __call__(self, func: _Function) -> _Function:
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise Refused(
                f"{func.__qualname__} is a generator, which does its work after the guard has gone",
                hint="Use `with ws.guard(…)` inside it.",
            )
        if not inspect.iscoroutinefunction(func):
            return super().__call__(func)

        @functools.wraps(func)
        async def guarded(*args: Any, **options: Any) -> Any:
            async with self._recreate_cm():
                return await func(*args, **options)

        return guarded  # type: ignore[return-value]  # the same signature, which functools.wraps cannot say


def take_back(workspace: Workspace, checkpoint_id: str) -> Restored:
    """Restore after a step that failed; where the step removed the folder itself, make that again first."""
    if not os.path.lexists(workspace.path):
        with suppress(OSError):  # it is on a disk that is gone: the restore says so
            durable.disk().mkdir(str(workspace.path))
    return workspace.restore(checkpoint_id)


class GitPosition(NamedTuple):
    """Where the user's own git stands."""

    head: Head
    under_way: str

    def __str__(self) -> str:
        at = self.head.commit[:7] or "no commit"
        return f"{at} on {self.head.branch}" if self.head.branch else at


def git_position(workspace: Workspace) -> GitPosition | None:
    """Where git stands now; None where there is no repository, or it cannot be told."""
    from holdfast.scan import githead, usergit  # as late as the rest of what looks at a folder

    try:
        repository = usergit.repository_of(workspace.path)
        git = usergit.git_dir(repository) if repository is not None else None
    except OSError:
        return None
    return GitPosition(githead.read_head(git), githead.under_way(git)) if git is not None else None


def git_since(before: GitPosition | None, now: GitPosition | None, *, undo: str) -> str:
    """What became of git in a step whose files were restored: git itself is left as it is (P6). Empty if nothing."""
    from holdfast.scan.githead import ending

    if before is None or now is None or before == now:
        return ""
    if now.under_way and now.under_way != before.under_way:
        return (
            f"git is in the middle of {now.under_way}, which the step began, and only files were restored:"
            f" end it with `{ending(now.under_way)}`, or get its files back with `{undo}` and go on"
        )
    left = f", in the middle of {now.under_way}" if now.under_way else ""
    return f"git moved from {before} to {now}{left}, and stays there: only files were restored"


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for work until it has ended, however often one is cancelled meanwhile: whoever comes next finds the folder
    still."""
    import asyncio

    going = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not going.done():
        try:
            await asyncio.wait([going])
        except asyncio.CancelledError as error:
            cancelled = error
    result = going.result()
    if cancelled is not None:
        raise cancelled
    return result


def is_failure(error: BaseException) -> bool:
    """Whether a step that ends so has failed."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return not isinstance(error, GeneratorExit)


def _told(workspace: Workspace, done: Restored) -> str:
    text = f"{workspace.path} was restored to {done.checkpoint}"
    text += f" ({len(done.written)} written, {len(done.removed)} removed; `holdfast undo` takes that back)"
    if done.failed:
        some = ", ".join(list(done.failed)[:_SHOWN]) + (", …" if len(done.failed) > _SHOWN else "")
        text += f"; {len(done.failed)} could not be restored: {some}"
    return text
