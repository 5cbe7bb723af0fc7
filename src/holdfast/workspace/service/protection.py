"""Wrapping tools and blocks of code so that a checkpoint is saved before they run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from holdfast.errors import Refused

Tool = TypeVar("Tool", bound=Callable[..., Any])


class BeforeTool(Protocol):
    """Saves a checkpoint before a tool runs; if it raises, the tool does not run."""

    def save_before(self, tool: str, message: str | None) -> Awaitable[object]: ...
    def save_before_blocking(self, tool: str, message: str | None) -> object: ...


def protect(tool: Tool, before: BeforeTool, message: str | None) -> Tool:
    """Wrap a callable of any kind, with its signature. For a generator the checkpoint is saved when it starts."""
    if not callable(tool):
        raise Refused(f"{tool!r} cannot be called", hint="Give a function, a method or a callable object.")
    name = tool_name(tool)
    call = getattr(type(tool), "__call__", tool)  # noqa: B004  `__call__` of an object may be async

    def is_any(question: Callable[[Any], bool]) -> bool:
        return question(tool) or question(call)

    if is_any(inspect.iscoroutinefunction):

        async def wrapper(*args: Any, **options: Any) -> Any:
            await before.save_before(name, message)
            return await tool(*args, **options)

    elif is_any(inspect.isasyncgenfunction):
        wrapper = _before_async_generator(tool, before, name, message)  # type: ignore[assignment]  # only one is defined

    elif is_any(inspect.isgeneratorfunction):

        def wrapper(*args: Any, **options: Any) -> Generator[Any, Any, Any]:  # type: ignore[misc]  # only one is defined
            before.save_before_blocking(name, message)
            return (yield from tool(*args, **options))

    else:

        def wrapper(*args: Any, **options: Any) -> Any:  # type: ignore[misc]  # only one is defined
            before.save_before_blocking(name, message)
            return tool(*args, **options)

    return cast(Tool, functools.wraps(tool)(wrapper))


def _before_async_generator(
    tool: Callable[..., Any], before: BeforeTool, name: str, message: str | None
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def wrapper(*args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
        await before.save_before(name, message)
        items = tool(*args, **options)
        step = items.asend(None)
        try:
            while True:
                try:
                    item = await step
                except StopAsyncIteration:
                    return
                try:
                    step = items.asend((yield item))
                except GeneratorExit:
                    raise
                except BaseException as error:  # passed on to the tool, as `yield from` does
                    step = items.athrow(error)
        finally:
            await items.aclose()

    return wrapper


def tool_name(tool: Callable[..., Any]) -> str:
    """Return the name of a tool."""
    inner = getattr(tool, "func", tool) if isinstance(tool, functools.partial) else tool
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


class CheckpointBefore:
    """A checkpoint before a block (`with`, `async with`) or before each call of a function (as a decorator)."""

    def __init__(self, before: BeforeTool, message: str | None) -> None:
        self._before = before
        self._message = message

    def __call__(self, tool: Tool) -> Tool:
        return protect(tool, self._before, self._message)

    def __enter__(self) -> None:
        self._before.save_before_blocking("", self._message)

    async def __aenter__(self) -> None:
        await self._before.save_before("", self._message)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class NoCheckpoint(CheckpointBefore):
    """Replaces `CheckpointBefore` if automatic checkpoints are off: no checkpoint, and no wrapper."""

    def __init__(self) -> None: ...

    def __call__(self, tool: Tool) -> Tool:
        return tool

    def __enter__(self) -> None: ...

    async def __aenter__(self) -> None: ...
