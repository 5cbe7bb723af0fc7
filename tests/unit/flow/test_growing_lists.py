"""Lists that grow are not encoded again, and what is changed in them in place is never missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, HumanMessageChunk

from holdfast.adapters.langgraph.classes import Classes
from holdfast.errors import Refused
from holdfast.flow import open_states
from holdfast.serde import Serde, default_registry
from holdfast.serde.list_prefix import look
from holdfast.testing.flow_contract import point

SERDE = Serde(Classes(default_registry))


class Text(str):
    pass


def values() -> list[Any]:
    """More than is looked into, of all that a proof can tell of."""
    long = "word " * 100
    told = {
        "n": 1,
        "f": 0.0,
        "inner": {"deep": [1, [2], {}], "none": None},
        "empty": {},
        "nothing": [],
        "pair": (1, [2]),
    }
    return [
        *(
            {"id": at, "text": f"{at} {long}", **told, "inner": {"deep": [1, [2], {}]}, "kinds": {1, 2}}
            for at in range(12)
        ),
        HumanMessage(long, id="h", additional_kwargs={"a": [1]}),
        AIMessage(long, id="a", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "t"}]),
    ]


def reorder(value: dict[str, Any]) -> None:
    value["id"] = value.pop("id")


def rename(value: dict[str, Any]) -> None:
    """In place: the same dict, with the same values in the same order."""
    items = list(value.items())
    value.clear()
    value.update({key.upper(): each for key, each in items})


CHANGES: dict[str, Callable[[list[Any]], Any]] = {
    "another value": lambda them: them[3].update(text="other"),
    "equal, of another type": lambda them: them[3].update(n=True),
    "equal, with another sign": lambda them: them[3].update(f=-0.0),
    "another order": lambda them: reorder(them[3]),
    "another key": lambda them: them[3].update(more=1),
    "a key renamed": lambda them: them.__setitem__(3, {("x" if k == "id" else k): v for k, v in them[3].items()}),
    "a key renamed in place": lambda them: rename(them[3]),
    "another key in the last one": lambda them: them[-1].update(more=1),
    "a key less in the last one": lambda them: them[-1].pop("text"),
    "deep in a list": lambda them: them[3]["inner"]["deep"].append(5),
    "deeper": lambda them: them[3]["inner"]["deep"][1].__setitem__(0, True),
    "in what was empty": lambda them: them[3]["empty"].update(a=1),
    "in an empty list": lambda them: them[3]["nothing"].append(1),
    "in an empty one, deep": lambda them: them[3]["inner"]["deep"][2].update(a=1),
    "in a tuple": lambda them: them[3]["pair"][1].append(3),
    "in a set": lambda them: (them[3]["kinds"].remove(1), them[3]["kinds"].add(3)),
    "equal, of another type, in a set": lambda them: (them[3]["kinds"].remove(1), them[3]["kinds"].add(True)),
    "from one set to another": lambda them: (them[3]["kinds"].clear(), them[4]["kinds"].update({1, 2, 3, 4})),
    "a field of a message": lambda them: setattr(them[12], "content", "other"),
    "in a message": lambda them: them[12].additional_kwargs["a"].append(2),
    "in an empty field": lambda them: them[12].response_metadata.update(a=1),
    "which fields were given": lambda them: them[12].__pydantic_fields_set__.add("name"),
    "a call of a tool": lambda them: them[13].tool_calls[0]["args"].update(x=2),
    "the class": lambda them: object.__setattr__(them[12], "__class__", HumanMessageChunk),
    "all fields at once": lambda them: object.__setattr__(them[12], "__dict__", {**them[12].__dict__, "name": "n"}),
    "one removed": lambda them: them.pop(3),
    "one put in": lambda them: them.insert(3, {"id": "new"}),
    "two swapped": lambda them: them.__setitem__(slice(3, 5), [them[4], them[3]]),
    "cut short": lambda them: them.__delitem__(slice(5, None)),
    "one replaced by an equal one": lambda them: them.__setitem__(3, dict(them[3])),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_in_place_is_saved(change: str) -> None:
    """P2: saved often enough that the list is known, changed, and saved again with one more."""
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(4):
            held.append({"id": f"step {step}", "text": "more " * 30})
            states.save(point(f"before {step}", {"messages": held}))
        CHANGES[change](held)
        expected = SERDE.encode({"messages": held})
        for name in ("after", "and once more"):
            states.save(point(name, {"messages": held}))
        held.append({"id": "last"})
        states.save(point("last", {"messages": held}))
        for name in ("after", "and once more"):
            states.forget()
            states.forget_parts()
            found = states.load("s", name)
            assert found is not None
            assert SERDE.encode(found.state) == expected
        found = states.load("s", "last")
        assert found is not None and SERDE.encode(found.state) == SERDE.encode({"messages": held})
        assert states.verify().ok


@pytest.mark.parametrize(
    "change", [lambda one, two: two.append(4), lambda one, two: two.insert(0, one.pop())], ids=["grown", "moved over"]
)
def test_equal_lists_in_a_row_differ_by_length(
    change: Callable[[list[int], list[int]], object],
) -> None:
    both = [[1, 2], [3]]
    seen = look(both, lambda kind: None)
    assert seen is not None and seen.still(both)
    change(*both)
    assert not seen.still(both)


def test_a_list_that_goes_on_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """P8: from the third save on, what is encoded is what is new."""
    encoded: list[int] = []
    encode = Serde.encode

    def counting(self: Serde, value: Any, where: str = "value") -> bytes:
        made = encode(self, value, where)
        encoded.append(len(made))
        return made

    monkeypatch.setattr(Serde, "encode", counting)
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(6):
            encoded.clear()
            held.append({"id": step, "text": "new"})
            states.save(point(f"c{step}", {"messages": held, "step": step}))
        assert sum(encoded) < 500


def test_unstorable_item_of_a_cached_list_is_named_by_path() -> None:
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(4):
            states.save(point(f"c{step}", {"messages": held}))
        held.append({"fine": 1, "bad": [object()]})
        with pytest.raises(Refused) as refused:
            states.save(point("bad", {"messages": held}))
        assert f"state['messages'][{len(held) - 1}]['bad'][0]" in str(refused.value)


def test_only_the_same_objects_are_a_proof() -> None:
    held = values()
    seen = SERDE.look(held)
    assert seen is not None and seen.still(held) and seen.still([*held, 1])
    assert not seen.still(values())
    assert not seen.still(held[:-1])
    assert SERDE.look([{"text": Text("a subclass")}]) is None
    assert SERDE.look([[object()]]) is None
    both = seen.plus(SERDE.look([{"a": [1]}]) or seen)
    assert not both.still(held)
    loop: list[Any] = []
    loop.append(loop)
    assert SERDE.look(loop) is None


@pytest.mark.parametrize("saves", [1, 3])
def test_list_changed_during_encoding_is_not_cached(saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is changed between the first look and the encoding, and changed back after the save.

    After one save the whole list is looked at, after three what is new.
    """
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(saves):
            states.save(point(f"c{step}", {"messages": held}))
        fresh = {"id": "fresh", "inner": (before := [1])}
        held.append(fresh)
        encode = Serde.encode

        def racing(self: Serde, value: Any, where: str = "value") -> bytes:
            if value is fresh or value is held:
                fresh["inner"] = [2]
            return encode(self, value, where)

        with monkeypatch.context() as patch:
            patch.setattr(Serde, "encode", racing)
            states.save(point("raced", {"messages": held}))
        fresh["inner"] = before
        states.save(point("next", {"messages": held}))
        found = [states.load("s", name) for name in ("raced", "next")]
        assert [each.state["messages"][-1]["inner"] for each in found if each] == [[2], [1]]


@pytest.mark.parametrize("saves", [0, 1])
@pytest.mark.parametrize("state", [lambda held: {"messages": held}, lambda held: {"a": {"messages": held}}])
def test_state_changed_during_chunking_is_one_of_the_two(
    saves: int, state: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut into parts is encoded as a whole and one by one; if they differ, it would not load again."""
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(saves):
            states.save(point(f"c{step}", state(held)))
        held.append({"id": "fresh", "inner": [1]})
        given = state(held)
        encode, changes = Serde.encode, [[2]]

        def racing(self: Serde, value: Any, where: str = "value") -> bytes:
            made = encode(self, value, where)
            if value in (held, given.get("a")) and changes:
                held[-1]["inner"] = changes.pop()
            return made

        with monkeypatch.context() as patch:
            patch.setattr(Serde, "encode", racing)
            states.save(point("raced", given))
        states.forget()
        states.forget_parts()
        found = states.load("s", "raced")
        assert found is not None and SERDE.encode(found.state) == SERDE.encode(given)


def test_one_list_in_two_places_goes_on_from_each_of_them() -> None:
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        for step in range(4):
            states.save(point(f"c{step}", {"long": held, "short": held[:-3]}))
        states.save(point("both", {"long": held, "short": held}))
        states.forget()
        states.forget_parts()
        found = states.load("s", "both")
        assert found is not None and SERDE.encode(found.state) == SERDE.encode({"long": held, "short": held})


def test_item_added_before_encoding_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_states("memory://", registry=Classes(default_registry)) as states:
        held = values()
        states.save(point("first", {"messages": held}))
        look, late = Serde.look, {"id": "late", "inner": 1}

        def racing(self: Serde, them: list[Any]) -> Any:
            seen = look(self, them)
            held.append(late)
            return seen

        with monkeypatch.context() as patch:
            patch.setattr(Serde, "look", racing)
            states.save(point("raced", {"messages": held}))
        late["inner"] = 2
        states.save(point("next", {"messages": held}))
        found = [states.load("s", name) for name in ("raced", "next")]
        assert [each.state["messages"][-1]["inner"] for each in found if each] == [1, 2]
