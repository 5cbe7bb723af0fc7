"""What a run needs of a store, asked of every store there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest

from holdfast.errors import NotFound
from holdfast.indexing import ChangeImpact, FlatStore
from holdfast.indexing.publishing import _POINTS
from holdfast.indexing.store import Point
from holdfast.indexing.vectors import Shape, check, derive

from .scene import Scene

SHAPES = {"dense": Shape(4)}
ONE, TWO = (str(uuid5(_POINTS, each)) for each in "12")


def _qdrant(path: Path) -> Any:
    from holdfast.adapters.stores.qdrant import QdrantStore

    return QdrantStore(path / "qdrant")


KINDS: dict[str, Callable[[Path], Any]] = {"flat": lambda path: FlatStore(path / "flat.db"), "qdrant": _qdrant}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    return KINDS[request.param]


@pytest.fixture
def store(kind: Callable[[Path], Any], tmp_path: Path) -> Iterator[Any]:
    made = kind(tmp_path)
    made.create("c", SHAPES, {"ledger": "l"})
    yield made
    made.close()


def _point(name: str, *numbers: float, text: str = "text") -> Point:
    (blob,) = check([list(numbers)], expected=1, dimension=4)
    assert isinstance(blob, bytes)
    return Point(name, f"doc-{name[:4]}", 0, text, {"dense": derive(blob, SHAPES["dense"])})


def test_a_fingerprint_is_kept_by_the_store_itself(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    store = kind(tmp_path)
    assert store.fingerprint("c") is None
    store.create("c", SHAPES, {"ledger": "l"})
    store.create("c", SHAPES, {"ledger": "other"})
    store.close()
    store = kind(tmp_path)
    assert store.fingerprint("c") == {"ledger": "l"}
    store.close()


def test_points_are_written_over_and_not_doubled(store: Any) -> None:
    store.upsert("c", [_point(ONE, 1, 0, 0, 0), _point(TWO, 0, 1, 0, 0)])
    store.upsert("c", [_point(ONE, 1, 0, 0, 0, text="newer")])
    assert store.count("c") == 2
    assert sorted(point for point, _, _ in store.scan("c")) == sorted([ONE, TWO])
    assert [sizes for _, _, sizes in store.scan("c")] == [{"dense": 16}] * 2
    store.make_live("c")
    assert store.search("dense", [1, 0.1, 0, 0], limit=1)[0].text == "newer"


def test_deleting_what_is_not_there_does_not_matter(store: Any) -> None:
    store.upsert("c", [_point(ONE, 1, 0, 0, 0)])
    store.delete("c", [ONE, TWO])
    assert store.count("c") == 0
    store.drop("never")


def test_the_live_collection_changes_in_one_step_and_is_remembered(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    store = kind(tmp_path)
    for name in "ab":
        store.create(name, SHAPES, {})
    assert store.live() is None
    store.make_live("a")
    store.make_live("b")
    store.close()
    store = kind(tmp_path)
    assert store.live() == "b"
    with pytest.raises(NotFound):
        store.make_live("nowhere")
    store.close()


def test_nothing_can_be_searched_before_something_is_live(store: Any) -> None:
    with pytest.raises(NotFound):
        store.search("dense", [1, 0, 0, 0])


def test_an_index_moves_into_a_store_without_a_model_and_is_whole(
    scene: Scene, kind: Callable[[Path], Any], tmp_path: Path
) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    scene.store.close()
    scene.store = kind(tmp_path)
    with scene.run() as run:
        plan = run.plan()
        assert plan.impact is ChangeImpact.MIGRATABLE
        assert run.apply(plan).ok
        assert run.verify().ok
        scene.write("00.md", "another text altogether")
        (scene.docs / "01.md").unlink()
        assert run.apply(run.plan()).ok
        assert run.verify().ok
    with scene.run(datatype="int8") as run:
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        run.rollback()
    with scene.run() as run:
        assert run.verify().ok
    assert scene.found("another text altogether") == "00.md"
    assert scene.found("word3 thing1") == "03.md"
    assert scene.model.texts > before
