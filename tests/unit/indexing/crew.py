"""Workers in processes of their own, which say what they pay for and publish, and can be stopped at a named point."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from holdfast.indexing import FlatStore, IndexRun
from holdfast.indexing.ledger import Batch, Published
from holdfast.indexing.ledger.postgres import PostgresLedger, PostgresShare
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.ledger.work_shares import Order, Share
from holdfast.indexing.spaces import CANARIES
from holdfast.indexing.vector_store import Point

from .scene import Model, Scene

LEASE_S = 3600.0
"""No lease ends by itself in these tests: the test ends it."""
POINTS = ("claimed", "paid", "kept", "intended", "written", "published", "committed", "swapped")
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__, f"{__package__}.killed"])


def process(target: Callable[..., None], *args: Any) -> Any:
    """Start a process that has everything imported already."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # what it imports beforehand, Python looks for only there
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    made = processes.Process(target=target, args=args, daemon=True)
    made.start()
    return made


def log(path: Path, what: object) -> None:
    with path.open("a") as file:  # one write: lines of several workers do not mix
        file.write(json.dumps(what) + "\n")


def logged(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Stop:
    """Tells the test that a point is reached, and stays there until it is let go on, or killed."""

    def __init__(self, point: str, reached: Any) -> None:
        self._point = point
        self._reached = reached

    def at(self, point: str) -> None:
        if point == self._point:
            self._point = ""
            self._reached.send(point)
            try:
                self._reached.recv()
            except (EOFError, OSError):  # the test is over
                os._exit(9)


class CrewModel(Model):
    def __init__(self, folder: Path, stop: Stop) -> None:
        super().__init__()
        self._log = folder / "paid.log"
        self._stop = stop

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        found = super().__call__(texts)
        log(self._log, list(texts))
        if tuple(texts) != CANARIES:
            self._stop.at("paid")
        return found


class CrewStore(FlatStore):
    def __init__(self, path: Path, stop: Stop) -> None:
        super().__init__(path)
        self._stop = stop

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        super().upsert(collection, points)
        self._stop.at("written")

    def make_live(self, collection: str) -> None:
        super().make_live(collection)
        self._stop.at("swapped")


class _Logging:
    """What both ledgers of a crew do beside their work."""

    stop: Stop
    folder: Path

    def add_batch(self, batch: Batch) -> None:
        super().add_batch(batch)  # type: ignore[misc]
        if batch.vectors:  # not what canaries cost
            self.stop.at("kept")

    def intend(self, *args: Any) -> None:
        super().intend(*args)  # type: ignore[misc]
        self.stop.at("intended")

    def publish(self, generation: int, documents: Sequence[Published]) -> None:
        super().publish(generation, documents)  # type: ignore[misc]
        self.stop.at("published")


class CrewShare(PostgresShare):
    stop: Stop
    folder: Path

    def claim(self, names: Sequence[str]) -> set[str]:
        found = super().claim(names)
        self.stop.at("claimed")
        return found

    def holding(self, names: Sequence[str]) -> AbstractContextManager[set[str]]:
        self._written_off: list[str] = []
        return _After(super().holding(names), self._committed)

    def done(self, names: Sequence[str]) -> None:
        super().done(names)
        self._written_off = list(names)

    def _committed(self) -> None:
        if self._written_off:
            log(self.folder / "published.log", sorted(self._written_off))
            self.stop.at("committed")


class _After:
    def __init__(self, inner: AbstractContextManager[set[str]], then: Callable[[], None]) -> None:
        self._inner = inner
        self._then = then

    def __enter__(self) -> set[str]:
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        if error[0] is None:
            self._then()


class CrewPostgres(_Logging, PostgresLedger):
    def _share(self, made: Any) -> Any:
        if made is not None:
            made.__class__, made.stop, made.folder = CrewShare, self.stop, self.folder
        return made

    def join(self, order: Order) -> Share | None:
        return self._share(super().join(order))  # type: ignore[no-any-return]

    def open(self, order: Order, generation: int) -> Share:
        return self._share(super().open(order, generation))  # type: ignore[no-any-return]


class CrewSQLite(_Logging, SQLiteLedger):
    pass


def member(folder: Path, place: tuple[str, str] | None, stop: Stop) -> tuple[Scene, IndexRun]:
    """A worker on a ledger in PostgreSQL (a URL and a schema), or in a file of the folder."""
    scene = Scene(folder)
    scene.store.close()
    scene.store = CrewStore(folder / "store.db", stop)
    scene.model = CrewModel(folder, stop)
    ledger: Any
    if place is None:
        ledger = CrewSQLite(folder / "index.db")
    else:
        ledger = CrewPostgres(place[0], schema=place[1], lease_s=LEASE_S)
    ledger.stop, ledger.folder = stop, folder
    scene.ledger = lambda: ledger
    return scene, scene.run()


def work(folder: Path, place: tuple[str, str] | None, point: str, reached: Any) -> None:
    """Plan and apply, and stop at a point. The exit status says whether all is well."""
    _, run = member(folder, place, Stop(point, reached))
    with run:
        applied = run.apply(run.plan())
    os._exit(0 if applied.ok else 3)


def start(folder: Path, place: tuple[str, str] | None, point: str = "") -> tuple[Any, Any]:
    """A worker, and what tells of its reaching the point."""
    reached, tells = processes.Pipe()
    return process(work, folder, place, point, tells), reached
