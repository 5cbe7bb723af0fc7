"""Models that look at the whole document: a chunk's vector depends on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.indexing import Channel
from holdfast.indexing.spaces import CANARIES

from .scene import Model, Scene


class LateChunking(Model):
    """A vector of a chunk has something of all chunks that it is sent with."""

    context_scope = "document"

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        own = super().__call__(texts)
        around = self.vector(" ".join(texts))
        return [[one + 0.2 * other for one, other in zip(each, around, strict=True)] for each in own]


@pytest.fixture
def late(scene: Scene) -> Scene:
    scene.model = LateChunking()
    scene.channel |= {"context_scope": "document"}
    scene.fill(5)
    return scene


def _documents(scene: Scene) -> list[list[str]]:
    return [call for call in scene.model.calls if call != list(CANARIES)]


def test_every_call_has_the_chunks_of_one_document_in_order(late: Scene) -> None:
    with late.run() as run:
        plan = run.plan()
        assert run.apply(plan).ok
        assert run.verify().ok
        assert run.plan().is_empty
    calls = _documents(late)
    assert sum(map(len, calls)) == plan.to_embed == plan.chunks
    assert sorted("".join(call) for call in calls) == [path.read_text() for path in sorted(late.docs.iterdir())]
    assert late.found("word3 thing1") == "03.md"


def test_a_change_in_one_chunk_embeds_its_document_and_no_other(late: Scene) -> None:
    with late.done():
        pass
    late.model.calls.clear()
    late.write("02.md", (late.docs / "02.md").read_text() + " and one word more")
    with late.run() as run:
        plan = run.plan()
        chunks = plan.documents[0].chunks
        assert (plan.to_embed, len(plan.documents)) == (chunks, 1)
        assert chunks > 2
        assert run.apply(plan).embedded == chunks
    (call,) = _documents(late)
    assert "".join(call) == (late.docs / "02.md").read_text()


def test_document_fits_the_budget_as_a_whole_or_not_at_all(late: Scene) -> None:
    with late.run() as run:
        chunks = run.plan().documents[0].chunks
        applied = run.apply(run.plan(), max_embeds=len(CANARIES) + 2 * chunks + 1)
        assert (applied.stopped, applied.embedded, applied.published) == ("the budget is used up", 2 * chunks, 2)
        assert run.apply(run.plan()).ok
    assert len(_documents(late)) == 5


@pytest.mark.parametrize("how", ["raises", "not finite"])
def test_failed_chunk_fails_its_document_and_both_are_retried(late: Scene, how: str) -> None:
    late.write("03.md", "POISON " + (late.docs / "03.md").read_text())
    vector = late.model.vector

    def fails(texts: Sequence[str]) -> None:
        if how == "raises" and any("POISON" in text for text in texts):
            raise ValueError("unspeakable")

    late.model.fails = fails
    if how != "raises":
        bad: Any = lambda text: [float("nan")] * 64 if "POISON" in text and len(text) <= 40 else vector(text)  # noqa: E731
        late.model.vector = bad  # type: ignore[method-assign]
    with late.run() as run:
        applied = run.apply(run.plan())
        assert {each.document for each in applied.failures} == {"03.md"}
        assert applied.is_live
        assert run.plan().to_embed == 0
        late.model.calls.clear()
        late.model.fails = lambda texts: None
        late.model.vector = vector  # type: ignore[method-assign]
        assert run.apply(run.plan(retry_failed=True)).ok
        assert run.verify().ok
    (call,) = _documents(late)
    assert "".join(call) == (late.docs / "03.md").read_text()


def test_document_level_model_must_be_used_as_one(scene: Scene) -> None:
    scene.fill(1)
    with scene.run(model="voyage-context-3") as run, pytest.raises(Refused) as caught:
        run.plan()
    assert 'context_scope="document"' in caught.value.hint
    with scene.run(model="voyage-context-3", context_scope="document") as run:
        assert run.apply(run.plan()).ok


def test_another_scope_makes_other_vectors(late: Scene) -> None:
    with late.done():
        pass
    with late.run(context_scope="chunk") as run:
        plan = run.plan()
        assert plan.to_embed == plan.chunks
    with pytest.raises(Refused, match="unknown context_scope 'page'"):
        Channel(late.model, context_scope="page")
