"""What stays in a ledger, what a saved plan is worth, and what a verify sees."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.indexing import FlatStore, IndexPlan, PlainChunker

from . import crew
from .scene import Model, Scene

_NOW = timedelta(0)


def _saved(plan: IndexPlan) -> IndexPlan:
    return IndexPlan.from_dict(json.loads(json.dumps(plan.to_dict())))


def test_saved_plan_can_be_applied_later(scene: Scene) -> None:
    scene.fill(3)
    (scene.docs / "bad.md").write_bytes(b"\0")
    with scene.run() as run:
        plan = run.plan()
        assert _saved(plan) == plan
    with scene.run() as run:
        assert run.apply(_saved(plan)).embedded == plan.to_embed
    scene.model, scene.chunker = Model("b"), PlainChunker(size=80)
    with scene.run(model="other", datatype="int8", dimension=32) as run:
        plan = run.plan()
        assert plan.settings
        assert _saved(plan) == plan
        assert run.apply(_saved(plan), accept_loss=True).is_live


@pytest.mark.parametrize(
    "harm", ["documents", "deleted", "retry_failed", "nothing", "kind", "list", "usd", "unchanged", "findings"]
)
def test_a_saved_plan_that_was_changed_is_refused(scene: Scene, harm: str) -> None:
    scene.fill(3)
    with scene.run() as run:
        plain = json.loads(json.dumps(run.plan().to_dict()))
    if harm == "documents":
        plain["documents"].pop()
    elif harm == "deleted":
        plain["deleted"].append("00.md")
    elif harm == "retry_failed":
        plain["retry_failed"] = True
    elif harm == "kind":
        plain["documents"][0]["kind"] = "odd"
    elif harm == "usd":
        plain["channels"][0]["usd"] = 0.0  # nobody would be asked before it is spent
    elif harm == "unchanged":
        plain["unchanged"] = 1  # an index would be emptied without a word
    elif harm == "findings":
        plain["findings"].append("all is well")
    else:
        plain = {} if harm == "nothing" else []
    with pytest.raises(Refused) as refused:
        IndexPlan.from_dict(plain)
    assert refused.value.hint


def test_prune_keeps_what_documents_need_and_expires_the_rest(scene: Scene) -> None:
    scene.fill(3)
    small = scene.chunker
    scene.done().close()
    scene.chunker = PlainChunker(size=80)
    with scene.done() as run:
        before = len(_vectors(scene))
        assert run.prune().vectors == 0, "what was paid for is kept for a month"
        first = run.prune(kept_for=_NOW)
        assert (first.vectors, first.batches > 0) == (0, True), "the generation to roll back to needs its vectors"
        pruned = run.prune(keep_generations=0, kept_for=_NOW)
        assert 0 < pruned.vectors < before
        assert run.verify().ok
        assert run.plan().is_empty
        assert run.prune(kept_for=_NOW).vectors == 0
        usd = run.status().usd
    assert len(_vectors(scene)) == before - pruned.vectors
    scene.chunker = small
    with scene.run() as run:
        assert run.status().usd == usd, "what was spent stays known"
        assert run.plan().to_embed == pruned.vectors, "and is paid for again only if it is wanted again"


def _vectors(scene: Scene) -> list[str]:
    with closing(sqlite3.connect(scene.path / "index.db")) as db, db:
        found = [row[0] for row in db.execute("SELECT key FROM vector")]
    db.close()
    return found


def test_pruning_frees_the_disk_and_old_generations(scene: Scene) -> None:
    scene.model = Model("a", numbers=2048)
    scene.fill(8)
    scene.done().close()
    old = scene.store.live()
    scene.model = Model("b", numbers=2048)
    scene.done(model="other").close()
    size = (scene.path / "index.db").stat().st_size
    with scene.run(model="other") as run:
        pruned = run.prune(keep_generations=0, kept_for=_NOW)
        assert (pruned.generations, run.status().can_roll_back) == (1, False)
        assert old is not None
        assert scene.store.fingerprint(old) is None
        assert run.verify().ok
        with pytest.raises(NotFound):
            run.rollback()
    assert (scene.path / "index.db").stat().st_size < 0.7 * size


def test_old_points_of_a_moved_store_are_pruned(scene: Scene) -> None:
    scene.fill(2)
    scene.done().close()
    old = scene.store.live()
    assert old is not None
    scene.store.close()
    for path in scene.path.glob("store.db*"):
        path.rename(scene.path / f"moved-{path.name}")
    scene.store = FlatStore(scene.path / "moved-store.db")
    with scene.done() as run:
        assert scene.store.fingerprint(old) is not None
        assert run.prune(keep_generations=0).generations == 1
    assert scene.store.fingerprint(old) is None


def test_pruning_waits_for_what_is_unfinished(scene: Scene) -> None:
    scene.fill(3)
    with scene.run() as run:
        with pytest.raises(Refused, match="not finished"):
            run.prune()
        run.apply(run.plan(), max_embeds=16)
        with pytest.raises(Refused, match="not finished"):
            run.prune(kept_for=_NOW)
        assert run.apply(run.plan()).ok
        run._ledger.intend(1, {"00.md": ["11111111-1111-1111-1111-111111111111"]})
        with pytest.raises(Refused, match="not finished"):
            run.prune(kept_for=_NOW)


@pytest.mark.parametrize("datatype", ["float32", "int8", "binary"])
def test_wrong_vector_is_found_and_repaired(scene: Scene, datatype: str) -> None:
    scene.fill(3)
    with scene.done(datatype=datatype) as run:
        before = scene.model.texts
        live = scene.store.live() or ""
        report = run.verify()
        assert (report.ok, report.compared) == (True, report.points)
        points = sorted((document, point) for point, document, _ in scene.store.scan(live))
        (_, one), (document, other) = points[0], points[-1]
        there = scene.store.read(live, [one, other])
        scene.store.upsert(live, [replace(there[other], vectors=there[one].vectors)])
        assert run.verify().changed == ((other, document),)
        report = run.verify(repair=True)
        assert (report.ok, report.repaired) == (True, 1)
        assert run.plan().is_empty
    assert scene.model.texts == before


def test_a_sample_is_spread_and_costs_less(scene: Scene) -> None:
    scene.fill(12)
    with scene.done() as run:
        assert 10 <= run.verify(sample=20).compared <= 20 < run.verify().points


def test_a_store_of_another_index_under_the_same_name_is_noticed(scene: Scene, tmp_path: Path) -> None:
    scene.fill(3)
    scene.done().close()
    live = scene.store.live() or ""
    said = scene.store.fingerprint(live) or {}
    scene.store._db.execute("UPDATE collection SET fingerprint = ?", (json.dumps(said | {"ledger": "another"}),))
    with scene.run() as run:
        assert any("replaced" in each for each in run.verify().findings)
        assert any("replaced" in each for each in run.plan().findings)
    scene.store.close()
    (tmp_path / "store.db").unlink()
    scene.store = FlatStore(tmp_path / "store.db")
    with scene.run() as run:
        report = run.verify()
        assert any("wiped" in each for each in report.findings)
        assert len(report.missing) == report.points > 0


def test_second_process_is_a_conflict_until_the_first_ends(scene: Scene) -> None:
    scene.fill(3)
    first, reached = crew.start(scene.path, None, "paid")
    assert reached.poll(120)
    with scene.run() as run:
        plan = run.plan()
        for attempt in (lambda: run.apply(plan), run.rollback, run.prune):
            with pytest.raises(Conflict, match="another run") as conflict:
                attempt()
            assert "PostgreSQL" in conflict.value.hint
        first.kill()
        first.join()
        assert run.apply(run.plan()).ok
        assert run.verify().ok
