"""Stores that another program changed: what is wrong is reported, and repaired without a model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import durable
from holdfast.errors import Damaged
from holdfast.indexing import IndexRun

from .scene import Scene
from .stores import store


@pytest.fixture
def meddled(scene: Scene, tmp_path: Path) -> Iterator[Callable[[str], IndexRun]]:
    """Fills an index in a store of some kind."""
    opened: list[IndexRun] = []

    def fill(kind: str) -> IndexRun:
        scene.fill(3)
        scene.store.close()
        scene.store = store(kind)(tmp_path / "vectors")
        opened.append(scene.done())
        return opened[0]

    yield fill
    for each in opened:
        each.close()


def _first(scene: Scene) -> tuple[str, str, str]:
    """The live collection, and a point of it with its document."""
    live = scene.store.live()
    assert live is not None
    point, document, _ = min(scene.store.scan(live))
    return live, point, document


def _is_repaired(run: IndexRun, scene: Scene) -> None:
    before = scene.model.texts
    report = run.verify(repair=True)
    assert (report.ok, report.repaired, scene.model.texts) == (True, 1, before)
    assert run.verify().ok


@pytest.mark.extras
def test_lance_duplicate_row_is_repaired(scene: Scene, meddled: Callable[[str], IndexRun]) -> None:
    run = meddled("lancedb")
    live, point, document = _first(scene)
    table: Any = scene.store._table(live)  # type: ignore[attr-defined]
    table.add(table.search().where(f"id = '{point}'").to_arrow().select(table.schema.names))
    report = run.verify()
    assert (report.orphans, report.misshapen) == ((point,), ((point, document),))
    _is_repaired(run, scene)


@pytest.mark.extras
@pytest.mark.parametrize("vector", [{}, {"dense": [0.1] * 64}])
def test_qdrant_point_without_document_is_rewritten(
    scene: Scene, meddled: Callable[[str], IndexRun], vector: Any
) -> None:
    from qdrant_client import models

    run = meddled("qdrant")
    live, point, document = _first(scene)
    forged = models.PointStruct(id=point, vector=vector, payload={"ordinal": "none"})
    scene.store._client.upsert(live, [forged])  # type: ignore[attr-defined]
    assert run.verify().bad == ((point, document),)
    if vector:
        with pytest.raises(Damaged) as damaged:
            scene.store.search("dense", vector["dense"])
        assert "verify" in damaged.value.hint
    _is_repaired(run, scene)


@pytest.mark.extras
def test_qdrant_point_with_a_numeric_id_is_removed(scene: Scene, meddled: Callable[[str], IndexRun]) -> None:
    from qdrant_client import models

    run = meddled("qdrant")
    live, _, _ = _first(scene)
    forged = models.PointStruct(id=7, vector={"dense": [0.1] * 64}, payload={})
    scene.store._client.upsert(live, [forged])  # type: ignore[attr-defined]
    assert run.verify().orphans == ("7",)
    _is_repaired(run, scene)


@pytest.mark.extras
@pytest.mark.parametrize("is_foreign", [False, True])
def test_chroma_point_without_metadata_is_repaired(
    scene: Scene, meddled: Callable[[str], IndexRun], is_foreign: bool
) -> None:
    run = meddled("chroma")
    live, point, _ = _first(scene)
    part: Any = scene.store._get(f"hf.{live}.0")  # type: ignore[attr-defined]
    if not is_foreign:
        part.delete(ids=[point])
    part.upsert(ids=["foreign" if is_foreign else point], embeddings=[[0.1] * 64])
    with pytest.raises(Damaged):
        scene.store.search("dense", [0.1] * 64)
    assert len(run.verify().wrong) == 1
    _is_repaired(run, scene)


@pytest.mark.extras
def test_lance_table_dropped_by_two_processes_is_gone(
    scene: Scene, meddled: Callable[[str], IndexRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddled("lancedb")
    live, _, _ = _first(scene)
    sync = durable.sync_folder

    def look(path: Path) -> None:
        sync(path)
        store("lancedb")(tmp_path / "vectors")  # a search begins, and finds what is left of the table

    monkeypatch.setattr(durable, "sync_folder", look)
    scene.store.drop(live)
    assert scene.store.fingerprint(live) is None


def _without_vectors_of_sqlite_vec(folder: Path, ids: list[str]) -> None:
    from holdfast.adapters.stores.sqlite_vec import _connect

    with closing(_connect(str(folder))) as db:
        for each in ids:
            db.execute("DELETE FROM vector_1_0 WHERE key = (SELECT key FROM point WHERE id = ?)", (each,))


def _without_vectors_of_faiss(folder: Path, ids: list[str]) -> None:
    import faiss
    import numpy as np

    with closing(sqlite3.connect(folder / "points.db")) as db:
        marks = ",".join("?" * len(ids))
        keys = [row[0] for row in db.execute(f"SELECT key FROM point WHERE id IN ({marks})", ids)]
    (file,) = folder.glob("*.faiss")
    index = faiss.read_index(str(file))
    assert index.remove_ids(np.array(keys, dtype="i8")) == len(ids)
    faiss.write_index(index, str(file))


def _without_blocks(folder: Path, ids: list[str]) -> None:
    with closing(sqlite3.connect(folder)) as db:
        db.execute("DELETE FROM block")
        db.commit()


@pytest.mark.parametrize(
    ("kind", "lose"),
    [("sqlite-vec", _without_vectors_of_sqlite_vec), ("faiss", _without_vectors_of_faiss), ("flat", _without_blocks)],
)
def test_vectors_lost_from_files_are_noticed_by_a_plan(
    scene: Scene,
    meddled: Callable[[str], IndexRun],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    lose: Callable[[Path, list[str]], None],
) -> None:
    if kind == "faiss":
        monkeypatch.setattr("holdfast.adapters.stores.faiss._MIN_WAITING", 4)
    run = meddled(kind)
    _, point, _ = _first(scene)
    assert run.plan().findings == ()
    lose(tmp_path / "vectors", [point])
    assert any("has lost points" in each for each in run.plan().findings), "also by a store that is open"
    assert point in {each for each, _ in run.verify().bad}
    before = scene.model.texts
    assert (run.verify(repair=True).ok, scene.model.texts) == (True, before)
    assert run.plan().is_empty


def test_unrepairable_points_are_not_counted_as_repaired(scene: Scene) -> None:
    scene.fill(3)
    with scene.done() as run:
        live, _, _ = _first(scene)
        (point, _) = next((point, name) for point, name, _ in scene.store.scan(live) if name == "00.md")
        (other, _) = next((point, name) for point, name, _ in scene.store.scan(live) if name == "01.md")
        scene.store.delete(live, [point, other])
        scene.write("00.md", "words that nobody has paid for")
        report = run.verify(repair=True)
        assert ([name for _, name in report.missing], report.repaired) == (["00.md"], 1)
        (scene.docs / "00.md").unlink()
        assert run.verify(repair=True).repaired == 0
        assert run.apply(run.plan()).ok
        assert run.verify().ok


def test_wrong_generation_in_the_store_keeps_the_answers(scene: Scene) -> None:
    scene.fill(3)
    scene.done().close()
    with scene.done(datatype="int8") as run:
        live, _, _ = _first(scene)
        kept = live.removesuffix("_2") + "_1"
        scene.store.make_live(kept)  # a rollback that was cut off
        assert run.prune(keep_generations=0).generations == 1
        assert scene.store.live() == live
        assert scene.found("word2 thing1") == "02.md"
