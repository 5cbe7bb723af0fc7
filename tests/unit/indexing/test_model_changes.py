"""Models that are renamed, swapped, cut, made coarser, added, or that misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.indexing import ChangeImpact, Channel, IndexRun, Pipeline
from holdfast.indexing.spaces import CANARIES

from .scene import Model, Scene


def test_a_renamed_model_costs_a_probe_and_no_chunk(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    with scene.run(model="gateway/test-model") as run:
        plan = run.plan()
        assert plan.impact is ChangeImpact.UNPROVEN
        applied = run.apply(plan)
        assert (applied.embedded, applied.ok) == (0, True)
        assert scene.model.texts == before + len(CANARIES)
        assert run.plan().is_empty


def test_another_model_of_the_same_dimension_is_never_mixed_in(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        pass
    scene.model = Model("b")
    with scene.run(model="other") as run:
        plan = run.plan()
        chunks = plan.chunks
        assert run.apply(plan).embedded == chunks
        assert run.verify().ok
    assert scene.found("word3 thing1") == "03.md"


def test_a_model_swapped_under_its_name_is_caught_and_priced(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        pass
    scene.model = Model("b")
    scene.model.seed, seed = "a", "b"  # the same settings, other weights
    scene.model.vector = Model(seed).vector  # type: ignore[method-assign]
    scene.write("new.md", "something to embed")
    with scene.run() as run:
        with pytest.raises(Conflict, match="was replaced by another one"):
            run.apply(run.plan())
        plan = run.plan()
        assert plan.impact is ChangeImpact.REEMBED
        assert plan.to_embed == plan.chunks
        assert run.apply(plan).ok
    assert scene.found("word3 thing1") == "03.md"


def test_another_prompt_for_documents_means_other_vectors(scene: Scene) -> None:
    scene.fill(3)
    with scene.done():
        pass
    with scene.run(doc_prompt="passage: ") as run:
        plan = run.plan()
        assert (plan.impact, plan.to_embed) == (ChangeImpact.REEMBED, plan.chunks)
        assert run.apply(plan).ok
    assert all(text.startswith("passage: ") for text in scene.model.calls[-1])


def test_unknown_model_setting_is_not_ignored(scene: Scene) -> None:
    scene.fill(3)
    with scene.done():
        pass
    scene.model.settings = {"pooling": "max"}
    with scene.run() as run:
        assert run.plan().impact is ChangeImpact.UNPROVEN


def test_fewer_numbers_need_no_model_but_a_word(scene: Scene) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    with scene.run(dimension=32) as run:
        plan = run.plan()
        assert (plan.impact, plan.to_embed, plan.is_lossy) == (ChangeImpact.TRANSFORMABLE, 0, True)
        measured = plan.channels[0].overlap
        assert measured is not None
        assert 0 < measured < 1
        with pytest.raises(Refused, match="of nearest neighbours stay"):
            run.apply(plan)
        assert run.apply(plan, accept_loss=True).ok
        assert run.verify().ok
    assert scene.found("word3 thing1") == "03.md"
    with scene.run() as run:  # and up again, of what was kept
        plan = run.plan()
        assert (plan.to_embed, plan.is_lossy) == (0, False)
        assert run.apply(plan).ok
    assert scene.model.texts == before


@pytest.mark.parametrize("datatype", ["float16", "int8", "binary"])
def test_a_coarser_datatype_needs_no_model(scene: Scene, datatype: str) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    with scene.run(datatype=datatype) as run:
        plan = run.plan()
        assert (plan.impact, plan.to_embed) == (ChangeImpact.QUANTIZABLE, 0)
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.model.texts == before
    assert scene.found("word3 thing1") == "03.md"


def test_more_numbers_than_the_model_has_are_refused(scene: Scene) -> None:
    scene.fill(1)
    with scene.done():
        pass
    with scene.run(dimension=65) as run, pytest.raises(Refused, match="has 64 dimensions, not 65"):
        run.plan()


def test_a_channel_that_is_added_leaves_the_other_alone(scene: Scene, tmp_path: Path) -> None:
    scene.fill(3)
    with scene.done():
        before = scene.model.texts
    second = Model("second", numbers=8)
    embed = {"dense": Channel(scene.model, **scene.channel), "small": Channel(second, model="second")}
    pipeline = Pipeline(source=scene.source, chunk=scene.chunker, embed=embed, store=scene.store)
    with IndexRun(ledger=tmp_path / "index.db", pipeline=pipeline) as run:
        plan = run.plan()
        assert plan.impact is ChangeImpact.CHANNEL
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.model.texts == before
    assert second.texts == plan.chunks + len(CANARIES)
    assert scene.store.search("small", second.vector("word1 thing1"), limit=1)[0].document == "01.md"


def test_two_channels_of_one_model_are_embedded_once(scene: Scene, tmp_path: Path) -> None:
    scene.fill(3)
    own = scene.pipeline()
    channels = {name: Channel(scene.model, model="m", datatype=name) for name in ("float32", "int8")}
    pipeline = Pipeline(source=own.source, chunk=own.chunk, embed=channels, store=own.store)
    with IndexRun(ledger=tmp_path / "two.db", pipeline=pipeline) as run:
        plan = run.plan()
        assert [each.to_embed for each in plan.channels] == [plan.chunks, 0]
        applied = run.apply(plan)
        assert (applied.embedded, scene.model.texts) == (plan.to_embed, plan.texts)
        scene.write("new.md", "something new")
        plan = run.plan()
        before = scene.model.texts
        assert run.apply(plan).ok
        assert scene.model.texts == before + plan.texts == before + len(CANARIES) + 1


def test_model_without_canaries_is_recognised(scene: Scene) -> None:
    scene.fill(3)
    whole = scene.model.vector
    zeros = [0.0] * scene.model.numbers
    scene.model.vector = lambda text: zeros if text.isdigit() else whole(text)  # type: ignore[method-assign]
    with scene.done() as run:
        scene.write("new.md", "something new")
        plan = run.plan()
        assert (plan.to_embed, run.apply(plan).ok) == (1, True)
    scene.model.vector = whole  # type: ignore[method-assign]
    scene.write("newer.md", "something newer")
    with scene.run() as run, pytest.raises(Conflict):
        run.apply(run.plan())


# models that misbehave


def test_poison_text_is_isolated_and_the_run_goes_on(scene: Scene) -> None:
    scene.fill()
    scene.write("05.md", "POISON")
    scene.model.fails = _fail_for("POISON", ValueError("unspeakable"))
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan)
        assert [(each.document, each.reason) for each in applied.failures] == [("05.md", "ValueError: unspeakable")]
        assert applied.is_live
        assert applied.embedded == plan.to_embed - 1
        assert run.plan().to_embed == 0, "it is not paid for again and again"
        scene.model.fails = lambda texts: None
        assert run.apply(run.plan(retry_failed=True)).ok
    assert scene.found("POISON") == "05.md"


def _fail_for(word: str, error: Exception) -> Any:
    def fails(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise error

    return fails


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([float("nan")] * 64, "not finite"),
        ([1e300] * 64, "not finite"),
        ([1.0] * 63, "63 numbers instead of 64"),
        (["x"] * 64, "not a list of numbers"),
    ],
)
def test_missing_vector_is_recorded_and_the_others_are_kept(scene: Scene, vector: list[Any], reason: str) -> None:
    scene.fill(4)
    scene.write("05.md", "ODD")
    whole = scene.model.vector
    scene.model.vector = lambda text: vector if text == "ODD" else whole(text)  # type: ignore[method-assign]
    with scene.run() as run:
        applied = run.apply(run.plan())
        assert [each.document for each in applied.failures] == ["05.md"]
        assert reason in applied.failures[0].reason
        assert run.verify().ok


def test_model_with_too_few_vectors_stops_the_run(scene: Scene) -> None:
    scene.fill(4)
    pipeline = Pipeline(source=scene.source, embed={"dense": lambda texts: [[1.0, 2.0]]}, store=scene.store)
    with IndexRun(ledger=scene.path / "index.db", pipeline=pipeline) as run:
        with pytest.raises(Refused, match="1 vectors for 8 texts"):
            run.apply(run.plan())
        assert run.status().points == 0


def test_model_that_always_fails_is_not_poison(scene: Scene) -> None:
    scene.fill(4)
    scene.model.fails = _fail_for("word", PermissionError("no key"))
    with scene.run() as run:
        with pytest.raises(Refused, match="fails for every text"):
            run.apply(run.plan())
        scene.model.fails = lambda texts: None
        plan = run.plan()
        assert plan.failures == ()
        assert run.apply(plan).ok


def test_a_rate_limit_is_waited_for(scene: Scene) -> None:
    waits: list[float] = []
    scene.sleep = waits.append
    scene.fill(4)
    left = [TimeoutError("slow"), TimeoutError("slow")]

    def fails(texts: Sequence[str]) -> None:
        if left:
            raise left.pop()

    scene.model.fails = fails
    with scene.run() as run:
        assert run.apply(run.plan()).ok
    assert waits == [1.0, 2.0]


def test_unavailable_model_ends_the_run_and_keeps_results(scene: Scene) -> None:
    scene.sleep = lambda seconds: None
    scene.fill()
    scene.model.fails = _fail_for("word7", ConnectionError("gone"))
    with scene.run() as run:
        first = run.plan()
        with pytest.raises(Unavailable, match="does not answer"):
            run.apply(first)
        paid = scene.model.texts - len(CANARIES)
        assert paid > 0
        scene.model.fails = lambda texts: None
        plan = run.plan()
        assert plan.to_embed == first.to_embed - paid
        assert run.apply(plan).ok


class _Answer:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _ServerError(Exception):
    """As clients of servers raise it."""

    def __init__(self, code: int, response: Any = None, retry_after: Any = None) -> None:
        super().__init__(f"status {code}")
        self.status_code = code
        self.response = response
        self.retry_after = retry_after


class RateLimitExceeded(Exception):
    """Known by its name."""


@pytest.mark.parametrize(
    ("error", "waited"),
    [
        (_ServerError(429, _Answer(retry_after="7")), 7.0),
        (_ServerError(503, retry_after=4), 4.0),
        (_ServerError(429, _Answer(retry_after="Wed, 21 Oct 2026 07:28:00 GMT")), 1.0),
        (_ServerError(429, retry_after="999999"), 300.0),
        (_ServerError(429, retry_after=float("nan")), 1.0),
        (RateLimitExceeded("slow down"), 1.0),
    ],
)
def test_a_limit_is_waited_for_as_long_as_the_server_asks(scene: Scene, error: Exception, waited: float) -> None:
    waits: list[float] = []
    scene.sleep = waits.append
    scene.fill(2)
    left = [error]

    def fails(texts: Sequence[str]) -> None:
        if left:
            raise left.pop()

    scene.model.fails = fails
    with scene.run() as run:
        assert run.apply(run.plan()).ok
    assert waits == [waited]


def test_a_wrong_request_is_not_sent_again(scene: Scene) -> None:
    waits: list[float] = []
    scene.sleep = waits.append
    scene.fill(2)
    scene.write("05.md", "POISON")
    scene.model.fails = _fail_for("POISON", _ServerError(400))
    with scene.run() as run:
        assert [each.document for each in run.apply(run.plan()).failures] == ["05.md"]
    assert waits == []


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_invalid_price_is_refused(scene: Scene, price: float) -> None:
    with pytest.raises(Refused, match="invalid usd_per_mtok"):
        scene.run(usd_per_mtok=price)


# families that are wrong


def _families(path: Path, dimensions: str = "") -> Path:
    own = path / "own.toml"
    members = 'members = [{ name = "test-model" }, { name = "cousin" }]'
    edge = 'edges = [{ documents = "*", queries = "*", evidence = "somebody said so" }]'
    own.write_text(f'[[space]]\nid = "mine"\n{dimensions}\n{members}\n{edge}\n')
    return own


def test_false_shared_space_is_caught_before_vectors_are_mixed(scene: Scene) -> None:
    scene.fill(3)
    with scene.done():
        pass
    scene.model = Model("b")
    scene.write("new.md", "something to embed")
    own = _families(scene.path)
    with IndexRun(ledger=scene.path / "index.db", pipeline=scene.pipeline(model="cousin"), families=[own]) as run:
        for _ in range(2):
            with pytest.raises(Conflict, match="does not share a space") as caught:
                run.apply(run.plan())
        assert "family file" in caught.value.hint
        assert "new.md" not in {each.document for each in scene.store.search("dense", scene.model.vector("x"))}
    with scene.run(model="cousin") as run:  # without the file
        assert run.apply(run.plan()).ok


def test_a_cousin_that_is_one_lies_beside_the_others(scene: Scene) -> None:
    scene.fill(3)
    with scene.done():
        before = scene.model.texts
    scene.write("new.md", "something to embed")
    own = _families(scene.path)
    with IndexRun(ledger=scene.path / "index.db", pipeline=scene.pipeline(model="cousin"), families=[own]) as run:
        assert run.apply(run.plan()).ok
    assert scene.model.texts == before + len(CANARIES) + 1


def test_a_lie_about_a_models_numbers_is_told(scene: Scene) -> None:
    scene.fill(1)
    own = _families(scene.path, "dimensions = [32, 128]")
    with IndexRun(ledger=scene.path / "index.db", pipeline=scene.pipeline(), families=[own]) as run:
        assert run.plan().findings == ()
        assert run.apply(run.plan()).ok
        assert run.plan().findings == ("test-model has 64 dimensions; the families say 32, 128",)
        assert run.plan().is_empty
