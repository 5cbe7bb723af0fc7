"""Work that takes longer than a page may: it goes on in a thread, and pages ask how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import HoldfastError

WAIT_S = 1.0
"""How long a page waits for work before it is shown without."""
KEPT = 30
"""How many finished jobs are kept, with their results."""


class Job:
    """One piece of work, and what came of it."""

    def __init__(self, about: str = "") -> None:
        self.about = about
        """What its result is of: while that stays the same, so does the result."""
        self._end = threading.Event()
        self.began = datetime.now(UTC)
        self.ended: datetime | None = None
        self.stage, self.done, self.total = "", 0, 0
        self.found: list[Any] = []
        """What is found while it goes on."""
        self.result: Any = None
        self.error: HoldfastError | None = None
        self._seen = time.monotonic()

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

    @property
    def unseen_s(self) -> float:
        """For how long nobody has asked how far it is."""
        return time.monotonic() - self._seen

    def see(self) -> None:
        """Note that somebody waits for it."""
        self._seen = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait for its end, but no longer than this."""
        self._end.wait(seconds)

    def run(self, work: Work) -> None:
        try:
            self.result = work(self)
        except HoldfastError as error:
            self.error = error
        finally:  # any other error is printed by `threading`
            self.found = []
            self.ended = datetime.now(UTC)
            self._end.set()

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


Work = Callable[[Job], Any]


class Jobs:
    """The last job of each kind; at most one of a kind runs at a time. Of those that have ended, the last `KEPT`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, ...], Job] = {}

    def find(self, *kind: str) -> Job | None:
        """The job of a kind that runs, or ran last."""
        return self._jobs.get(kind)

    def start(self, *kind: str, work: Work, about: str = "") -> Job:
        """Begin a job, unless one of its kind runs already, or has a result about the same; return that one."""
        with self._lock:
            known = self._jobs.get(kind)
            if known is not None and (known.is_running or (about and known.about == about and not known.has_failed)):
                known.see()
                return known
            self._jobs.pop(kind, None)  # the new one is the last
            job = self._jobs[kind] = Job(about)
            ended = [each for each, one in self._jobs.items() if not one.is_running]
            for each in ended[: max(len(ended) - KEPT, 0)]:
                del self._jobs[each]
        threading.Thread(target=job.run, args=(work,), name="holdfast-" + kind[0], daemon=True).start()
        return job
