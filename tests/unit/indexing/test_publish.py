"""A document is never absent while it is published, and nothing half-made answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.indexing import ChangeImpact, FlatStore
from holdfast.indexing.vector_store import Point

from .scene import Model, Scene


class WatchedStore(FlatStore):
    """Notes after every step how many points a document has."""

    def __init__(self, path: Path, document: str) -> None:
        super().__init__(path)
        self.document = document
        self.seen: list[int] = []

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        super().upsert(collection, points)
        self._note(collection)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        super().delete(collection, ids)
        self._note(collection)

    def _note(self, collection: str) -> None:
        self.seen.append(sum(document == self.document for _, document, _ in self.scan(collection)))


class ForgetfulStore(FlatStore):
    """Says that it wrote everything, and leaves out a point."""

    forgets = False

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        super().upsert(collection, points[1:] if self.forgets else points)


def test_a_document_is_never_absent_while_it_is_replaced(scene: Scene) -> None:
    scene.fill(3)
    scene.store.close()
    scene.store = store = WatchedStore(scene.path / "watched.db", "01.md")
    with scene.done() as run:
        before = store.seen[-1]
        scene.write("01.md", "short")
        store.seen.clear()
        assert run.apply(run.plan()).ok
    assert store.seen == [before + 1, 1]


def test_a_collection_that_is_not_whole_does_not_go_live(scene: Scene) -> None:
    scene.fill(3)
    scene.store.close()
    scene.store = store = ForgetfulStore(scene.path / "forgetful.db")
    scene.done().close()
    live = store.live()
    store.forgets = True
    with scene.run(datatype="int8") as run, pytest.raises(Damaged, match="is incomplete"):
        run.apply(run.plan())
    assert store.live() == live
    assert scene.found("word1 thing1") == "01.md"


def test_models_of_one_family_lie_side_by_side(scene: Scene) -> None:
    scene.fill(3)
    scene.done(model="voyage-4").close()
    scene.model = Model("large")
    with scene.run(model="voyage-4-large") as run:
        plan = run.plan()
        assert (plan.impact, plan.to_embed, plan.builds_beside) == (ChangeImpact.COMPATIBLE, 0, False)
        assert run.apply(plan).ok
        assert run.plan().is_empty
        for name in ("late.md", "later.md"):  # the second time, the model is known by its own canaries
            scene.write(name, f"came {name}")
            plan = run.plan()
            assert (plan.to_embed, plan.impact) == (1, ChangeImpact.INCREMENTAL)
            assert run.apply(plan).ok


def test_an_interrupted_document_is_named_and_explained(scene: Scene) -> None:
    scene.fill(2)
    with scene.done() as run:
        run._ledger.intend(1, {"00.md": ["11111111-1111-1111-1111-111111111111"]})
        assert run.status().interrupted == ("00.md",)
        assert run.plan().counts["interrupted"] == 1
        assert run.explain("00.md") == ["a run was killed while publishing it"]
        assert run.explain("01.md") == []
        assert run.apply(run.plan()).ok
        assert run.status().interrupted == ()


def test_what_was_spent_can_be_told_afterwards(scene: Scene) -> None:
    scene.fill(3)
    with scene.run() as run:
        plan = run.plan()
        run.apply(plan)
        status = run.status()
    assert (status.texts, status.tokens) == (plan.texts, plan.tokens)
    assert status.usd == pytest.approx(plan.usd)
