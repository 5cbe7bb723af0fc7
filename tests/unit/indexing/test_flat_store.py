"""The flat store: what it finds, what it takes of the disk and of memory, and files of its first version."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pytest

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.indexing import FlatStore, vectors
from holdfast.indexing.vector_store import Hit, Point
from holdfast.indexing.vectors import Shape

from .crew import process

_FIRST_VERSION = """
CREATE TABLE collection (
    name TEXT PRIMARY KEY, shapes TEXT NOT NULL, fingerprint TEXT NOT NULL, live INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE point (
    collection TEXT NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL, ordinal INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE vector (
    collection TEXT NOT NULL, id TEXT NOT NULL, channel TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (collection, channel, id)
) WITHOUT ROWID;
PRAGMA user_version=1;
"""
_SHAPES = {"dense": Shape(300), "small": Shape(24, "int8"), "words": Shape(0, "sparse")}


def _points(count: int, shapes: dict[str, Shape], seed: int = 1) -> list[Point]:
    """Points, every third of which has the vector of the one before, and every fifth none in the first channel."""
    chance = np.random.default_rng(seed)
    found: list[Point] = []
    for number in range(count):
        own = {}
        for name, shape in shapes.items():
            if shape.is_sparse:
                own[name] = _sparse(number)
            else:
                own[name] = vectors.derive(vectors.pack_floats(chance.normal(size=shape.dimension)), shape)
        if number % 3 == 2:
            own = dict(found[-1].vectors)
        if number % 5 == 4 and len(shapes) > 1:
            own.pop(next(iter(shapes)), None)
        name = str(uuid5(NAMESPACE_URL, f"{seed} {number}"))
        found.append(Point(name, f"doc {seed} {number * 7 % count:05}", number % 4, f"text {number} " * 20, own))
    return found


def _sparse(number: int) -> bytes:
    return np.array([(number % 50, 1.5)], dtype=[("place", "<u4"), ("number", "<f4")]).tobytes()


def _expected(points: list[Point], channel: str, query: Any, shape: Shape, limit: int) -> list[Hit]:
    """What every vector looked at one by one gives."""
    wanted = np.asarray(vectors.normalise_query(query, shape), "f8")
    hits = []
    for point in points:
        if channel in point.vectors:
            row = np.asarray(vectors.floats(point.vectors[channel], shape), "f8")
            score = float(np.float32(np.add.reduce(row * wanted) / (np.sqrt(np.add.reduce(row * row)) or 1)))
            hits.append(Hit(point.document, point.ordinal, point.text, score))
    return sorted(hits, key=lambda hit: (-hit.score, hit.document, hit.ordinal))[:limit]


def _filled(path: Path | str, points: list[Point], shapes: dict[str, Shape]) -> FlatStore:
    store = FlatStore(path)
    store.create("c", shapes, {"ledger": "l"})
    store.make_live("c")
    for at in range(0, len(points), 200):
        store.upsert("c", points[at : at + 200])
    return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.db"


# what is found


@pytest.mark.slow
@pytest.mark.parametrize("datatype", ["float32", "float16", "int8", "binary"])
def test_search_finds_what_comparing_each_finds(path: Path, datatype: str) -> None:
    shapes = {"dense": Shape(600, datatype), "second": Shape(40)}
    points = _points(2000, shapes)
    with closing(_filled(path, points, shapes)) as store:
        gone, kept = points[100:900:3], [each for at, each in enumerate(points) if at not in range(100, 900, 3)]
        store.delete("c", [each.id for each in gone])
        again = _points(150, shapes, seed=2)
        store.upsert("c", again)  # in places of those that are gone
        kept += again
        chance = np.random.default_rng(7)
        for channel, shape in shapes.items():
            like = vectors.floats(next(each.vectors[channel] for each in kept if channel in each.vectors), shape)
            for query in (like, chance.normal(size=shape.dimension), [0.0] * shape.dimension):
                for limit in (1, 10, 700, 4000):
                    expected = _expected(kept, channel, query, shape, limit)
                    assert store.search(channel, query, limit=limit) == expected
        assert store.search("dense", like if len(like) == 600 else [1.0] * 600, limit=0) == []
        assert store.count("c") == len(kept)


def test_equal_vectors_are_found_by_document_wherever_they_lie(path: Path) -> None:
    shape = Shape(333)
    row = vectors.pack_floats(np.random.default_rng(3).normal(size=333))
    points = [Point(str(at), f"doc {at * 13 % 999:04}", 0, "t", {"dense": row}) for at in range(999)]
    with closing(_filled(path, points, {"dense": shape})) as store:
        found = store.search("dense", vectors.floats(row, shape), limit=20)
        assert [each.document for each in found] == [f"doc {at:04}" for at in range(20)]
        assert {each.score for each in found} == {1.0}


def test_huge_and_tiny_vectors_are_found(path: Path) -> None:
    rows = {"huge": [3e30, 4e30], "tiny": [3e-30, 4e-30], "plain": [4.0, 3.0], "zero": [0.0, 0.0], "away": [-3.0, -4.0]}
    rows |= {f"less {number}": [4.0, -1.0 - number] for number in range(50)}
    points = [Point(name, name, 0, name, {"dense": vectors.pack_floats(row)}) for name, row in rows.items()]
    with closing(_filled(path, points, {"dense": Shape(2)})) as store:
        found = store.search("dense", [3, 4], limit=3)
        assert [each.document for each in found] == ["huge", "tiny", "plain"]
        assert [round(each.score, 3) for each in found] == [1.0, 1.0, 0.96]
        scores = {each.document: each.score for each in store.search("dense", [3, 4], limit=100)}
        assert (scores["zero"], scores["away"], len(scores)) == (0.0, -1.0, 55)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_hides_no_other(path: Path, bad: float) -> None:
    shapes = {"dense": Shape(8)}
    points = _points(30, shapes)
    broken = Point("broken", "a", 0, "t", {"dense": np.full(8, bad, "f4").tobytes()})
    query = vectors.floats(points[0].vectors["dense"], shapes["dense"])
    with closing(_filled(path, [*points, broken], shapes)) as store:
        for limit in (1, 3, 30):
            expected = _expected(points, "dense", query, shapes["dense"], limit)
            assert store.search("dense", query, limit=limit) == expected
        assert store.search("dense", query, limit=31)[-1].document == "a"


def test_what_another_process_writes_is_found(path: Path) -> None:
    shapes = {"dense": Shape(8)}
    points = _points(60, shapes)
    with closing(_filled(path, points[:30], shapes)) as store, closing(FlatStore(path)) as other:
        query = vectors.floats(points[40].vectors["dense"], shapes["dense"])
        before = store.search("dense", query, limit=50)
        assert len(before) == 30
        other.upsert("c", points[30:])
        assert store.search("dense", query, limit=100) == _expected(points, "dense", query, shapes["dense"], 100)
        other.delete("c", [points[40].id])
        assert all(hit.text != points[40].text for hit in store.search("dense", query, limit=100))


def test_threads_search_while_one_writes(path: Path) -> None:
    shapes = {"dense": Shape(64)}
    points = _points(400, shapes)
    with closing(_filled(path, points[:300], shapes)) as store:
        query = vectors.floats(points[0].vectors["dense"], shapes["dense"])
        troubles: list[BaseException] = []

        def search() -> None:
            try:
                for _ in range(30):
                    assert store.search("dense", query, limit=3)[0].score == 1.0
            except BaseException as error:
                troubles.append(error)

        threads = [threading.Thread(target=search) for _ in range(4)]
        for each in threads:
            each.start()
        for at in range(300, 400):
            store.upsert("c", [points[at]])
        for each in threads:
            each.join()
        assert troubles == []


def test_reading_waits_for_no_writer_and_keeps_none_waiting(path: Path) -> None:
    shapes = {"dense": Shape(8)}
    points = _points(30, shapes)
    query = vectors.floats(points[0].vectors["dense"], shapes["dense"])
    with closing(_filled(path, points, shapes)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout=0")
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM point")
        assert len(store.read("c", [point.id for point in points])) == 30
        assert len(list(store.scan("c"))) == store.count("c") == 30
        assert len(store.search("dense", query, limit=50)) == 30
        other.execute("ROLLBACK")
        with store._db.reading():
            assert store.count("c") == 30
            assert store.read("c", [points[0].id])
            other.execute("BEGIN IMMEDIATE")  # it would be locked
            other.execute("ROLLBACK")


def test_points_that_somebody_took_out_are_not_found_or_counted(path: Path) -> None:
    shapes = {"dense": Shape(600)}
    points = _points(1000, shapes)
    gone, kept = points[::4], [each for at, each in enumerate(points) if at % 4]
    query = vectors.floats(gone[0].vectors["dense"], shapes["dense"])
    with closing(_filled(path, points, shapes)) as store:
        with closing(sqlite3.connect(path)) as db:
            db.executemany("DELETE FROM point WHERE id = ?", [(each.id,) for each in gone])
            db.commit()
        assert store.search("dense", query) == _expected(kept, "dense", query, shapes["dense"], 10)
        assert store.count("c") == len(list(store.scan("c"))) == 750
        store.upsert("c", gone)
        assert store.count("c") == 1000
        assert store.search("dense", query) == _expected(points, "dense", query, shapes["dense"], 10)
    with closing(sqlite3.connect(path)) as db:  # they got the places of what was left of them
        assert db.execute("SELECT places FROM collection").fetchall() == [(1000,)]


def test_a_vector_of_another_length_is_told(path: Path) -> None:
    with closing(_filled(path, _points(3, {"dense": Shape(8)}), {"dense": Shape(8)})) as store:
        store.upsert("c", [Point("odd", "d", 0, "t", {"dense": bytes(4)})])
        with pytest.raises(Damaged, match="wrong length"):
            store.search("dense", [1.0] * 8)


def test_blocks_that_somebody_took_out_are_counted(path: Path) -> None:
    shapes = {"dense": Shape(600), "second": Shape(600)}
    points = [each for each in _points(1000, shapes) if "dense" in each.vectors]
    with closing(_filled(path, points, shapes)) as store:
        with closing(sqlite3.connect(path)) as db:
            db.execute("DELETE FROM block WHERE channel = 'dense' AND place = 1")
            db.commit()
        assert store.count("c") == len(points), "each has a vector in the other channel"
        with closing(sqlite3.connect(path)) as db:
            db.execute("DELETE FROM block WHERE place = 1")
            db.commit()
        assert store.count("c") == sum(bool(sizes) for _, _, sizes in store.scan("c")) < len(points)


# disk and memory


def test_a_file_is_little_more_than_what_is_in_it(path: Path) -> None:
    shapes = {"dense": Shape(384)}
    points = _points(4000, shapes)
    _filled(path, points, shapes).close()
    payload = sum(len(each.text) + len(each.id) * 2 + 384 * 4 for each in points)
    assert path.stat().st_size < 1.2 * payload
    small = path.with_name("small.db")
    _filled(small, points[:3], shapes).close()
    assert small.stat().st_size < 120_000


def test_places_of_deleted_points_are_used_again(path: Path) -> None:
    shapes = {"dense": Shape(384)}
    with closing(_filled(path, _points(1000, shapes), shapes)) as store:
        before = path.stat().st_size
        for seed in range(2, 6):
            store.delete("c", [each for each, _, _ in store.scan("c")])
            assert (store.count("c"), store.search("dense", [1.0] * 384)) == (0, [])
            store.upsert("c", _points(1000, shapes, seed=seed))
            assert store.count("c") == 1000
    assert path.stat().st_size < before * 1.2


def test_a_search_holds_one_block_in_memory(path: Path) -> None:
    shapes = {"dense": Shape(512)}
    with closing(_filled(path, _points(8000, shapes), shapes)) as store:
        store.search("dense", [1.0] * 512)
        tracemalloc.start()
        store.search("dense", [1.0] * 512)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 << 20 < 8000 * 512 * 4


# files of the first version


def _first(path: Path, points: list[Point], shapes: dict[str, Shape]) -> None:
    """A file as the first version wrote it, with a second collection to roll back to."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(_FIRST_VERSION)
        for name, live in (("kept", 0), ("c", 1)):
            said = (name, json.dumps(vectors.shapes_to_json(shapes)), json.dumps({"ledger": name}), live)
            db.execute("INSERT INTO collection VALUES (?, ?, ?, ?)", said)
            own = points[:40] if name == "kept" else points
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO point VALUES (?, ?, ?, ?, ?)",
                [(name, each.id, each.document, each.ordinal, each.text) for each in own],
            )
            db.executemany(
                "INSERT INTO vector VALUES (?, ?, ?, ?)",
                [(name, each.id, channel, data) for each in own for channel, data in each.vectors.items()],
            )
            db.execute("COMMIT")


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        found: int = db.execute("PRAGMA user_version").fetchone()[0]
        return found


def _is_whole(store: FlatStore, points: list[Point]) -> None:
    assert (store.live(), store.fingerprint("c"), store.fingerprint("kept")) == (
        "c", {"ledger": "c"}, {"ledger": "kept"},
    )  # fmt: skip
    for name, own in (("c", points), ("kept", points[:40])):
        assert store.read(name, [each.id for each in own]) == {each.id: each for each in own}
        assert store.count(name) == len(list(store.scan(name))) == len(own)
    query = vectors.floats(points[3].vectors["small"], _SHAPES["small"])
    assert store.search("small", query, limit=30) == _expected(points, "small", query, _SHAPES["small"], 30)
    assert len(store.search("words", {7: 1.0}, limit=1000)) == sum(_has(each, 7) for each in points)


def _has(point: Point, place: int) -> bool:
    return point.vectors["words"][:4] == place.to_bytes(4, "little")


def test_a_file_of_the_first_version_is_upgraded_and_smaller(path: Path) -> None:
    points = _points(1200, _SHAPES)
    _first(path, points, _SHAPES)
    before = path.stat().st_size
    with closing(FlatStore(path)) as store:
        _is_whole(store, points)
        store.upsert("c", _points(5, _SHAPES, seed=9))
        assert store.count("c") == 1205
    assert _version(path) == 2
    assert path.stat().st_size < before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_analysed_file_of_the_first_version_is_upgraded(path: Path) -> None:
    points = _points(60, _SHAPES)
    _first(path, points, _SHAPES)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ANALYZE")
    with closing(FlatStore(path)) as store:
        _is_whole(store, points)


def _opens(path: Path, step: int) -> None:
    """Open a store, killed as the statement after `step` others begins."""
    left = [step]
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)

        def count(_: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        db.set_trace_callback(count)
        return db

    sqlite3.connect = traced  # type: ignore[assignment]
    FlatStore(path).close()
    os._exit(0)


@pytest.mark.slow
def test_an_upgrade_killed_at_any_statement_leaves_old_or_new(path: Path) -> None:
    points = _points(60, _SHAPES)
    first = path.with_name("first.db")
    _first(first, points, _SHAPES)
    step, was_killed, seen = 0, True, set()
    while was_killed:
        for each in path.parent.glob("vectors.db*"):
            each.unlink()
        shutil.copy(first, path)
        child = process(_opens, path, step)
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL)
        was_killed = bool(child.exitcode)
        seen.add(_version(path))
        with closing(FlatStore(path)) as store:
            _is_whole(store, points)
        step += 7 if 12 < step < 200 else 1  # the many that copy rows are alike
    assert (seen, step > 40) == ({1, 2}, True)


@pytest.fixture
def read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files can only be read, by root too: SQLite itself refuses."""
    connect = sqlite3.connect

    def barred(name: str, **options: Any) -> sqlite3.Connection:
        return connect(name.replace("?mode=rwc", "?mode=ro"), **options)

    monkeypatch.setattr(sqlite3, "connect", barred)
    yield
    monkeypatch.undo()


def test_a_read_only_file_of_the_first_version_is_searched(path: Path, request: pytest.FixtureRequest) -> None:
    points = _points(200, _SHAPES)
    _first(path, points, _SHAPES)
    before = path.read_bytes()
    request.getfixturevalue("read_only")
    with closing(FlatStore(path)) as store:
        _is_whole(store, points)
        with pytest.raises(Unavailable, match="not writable") as refused:
            store.upsert("c", points[:1])
        assert "space" in refused.value.hint
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_not_upgraded(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE collection (x); CREATE TABLE theirs (y); PRAGMA user_version=1;")
    before = path.read_bytes()
    with pytest.raises(Refused, match="another program"):
        FlatStore(path)
    assert path.read_bytes() == before
