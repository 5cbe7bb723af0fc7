"""`FlatStore` against sqlite-vec: how large the file is, and how long an exact search takes.

The same points, of random vectors and short texts, are in both; searches take turns, so that what else the machine does
slows both alike. A first search opens the store anew; others use one that is open. Times are medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from holdfast.indexing import FlatStore, vectors
from holdfast.indexing.vector_store import Point
from holdfast.indexing.vectors import Shape
from report import verdict

_AT_ONCE = 1000
_LIMIT = 10
_GOAL = 3.0
_TEXT = "A text as long as a line or two of prose, about nothing in particular. " * 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `indexing.py --search`."""
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--datatype", default="float32")


def run(given: argparse.Namespace) -> bool:
    """Print a table, if that was asked for; whether it was."""
    if not given.search:
        return False
    shape = Shape(given.dimension, given.datatype)
    chance = np.random.default_rng(5)
    queries = chance.normal(size=(2 * given.rounds, given.dimension)).tolist()
    with tempfile.TemporaryDirectory(dir=given.where) as folder:
        places = {name: Path(folder) / f"{name}.db" for name in ("flat", "sqlite-vec")}
        written = {name: _fill(name, places[name], given.vectors, shape) for name in places}
        first, again = _times(places, queries, is_exact=shape.datatype == "float32")
    print(f"{given.vectors:,} vectors of {given.dimension} numbers ({given.datatype}), the best {_LIMIT}")
    print("| | FlatStore | sqlite-vec | ratio |\n|---|---|---|---|")
    for title, unit, both in (
        ("file", "MB", {name: size / 1e6 for name, (_, size) in written.items()}),
        ("written in", "s", {name: seconds for name, (seconds, _) in written.items()}),
        ("first search", "ms", {name: median(each) * 1000 for name, each in first.items()}),
        ("others", "ms", {name: median(each) * 1000 for name, each in again.items()}),
    ):
        flat, vec = both["flat"], both["sqlite-vec"]
        goal = verdict(flat / vec, _GOAL) if unit == "ms" else ""
        print(f"| {title} | {flat:.1f} {unit} | {vec:.1f} {unit} | {flat / vec:.2f} × {goal} |")
    return True


def _opened(name: str, path: Path) -> Any:
    if name == "flat":
        return FlatStore(path)
    from holdfast.adapters.stores.sqlite_vec import SQLiteVecStore  # an extra

    return SQLiteVecStore(path)


def _points(count: int, shape: Shape) -> Iterator[list[Point]]:
    chance = np.random.default_rng(3)
    for at in range(0, count, _AT_ONCE):
        rows = chance.normal(size=(min(_AT_ONCE, count - at), shape.dimension)).astype("<f4")
        yield [
            Point(
                str(uuid5(NAMESPACE_URL, str(at + place))), f"docs/{(at + place) // 5:06}.md", (at + place) % 5, _TEXT,
                {"dense": vectors.derive(row.tobytes(), shape)},
            )
            for place, row in enumerate(rows)
        ]  # fmt: skip


def _fill(name: str, path: Path, count: int, shape: Shape) -> tuple[float, int]:
    """Seconds and bytes."""
    store, seconds = _opened(name, path), 0.0
    store.create("c", {"dense": shape}, {})
    for some in _points(count, shape):
        began = time.perf_counter()
        store.upsert("c", some)
        seconds += time.perf_counter() - began
    store.make_live("c")
    store.close()
    return seconds, path.stat().st_size


def _times(
    places: dict[str, Path], queries: list[Any], *, is_exact: bool
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    first: dict[str, list[float]] = {name: [] for name in places}
    again: dict[str, list[float]] = {name: [] for name in places}
    for query in queries:
        found = {}
        for name, path in places.items():
            began = time.perf_counter()
            store = _opened(name, path)
            store.search("dense", query, limit=_LIMIT)
            first[name].append(time.perf_counter() - began)
            began = time.perf_counter()
            found[name] = [(hit.document, hit.ordinal) for hit in store.search("dense", query, limit=_LIMIT)]
            again[name].append(time.perf_counter() - began)
            store.close()
        if is_exact and len({*map(tuple, found.values())}) != 1:  # of coarser ones sqlite-vec rounds the query, too
            raise SystemExit("both are exact, and found different points")
    return first, again
