"""What would make a plan wrong about its price, or an apply about what it was allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.errors import Conflict, Refused
from holdfast.indexing import ChangeImpact, Channel, IndexPlan, PlainChunker
from holdfast.indexing.embed import Budget
from holdfast.indexing.spaces import CANARIES

from .scene import Model, Scene


class _Limit(Exception):
    status_code = 429


def test_model_that_yields_vectors_is_awaited(scene: Scene) -> None:
    scene.fill(3)
    waited: list[float] = []
    scene.sleep = waited.append
    sent: list[list[str]] = []

    def embed(texts: Sequence[str]) -> Iterator[list[float]]:
        for text in texts:
            yield Model().vector(text)
        sent.append(list(texts))
        if len(sent) == 2:
            raise _Limit("slow down")

    scene.model = embed  # type: ignore[assignment]
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan)
        assert (applied.ok, applied.embedded, waited) == (True, plan.to_embed, [1.0])
    assert sent[1] == sent[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", 6), ("base_url", "http://b"), ("api_key", "z"), ("batch_size", 9), ("device", "cuda"), ("price", 3)],
)
def test_speed_and_address_do_not_change_the_model(scene: Scene, name: str, value: Any) -> None:
    scene.fill(3)
    scene.model.settings = {"timeout": 5, "base_url": "http://a", "api_key": "k", "pooling": "max"}
    scene.done().close()
    scene.model.settings[name] = value
    with scene.run() as run:
        plan = run.plan()
        assert (plan.impact, plan.texts, plan.is_empty) == (ChangeImpact.NONE, 0, True)


def test_renamed_truncated_model_is_reported(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    before = scene.model.texts
    with scene.run(model="renamed", dimension=16) as run:
        plan = run.plan()
        assert (plan.impact, plan.is_lossy) == (ChangeImpact.UNPROVEN, False)
        with pytest.raises(Conflict, match="answers may get worse"):
            run.apply(plan)
        assert len(run.search("dense", scene.model.vector("word1"))) == 10
        plan = run.plan()
        assert (plan.is_lossy, plan.to_embed) == (True, 0)
        with pytest.raises(Refused, match="answers may get worse"):
            run.apply(plan)
        assert run.apply(plan, accept_loss=True).ok
    assert scene.model.texts == before + len(CANARIES)


def test_budget_equal_to_the_price_is_enough() -> None:
    """Floats are rounded each time something is added; the price of all was rounded once."""
    price, batches = 0.1, 100_000
    budget = Budget(max_usd=price * batches)
    for _ in range(batches):
        assert budget.allows(1, price)
        budget.usd += price
    assert not budget.allows(1, price)
    assert Budget(max_usd=0.0).allows(1, 0.0)
    assert not Budget(max_usd=0.0).allows(1, 1e-13)


@dataclass(frozen=True)
class _Cutter:
    at: frozenset[str]

    def __call__(self, text: str) -> list[str]:
        return [text]


def test_a_plan_after_a_change_of_a_set_can_be_saved(scene: Scene) -> None:
    scene.fill(2)
    scene.chunker = _Cutter(frozenset("ab"))  # type: ignore[assignment]
    scene.done().close()
    scene.chunker = _Cutter(frozenset("bc"))  # type: ignore[assignment]
    with scene.run() as run:
        plan = run.plan()
        assert [(each.old, each.new) for each in plan.settings] == [(["a", "b"], ["b", "c"])]
        assert run.apply(IndexPlan.from_dict(json.loads(json.dumps(plan.to_dict())))).ok


def test_a_query_that_is_no_number_has_no_nearest(scene: Scene) -> None:
    scene.fill(2)
    with scene.done() as run:
        for number in (float("nan"), float("inf")):
            with pytest.raises(Refused, match="not finite"):
                run.search("dense", [number] * 64)


def test_a_metric_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="'taste'") as refused:
        Channel(Model(), metric="taste")
    assert "cosine" in refused.value.hint


def test_a_budget_of_nothing_sends_nothing(scene: Scene) -> None:
    scene.fill(2)
    scene.chunker = PlainChunker(1000)
    with scene.run() as run:
        plan = run.plan()
        assert plan.usd
        for limit in (0.0, plan.usd * 0.01):
            assert run.apply(plan, max_usd=limit).stopped
            assert scene.model.texts == 0
            plan = run.plan()
        assert run.apply(plan, max_usd=plan.usd).ok


def test_what_was_spent_counts_against_the_limit(scene: Scene) -> None:
    scene.fill(3)
    with scene.run(batch_size=1) as run:
        plan = run.plan()
        assert plan.usd
        applied = run.apply(plan, max_usd=plan.usd * 0.8)
        assert applied.stopped
        assert 0 < applied.usd <= plan.usd * 0.8
        assert run.status().usd == pytest.approx(applied.usd)


def test_index_is_compared_only_with_its_own_settings(scene: Scene) -> None:
    scene.fill(2)
    scene.done().close()
    with scene.run(datatype="int8") as run, pytest.raises(Conflict, match="differ from those of the live index"):
        run.verify()
