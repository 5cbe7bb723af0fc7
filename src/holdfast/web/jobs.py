"""Work that takes longer than a page may: it goes on in a thread, and pages ask how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model import Progress

Work = Callable[[Progress], Any]


class Job:
    """One piece of work, and what came of it."""

    def __init__(self) -> None:
        self.began = datetime.now(UTC)
        self.ended: datetime | None = None
        self.stage, self.done, self.total = "", 0, 0
        self.result: Any = None
        self.error: HoldfastError | None = None

    @property
    def is_running(self) -> bool:
        return self.ended is None

    @property
    def percent(self) -> int:
        return min(100 * self.done // self.total, 100) if self.total else 0

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a result."""
        return not self.is_running and self.result is None

    def tell(self, stage: str, done: int, total: int) -> None:
        """Note how far it is."""
        self.stage, self.done, self.total = stage, done, total

    def document(self) -> dict[str, Any]:
        """How far it is, as JSON."""
        return {
            "running": self.is_running,
            "began": self.began.isoformat(),
            "ended": self.ended.isoformat() if self.ended else None,
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
        }


class Jobs:
    """The last job of each kind; at most one of a kind runs at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, ...], Job] = {}

    def find(self, *kind: str) -> Job | None:
        """The job of a kind that runs, or ran last."""
        return self._jobs.get(kind)

    def start(self, *kind: str, work: Work) -> Job:
        """Begin a job, unless one of its kind runs already; return that one."""
        with self._lock:
            known = self._jobs.get(kind)
            if known is not None and known.is_running:
                return known
            job = self._jobs[kind] = Job()
        threading.Thread(target=_run, args=(job, work), name="holdfast-" + kind[0], daemon=True).start()
        return job


def _run(job: Job, work: Work) -> None:
    try:
        job.result = work(job.tell)
    except HoldfastError as error:
        job.error = error
    finally:  # any other error is printed by `threading`
        job.ended = datetime.now(UTC)
