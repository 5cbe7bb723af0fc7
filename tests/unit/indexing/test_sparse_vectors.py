"""A sparse channel beside a dense one: what it finds, and what its changes cost."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.indexing import ChangeImpact, Channel, HashedWords, IndexRun, Pipeline
from holdfast.indexing.spaces import CANARIES

from .scene import Scene
from .stores import store


class Words(HashedWords):
    """Counts what it is asked."""

    asked = 0

    def __call__(self, texts: Any) -> Any:
        type(self).asked += len(texts)
        return super().__call__(texts)


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    Words.asked = 0


def _run(scene: Scene, **sparse: Any) -> IndexRun:
    embed = {"dense": Channel(scene.model, **scene.channel), **sparse}
    pipeline = Pipeline(source=scene.source, chunk=scene.chunker, embed=embed, store=scene.store)
    return IndexRun(ledger=scene.path / "index.db", pipeline=pipeline)


@pytest.mark.parametrize("kind", ["flat", "qdrant"])
def test_sparse_channel_changes_cost_only_themselves(scene: Scene, kind: str, tmp_path: Path) -> None:
    scene.fill()
    scene.write("names.md", "call parse_line_7 and then e4f5a6b7")
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    with scene.done():
        paid = scene.model.texts
    with _run(scene, sparse=Words()) as run:
        plan = run.plan()
        assert (plan.impact, plan.to_embed) == (ChangeImpact.CHANNEL, plan.chunks)
        assert run.apply(plan).ok
        assert run.verify().ok
        assert Words.asked == plan.chunks + len(CANARIES)
        for question in ("e4f5a6b7", "Parse Line", "parse_line_7"):
            assert run.search("sparse", Words().query(question))[0].document == "names.md"
        assert run.search("sparse", Words().query("nowhere")) == []
        assert run.plan().is_empty
    with _run(scene, sparse=Words(saturation=2.0)) as run:  # a setting of the sparse model
        assert run.apply(run.plan()).ok
        assert run.verify().ok
    asked = Words.asked
    with _run(scene, sparse=Channel(Words(saturation=2.0), model=Words.model, datatype="sparse")) as run:
        plan = run.plan()
        assert (plan.to_embed, plan.is_lossy) == (0, False)
        assert run.apply(plan).ok
        assert run.verify().ok
    with scene.run() as run:
        assert "the channel sparse is dropped" in run.plan().findings
        assert run.apply(run.plan()).ok
        assert run.verify().ok
    assert (scene.model.texts, Words.asked) == (paid, asked)


def test_a_sparse_model_alone_is_enough(scene: Scene) -> None:
    scene.fill(3)
    scene.write("odd.md", "... --- ...")  # no word at all
    pipeline = Pipeline(source=scene.source, embed={"words": HashedWords()}, store=scene.store)
    with IndexRun(ledger=scene.path / "index.db", pipeline=pipeline) as run:
        assert run.apply(run.plan(), max_usd=0).ok
        assert run.verify().ok
        assert run.search("words", HashedWords().query("word2"))[0].document == "02.md"


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ({1: float("nan")}, "not finite"),
        ({1: 1e300}, "not finite"),
        ({-1: 1.0}, "beyond 32 bits"),
        ({1 << 32: 1.0}, "beyond 32 bits"),
        ({"word": 1.0}, "mapping of positions"),
        ([0.5, 0.5], "mapping of positions"),
    ],
)
def test_missing_sparse_vector_is_recorded_and_others_are_kept(scene: Scene, vector: Any, reason: str) -> None:
    scene.fill(3)
    scene.write("odd.md", "ODD")

    def model(texts: Any) -> list[Any]:
        return [vector if text == "ODD" else {len(text): 1.0} for text in texts]

    pipeline = Pipeline(
        source=scene.source, embed={"words": Channel(model, model="m", datatype="sparse")}, store=scene.store
    )
    with IndexRun(ledger=scene.path / "index.db", pipeline=pipeline) as run:
        applied = run.apply(run.plan())
        assert [each.document for each in applied.failures] == ["odd.md"]
        assert reason in applied.failures[0].reason


def _lengths(more: int, texts: Any) -> list[dict[int, float]]:
    """Nothing for a text of digits, so that a canary has no vector to speak of."""
    return [{len(word) + more: 1.0 for word in text.split() if not word.isdigit()} for text in texts]


def test_swapped_sparse_model_is_detected_by_canaries(scene: Scene) -> None:
    """Its label is another one here, so a probe is what tells."""
    scene.fill(3)
    one: Any = functools.partial(_lengths, 0)
    other: Any = functools.partial(_lengths, 1)
    for number, (model, name, cost) in enumerate([(one, "a", 3), (one, "renamed", 0), (other, "swapped", 3)]):
        scene.chunker = type(scene.chunker)(size=1000)
        with _run(scene, words=Channel(model, model=name, datatype="sparse")) as run:
            plan = run.plan()
            before = run.status().texts
            assert run.apply(plan).ok
            probes = len(CANARIES) * (2 if number == 0 else 1)
            dense = 3 if number == 0 else 0
            assert run.status().texts - before == probes + cost + dense


def test_what_a_sparse_channel_cannot_have_is_refused() -> None:
    with pytest.raises(Refused, match="no dimension"):
        Channel(HashedWords(), datatype="sparse", dimension=8)
    with pytest.raises(Refused, match="invalid settings for BM25"):
        HashedWords(by_length=2)


def test_sparse_model_with_other_weights_is_another_model(scene: Scene) -> None:
    """Its vectors point nearly the same way, but a search adds up their numbers."""
    scene.fill(3)
    for usual, embedded in ((150, True), (300, True), (150, False)):
        pipeline = Pipeline(source=scene.source, embed={"words": HashedWords(usual_length=usual)}, store=scene.store)
        with IndexRun(ledger=scene.path / "words.db", pipeline=pipeline) as run:
            plan = run.plan()
            applied = run.apply(plan)
            assert applied.ok
            assert (applied.embedded, bool(applied.embedded)) == (plan.to_embed, embedded)
            assert run.verify().ok
