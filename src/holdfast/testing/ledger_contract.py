"""What every `Ledger` does; the tests of a back end inherit this.

The suite gives one fixture, `open_ledger`, which opens the same ledger again and again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.indexing.ledger import Batch, Failure, Generation, LabelRow, Ledger, Published, vector_key

OpenLedger = Callable[[], Ledger]
_CHANNELS = {"dense": {"space": "s", "label": "l"}}


def batch(*pieces: str, space: str = "s", **more: Any) -> Batch:
    """A batch that was paid for."""
    return Batch(
        space, {vector_key(space, each): each.encode() * 4 for each in pieces}, len(pieces), 10, 0.5, 2.0, **more
    )


def document(name: str, *pieces: str, content: str = "", recipe: int = 1) -> Published:
    """A document with a point for each of its pieces."""
    points = tuple((ordinal, f"{name}-{piece}") for ordinal, piece in enumerate(pieces))
    return Published(name, "stamp", content or f"content of {name}", recipe, pieces, points)


def live(ledger: Ledger) -> Generation:
    """A generation that queries are asked of."""
    made = ledger.begin("shape", _CHANNELS, "store")
    ledger.make_live(made.number)
    return replace(made, state="live")


class LedgerContract:
    """The promises of `holdfast.indexing.ledger`."""

    def test_it_is_the_same_when_it_is_opened_again(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            own = ledger.id()
            ledger.add_batch(batch("a"))
            revision = ledger.revision()
        with contextlib.closing(open_ledger()) as ledger:
            assert (ledger.id(), ledger.revision()) == (own, revision)
            assert ledger.known([vector_key("s", "a")])

    def test_every_change_makes_the_revision_greater(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            seen = [ledger.revision()]
            generation = live(ledger).number
            changes: list[Callable[[], None]] = [
                lambda: ledger.add_batch(batch("a")),
                lambda: ledger.set_label(LabelRow("l", "s", 1)),
                lambda: ledger.intend(generation, {"d": ["1"]}),
                lambda: ledger.publish(generation, [document("d", "a")]),
                lambda: ledger.redo(generation, ["d"]),
                lambda: ledger.remove(generation, ["d"]),
                lambda: ledger.fail([Failure("d", "why")]),
                lambda: ledger.describe(generation, _CHANNELS),
                lambda: ledger.forget(generation),
            ]
            for change in changes:
                change()
                seen.append(ledger.revision())
            assert seen == sorted(set(seen))

    def test_records_of_runs_leave_the_revision(self, open_ledger: OpenLedger) -> None:
        """Another worker's plan stays valid while one records how far it is."""
        with contextlib.closing(open_ledger()) as ledger:
            ledger.begin("shape", {}, "store")
            before = ledger.revision()
            number = ledger.begin_record("none", {"documents": 1})
            ledger.update_record(number, {"published": 1}, is_end=False)
            ledger.update_record(number, {"published": 2}, is_end=True)
            assert ledger.revision() == before
            assert [(each.number, each.done) for each in ledger.records(2)] == [(number, {"published": 2})]

    def test_a_batch_is_there_with_what_it_cost(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            failure = Failure("d", "half a \0 character \ud800", "hint", "bad")
            ledger.add_batch(batch("a", "b", failures=(failure,)))
            ledger.add_batch(batch("b", "c"))
            keys = [vector_key("s", each) for each in "abcd"]
            assert ledger.known(keys) == set(keys[:3])
            assert ledger.vectors(keys[:1]) == {keys[0]: b"aaaa"}
            assert ledger.spent() == (4, 20, 1.0)
            assert ledger.rate("s") == 1.0
            assert ledger.poisoned(["bad", "good"]) == {"bad"}
            assert len(ledger.sample("s", 2)) == 2

    def test_models_are_known_again_by_their_canaries(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            row = LabelRow("l", "s", 1, (b"abcd", b"efgh"))
            assert ledger.label("l") is None
            ledger.set_label(LabelRow("l", "old", 2))
            ledger.set_label(row)
            assert (ledger.label("l"), ledger.dimension("s"), ledger.dimension("old")) == (row, 1, None)

    def test_a_document_is_published_over_what_it_was(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            number = live(ledger).number
            ledger.intend(number, {"d": ["1", "2"], "e": ["3"]})
            ledger.intend(number, {"d": ["2", "4"]})
            assert ledger.intents(number, ["d", "x"]) == {"d": ("1", "2", "4")}
            ledger.publish(number, [document("d", "a", "b", "c")])
            ledger.publish(number, [document("d", "a", "b"), document("é", "b", content="content of d")])
            assert ledger.open_intents(number) == {"e": ("3",)}
            assert (ledger.doc_count(number), ledger.point_count(number)) == (2, 3)
            assert ledger.points(number, ["d", "x"]) == {"d": ["d-a", "d-b"]}
            assert ledger.pieces("content of d", 1) == ("b",)
            assert next(iter(ledger.all_points(number))) == ("d", ("b",), ((0, "d-a"), (1, "d-b")))
            ledger.remove(number, ["d", "never"])
            assert (ledger.doc_count(number), ledger.point_count(number)) == (1, 1)

    def test_documents_come_in_the_order_of_their_bytes(self, open_ledger: OpenLedger) -> None:
        names = ["B", "a", "a-b", "a.md", "a/b", "aé", "b", "é", "\U0001f600"]
        with contextlib.closing(open_ledger()) as ledger:
            number = live(ledger).number
            ledger.publish(number, [document(name) for name in reversed(names)])
            assert [row[0] for row in ledger.all_docs(number)] == names == sorted(names)
            assert [row[0] for row in ledger.all_docs(number, names[0])] == names[1:]
            assert ledger.docs(number, ["a"]) == {"a": ("a", "stamp", "content of a", 1)}

    def test_more_rows_than_a_page_are_gone_through(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            number = live(ledger).number
            ledger.publish(number, [document(f"{each:06}", "a") for each in range(10_001)])
            assert [row[0] for row in ledger.all_docs(number)] == [f"{each:06}" for each in range(10_001)]
            assert sum(len(points) for _, _, points in ledger.all_points(number)) == 10_001

    def test_one_generation_is_live_and_others_are_kept(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            first, second = live(ledger), live(ledger)
            assert [each.state for each in ledger.generations()] == ["kept", "live"]
            ledger.make_live(first.number)
            assert [each.state for each in ledger.generations()] == ["live", "kept"]
            ledger.publish(second.number, [document("d", "a")])
            ledger.forget(second.number)
            assert ledger.generations() == [first]
            assert ledger.begin("shape", {}, "store").number > second.number, "a number is never used twice"

    def test_a_call_that_fails_changes_nothing(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            number = live(ledger).number
            before = ledger.revision()
            twice = [document("d", "a"), document("d", "b")]
            with pytest.raises(Exception, match=r"."):
                ledger.publish(number, twice)
            assert (ledger.revision(), ledger.doc_count(number), ledger.intents(number, ["d"])) == (before, 0, {})

    def test_one_works_alone(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as one, contextlib.closing(open_ledger()) as other:
            with one.writing():
                for attempt in (other.writing, other.working):
                    with pytest.raises(Conflict) as conflict, attempt():
                        pass
                    assert conflict.value.hint
            with other.writing():
                pass
            with one.working(), pytest.raises(Conflict), other.writing():
                pass

    def test_what_no_document_needs_is_pruned_when_its_time_is_up(self, open_ledger: OpenLedger) -> None:
        with contextlib.closing(open_ledger()) as ledger:
            now = [1000.0]
            ledger.clock = lambda: now[0]  # type: ignore[attr-defined] # all ledgers of Holdfast have it
            number = live(ledger).number
            recipe = ledger.recipe("digest", {})
            ledger.add_batch(batch("a", "b", "c"))
            ledger.add_batch(batch("d"))
            ledger.publish(number, [document("one", "a", "b", recipe=recipe), document("two", "b", recipe=recipe)])
            ledger.publish(number, [document("one", "c", content="new", recipe=recipe)])
            pruned = ledger.prune(kept_for_s=60)
            assert (pruned.vectors, pruned.cuts, pruned.batches) == (0, 1, 0)
            ledger.publish(number, [document("one", "d", content="newer", recipe=recipe)])
            now[0] += 61
            pruned = ledger.prune(kept_for_s=60)
            assert (pruned.vectors, pruned.batches) == (1, 1)
            keys = {each: vector_key("s", each) for each in "abcd"}
            assert ledger.known(list(keys.values())) == {keys["b"], keys["c"], keys["d"]}
            assert ledger.spent() == (4, 20, 1.0), "what was spent is not forgotten"
            assert ledger.pieces("newer", recipe) == ("d",)
            assert ledger.find_recipe("digest") == recipe
