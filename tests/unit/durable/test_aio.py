"""Worker threads for asyncio, and async facades of synchronous classes."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Concatenate, TypeVar

import pytest

from holdfast.durable.aio import ReadWriteThreads, WorkerThreads, awaited, constructed_like, in_thread, wait_to_the_end
from holdfast.errors import Refused

T = TypeVar("T")
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def threads(count: int = 1, **options: Any) -> WorkerThreads:
    return WorkerThreads(count, "test", owner="test", **options)


def test_one_thread_keeps_the_order() -> None:
    async def scene() -> list[int]:
        done: list[int] = []
        one = threads()
        await asyncio.gather(*(one.call(lambda n=n: done.append(n)) for n in range(50)))  # type: ignore[misc]
        await one.aclose()
        return done

    assert asyncio.run(scene()) == list(range(50))


def test_calls_see_the_contextvars_of_their_caller() -> None:
    async def scene() -> str:
        WHO.set("caller")
        one = threads()
        try:
            return await one.call(WHO.get)
        finally:
            await one.aclose()

    assert asyncio.run(scene()) == "caller"


def test_errors_are_raised_where_the_call_is_awaited() -> None:
    async def scene() -> None:
        one = threads()
        try:
            with pytest.raises(ZeroDivisionError):
                await one.call(lambda: 1 / 0)
        finally:
            await one.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize("drop_cancelled", [False, True])
def test_cancelled_call_is_done_if_it_had_started(drop_cancelled: bool) -> None:
    done: list[str] = []
    started, may_end = threading.Event(), threading.Event()

    def first() -> None:
        started.set()
        assert may_end.wait(60)
        done.append("first")

    async def scene() -> None:
        one = threads(drop_cancelled=drop_cancelled)
        tasks = [asyncio.ensure_future(one.call(work)) for work in (first, lambda: done.append("second"))]
        await asyncio.to_thread(started.wait, 60)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*tasks, return_exceptions=True)
        )
        may_end.set()
        await one.aclose()

    asyncio.run(scene())
    assert done == (["first"] if drop_cancelled else ["first", "second"])


def test_a_failure_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    started, may_end = threading.Event(), threading.Event()

    def fail() -> None:
        started.set()
        may_end.wait(60)
        raise OSError("disk on fire")

    async def scene() -> None:
        one = threads()
        task = asyncio.ensure_future(one.call(fail))
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        await asyncio.wait([task])
        may_end.set()
        await one.aclose()

    asyncio.run(scene())
    assert "disk on fire" in caplog.text


class TestInThread:
    def test_result_error_and_contextvars_are_those_of_the_call(self) -> None:
        async def scene() -> str:
            WHO.set("caller")
            with pytest.raises(ZeroDivisionError):
                await in_thread(lambda: 1 / 0)
            assert await in_thread(threading.get_ident) != threading.get_ident()
            return await in_thread(WHO.get)

        assert asyncio.run(scene()) == "caller"

    def test_cancelled_call_runs_to_its_end_and_its_failure_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def fail() -> None:
            started.set()
            may_end.wait(60)
            ended.set()
            raise OSError("disk on fire")

        async def scene() -> None:
            task = asyncio.ensure_future(in_thread(fail))
            await asyncio.to_thread(started.wait, 60)
            task.cancel()
            assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
            may_end.set()

        asyncio.run(scene())
        assert ended.is_set()
        assert "disk on fire" in caplog.text


def test_work_is_done_when_its_loop_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    done, may_end = threading.Event(), threading.Event()
    one = threads()

    async def scene() -> None:
        asyncio.ensure_future(one.call(lambda: may_end.wait(60) and done.set()))  # noqa: RUF006  left behind on purpose
        await asyncio.sleep(0)

    asyncio.run(scene())
    may_end.set()
    one.close(wait=True)
    assert done.is_set()
    assert not caplog.records


def test_closed_threads_refuse_and_may_be_closed_again() -> None:
    async def scene() -> None:
        both = ReadWriteThreads("test", owner="shop")
        assert await both.call(lambda: 1, reads=True) == await both.call(lambda: 1, reads=False)
        await both.aclose()
        for reads in (True, False):
            with pytest.raises(Refused, match="the shop is closed"):
                await both.call(lambda: 1, reads=reads)
        await both.aclose()

    asyncio.run(scene())


def test_reads_do_not_wait_for_changes() -> None:
    may_end = threading.Event()

    async def scene() -> None:
        both = ReadWriteThreads("test", owner="test")
        change = asyncio.ensure_future(both.call(lambda: may_end.wait(60), reads=False))
        assert await both.call(lambda: "read", reads=True) == "read"
        may_end.set()
        assert await change
        await both.aclose()

    asyncio.run(scene())


def test_a_forked_child_has_threads_of_its_own() -> None:
    one = threads()
    one.submit(lambda: None).result()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # instead of waiting for ever for a thread that does not exist here
        os._exit(0 if one.submit(lambda: 7).result() == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
    one.close(wait=True)


def test_waiting_to_the_end_outlasts_cancellation() -> None:
    async def scene() -> None:
        may_end, ended = asyncio.Event(), []

        async def work() -> None:
            await may_end.wait()
            ended.append(True)

        task = asyncio.ensure_future(wait_to_the_end(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended

    asyncio.run(scene())


class Counter:
    def __init__(self, start: int, *, step: int = 1) -> None:
        self.value, self.step = start, step

    def add(self, times: int, *, twice: bool = False) -> int:
        """Add the step."""
        self.value += self.step * times * (2 if twice else 1)
        return self.value


class AsyncCounter:
    @constructed_like(Counter)
    def __init__(self, sync: Counter) -> None:
        self.sync = sync

    add = awaited(Counter.add)

    async def _call(
        self,
        method: Callable[Concatenate[Counter, ...], T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        reads: bool,
    ) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)


def test_a_facade_has_the_signatures_of_the_synchronous_class() -> None:
    assert asyncio.run(AsyncCounter(1, step=2).add(3, twice=True)) == 13
    assert inspect.iscoroutinefunction(AsyncCounter.add)
    assert inspect.signature(AsyncCounter.add) == inspect.signature(Counter.add)
    assert inspect.signature(AsyncCounter) == inspect.signature(Counter)
    assert AsyncCounter.add.__doc__ == "Add the step."
