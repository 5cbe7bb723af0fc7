"""Models that fail: who is at fault, what is waited for, and that all that was answered is counted as paid for."""

from __future__ import annotations

import io
import urllib.error
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict, HoldfastError, Refused, Unavailable
from holdfast.indexing import Channel, IndexRun
from holdfast.indexing.ledger import Failure
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.spaces import CANARIES

from .scene import Model, Scene


def test_a_model_that_answers_with_nothing_of_use_is_at_fault(scene: Scene) -> None:
    scene.write("a.md", "first")

    def fails(texts: Sequence[str]) -> None:
        if tuple(texts) != CANARIES:
            scene.model.vector = lambda text: [float("nan")] * 64  # type: ignore[method-assign]
            if "first" in texts:
                raise ValueError("broken")

    scene.model.fails = fails
    with scene.run() as run:
        with pytest.raises(Refused, match=r"fails for every text, a\.md first: ValueError: broken"):
            run.apply(run.plan())
        assert run.status().failures == ()


@pytest.mark.parametrize("scope", ["chunk", "document"])
def test_revoked_key_removes_no_document(scene: Scene, scope: str) -> None:
    """Each batch is one document's: that all of it fails must not be laid to the document."""
    scene.fill(3)
    with scene.done(batch_size=1, context_scope=scope) as run:
        before = scene.model.texts
        scene.write("01.md", "a new text")

        def fails(texts: Sequence[str]) -> None:
            if tuple(texts) != CANARIES:
                raise PermissionError("the key was revoked")

        scene.model.fails = fails
        with pytest.raises(Refused, match=r"fails for every text, 01\.md first: PermissionError") as refused:
            run.apply(run.plan())
        assert refused.value.hint
        assert run.status().failures == ()
        assert scene.found("word1 thing1") == "01.md"
        assert scene.model.texts == before + len(CANARIES) == run.status().texts
        scene.model.fails = lambda texts: None
        assert run.apply(run.plan()).ok
    assert scene.found("a new text") == "01.md"


def test_document_that_fails_entirely_does_not_stop_the_run(scene: Scene) -> None:
    scene.fill(2)
    with scene.done() as run:
        scene.write("bad.md", "\n\n".join(f"POISON {number:02} and so on to its end" for number in range(20)))
        scene.write("good.md", "something good")
        scene.model.calls.clear()

        def fails(texts: Sequence[str]) -> None:
            if any("POISON" in text for text in texts):
                raise ValueError("unspeakable")

        scene.model.fails = fails
        applied = run.apply(run.plan())
        assert {each.document for each in applied.failures} == {"bad.md"}
        assert len(applied.failures) == 20
        assert applied.is_live
    assert scene.found("something good") == "good.md"
    assert scene.model.calls.count([CANARIES[0]]) == 1, "it is asked once whether the model answers"


def test_a_budget_that_does_not_cover_the_question_is_kept(scene: Scene) -> None:
    scene.write("odd.md", "ODD")

    def fails(texts: Sequence[str]) -> None:
        if "ODD" in texts:
            raise ValueError("unspeakable")

    scene.model.fails = fails
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan, max_usd=plan.usd)
        assert [each.document for each in applied.failures] == ["odd.md"]
        assert scene.model.texts == run.status().texts == len(CANARIES)


class _Answer:
    def __init__(self, code: int) -> None:
        self.status_code = code
        self.headers = {"retry-after": "7"}


class HTTPStatusError(Exception):
    """As some clients raise it, with the answer and no number of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.response = _Answer(code)


class APIConnectionError(Exception):
    pass


class ThrottlingException(Exception):
    pass


def _headers() -> Message:
    found = Message()
    found["Retry-After"] = "9"
    return found


def _led_to(cause: Exception) -> Exception:
    error = RuntimeError("no answer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "waited"),
    [
        (HTTPStatusError(429), 7.0),
        (HTTPStatusError(503), 7.0),
        (urllib.error.HTTPError("http://x", 429, "slow down", _headers(), io.BytesIO()), 9.0),
        (urllib.error.URLError(ConnectionRefusedError("nobody is there")), 1.0),
        (APIConnectionError("gone"), 1.0),
        (ThrottlingException("slow down"), 1.0),
        (_led_to(ConnectionResetError("gone")), 1.0),
    ],
    ids=lambda value: f"{type(value).__name__}" if isinstance(value, Exception) else None,
)
def test_what_passes_is_waited_for_however_a_client_says_it(scene: Scene, error: Exception, waited: float) -> None:
    waits: list[float] = []
    scene.sleep = waits.append
    scene.fill(2)
    left = [error]

    def fails(texts: Sequence[str]) -> None:
        if tuple(texts) != CANARIES and left:
            raise left.pop()

    scene.model.fails = fails
    with scene.run() as run:
        plan = run.plan()
        assert run.apply(plan).ok
        assert scene.model.texts == plan.texts
    assert waits == [waited]


def test_a_limit_of_a_minute_is_waited_out(scene: Scene) -> None:
    waits: list[float] = []
    scene.sleep = waits.append
    scene.fill(2)

    def fails(texts: Sequence[str]) -> None:
        if sum(waits) < 60:
            raise TimeoutError("slow down")

    scene.model.fails = fails
    with scene.run() as run:
        assert run.apply(run.plan()).ok
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


@pytest.mark.parametrize("error", [HTTPStatusError(400), urllib.error.URLError("no such host"), _led_to(KeyError("x"))])
def test_what_does_not_pass_is_not_waited_for(scene: Scene, error: Exception) -> None:
    scene.sleep = lambda seconds: pytest.fail("it waits")
    scene.write("a.md", "POISON")

    def fails(texts: Sequence[str]) -> None:
        if "POISON" in texts:
            raise error

    scene.model.fails = fails
    with scene.run() as run:
        assert [each.document for each in run.apply(run.plan()).failures] == ["a.md"]


# what was paid for


def test_renamed_model_of_another_length_is_caught_and_priced(scene: Scene) -> None:
    scene.fill(3)
    with scene.done() as run:
        scene.model.numbers = 65
        scene.write("new.md", "something new")
        with pytest.raises(Conflict, match="was replaced by another one"):
            run.apply(run.plan())
        plan = run.plan()
        assert plan.to_embed == plan.chunks > 1
        assert run.apply(plan).ok
        assert run.verify().ok
        assert scene.model.texts == run.status().texts


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda found: found[:-1], Refused),
        (lambda found: [[float("nan")] * 64, *found[1:]], Refused),
        (lambda found: [[1.0], *found[1:]], Refused),
        (lambda found: 7, Refused),
    ],
    ids=["too few", "not finite", "not alike", "no vectors"],
)
def test_canaries_that_came_back_wrong_are_counted_as_paid_for(
    scene: Scene, answer: Any, error: type[HoldfastError]
) -> None:
    scene.fill(2)
    scene.model = _Changed(answer)
    with scene.run() as run:
        for times in (1, 2):
            with pytest.raises(error):
                run.apply(run.plan())
            assert run.status().texts == times * len(CANARIES) == scene.model.texts
            assert run.status().usd > 0


class _Changed(Model):
    """Says something else than it should."""

    def __init__(self, answer: Any, *, knows_canaries: bool = False) -> None:
        super().__init__()
        self._answer = answer
        self._knows_canaries = knows_canaries

    def __call__(self, texts: Sequence[str]) -> Any:
        found = super().__call__(texts)
        return found if self._knows_canaries and tuple(texts) == CANARIES else self._answer(found)


@pytest.mark.parametrize("more", [8, 12, 15, 16, 19, 23, 31])
def test_short_answers_are_counted_against_the_budget(scene: Scene, more: int) -> None:
    """Each half that is sent again is paid for again."""
    scene.fill(4)
    scene.model = _Changed(lambda found: found[:-1], knows_canaries=True)
    most = len(CANARIES) + more
    with scene.run() as run:
        applied = run.apply(run.plan(), max_embeds=most)
        assert applied.stopped == "the budget is used up"
        assert applied.embedded + applied.probe_texts == scene.model.texts == run.status().texts <= most
        assert applied.failures == []


def test_false_alias_is_caught_before_vectors_are_mixed(scene: Scene, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[space]]\nid = "mine"\nmembers = [{ name = "test-model", aliases = ["nickname"] }]\n')
    scene.fill(3)
    with scene.done():
        pass
    scene.write("new.md", "something to embed")
    texts = scene.model.texts
    scene.model = Model("b", numbers=65)
    pipeline = scene.pipeline(model="nickname")
    with IndexRun(ledger=scene.path / "index.db", pipeline=pipeline, families=[own]) as run:
        with pytest.raises(Conflict, match="does not share a space") as caught:
            run.apply(run.plan())
        assert "family file" in caught.value.hint
        assert run.status().texts == texts + scene.model.texts


def test_a_guess_of_tokens_does_not_make_other_scripts_cheap() -> None:
    channel = Channel(Model(), doc_prompt="passage: ")
    assert channel.tokens("the ledger") == 5
    assert channel.tokens("账本保存每一个向量") == 9
    assert Channel(Model(), count_tokens=len).tokens("账本") == 2


def test_model_that_fails_the_fault_check_is_unavailable(scene: Scene) -> None:
    scene.sleep = lambda seconds: None
    scene.write("a.md", "POISON")

    def fails(texts: Sequence[str]) -> None:
        if "POISON" in texts:
            raise ValueError("unspeakable")
        if tuple(texts) != CANARIES:
            raise ConnectionError("gone")

    scene.model.fails = fails
    with scene.run() as run:
        with pytest.raises(Unavailable, match="does not answer"):
            run.apply(run.plan())
        assert run.status().failures == ()


def test_fault_is_checked_once_per_publication(scene: Scene) -> None:
    class Asked(SQLiteLedger):
        times = 0

        def failures(self) -> list[Failure]:
            self.times += 1
            return super().failures()

    def times(documents: int) -> int:
        scene.source = {f"{number:02}": f"good {number}\n\n{'x' * 33} BAD{number}" for number in range(documents)}
        with Asked(scene.path / f"{documents}.db") as ledger:
            run = IndexRun(ledger=ledger, pipeline=scene.pipeline())
            assert len(run.apply(run.plan()).failures) == documents
            return ledger.times

    whole = scene.model.vector
    scene.model.vector = lambda text: [float("nan")] * 64 if "BAD" in text else whole(text)  # type: ignore[method-assign]
    assert times(2) == times(20)
