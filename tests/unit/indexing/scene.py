"""A small corpus, a model that counts what it is asked, and a run over both."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.indexing import Channel, FlatStore, FolderSource, IndexRun, Pipeline, PlainChunker


class Model:
    """Vectors made of the words of a text, in a space that its seed names."""

    version = "1"

    def __init__(self, seed: str = "a", numbers: int = 64) -> None:
        self.seed = seed
        self.numbers = numbers
        self.texts = 0
        self.calls: list[list[str]] = []
        self.fails: Callable[[Sequence[str]], None] = lambda texts: None
        self.settings: dict[str, Any] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        self.fails(texts)
        self.texts += len(texts)
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        total = np.zeros(self.numbers)
        for word in text.split() or [""]:
            seed = int.from_bytes(hashlib.sha256(f"{self.seed} {word}".encode()).digest()[:4], "big")
            total += np.random.default_rng(seed).normal(size=self.numbers)
        return [float(each) for each in total / np.linalg.norm(total)]


class Scene:
    """A folder of documents, and what indexes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.docs = path / "docs"
        self.docs.mkdir(exist_ok=True)
        self.model = Model()
        self.chunker = PlainChunker(size=40)
        self.channel: dict[str, Any] = {"model": "test-model", "batch_size": 8, "usd_per_mtok": 10.0}
        self.store = FlatStore(path / "store.db")
        self.source: Any = FolderSource(self.docs)
        self.sleep: Callable[[float], None] = time.sleep
        self.ledger: Callable[[], Any] = lambda: path / "index.db"

    def write(self, name: str, text: str) -> None:
        path = self.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def fill(self, count: int = 12) -> None:
        for number in range(count):
            self.write(f"{number:02}.md", " ".join(f"word{number} thing{each}" for each in range(10)))

    def run(self, **channel: Any) -> IndexRun:
        return IndexRun(ledger=self.ledger(), pipeline=self.pipeline(**channel), sleep=self.sleep)

    def pipeline(self, **channel: Any) -> Pipeline:
        made = Channel(self.model, **self.channel | channel)
        return Pipeline(source=self.source, chunk=self.chunker, embed={"dense": made}, store=self.store)

    def done(self, **channel: Any) -> IndexRun:
        """A run that is complete."""
        run = self.run(**channel)
        assert run.apply(run.plan()).ok
        return run

    def found(self, text: str) -> str:
        """The document that a search finds first."""
        return self.store.search("dense", self.model.vector(text), limit=1)[0].document
