"""Whatever changes, what a plan predicts is what an apply pays for, and the index is what a fresh one would be."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.indexing import PlainChunker

from .scene import Model, Scene

_TEXTS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]), max_size=12).map(" ".join)
_CORPORA = st.dictionaries(st.sampled_from(["a", "b", "c", "d/e"]), _TEXTS, min_size=1, max_size=4)
_SETTINGS = st.fixed_dictionaries(
    {
        "size": st.sampled_from([8, 20]),
        "seed": st.sampled_from(["one", "two"]),
        "datatype": st.sampled_from(["float32", "int8"]),
        "dimension": st.sampled_from([None, 4]),
        "budget": st.one_of(st.none(), st.integers(0, 30)),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(_CORPORA, _SETTINGS), min_size=1, max_size=4))
def test_what_is_predicted_is_what_is_paid(steps: list[tuple[dict[str, str], dict[str, object]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        for corpus, chosen in steps:
            _step(scene, corpus, chosen)
        scene.store.close()


def _step(scene: Scene, corpus: dict[str, str], chosen: dict[str, object]) -> None:
    scene.source = corpus
    scene.model = Model(str(chosen["seed"]), numbers=8)
    scene.chunker = PlainChunker(size=int(str(chosen["size"])))
    channel = {"model": f"test-{chosen['seed']}", "datatype": chosen["datatype"], "dimension": chosen["dimension"]}
    budget = chosen["budget"]
    with scene.run(**channel) as run:
        if budget is not None:
            assert isinstance(budget, int)
            run.apply(run.plan(), max_embeds=budget, accept_loss=True, allow_empty=True)
            assert scene.model.texts <= budget
        scene.model.texts = 0
        plan = run.plan()
        assert scene.model.texts == 0
        applied = run.apply(plan, accept_loss=True, allow_empty=True)
        assert applied.ok
        assert (scene.model.texts, applied.embedded, applied.tokens) == (plan.texts, plan.to_embed, plan.tokens)
        assert run.plan().is_empty
        assert run.verify().ok
        live = scene.store.live()
        rows = scene.store._db.execute("SELECT document, text FROM point WHERE collection = ?", (live,)).fetchall()
        assert sorted(rows) == sorted((name, chunk) for name, text in corpus.items() for chunk in scene.chunker(text))
