"""What every `VectorStore` does; the tests of a store inherit this.

The suite says how a store is opened: `store` is its class, which is called with a path that need not be there yet.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.indexing import HashedWords, IndexRun, Pipeline, vectors
from holdfast.indexing.sparse_vectors import pack
from holdfast.indexing.vector_store import Point
from holdfast.indexing.vectors import DATATYPES, Shape

SHAPES = {"dense": Shape(4)}
TWO_SHAPES = {"dense": Shape(4), "a second one, 'odd' name": Shape(2, "int8")}
SECOND = "a second one, 'odd' name"
ODD_TEXTS = ["", " ", "a'b\"c", "'; DROP TABLE point; --", "ä☃\U0001f600", "line\nline\ttab", "nul\0nul", "x" * 20_000]
ONE, TWO, THREE = (str(uuid5(NAMESPACE_URL, each)) for each in "123")

_WRITER = """
import importlib, sys
from holdfast.testing.store_contract import SHAPES, numbered
module, _, name = sys.argv[1].partition(":")
store = getattr(importlib.import_module(module), name)(sys.argv[2])
store.create("c", SHAPES, {"ledger": "l"})
store.make_live("c")
for number in range(10_000):
    store.upsert("c", [numbered(3 * number + each) for each in range(3)])
    print(3 * number + 3, flush=True)
"""
_FULL = """
import importlib, resource, signal, sys
from holdfast.errors import Unavailable
from holdfast.testing.store_contract import numbered
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
module, _, name = sys.argv[1].partition(":")
store = getattr(importlib.import_module(module), name)(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    store.upsert("c", [numbered(each) for each in range(3000)])
except Unavailable as error:
    print(error.hint)
"""


def _embed(texts: Sequence[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "abcdefghijklmnop"] for text in texts]


def _run(texts: Mapping[str, str], store: Any, folder: Path) -> IndexRun:
    return IndexRun(ledger=folder / "ledger.db", pipeline=Pipeline(source=texts, embed={"dense": _embed}, store=store))


def made(shape: Shape, *numbers: float) -> bytes:
    """A vector as a store gets it."""
    return vectors.derive(vectors.pack_floats(numbers), shape)


def point(name: str, *numbers: float, text: str = "text", document: str = "") -> Point:
    """A point with one vector of four numbers."""
    return Point(name, document or f"doc-{name[:4]}", 0, text, {"dense": made(SHAPES["dense"], *numbers)})


def numbered(number: int) -> Point:
    """One of many points."""
    turned = [1.0, number % 7, number % 11, number % 13]
    return point(str(uuid5(NAMESPACE_URL, str(number))), *turned, text=f"text {number}")


class VectorStoreContract:
    """The promises of `holdfast.indexing.vector_store`."""

    store: type[Any]
    many = 300
    """More than it takes at once, if there is such a number."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Where it lies."""
        return tmp_path / "a store"

    @pytest.fixture
    def opened(self, place: Path) -> Iterator[Any]:
        """A store with a collection `c`."""
        store = type(self).store(place)
        store.create("c", SHAPES, {"ledger": "l"})
        yield store
        store.close()

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        """Take points out of a store that is closed, behind its back. Do it to its files, if others can write them."""
        other = type(self).store(place)
        other.delete(collection, ids)
        other.close()

    def printable(self) -> str:
        """How another process finds the class."""
        return f"{type(self).store.__module__}:{type(self).store.__qualname__}"

    # collections

    def test_a_fingerprint_is_kept_by_the_store_itself(self, place: Path) -> None:
        store = type(self).store(place)
        assert store.fingerprint("c") is None
        said = {"ledger": "l", "generation": 3, "channels": {"dense": {"model": "ü'\"", "dimension": None}}}
        store.create("c", SHAPES, said)
        store.create("c", SHAPES, {"ledger": "other"})
        store.close()
        store = type(self).store(place)
        assert store.fingerprint("c") == said
        store.close()

    def test_live_collection_switches_atomically(self, place: Path) -> None:
        store = type(self).store(place)
        for name in "ab":
            store.create(name, SHAPES, {})
        assert store.live() is None
        store.make_live("a")
        store.make_live("b")
        store.close()
        store = type(self).store(place)
        assert store.live() == "b"
        with pytest.raises(NotFound):
            store.make_live("nowhere")
        assert store.live() == "b"
        store.close()

    def test_collections_beside_each_other_do_not_touch(self, opened: Any) -> None:
        opened.create("d", {"dense": Shape(2)}, {"ledger": "m"})
        opened.upsert("c", [point(ONE, 1, 0, 0, 0, text="in c")])
        opened.upsert("d", [Point(ONE, "doc", 0, "in d", {"dense": made(Shape(2), 0, 1)})])
        opened.make_live("c")
        assert opened.search("dense", [1, 0, 0, 0])[0].text == "in c"
        opened.make_live("d")
        assert opened.search("dense", [0, 1])[0].text == "in d"
        opened.drop("d")
        opened.drop("d")
        assert (opened.fingerprint("d"), opened.count("d"), opened.live()) == (None, 0, None)
        assert (opened.fingerprint("c"), opened.count("c")) == ({"ledger": "l"}, 1)
        opened.create("d", SHAPES, {"ledger": "again"})
        assert (opened.fingerprint("d"), opened.count("d"), list(opened.scan("d"))) == ({"ledger": "again"}, 0, [])

    def test_nothing_can_be_searched_before_something_is_live(self, opened: Any) -> None:
        with pytest.raises(NotFound):
            opened.search("dense", [1, 0, 0, 0])
        opened.make_live("c")
        assert opened.search("dense", [1, 0, 0, 0]) == []
        with pytest.raises(NotFound, match="no vectors 'other'"):
            opened.search("other", [1, 0, 0, 0])

    # points

    def test_points_are_written_over_and_not_doubled(self, opened: Any) -> None:
        opened.make_live("c")
        opened.upsert("c", [point(ONE, 1, 0, 0, 0), point(TWO, 0, 1, 0, 0)])
        assert opened.search("dense", [1, 0, 0, 0], limit=1)[0].text == "text"
        opened.upsert("c", [point(ONE, 0, 0, 1, 0, text="newer")])
        opened.upsert("c", [])
        assert opened.count("c") == 2
        assert sorted(each for each, _, _ in opened.scan("c")) == sorted([ONE, TWO])
        assert [sizes for _, _, sizes in opened.scan("c")] == [{"dense": 16}] * 2
        (best, *_) = opened.search("dense", [0, 0.1, 1, 0], limit=1)
        assert (best.text, best.document, best.ordinal) == ("newer", f"doc-{ONE[:4]}", 0)
        assert best.score == pytest.approx(0.995, abs=0.001)

    def test_deleting_what_is_not_there_does_not_matter(self, opened: Any) -> None:
        opened.upsert("c", [point(ONE, 1, 0, 0, 0), point(TWO, 0, 1, 0, 0)])
        opened.delete("c", [ONE, THREE])
        opened.delete("c", [])
        assert opened.count("c") == 1
        opened.make_live("c")
        assert [each.document for each in opened.search("dense", [1, 0, 0, 0])] == [f"doc-{TWO[:4]}"]
        opened.drop("never")

    def test_a_point_may_have_some_of_the_vectors(self, opened: Any) -> None:
        opened.create("two", TWO_SHAPES, {})
        whole = {name: made(shape, *([1.0] * shape.dimension)) for name, shape in TWO_SHAPES.items()}
        opened.upsert(
            "two",
            [
                Point(ONE, "both", 0, "t", whole),
                Point(TWO, "first", 1, "t", {"dense": whole["dense"]}),
                Point(THREE, "second", 2, "t", {SECOND: whole[SECOND]}),
            ],
        )
        found = {document: sizes for _, document, sizes in opened.scan("two")}
        assert found == {"both": {"dense": 16, SECOND: 2}, "first": {"dense": 16}, "second": {SECOND: 2}}
        assert opened.count("two") == 3
        opened.make_live("two")
        assert {each.document for each in opened.search("dense", [1, 1, 1, 1])} == {"both", "first"}
        assert {each.document for each in opened.search(SECOND, [1, 1])} == {"both", "second"}
        opened.upsert(
            "two", [Point(ONE, "less", 0, "t", {"dense": whole["dense"]})]
        )  # what it had more is written over
        assert {document: sizes for _, document, sizes in opened.scan("two")}["less"] == {"dense": 16}
        assert {each.document for each in opened.search(SECOND, [1, 1])} == {"second"}
        opened.delete("two", [ONE, THREE])
        assert [document for _, document, _ in opened.scan("two")] == ["first"]

    @pytest.mark.parametrize("datatype", [each for each in DATATYPES if not each.startswith("sparse")])
    def test_every_datatype_is_found_again(self, opened: Any, datatype: str) -> None:
        shape = Shape(16, datatype)
        opened.create("coarse", {"dense": shape}, {})
        rows = [[1.0 if place in (number, number + 1) else -0.1 for place in range(16)] for number in range(8)]
        names = [str(uuid5(NAMESPACE_URL, str(number))) for number in range(8)]
        points = [
            Point(name, f"doc {number}", number, "t", {"dense": made(shape, *rows[number])})
            for number, name in enumerate(names)
        ]
        opened.upsert("coarse", points)
        assert {sizes["dense"] for _, _, sizes in opened.scan("coarse")} == {shape.size_bytes}
        opened.make_live("coarse")
        found = opened.search("dense", rows[5], limit=3)
        assert found[0].document == "doc 5"
        assert found[0].score > found[1].score

    def test_texts_come_back_as_they_were(self, opened: Any) -> None:
        points = [
            Point(str(uuid5(NAMESPACE_URL, text)), f"doc {text}", number, text, point(ONE, 1, number, 0, 0).vectors)
            for number, text in enumerate(ODD_TEXTS)
        ]
        opened.upsert("c", points)
        back = opened.read("c", [each.id for each in points])
        assert {(each.document, each.ordinal, each.text) for each in back.values()} == {
            (each.document, each.ordinal, each.text) for each in points
        }
        opened.make_live("c")
        found = opened.search("dense", [1, 1, 0, 0], limit=50)
        assert {(each.document, each.ordinal, each.text) for each in found} == {
            (each.document, each.ordinal, each.text) for each in points
        }
        assert {document for _, document, _ in opened.scan("c")} == {each.document for each in points}

    @pytest.mark.parametrize("datatype", [each for each in DATATYPES if not each.startswith("sparse")])
    def test_vectors_are_given_back_in_their_shape(self, opened: Any, datatype: str) -> None:
        shape = Shape(16, datatype)
        opened.create("back", {"first": shape, SECOND: Shape(2)}, {})
        given = [made(shape, *(float(place * (number + 3) % 7 - 3) for place in range(16))) for number in range(3)]
        names = (ONE, TWO, THREE)
        opened.upsert("back", [Point(names[each], "d", each, "t", {"first": given[each]}) for each in range(3)])
        opened.upsert("back", [Point(ONE, "d", 0, "t", {"first": given[0], SECOND: made(Shape(2), 3, 4)})])
        found = opened.read("back", [*names, "00000000-0000-0000-0000-000000000000"])
        assert {name: set(each.vectors) for name, each in found.items()} == {
            ONE: {"first", SECOND},
            TWO: {"first"},
            THREE: {"first"},
        }
        for name, blob in zip(names, given, strict=True):
            back = found[name].vectors["first"]
            assert len(back) == shape.size_bytes
            wide = [vectors.to_float32(each, shape) for each in (blob, back)]  # it may have been made of length 1
            assert vectors.cosines(wide[:1], wide[1:])[0] > 0.9999
        assert opened.read("back", []) == {}

    def test_a_vector_of_zeros_is_in_nobodys_way(self, opened: Any) -> None:
        opened.upsert("c", [point(ONE, 0, 0, 0, 0), point(TWO, 0, 1, 0, 0)])
        opened.make_live("c")
        assert [each.document for each in opened.search("dense", [0, 1, 0, 0], limit=1)] == [f"doc-{TWO[:4]}"]
        assert len(list(opened.scan("c"))) == 2

    def test_the_best_come_first_and_as_many_as_are_asked_for(self, opened: Any) -> None:
        opened.upsert("c", [numbered(each) for each in range(50)])
        opened.make_live("c")
        scores = [each.score for each in opened.search("dense", [1, 2, 3, 4], limit=20)]
        assert (len(scores), scores) == (20, sorted(scores, reverse=True))
        longer = opened.search("dense", [1, 2, 3, 4, 99, 99], limit=1)  # of a model that is stored cut
        assert longer[0].score == pytest.approx(scores[0], abs=1e-5)
        with pytest.raises(Refused, match="3 dimensions"):
            opened.search("dense", [1, 2, 3])

    def test_many_at_once_are_taken_and_let_go(self, opened: Any) -> None:
        points = [numbered(each) for each in range(self.many)]
        opened.upsert("c", points)
        assert opened.count("c") == len(list(opened.scan("c"))) == self.many
        opened.make_live("c")
        assert len(opened.search("dense", [1, 2, 3, 4], limit=5)) == 5
        opened.delete("c", [each.id for each in points[1:]])
        assert [each for each, _, _ in opened.scan("c")] == [points[0].id]

    def test_sparse_vectors_are_found_by_rare_terms_or_refused(self, opened: Any) -> None:
        if not type(self).store.keeps_sparse:
            with pytest.raises(Refused, match="sparse channel words") as caught:
                Pipeline(source={}, embed={"words": HashedWords()}, store=opened)
            assert "FlatStore" in caught.value.hint
            return
        shapes = {"dense": Shape(4), "rare": Shape(0, "sparse-idf"), "plain": Shape(0, "sparse")}
        opened.create("thin", shapes, {})
        rows: list[dict[int, float]] = [{7: 1.0, 4_294_967_295: 2.0}, {7: 3.0}, {7: 1.0, 8: 1.0}, {}]
        opened.upsert(
            "thin",
            [
                Point(numbered(number).id, f"doc {number}", number, "t", dict.fromkeys(("rare", "plain"), pack(row)))
                for number, row in enumerate(rows)
            ],
        )
        assert {document: sizes.get("plain", 0) for _, document, sizes in opened.scan("thin")} == {
            f"doc {number}": 8 * len(row) for number, row in enumerate(rows)
        }
        found = opened.read("thin", [numbered(number).id for number in range(4)])
        assert [found[numbered(number).id].vectors["plain"] for number in range(4)] == [pack(row) for row in rows]
        opened.make_live("thin")
        query = {7: 1.0, 4_294_967_295: 1.0, 5: 1.0}
        assert [each.document for each in opened.search("plain", query)][:1] == ["doc 0"]
        assert [each.document for each in opened.search("plain", {7: 1.0}, limit=1)] == ["doc 1"]
        rare = opened.search("rare", {7: 1.0, 8: 1.0})
        assert (rare[0].document, len(rare)) == ("doc 2", 3), "what shares nothing is not found"
        with pytest.raises(Refused, match="the query is not"):
            opened.search("plain", [1.0, 2.0])
        with pytest.raises(Refused, match="the vectors are not"):
            opened.search("dense", query)

    # when something goes wrong

    def test_what_a_call_has_done_is_there_after_a_kill(self, place: Path) -> None:
        command = [sys.executable, "-c", _WRITER, self.printable(), str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as busy:
            assert busy.stdout is not None
            said = [busy.stdout.readline() for _ in range(6)]
            busy.kill()
            said += busy.stdout.readlines()
            assert said[0], busy.stderr.read() if busy.stderr else ""
        done = int([each for each in said if each.endswith("\n")][-1])
        store = type(self).store(place)
        there = {each for each, _, _ in store.scan("c")}
        assert {numbered(each).id for each in range(done)} <= there
        assert (store.live(), store.fingerprint("c")) == ("c", {"ledger": "l"})
        store.upsert("c", [numbered(each) for each in range(done + 3)])
        assert {each for each, _, _ in store.scan("c")} == {numbered(each).id for each in range(done + 3)}
        assert len(store.search("dense", [1, 2, 3, 4], limit=5)) == 5
        store.close()

    def test_a_store_that_was_wiped_has_nothing(self, place: Path) -> None:
        store = type(self).store(place)
        store.create("c", SHAPES, {"ledger": "l"})
        store.upsert("c", [point(ONE, 1, 0, 0, 0)])
        store.make_live("c")
        store.close()
        for each in place.parent.glob("a store*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        store = type(self).store(place)
        assert (store.fingerprint("c"), store.count("c"), store.live()) == (None, 0, None)
        store.close()

    def test_points_lost_behind_its_back_are_not_counted(self, place: Path) -> None:
        store = type(self).store(place)
        store.create("c", SHAPES, {"ledger": "l"})
        store.make_live("c")
        store.upsert("c", [numbered(each) for each in range(self.many)])
        store.close()
        lost = [numbered(each).id for each in (0, 7, self.many - 1)]
        self.lose(place, "c", lost)
        store = type(self).store(place)
        there = {each for each, _, sizes in store.scan("c") if sizes}
        assert not there & set(lost)
        assert store.count("c") == len(there) <= self.many - 3
        assert all(not each.vectors for each in store.read("c", lost).values())
        with contextlib.suppress(Damaged):  # or only what is there is found
            found = {each.text for each in store.search("dense", [1, 2, 3, 4], limit=self.many)}
            assert not found & {"text 0", "text 7", f"text {self.many - 1}"}
        store.close()

    def test_a_plan_notices_lost_points_and_a_verify_repairs_them(self, place: Path, tmp_path: Path) -> None:
        texts = {f"{name}.md": f"a text about {name}, and {name} again" for name in ("cats", "rain", "bread", "stars")}
        store = type(self).store(place)
        with _run(texts, store, tmp_path) as run:
            assert run.apply(run.plan()).ok
            live = store.live()
            lost = [each for each, document, _ in store.scan(live) if document == "rain.md"]
        store.close()
        self.lose(place, live, lost)
        store = type(self).store(place)
        with _run(texts, store, tmp_path) as run:
            assert any("has lost points" in each for each in run.plan().findings)
            assert {document for _, document in run.verify().bad} >= {"rain.md"}
            assert run.verify(repair=True).ok
            assert run.plan().findings == ()
        assert store.search("dense", _embed([texts["rain.md"]])[0], limit=1)[0].document == "rain.md"
        store.close()

    def test_a_place_where_none_can_be_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("no folder")
        with pytest.raises(Unavailable) as caught:
            type(self).store(tmp_path / "file" / "store")
        assert caught.value.hint

    def test_a_disk_that_takes_no_more_is_told_and_nothing_is_lost(self, place: Path) -> None:
        store = type(self).store(place)
        store.create("c", SHAPES, {"ledger": "l"})
        store.upsert("c", [point(ONE, 1, 0, 0, 0)])
        store.close()
        ran = subprocess.run(
            [sys.executable, "-c", _FULL, self.printable(), str(place)], capture_output=True, text=True, check=False
        )
        assert "try again" in ran.stdout, json.dumps(ran.stderr)
        store = type(self).store(place)
        assert ONE in {each for each, _, _ in store.scan("c")}
        store.upsert("c", [point(TWO, 0, 1, 0, 0)])
        store.make_live("c")
        assert store.search("dense", [0, 1, 0, 0])[0].document == f"doc-{TWO[:4]}"
        store.close()
