"""Named state: comes back equal, is refused with the place of what would not, and costs what is new in it."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import pytest

from holdfast import Refused, Workspace
from holdfast.errors import Damaged
from holdfast.shadowgit import FILE_MODE, ObjectKind, TreeEntry, encode_tree, object_id
from holdfast.shadowgit.objects import decode_tree
from holdfast.workspace.stored.state import read_state, write_state

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**80,
    0.1,
    -0.0,
    1e308,
    5e-324,
    "",
    "text",
    "caf\xe9 \N{SNOWMAN} \U0001f600",
    "half \ud800 a character",
    "nul \0 and \x1f and \x7f and \u2028",
    [],
    [[], {}, None],
    {},
    {"": "", "a b": [1, {"c": None}]},
    list(range(10_000)),
    {f"key {number}": "value " * number for number in range(200)},
]


class Memory:
    """Objects in a dictionary, which knows how much was put into it."""

    def __init__(self) -> None:
        self._objects: dict[bytes, bytes] = {}

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        oid = object_id(kind, data)
        self._objects[oid] = data
        return oid

    def tree(self, oid: bytes) -> list[TreeEntry]:
        return list(decode_tree(self._objects[oid]))

    def blob(self, oid: bytes) -> bytes:
        return self._objects[oid]

    @property
    def stored_bytes(self) -> int:
        return sum(map(len, self._objects.values()))


@pytest.fixture
def memory() -> Memory:
    return Memory()


class TestComingBack:
    @pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
    def test_a_value_comes_back_equal_and_of_the_same_type(self, memory: Memory, value: Any) -> None:
        (found,) = read_state(memory, write_state(memory, {"value": value})).values()
        assert found == value
        assert type(found) is type(value)
        assert repr(found) == repr(value)

    def test_through_a_store_too(self, ws: Workspace) -> None:
        state = {f"value {number}": value for number, value in enumerate(VALUES)}
        assert ws.save(state=state).state == state

    @pytest.mark.parametrize(
        "name", ["conversation", "a", "A b", "x.y:z@w+v-u_t", "caf\xe9", "\N{HIRAGANA LETTER A}", "7"]
    )
    def test_a_name_comes_back(self, memory: Memory, name: str) -> None:
        assert read_state(memory, write_state(memory, {name: 1})) == {name: 1}

    def test_git_finds_no_fault_with_any_name(self, ws: Workspace, git: Any) -> None:
        ws.save(state=dict.fromkeys(["git", "GIT", "a.git", "x" * 151, "con", "a ", "b.", "modules"], 1))
        git("--git-dir", ws.store, "fsck", "--strict", "--no-dangling")

    def test_garbage_in_the_store_is_damage(self, memory: Memory) -> None:
        blob = memory.add(ObjectKind.BLOB, b"{not json")
        tree = memory.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"x.json", blob)]))
        with pytest.raises(Damaged, match=r"x\.json"):
            read_state(memory, tree)


class Number(IntEnum):
    ONE = 1


class Plain(str):
    __slots__ = ()


class Text(str):
    """Carries more than its text."""

    language: str

    def __new__(cls, text: str) -> Text:
        self = super().__new__(cls, text)
        self.language = "en"
        return self


class Dicts(dict):  # type: ignore[type-arg]
    """Carries more than its items."""

    def __init__(self, **items: object) -> None:
        super().__init__(**items)
        self.source = "somewhere"


def test_plain_subclasses_are_stored_as_plain_values(ws: Workspace) -> None:
    saved = ws.save(state={"value": {Plain("key"): [Plain("text")]}})
    assert saved.state == {"value": {"key": ["text"]}}
    assert [type(each) for each in (*saved.state["value"], *saved.state["value"]["key"])] == [str, str]


class TestRefusal:
    @pytest.mark.parametrize(
        ("value", "place"),
        [
            (object(), "state value"),
            ([1, object()], "state value[1]"),
            ({"a": [0, {"b": Number.ONE}]}, "state value['a'][1]['b']"),
            ({"a": Text("subclass")}, "state value['a']"),
            ([{Text("key"): 1}], "state value[0]['key']"),
            ({"a": {1: object()}}, "state value['a'][1]"),
            ({"a": ({1, 2}, Dicts(b=1))}, "state value['a'][1]"),
        ],
    )
    def test_value_that_would_change_is_refused_with_its_path(self, memory: Memory, value: Any, place: str) -> None:
        with pytest.raises(Refused) as caught:
            write_state(memory, {"value": value})
        assert caught.value.message.startswith(f"{place} cannot be stored")
        assert caught.value.hint

    @pytest.mark.parametrize(
        "name", ["", " a", ".", "..", "a/b", "a\nb", ".git", "-", "x" * 152, "a\0", "half \ud800", 5]
    )
    def test_a_name_that_cannot_be_one_is_refused(self, memory: Memory, name: Any) -> None:
        with pytest.raises(Refused):
            write_state(memory, {name: 1})

    def test_a_refusal_leaves_nothing_behind(self, ws: Workspace) -> None:
        before = sorted(path.name for path in (ws.store / "objects" / "pack").iterdir())
        with pytest.raises(Refused, match="conversation"):
            ws.save(state={"fine": 1, "conversation": [{"content": object()}]})
        assert ws.list() == []
        assert sorted(path.name for path in (ws.store / "objects" / "pack").iterdir()) == before

    @pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,)], ids=["lists", "tuples"])
    def test_a_value_too_deep_to_be_written_is_refused(self, memory: Memory, wrap: Any) -> None:
        value: Any = None
        for _ in range(100_000):
            value = wrap(value)
        with pytest.raises(Refused, match="deep"):
            write_state(memory, {"value": value})


def conversation(count: int) -> list[dict[str, Any]]:
    def text(number: int) -> str:
        return f"message {number}: " + " ".join(f"{number * word % 9973}" for word in range(150))

    return [{"role": "user", "number": number, "content": text(number)} for number in range(count)]


class TestCost:
    def test_growing_conversation_costs_in_proportion(self, memory: Memory) -> None:
        messages, stored = conversation(400), {}
        for count in range(1, 401):
            write_state(memory, {"conversation": messages[:count]})
            stored[count] = memory.stored_bytes
        assert stored[200] < 12 * len(json.dumps(messages[:200]))
        assert stored[400] < 2.5 * stored[200], "twice as many messages cost about twice as much"

    def test_appended_message_costs_little_more_than_itself(self, ws: Workspace) -> None:
        messages = conversation(400)
        ws.save(state={"conversation": messages[:390]})
        before = _pack_bytes(ws)
        for count in range(391, 396):
            ws.save(state={"conversation": messages[:count]})
        assert _pack_bytes(ws) - before < 5 * 40_000 < len(json.dumps(messages))
        assert ws.get("latest").state == {"conversation": messages[:395]}
        assert ws.get("latest~5").state == {"conversation": messages[:390]}


def _pack_bytes(ws: Workspace) -> int:
    return sum(path.stat().st_size for path in (ws.store / "objects" / "pack").iterdir())
