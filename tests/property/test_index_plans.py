"""Whatever changes, what a plan predicts is what an apply pays for, and the index is what a fresh one would be."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.errors import Conflict
from holdfast.indexing import Channel, FlatStore, HashedWords, IndexPlan, IndexRun, Pipeline, PlainChunker
from holdfast.indexing.apply import Applied
from unit.indexing.scene import Model, Scene

_TEXTS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]), max_size=12).map(" ".join)
_CORPORA = st.dictionaries(st.sampled_from(["a", "b", "c", "d/e"]), _TEXTS, min_size=1, max_size=4)
_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "size": st.sampled_from([8, 20]),
    "seed": st.sampled_from(["one", "two"]),
    "datatype": st.sampled_from(["float32", "int8", "binary"]),
    "dimension": st.sampled_from([None, 4, 6]),
    "prompt": st.sampled_from(["", "passage: "]),
    "store": st.sampled_from(["here", "there"]),
    "words": st.sampled_from([None, None, 100, 200]),
    "budget": st.one_of(st.none(), st.integers(0, 30)),
    "back": st.booleans(),
}
_STEPS = st.lists(st.tuples(_CORPORA, st.fixed_dictionaries(_CHOICES)), min_size=1, max_size=4)
_LABELLED = st.fixed_dictionaries(_CHOICES | {"label": st.sampled_from(["x", "y"])})
_LIVE = "SELECT document, text FROM point WHERE collection = (SELECT number FROM collection WHERE name = ?)"


class Steps:
    """One ledger, two stores, and settings that change from step to step."""

    def __init__(self, folder: str) -> None:
        self.scene = Scene(Path(folder))
        self.stores = {name: FlatStore(Path(folder) / f"{name}.db") for name in ("here", "there")}

    def close(self) -> None:
        for store in (*self.stores.values(), self.scene.store):
            store.close()

    def open(self, corpus: dict[str, str], chosen: dict[str, Any]) -> IndexRun:
        scene = self.scene
        scene.model = Model(chosen["seed"], numbers=8)
        embed: dict[str, Any] = {
            "dense": Channel(
                scene.model, model=f"test-{chosen.get('label', chosen['seed'])}", datatype=chosen["datatype"],
                dimension=chosen["dimension"], doc_prompt=chosen["prompt"], batch_size=8,
            )
        }  # fmt: skip
        if chosen["words"]:
            embed["words"] = HashedWords(usual_length=chosen["words"])
        pipeline = Pipeline(
            source=corpus, chunk=PlainChunker(size=chosen["size"]), embed=embed, store=self.stores[chosen["store"]]
        )
        return IndexRun(ledger=scene.path / "index.db", pipeline=pipeline)

    def apply(self, run: IndexRun, plan: IndexPlan, **limits: Any) -> Applied:
        return run.apply(plan, accept_loss=True, allow_empty=True, **limits)

    def check(self, run: IndexRun, corpus: dict[str, str], chosen: dict[str, Any]) -> None:
        """The live index is what a fresh one would be, in text and in space."""
        assert run.plan().is_empty
        assert run.verify().ok
        store, chunker, model = self.stores[chosen["store"]], PlainChunker(size=chosen["size"]), self.scene.model
        rows = store._db.execute(_LIVE, (store.live(),)).fetchall()
        assert sorted(rows) == sorted((name, chunk) for name, text in corpus.items() for chunk in chunker(text))
        is_known = model.texts or "label" not in chosen  # a swap is noticed when the model is asked, not before
        if chosen["datatype"] == "float32" and is_known:
            for _, text in rows:
                assert store.search("dense", model.vector(chosen["prompt"] + text), limit=1)[0].score > 0.999

    def go_back(self, run: IndexRun) -> None:
        if run.status().can_roll_back:
            try:
                run.rollback()
            except Exception as error:  # the generation before is in the other store
                assert "Open the run with that store" in str(error)


@settings(max_examples=examples(40))
@given(_STEPS)
def test_what_is_predicted_is_what_is_paid(steps: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = Steps(folder)
        for corpus, chosen in steps:
            with world.open(corpus, chosen) as run:
                _exactly(world, run, chosen)
                world.check(run, corpus, chosen)
                if chosen["back"]:
                    world.go_back(run)
        world.close()


def _exactly(world: Steps, run: IndexRun, chosen: dict[str, Any]) -> None:
    model = world.scene.model
    if chosen["budget"] is not None:
        world.apply(run, run.plan(), max_embeds=chosen["budget"])
        assert model.texts <= chosen["budget"]
    model.texts = 0
    plan = run.plan()
    assert model.texts == 0
    applied = world.apply(run, plan)
    assert applied.ok
    dense = next(each for each in plan.channels if each.channel == "dense")
    assert (applied.embedded, applied.tokens) == (plan.to_embed, plan.tokens)
    assert model.texts == dense.to_embed + dense.probe_texts


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(_CORPORA, _LABELLED), min_size=2, max_size=4))
def test_model_names_never_cost_more_or_mix_spaces(
    steps: list[tuple[dict[str, str], dict[str, Any]]],
) -> None:
    """One model under two names, two under one, and back: what a name hides is found out, and costs what was said."""
    with tempfile.TemporaryDirectory() as folder:
        world = Steps(folder)
        for corpus, chosen in steps:
            with world.open(corpus, chosen) as run:
                plan = run.plan()
                try:
                    applied = world.apply(run, plan)
                except Conflict as error:
                    said = (
                        "replaced by another one",
                        "differs from the one that the plan was made for",
                        "answers may get worse",
                    )
                    assert any(each in str(error) for each in said)
                    plan = run.plan()
                    applied = world.apply(run, plan)
                assert applied.ok
                assert applied.embedded <= plan.to_embed
                world.check(run, corpus, chosen)
        world.close()
