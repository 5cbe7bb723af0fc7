"""Values in states that JSON lacks: exact, by the serializer of all surfaces; readable, searched and purged."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Refused, Workspace
from holdfast.errors import Damaged, NotFound
from holdfast.serde import Registry, Serde, Unknown, from_tagged
from holdfast.shadowgit import FILE_MODE, ObjectKind, TreeEntry, encode_tree
from holdfast.workspace import CheckpointService, Tagged
from holdfast.workspace.stored.state import read_state, state_names, write_state
from holdfast.workspace.stored.state_json import Spelling
from holdfast.workspace.upkeep.state_redaction import CUT_OUT

from .test_state import Memory, conversation

VALUES: list[Any] = [
    (1, "two", [3.0]),
    {1, 2},
    frozenset({"a"}),
    b"text",
    b"\x00\xff",
    bytearray(b"x"),
    float("inf"),
    "\ud83d\ude00 in two halves",
    {"$tuple": [1], "and": (1,)},
    {"$tuple": (1,)},
    {1: "a", None: "b", (1, 2): "c", "half \ud800": 1},
    [10**5000, 2**80, "half \ud800", (1,)],
    1j,
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    [date(2026, 1, 2), Decimal("1.10"), UUID(int=5), Path("a/b"), range(3)],
    deque([1], maxlen=3),
    OrderedDict(b=1, a=2),
    Counter("hello"),
]


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    secret_2026_name: str = ""


class Colour(Enum):
    RED_2026_MEMBER = 1


REGISTRY = Registry()
REGISTRY.add(Cart, "shop.Cart")
REGISTRY.add(Colour, "shop.Colour")


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def home(project: Any) -> Path:
    return project.home  # type: ignore[no-any-return]


def open_again(ws: Workspace, home: Path, **options: Any) -> Workspace:
    return Workspace(ws.path, store=ws.store, home=home, environ={}, **options)


def entries(memory: Memory, tree: bytes) -> dict[str, Any]:
    """What is stored, by the names of the entries, as a reader without Holdfast sees it."""
    return {entry.name.decode(): json.loads(memory.blob(entry.oid)) for entry in memory.tree(tree)}


class TestExactness:
    @pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
    def test_a_value_comes_back_equal_and_of_the_same_types(self, memory: Memory, value: Any) -> None:
        (found,) = read_state(memory, write_state(memory, {"value": value})).values()
        assert (type(found), found) == (type(value), value)
        assert Serde().encode(found) == Serde().encode(value), "to the last type inside, and the order"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary() | st.dates()
            | st.text(st.characters(categories=["L", "Cs", "Cc"])),
            lambda inner: st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.sampled_from(["a", "$a", "$dict", 1, "\ud800"]), inner, max_size=3),
            max_leaves=10,
        )
    )  # fmt: skip
    def test_any_tree_comes_back_the_same(self, value: Any) -> None:
        memory = Memory()
        (found,) = read_state(memory, write_state(memory, {"value": value})).values()
        assert Serde().encode(found) == Serde().encode(value)

    def test_an_equal_value_of_another_type_is_not_what_was_saved(self, memory: Memory) -> None:
        (found,) = read_state(memory, write_state(memory, {"value": {"a": OrderedDict(b=1)}})).values()
        assert type(found["a"]) is OrderedDict

    def test_through_a_store_restore_undo_and_guard(self, project: Any, ws: Workspace) -> None:
        state = {f"value {number}": value for number, value in enumerate(VALUES)}
        saved = ws.save(state=state)
        assert saved.state == state
        with pytest.raises(ZeroDivisionError), ws.guard("risky", state={"plan": (1, {2})}):
            raise ZeroDivisionError
        back = ws.restore(saved.id, state={"now": (1,)})
        assert back.state == state
        assert ws.undo().state == {"now": (1,)}
        assert ws.state(saved.id, "value 0") == VALUES[0]
        with pytest.raises(NotFound, match="has no state 'x'"):
            ws.state(saved.id, "x")

    def test_the_same_state_makes_no_second_checkpoint(self, ws: Workspace) -> None:
        one = ws.save(state={"a": ({1, 2, 3}, b"x")})
        assert ws.save(state={"a": ({3, 2, 1}, b"x")}).id == one.id
        assert ws.save(state={"a": [{3, 2, 1}, b"x"]}).id != one.id


class TestForm:
    def test_json_is_stored_as_it_stands_and_the_rest_with_tags(self, memory: Memory) -> None:
        tree = write_state(memory, {"plain": {"$tuple": [1]}, "other": {"$x": 1, "y": (b"say", b"\xff", {"a"})}})
        assert entries(memory, tree) == {
            "plain.json": {"$tuple": [1]},
            "other.json-tagged": {
                "$dict": [
                    ["$x", 1],
                    ["y", {"$tuple": [{"$utf8": "say"}, {"$bytes": "/w=="}, {"$set": ["a"]}]}],
                ]
            },
        }
        assert sorted(state_names(memory, tree)) == ["other", "plain"]

    def test_the_ending_decides_whatever_a_state_is_called(self, memory: Memory) -> None:
        state = {"a": (1,), "a.json": (2,), "a.json-tagged": [3], "b.json": 4, "b.json-tagged": (5,)}
        assert read_state(memory, write_state(memory, state)) == state

    def test_untagged_json_of_old_stores_is_read_as_it_is(self, memory: Memory) -> None:
        old = {"$tuple": [1], "a": {"$nonsense": 1}, "b": {"$bytes": "?"}, "c": {"$dict": [["x", 1]]}}
        blob = memory.add(ObjectKind.BLOB, json.dumps(old, separators=(",", ":")).encode())
        tree = memory.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"talk.json", blob)]))
        assert read_state(memory, tree) == {"talk": old}
        assert write_state(memory, {"talk": old}) == tree, "and is stored as it was"

    @pytest.mark.parametrize("text", [b"{not json", b'{"$nothing": 1}', b'{"$tuple": 1}', b"[" * 100_000])
    def test_garbage_in_the_store_is_damage(self, memory: Memory, text: bytes) -> None:
        blob = memory.add(ObjectKind.BLOB, text)
        tree = memory.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"x.json-tagged", blob)]))
        with pytest.raises(Damaged):
            read_state(memory, tree)

    def test_a_conversation_that_grows_costs_what_is_new_in_it(self, memory: Memory) -> None:
        plain = conversation(200)
        start, minute = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1)
        other = [{**each, "at": start + number * minute, "span": (number, 0)} for number, each in enumerate(plain)]
        stored = {}
        for kind, messages in (("plain", plain), ("other", other)):
            own = Memory()
            for count in range(1, 201):
                write_state(own, {"talk": messages[:count]})
            stored[kind] = own.stored_bytes / len(json.dumps(messages, default=str))
        assert stored["other"] < 1.2 * stored["plain"]

    def test_first_tagged_value_does_not_store_the_rest_again(self, memory: Memory) -> None:
        messages = conversation(400)
        write_state(memory, {"talk": messages})
        before = memory.stored_bytes
        write_state(memory, {"talk": [*messages, (1, 2)]})
        assert memory.stored_bytes - before < 40_000 < len(json.dumps(messages))

    def test_plain_states_load_none_of_the_serializers_libraries(self, ws: Workspace, home: Path) -> None:
        code = f"""if True:
            import sys
            from holdfast import Workspace
            ws = Workspace({str(ws.path)!r}, store={str(ws.store)!r}, home={str(home)!r}, environ={{}})
            assert ws.save(state={{"a": [1, "x"]}}).state == {{"a": [1, "x"]}}
            print(sorted({{"msgspec", "decimal", "zoneinfo", "numpy"}} & set(sys.modules)))
        """
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout == "[]\n"


class TestClasses:
    def test_a_registered_class_is_stored_by_its_id_and_comes_back(self, ws: Workspace, home: Path) -> None:
        with pytest.raises(Refused, match=r"state a\['cart'\] cannot be stored: .*Cart, which is not registered"):
            ws.save(state={"a": {"cart": Cart(["tea"])}})
        known = open_again(ws, home, registry=REGISTRY)
        assert known.save(state={"a": {"cart": Cart(["tea"])}}).state == {"a": {"cart": Cart(["tea"])}}

    def test_unregistered_class_is_refused_or_kept(self, ws: Workspace, home: Path) -> None:
        known = open_again(ws, home, registry=REGISTRY)
        saved = known.save(state={"a": [Cart(["tea"]), (1,)], "b": 1})
        with pytest.raises(Refused, match=r"shop\.Cart is not registered"):
            _ = ws.get(saved.id).state
        assert ws.state(saved.id, "b") == 1, "another state of the same checkpoint is read all the same"
        (ws.path / "new").write_text("x")
        with pytest.raises(Refused, match=r"shop\.Cart"):
            ws.restore(saved.id)
        assert (ws.path / "new").exists(), "before anything is changed"
        for ways, kind in (("keep", Unknown), ("tagged", Tagged)):
            other = open_again(ws, home, on_unknown=ways)
            found = other.get(saved.id).state
            assert type(found["a"][0] if ways == "keep" else found["a"]) is kind
            again = other.save(state=found, allow_empty=True)
            assert known.get(again.id).state == saved.state == {"a": [Cart(["tea"]), (1,)], "b": 1}

    def test_the_tagged_form_is_what_the_serializer_reads(self, ws: Workspace, home: Path) -> None:
        known = open_again(ws, home, registry=REGISTRY)
        saved = known.save(state={"a": (Cart(["tea"]),)})
        form = open_again(ws, home, on_unknown="tagged").get(saved.id).state["a"].form
        assert Serde(REGISTRY).decode(from_tagged(form)) == (Cart(["tea"]),)

    def test_a_form_that_is_none_is_refused(self, memory: Memory) -> None:
        with pytest.raises(Refused, match="state a"):
            write_state(memory, {"a": Tagged({"$nothing": 1})})

    def test_another_way_is_refused(self, ws: Workspace, home: Path) -> None:
        with pytest.raises(Refused, match="on_unknown"):
            open_again(ws, home, on_unknown="ignore")


class TestSearch:
    def test_search_finds_texts_in_tagged_values_but_not_tags(self, ws: Workspace) -> None:
        ws.save(state={"talk": ({"deep": [b"said in bytes"]}, {"in a set"}, Path("some/path"), b"\x00\xff\xff\xff")})
        for text in ("said in bytes", "in a set", "some/path", "deep"):
            assert [each.path for each in ws.search(text)] == ["(state) talk"], text
        for text in ("$tuple", "$utf8", "AP//"):
            assert ws.search(text) == [], text

    def test_a_key_that_looks_like_a_tag_is_a_text_of_json(self, ws: Workspace) -> None:
        ws.save(state={"talk": {"$tuple": "x"}})
        assert [each.path for each in ws.search("$tuple")] == ["(state) talk"]


KEY = "sk-live-0123456789abcdef"
STAMP = "2026-10-25T02:30:00"


class TestPurge:
    def _purged(self, ws: Workspace, home: Path, value: Any, secret: str = KEY) -> Any:
        known = open_again(ws, home, registry=REGISTRY)
        (ws.path / "settings").write_text(secret)
        saved = known.save(state={"talk": value, "other": (1, b"kept")})
        (ws.path / "settings").unlink()
        known.purge("settings", dry_run=False)
        found = known.get(saved.id)
        assert "(state) talk" in found.purged
        assert found.state["other"] == (1, b"kept")
        assert known.search(secret) == []
        return found.state["talk"]

    def test_it_is_cut_out_of_the_middle_of_what_json_lacks(self, ws: Workspace, home: Path) -> None:
        value = ({f"key {KEY}": 1}, {KEY, "b"}, deque([KEY]), f"bytes {KEY}".encode(), Path(f"a/{KEY}"), {1: KEY})
        assert self._purged(ws, home, value) == (
            {f"key {CUT_OUT}": 1},
            {CUT_OUT, "b"},
            deque([CUT_OUT]),
            f"bytes {CUT_OUT}".encode(),
            Path(f"a/{CUT_OUT}"),
            {1: CUT_OUT},
        )

    def test_it_is_cut_out_of_fields_and_the_object_stays(self, ws: Workspace, home: Path) -> None:
        assert self._purged(ws, home, [Cart(["tea", KEY])]) == [Cart(["tea", CUT_OUT])]

    @pytest.mark.parametrize(
        ("value", "secret"),
        [
            (datetime.fromisoformat(STAMP), STAMP),
            (Cart(["tea"]), "secret_2026_name"),
            (Colour.RED_2026_MEMBER, "RED_2026_MEMBER"),
            (Cart(["tea"]), "shop.Cart"),
        ],
        ids=["a date", "the name of a field", "the member of an enum", "the id of a class"],
    )
    def test_what_could_not_be_made_without_it_goes_as_a_whole(
        self, ws: Workspace, home: Path, value: Any, secret: str
    ) -> None:
        assert self._purged(ws, home, [value, "rest"], secret) == [CUT_OUT, "rest"]


class TestService:
    def test_what_changes_after_the_call_is_not_what_is_saved(self, ws: Workspace, home: Path) -> None:
        async def story() -> None:
            options: dict[str, Any] = {"home": home, "environ": {}, "registry": REGISTRY}
            async with CheckpointService(ws.path, ws.store, **options) as service:
                cart, talk = Cart(["tea"]), [deque(["said"])]
                saving = asyncio.ensure_future(service.save("one", state={"cart": cart, "talk": talk}))
                await asyncio.sleep(0)  # the call is made; its work may not have begun
                cart.items.append("late")
                talk[0].append("late")
                saved = await saving
                assert (await service.get(saved.id)).state == {"cart": Cart(["tea"]), "talk": [deque(["said"])]}

        asyncio.run(story())

    def test_unnamed_state_and_unstorable_value_are_refused(self, ws: Workspace, home: Path) -> None:
        async def story() -> None:
            async with CheckpointService(ws.path, ws.store, home=home, environ={}) as service:
                saved = await service.save("one", state=[("user", {"said"})])
                assert (await service.restore(saved.id)).state == {"conversation": [("user", {"said"})]}
                with pytest.raises(Refused, match=r"state conversation\[0\]"):
                    await service.save("two", state=[Cart()])

        asyncio.run(story())

    def test_checkpoint_with_an_unknown_state_is_still_found(self, ws: Workspace, home: Path) -> None:
        saved = open_again(ws, home, registry=REGISTRY).save(state={"a": Cart()})

        async def story() -> None:
            async with CheckpointService(ws.path, ws.store, home=home, environ={}) as service:
                assert (await service.get(saved.id)).id == saved.id

        asyncio.run(story())


def test_a_spelling_can_be_asked_for_the_json_of_states() -> None:
    assert Spelling().shown({"a": (1,), "b": {"$tuple": [1]}}) == (
        {"a": {"$tuple": [1]}, "b": {"$tuple": [1]}},
        ["a"],
    )
