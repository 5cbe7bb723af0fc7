"""Plan and apply: what is predicted is what is done, and nothing is paid for twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import Conflict, Damaged, NotFound, Refused
from holdfast.indexing import ChangeImpact, FlatStore, PlainChunker, planner
from holdfast.indexing.baseline import read_baseline
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.plan import DocumentChange
from holdfast.indexing.spaces import CANARIES
from holdfast.indexing.vector_store import Point

from .scene import Model, Scene


def test_a_plan_calls_no_model_and_changes_nothing(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run:
        plan = run.plan()
        assert plan == run.plan()
    assert scene.model.calls == []
    assert plan.counts["new"] == 12
    assert plan.impact is ChangeImpact.INCREMENTAL


def test_what_a_plan_predicts_is_what_an_apply_does(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan)
    assert applied.ok
    assert (applied.embedded, applied.tokens) == (plan.to_embed, plan.tokens)
    assert plan.usd is not None
    assert applied.usd == pytest.approx(plan.usd)
    assert scene.model.texts == plan.texts == plan.to_embed + len(CANARIES)
    assert applied.published == len(plan.documents)


def test_an_index_answers(scene: Scene) -> None:
    scene.fill()
    scene.write("cats.md", "cats purr and sleep")
    with scene.done():
        assert scene.found("cats sleep") == "cats.md"


def test_an_unchanged_corpus_costs_nothing(scene: Scene) -> None:
    scene.fill()
    with scene.done() as run:
        before = scene.model.texts
        plan = run.plan()
        assert (plan.unchanged, plan.impact, plan.is_empty) == (12, ChangeImpact.NONE, True)
        assert run.apply(plan).ok
    assert scene.model.texts == before


def test_only_chunks_that_nobody_has_seen_are_embedded(scene: Scene) -> None:
    scene.fill()
    with scene.done() as run:
        before = scene.model.texts
        scene.write("00.md", (scene.docs / "00.md").read_text() + " and something new at the end of it")
        plan = run.plan()
        assert plan.counts["changed"] == 1
        assert 0 < plan.to_embed <= 2 < plan.chunks
        assert run.apply(plan).embedded == plan.to_embed
    assert scene.model.texts == before + plan.to_embed + len(CANARIES)
    assert scene.found("something new at the end of it") == "00.md"


def test_the_same_text_in_two_documents_is_paid_for_once(scene: Scene) -> None:
    scene.source = {"one": "the same words", "two": "the same words"}
    with scene.run() as run:
        plan = run.plan()
        assert (plan.to_embed, plan.reused) == (1, 1)
        assert run.apply(plan).embedded == 1
        assert run.status().points == 2


def test_a_deleted_document_is_not_found_any_more(scene: Scene) -> None:
    scene.fill(3)
    scene.write("cats.md", "cats purr and sleep")
    with scene.done() as run:
        os.unlink(scene.docs / "cats.md")
        plan = run.plan()
        assert plan.deleted == ("cats.md",)
        assert run.explain("cats.md") == ["it is no longer in the source"]
        assert run.apply(plan).ok
        assert run.verify().ok
        with pytest.raises(NotFound, match=r"there is no document 'cats\.md'"):
            run.explain("cats.md")
    assert scene.found("cats purr and sleep") != "cats.md"


def test_another_chunk_size_is_seen_and_going_back_costs_nothing(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        pass
    small, scene.chunker = scene.chunker, PlainChunker(size=80)
    with scene.run() as run:
        plan = run.plan()
        assert plan.counts["rechunked"] == 12
        assert plan.impact is ChangeImpact.RECHUNK
        assert [(each.name, each.old, each.new) for each in plan.settings] == [("chunk.settings.size", 40, 80)]
        assert "chunk.settings.size was 40 and is 80" in run.explain("00.md")
        assert run.apply(plan).embedded == plan.to_embed > 0
        assert run.verify().ok
    scene.chunker = small
    with scene.run() as run:
        plan = run.plan()
        assert (plan.counts["rechunked"], plan.to_embed) == (12, 0)
        assert run.apply(plan).ok
        assert run.verify().ok


def test_another_batch_size_or_price_is_no_change(scene: Scene) -> None:
    scene.fill(3)
    with scene.done():
        pass
    with scene.run(batch_size=2, usd_per_mtok=3.0) as run:
        assert run.plan().is_empty


def test_write_within_one_clock_tick_is_seen(scene: Scene) -> None:
    scene.write("a.md", "one")
    with scene.done() as run:
        found = os.stat(scene.docs / "a.md")
        (scene.docs / "a.md").write_text("two")
        os.utime(scene.docs / "a.md", ns=(found.st_atime_ns, found.st_mtime_ns))
        assert run.plan().counts["changed"] == 1


@pytest.mark.parametrize("moved", ["settings", "ledger", "documents"])
def test_a_plan_is_refused_when_the_world_moved(scene: Scene, moved: str) -> None:
    scene.fill(3)
    with scene.run() as run:
        plan = run.plan()
        if moved == "documents":
            scene.write("late.md", "came after the plan")
        elif moved == "ledger":
            run.apply(run.plan())
        else:
            scene.chunker = PlainChunker(size=50)
            run = scene.run()
        with run, pytest.raises(Conflict, match=f"the {moved} changed"):
            run.apply(plan)


def test_budget_stops_between_batches_and_the_next_run_resumes(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan, max_embeds=len(CANARIES) + 20)
        assert applied.stopped
        assert not applied.is_live
        assert scene.model.texts == len(CANARIES) + 20
        rest = run.plan()
        assert rest.to_embed == plan.to_embed - 20
        assert run.apply(rest).ok
        assert run.verify().ok
    assert scene.model.texts == plan.to_embed + 2 * len(CANARIES)


def test_a_budget_in_dollars_is_never_exceeded(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run:
        plan = run.plan()
        assert plan.usd is not None
        applied = run.apply(plan, max_usd=plan.usd / 2)
        assert 0 < applied.usd <= plan.usd / 2
        assert applied.stopped


def test_a_budget_in_dollars_needs_a_price(scene: Scene) -> None:
    scene.fill(1)
    with scene.run(usd_per_mtok=None) as run, pytest.raises(Refused, match="price of the model is unknown"):
        run.apply(run.plan(), max_usd=1)


def test_a_source_that_lost_everything_does_not_empty_the_index(scene: Scene) -> None:
    scene.fill(2)
    with scene.done() as run:
        for path in scene.docs.iterdir():
            path.unlink()
        with pytest.raises(Refused, match="no longer has any document"):
            run.apply(run.plan())
        assert run.apply(run.plan(), allow_empty=True).ok
        assert run.status().points == 0


def test_a_folder_that_is_away_is_an_error_and_not_a_deletion(scene: Scene) -> None:
    scene.fill(2)
    with scene.done() as run:
        scene.docs.rename(scene.path / "elsewhere")
        with pytest.raises(NotFound):
            run.plan()


def test_another_store_is_filled_without_a_model(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    scene.store.close()
    scene.store = FlatStore(scene.path / "other.db")
    with scene.run() as run:
        plan = run.plan()
        assert (plan.to_embed, plan.impact, plan.builds_beside) == (0, ChangeImpact.MIGRATABLE, True)
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.model.texts == before


def test_a_wiped_store_is_noticed_and_filled_without_a_model(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    scene.store.close()
    for path in scene.path.glob("store.db*"):
        path.unlink()
    scene.store = FlatStore(scene.path / "store.db")
    with scene.run() as run:
        plan = run.plan()
        assert any("wiped" in each for each in plan.findings)
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.model.texts == before
    assert scene.found("word3 thing1") == "03.md"


def test_wiped_store_is_repaired_without_a_model(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    before = scene.model.texts
    scene.store.close()
    for path in scene.path.glob("store.db*"):
        path.unlink()
    scene.store = FlatStore(scene.path / "store.db")
    with scene.run() as run:
        points = run.status().points
        report = run.verify(repair=True)
        assert (report.ok, report.repaired, report.compared) == (True, points, points)
        assert run.plan().is_empty
    assert scene.model.texts == before


def test_incomplete_new_index_does_not_go_live(scene: Scene) -> None:
    class Losing(FlatStore):
        def upsert(self, collection: str, points: Sequence[Point]) -> None:
            super().upsert(collection, points[1:])

    scene.fill()
    scene.done().close()
    live = scene.store.live()
    scene.store.close()
    scene.store = Losing(scene.path / "store.db")
    with scene.run(datatype="int8") as run, pytest.raises(Damaged, match="is incomplete"):
        run.apply(run.plan())
    assert scene.store.live() == live
    with scene.run() as run:
        assert run.status().generation == 1
        assert run.verify().ok
    scene.store.close()
    scene.store = FlatStore(scene.path / "store.db")
    texts = scene.model.texts
    with scene.run(datatype="int8") as run:
        plan = run.plan()
        assert {each.kind for each in plan.documents} == {DocumentChange.INTERRUPTED}
        assert run.apply(plan).ok, "it is not stuck there"
        assert run.verify().ok
    assert scene.model.texts == texts


def test_what_another_run_is_at_is_no_damage(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    scene.write("03.md", "something else altogether")
    seen: list[str] = []

    class Meddled(FlatStore):
        def delete(self, collection: str, ids: Sequence[str]) -> None:
            super().delete(collection, ids)
            with other, pytest.raises(Conflict) as conflict:  # the new points are there, and not written down yet
                other.verify()
            seen.append(conflict.value.message)

    other = scene.run()
    scene.store = Meddled(scene.path / "store.db")
    with scene.run() as run:
        assert run.apply(run.plan()).ok
        assert run.verify().ok
    assert len(seen) == 1
    assert "another run" in seen[0]


def test_a_plan_that_something_moved_under_is_not_carried_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it had looked at by then."""
    scene.fill(2)
    scene.done().close()
    scene.write("00.md", "changed")

    def meddled(*given: Any, **options: Any) -> Any:
        found = read_baseline(*given, **options)
        with SQLiteLedger(scene.path / "index.db") as other:
            other.fail([])
        return found

    with scene.run() as run:
        monkeypatch.setattr(planner, "read_baseline", meddled)
        plan = run.plan()
        monkeypatch.undo()
        with pytest.raises(Conflict, match="the ledger changed"):
            run.apply(plan)
        assert run.apply(run.plan()).ok


def test_verify_repairs_missing_and_surplus_points(scene: Scene) -> None:
    scene.fill()
    with scene.done() as run:
        before = scene.model.texts
        live = scene.store.live()
        assert live is not None
        ids = sorted(point for point, document, _ in scene.store.scan(live) if document == "03.md")
        scene.store.delete(live, ids[:1])
        scene.store.upsert(live, [Point("stray", "x.md", 0, "x", {})])
        report = run.verify()
        assert ([each[0] for each in report.missing], report.orphans) == (ids[:1], ("stray",))
        assert run.verify(repair=True).ok
        assert run.verify().ok
    assert scene.model.texts == before


def test_a_big_change_is_built_beside_and_can_be_rolled_back(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        old = scene.store.live()
    scene.model = Model("b")
    with scene.run(model="another-model") as run:
        plan = run.plan()
        assert plan.builds_beside
        assert run.apply(plan, max_embeds=len(CANARIES) + 8).stopped
        assert scene.store.live() == old, "a half-built index never answers"
        assert run.apply(run.plan()).ok
        assert scene.store.live() != old
        run.rollback()
        assert scene.store.live() == old
        run.rollback()
        assert run.verify().ok


def test_a_second_run_at_the_same_time_is_refused(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run, scene.run() as other:
        plan = run.plan()
        with run._ledger.writing(), pytest.raises(Conflict, match="another run"):
            other.apply(plan)
