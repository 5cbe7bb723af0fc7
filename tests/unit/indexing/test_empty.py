"""Where there is no ledger and no store yet, looking makes none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.errors import NotFound
from holdfast.indexing import FlatStore, IndexPlan, IndexRun

from .scene import Scene
from .stores import KINDS, store


@pytest.mark.parametrize("kind", KINDS)
def test_plan_writes_nothing_and_can_be_applied_elsewhere(scene: Scene, kind: str) -> None:
    scene.fill(2)
    before = sorted(scene.path.rglob("*"))
    places = scene.path / "kept" / "store", scene.path / "kept" / "index.db"
    scene.store.close()
    scene.store, scene.ledger = store(kind)(places[0]), lambda: places[1]
    with scene.run() as run:
        plan = run.plan()
        assert run.status().documents == 0
        assert run.explain("00.md") == ["it was never published"]
        with pytest.raises(NotFound):
            run.verify()
        with pytest.raises(NotFound):
            run.search("dense", "word0")
    scene.store.close()
    assert sorted(scene.path.rglob("*")) == before
    assert scene.model.calls == [["word0"]] or not scene.model.calls, "no document was sent"
    (scene.path / "kept").mkdir()
    scene.store = store(kind)(places[0])
    with scene.run() as run:
        assert run.apply(IndexPlan.from_dict(plan.to_dict())).ok
        assert run.verify().ok
        assert run.search("dense", "word0 thing1", limit=1)[0].document == "00.md"


def test_a_plan_makes_no_tables_in_a_database(scene: Scene, postgres: Callable[..., Any], postgres_url: str) -> None:
    scene.fill(2)
    scene.ledger = postgres

    def schemas() -> list[Any]:
        with psycopg.connect(postgres_url) as db:
            return db.execute("SELECT nspname FROM pg_namespace").fetchall()

    before = schemas()
    with scene.run() as run:
        plan = run.plan()
        assert run.status().documents == 0
    assert schemas() == before
    with scene.run() as run:
        assert run.apply(plan).ok
        assert run.verify().ok
    assert len(schemas()) == len(before) + 1


@pytest.mark.parametrize("is_shared", [False, True], ids=["a file", "PostgreSQL"])
def test_what_another_made_meanwhile_is_seen(scene: Scene, postgres: Callable[..., Any], is_shared: bool) -> None:
    scene.fill(2)
    if is_shared:
        scene.ledger = postgres
    early = FlatStore(scene.path / "store.db")
    with IndexRun(ledger=scene.ledger(), pipeline=scene.pipeline()) as looking:
        assert looking.status().documents == 0
        assert early.live() is None
        scene.done().close()
        assert looking.status().documents == 2
        assert looking.plan().is_empty
        assert early.live() == scene.store.live()
    early.close()


def test_a_ledger_whose_file_is_empty_is_none_yet(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "index.db").touch()
    scene = Scene(tmp_path)
    scene.fill(1)
    with scene.run() as run:
        plan = run.plan()
        assert (tmp_path / "index.db").read_bytes() == b""
        assert run.apply(plan).ok
    scene.store.close()
