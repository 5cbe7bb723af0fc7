"""Many interruptions at once: one forked process for each processor, and everything that went wrong in one report."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

Job = TypeVar("Job")
COUNT = max(1, min(4, len(os.sched_getaffinity(0))))


def all_of(jobs: Sequence[Job], work: Callable[[int, Job], None]) -> None:
    """Do all jobs; `work` gets the number of its worker. AssertionError with every failure."""
    found = [failure for report in [_start(jobs, work, worker) for worker in range(COUNT)] for failure in report()]
    if found:
        raise AssertionError(f"{len(found)} of {len(jobs)} went wrong:\n" + "\n".join(found))


def _start(jobs: Sequence[Job], work: Callable[[int, Job], None], worker: int) -> Callable[[], list[str]]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            failures = [text for job in jobs[worker::COUNT] if (text := _attempt(work, worker, job))]
            with open(writer, "w") as pipe:
                json.dump(failures, pipe)
        finally:
            os._exit(0)
    os.close(writer)

    def report() -> list[str]:
        with open(reader) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return list(json.loads(text)) if text else [f"worker {worker} died"]

    return report


def _attempt(work: Callable[[int, Job], None], worker: int, job: Job) -> str:
    try:
        work(worker, job)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
        said = str(error).partition("\nassert ")[0]  # without what pytest adds
        return f"  at {job}: {type(error).__name__}: {said} [{where}]"
    return ""
