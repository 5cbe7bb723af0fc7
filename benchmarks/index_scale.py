"""A plan over very many documents of which a hundred changed, as a multiple of one `os.walk` of the same tree.

Also the most memory that the process ever had. The tree and the ledger are made in a folder that is removed at the end;
they need 5 GB for a million documents. Part of `indexing.py`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from holdfast.digest import digest_bytes
from holdfast.indexing import Channel, FlatStore, FolderSource, IndexRun, Pipeline
from holdfast.indexing.ledger import Published
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from report import verdict

_FILES_IN_A_FOLDER = 40
"""As in a large repository; in one folder with very many files `os.walk` is quicker still."""
_AT_ONCE = 20_000
_CHANGED = 100
_GOAL, _MEMORY_GOAL_MIB = 6.0, 500


def _embed(texts: list[str]) -> list[list[float]]:
    return [[len(text) % 97 + 1.0, len(text) % 89 + 1.0, 1.0, 1.0] for text in texts]


def _run(where: Path) -> IndexRun:
    model = Channel(_embed, model="lengths", usd_per_mtok=0.02)
    pipeline = Pipeline(
        source=FolderSource(where / "docs"), embed={"dense": model}, store=FlatStore(where / "store.db")
    )
    return IndexRun(ledger=where / "index.db", pipeline=pipeline)


def make_tree(docs: Path, count: int) -> None:
    """Write small files, forty to a folder, as old as a corpus usually is."""
    then = time.time() - 86_400
    for first in range(0, count, _FILES_IN_A_FOLDER):
        folder = docs / f"{first // 4_000:03}" / f"{first // _FILES_IN_A_FOLDER:06}"
        folder.mkdir(parents=True)
        for number in range(first, min(first + _FILES_IN_A_FOLDER, count)):
            path = f"{folder}/note-{number:07}.md"
            with open(path, "w") as file:
                file.write(f"note {number}")
            os.utime(path, (then, then))


def fill_ledger(where: Path) -> None:
    """Have every document in the ledger, as if it had been applied: one is, the others are written beside it."""
    docs = where / "docs"
    aside = where / "aside"
    docs.rename(aside)
    docs.mkdir()
    (docs / "first.md").write_text("the first")
    with _run(where) as run:
        run.apply(run.plan())
    (docs / "first.md").unlink()
    docs.rmdir()
    aside.rename(docs)
    ledger = SQLiteLedger(where / "index.db")
    generation = ledger.generations()[-1].number
    recipe = ledger.last_recipe(generation) or 0
    some: list[Published] = []
    for document in FolderSource(docs):
        content = digest_bytes(bytes(document.read()))  # type: ignore[arg-type] # a file is bytes
        some.append(Published(document.name, document.stamp, content, recipe, (content,), ()))
        if len(some) == _AT_ONCE:
            ledger.publish(generation, some)
            some.clear()
    ledger.publish(generation, some)
    ledger.remove(generation, ["first.md"])
    ledger.close()


def change(docs: Path, count: int) -> None:
    for number in range(0, count, max(1, count // _CHANGED)):
        folder = docs / f"{number // 4_000:03}" / f"{number // _FILES_IN_A_FOLDER:06}"
        (folder / f"note-{number:07}.md").write_text(f"note {number}, changed")


class Timed(NamedTuple):
    """Seconds on the wall, and of a processor: the second is what a busy machine does not change."""

    wall_s: float
    busy_s: float


def timed(what: Callable[[], object]) -> Timed:
    began, busy = time.perf_counter(), time.process_time()
    what()
    return Timed(time.perf_counter() - began, time.process_time() - busy)


def walk(docs: Path) -> None:
    for _ in os.walk(docs):
        pass


def measure(where: Path, rounds: int) -> None:
    """In a process of its own, so that its memory is that of the plan and nothing else."""
    walked, planned = [], []
    plans = []
    for _ in range(rounds):
        walked.append(timed(lambda: walk(where / "docs")))
        with _run(where) as run:
            planned.append(timed(lambda: plans.append(run.plan())))
    plan = plans[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{plan.unchanged + len(plan.documents)} documents, {plan.counts['changed']} changed, {plan.to_embed} to embed"
    )
    for kind in ("wall_s", "busy_s"):
        ours, theirs = ([getattr(each, kind) for each in some] for some in (planned, walked))
        ratio = median(ours) / median(theirs)
        shown = (f"{median(each):.2f} s ({min(each):.2f}–{max(each):.2f})" for each in (theirs, ours))
        print("{}: os.walk {}, plan {}: {:.1f} ×, {}".format(kind, *shown, ratio, verdict(ratio, _GOAL)))
    print(f"peak memory {peak:.0f} MiB, {verdict(peak, _MEMORY_GOAL_MIB, unit=' MiB')}")


def scale(count: int, where: str | None, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-scale-", dir=where))
    try:
        make_tree(folder / "docs", count)
        fill_ledger(folder)
        change(folder / "docs", count)
        time.sleep(2.5)  # a file that changed within the last two seconds is read again each time
        subprocess.run(
            [
                sys.executable, str(Path(__file__).with_name("indexing.py")), "--measure", str(folder),
                "--rounds", str(rounds),
            ],
            check=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", action="store_true", help="plan over very many documents")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--where", help="a folder with room for that many small files")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> bool:
    """Do what was asked, if it was this."""
    if given.measure:
        measure(given.measure, given.rounds)
    elif given.scale:
        scale(given.documents, given.where, given.rounds)
    return bool(given.measure or given.scale)
