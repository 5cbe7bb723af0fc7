"""Rollbacks, models that come back, and searches meanwhile."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, Refused
from holdfast.indexing import FlatStore
from holdfast.indexing.ledger.sqlite import SQLiteLedger

from .scene import Model, Scene


def test_the_generation_that_was_live_is_the_one_to_go_back_to(scene: Scene) -> None:
    """Not the one that was rolled back before, though its number is greater."""
    scene.fill(3)
    with scene.done(dimension=64) as run:
        good = run.status().generation
    with scene.run(dimension=32) as run:
        assert run.apply(run.plan(), accept_loss=True).ok
        assert run.rollback() == good
    with scene.run(dimension=16) as run:
        assert run.apply(run.plan(), accept_loss=True).ok
        assert run.rollback() == good
        assert scene.store.live() is not None
    with scene.run(dimension=64) as run:
        assert run.verify().ok
        assert run.plan().is_empty


def test_rollback_is_reversible_and_old_plans_are_refused(scene: Scene) -> None:
    scene.fill(3)
    with scene.done() as run:
        first = run.status().generation
    with scene.run(datatype="int8") as run:
        assert run.apply(run.plan()).ok
        second, plan, paid = run.status().generation, run.plan(), scene.model.texts
        assert (run.rollback(), run.rollback(), run.rollback()) == (first, second, first)
        with pytest.raises(Conflict, match=r"ledger|settings"):
            run.apply(plan)
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        assert scene.model.texts == paid


def test_a_question_is_not_asked_of_vectors_of_another_model(scene: Scene) -> None:
    """They may be as long, and then every answer is noise."""
    scene.fill(4)
    scene.done().close()
    old, scene.model = scene.model, Model("another")
    with scene.run(model="another-model") as run:
        with pytest.raises(Conflict, match="another-model"):
            run.search("dense", "word1")
        assert scene.model.texts == 0
        assert run.apply(run.plan()).ok
        assert run.search("dense", "word1 thing1")[0].document == "01.md"
        run.rollback()
        with pytest.raises(Conflict, match="another-model"):
            run.search("dense", "word1")
    scene.model = old
    with scene.run() as run:
        assert run.search("dense", "word1 thing1")[0].document == "01.md"


def test_search_works_while_other_documents_are_pending(scene: Scene) -> None:
    scene.fill(4)
    scene.done().close()
    scene.write("more.md", "one that is not indexed yet")
    with scene.run(dimension=32, query_prompt="query: ") as run:
        assert run.search("dense", "word1 thing1")[0].document == "01.md"


def test_model_swapped_and_swapped_back_costs_a_probe(scene: Scene) -> None:
    """An address that led to another server for an hour: what was paid for before is as good as it was."""
    scene.fill(4)
    scene.done().close()
    right, scene.model = scene.model, Model("wrong")
    scene.write("new.md", "a text that nobody has seen")
    with scene.run() as run, pytest.raises(Conflict, match="was replaced by another one"):
        run.apply(run.plan())
    scene.model = right
    right.texts = 0
    with scene.run() as run:
        assert run.apply(run.plan()).ok
        assert right.texts == 8 + 1
        assert run.search("dense", "word1 thing1")[0].document == "01.md"
        assert run.verify().ok
        assert run.plan().is_empty


def test_two_models_under_one_name_are_each_embedded_once(scene: Scene) -> None:
    scene.fill(3)
    scene.done().close()
    models = [scene.model, Model("wrong")]
    for turn in range(1, 5):
        scene.model = models[turn % 2]
        scene.write("new.md", f"a text that nobody has seen {turn}")
        scene.model.texts = 0
        with scene.run() as run:
            try:
                run.apply(run.plan())
            except Conflict:
                run.apply(run.plan())
            assert run.verify().ok
            assert run.search("dense", "word1 thing1")[0].score > 0.5
        if turn > 1:
            assert scene.model.texts <= 8 + 8 + 1
    with SQLiteLedger(scene.path / "index.db") as ledger:
        kept = ledger.query("SELECT space FROM label WHERE label LIKE '%#%'")
    assert len(kept) == len(set(kept)) == 2, "what a name stood for is kept once"


def test_live_model_under_a_reused_name_is_not_embedded_again(scene: Scene) -> None:
    scene.fill(3)
    scene.done().close()
    right, scene.model = scene.model, Model("b")
    scene.done(model="other").close()
    scene.model = right
    scene.done().close()
    right.texts = 0
    scene.write("new.md", "a new text")
    with scene.run(model="other") as run:
        plan = run.plan()
        assert plan.to_embed == 1
        applied = run.apply(plan)
        assert (applied.ok, applied.embedded, right.texts) == (True, 1, 1 + 8)
        assert run.verify().ok
        assert run.plan().is_empty
    assert scene.found("word2 thing1") == "02.md"


def test_a_text_that_fails_again_is_sent_again_once(scene: Scene) -> None:
    """However many documents have it."""
    scene.fill(2)
    for name in ("a.md", "b.md", "c.md"):
        scene.write(name, "poison")
    real = scene.model.vector
    scene.model.vector = lambda text: [float("nan")] * 64 if text == "poison" else real(text)  # type: ignore[method-assign]
    with scene.run(batch_size=1) as run:
        run.apply(run.plan())
        scene.model.texts = 0
        plan = run.plan(retry_failed=True)
        applied = run.apply(plan)
        assert (plan.to_embed, applied.embedded, scene.model.texts) == (1, 1, plan.texts)
        assert {each.document for each in applied.failures} == {"a.md", "b.md", "c.md"}


def test_model_returning_to_more_work_needs_a_new_plan(scene: Scene) -> None:
    """What was written meanwhile has vectors of the other one only: the plan could not know."""
    scene.fill(2)
    scene.done().close()
    right, scene.model = scene.model, Model("wrong")
    scene.write("meanwhile.md", "a text that only the other model has seen")
    with scene.run() as run, pytest.raises(Conflict, match="was replaced by another one"):
        run.apply(run.plan())
    scene.done().close()
    scene.model = right
    scene.write("new.md", "short")
    right.texts = 0
    with scene.run() as run:
        plan = run.plan()
        assert plan.to_embed == 1
        with pytest.raises(Conflict, match="differs from the one that the plan was made for"):
            run.apply(plan)
        assert right.texts == 8
        plan = run.plan()
        assert plan.to_embed > 1
        assert run.apply(plan).embedded == plan.to_embed
        assert run.verify().ok


def test_generation_in_another_store_is_refused(scene: Scene) -> None:
    scene.fill(2)
    scene.done().close()
    before = scene.store
    scene.store = FlatStore(scene.path / "other.db")
    with scene.done() as run:
        live = scene.store.live()
        with pytest.raises(Refused, match="the previous generation is in flat:"):
            run.rollback()
        assert scene.store.live() == live
        assert run.verify().ok
    before.close()
