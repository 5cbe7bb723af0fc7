"""Checkpoints before tools: any callable, or any block of code, preceded by one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from holdfast.errors import Refused

Tool = TypeVar("Tool", bound=Callable[..., Any])


class Keeper(Protocol):
    """Makes the checkpoint before a tool runs; raises if it cannot, and then the tool does not run."""

    def ahead(self, tool: str, message: str | None) -> Awaitable[object]: ...
    def ahead_blocking(self, tool: str, message: str | None) -> object: ...


def protect(tool: Tool, keeper: Keeper, message: str | None) -> Tool:
    """Wrap a callable of any kind, with its signature. A generator is preceded by a checkpoint when it begins."""
    if not callable(tool):
        raise Refused(f"{tool!r} cannot be called", hint="Give a function, a method or an object that can be.")
    name = tool_name(tool)
    call = getattr(type(tool), "__call__", tool)  # noqa: B004  an object may be called by an async method

    def is_any(question: Callable[[Any], bool]) -> bool:
        return question(tool) or question(call)

    if is_any(inspect.iscoroutinefunction):

        async def wrapper(*args: Any, **options: Any) -> Any:
            await keeper.ahead(name, message)
            return await tool(*args, **options)

    elif is_any(inspect.isasyncgenfunction):
        wrapper = _before_async_generator(tool, keeper, name, message)  # type: ignore[assignment]  # only one is made

    elif is_any(inspect.isgeneratorfunction):

        def wrapper(*args: Any, **options: Any) -> Generator[Any, Any, Any]:  # type: ignore[misc]  # only one is made
            keeper.ahead_blocking(name, message)
            return (yield from tool(*args, **options))

    else:

        def wrapper(*args: Any, **options: Any) -> Any:  # type: ignore[misc]  # only one is made
            keeper.ahead_blocking(name, message)
            return tool(*args, **options)

    return cast(Tool, functools.wraps(tool)(wrapper))


def _before_async_generator(
    tool: Callable[..., Any], keeper: Keeper, name: str, message: str | None
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def wrapper(*args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
        await keeper.ahead(name, message)
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
                except BaseException as error:  # for the tool to answer, as `yield from` has it
                    step = items.athrow(error)
        finally:
            await items.aclose()

    return wrapper


def tool_name(tool: Callable[..., Any]) -> str:
    """What people call a tool."""
    inner = getattr(tool, "func", tool) if isinstance(tool, functools.partial) else tool
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


class Ahead:
    """A checkpoint before a block (`with`, `async with`) or before each call of a function (as a decorator)."""

    def __init__(self, keeper: Keeper, message: str | None) -> None:
        self._keeper = keeper
        self._message = message

    def __call__(self, tool: Tool) -> Tool:
        return protect(tool, self._keeper, self._message)

    def __enter__(self) -> None:
        self._keeper.ahead_blocking("", self._message)

    async def __aenter__(self) -> None:
        await self._keeper.ahead("", self._message)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class Nothing(Ahead):
    """What stands in for `Ahead` where automatic checkpoints are off: no checkpoint, and no wrapper."""

    def __init__(self) -> None: ...

    def __call__(self, tool: Tool) -> Tool:
        return tool

    def __enter__(self) -> None: ...

    async def __aenter__(self) -> None: ...
