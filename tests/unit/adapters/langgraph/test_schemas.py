"""The classes of a graph's schemas are registered before it runs, or refused before it runs."""

from __future__ import annotations

import enum
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pydantic
import pytest
from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.channels import Topic, UntrackedValue
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.managed import RemainingSteps

from holdfast import Refused
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.classes import Classes
from holdfast.adapters.langgraph.schemas import register_schemas
from holdfast.serde import Registry, Serde

T = TypeVar("T")
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Colour(enum.Enum):
    RED = "red"


class Mood(enum.StrEnum):
    CALM = "calm"


class Kind(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int
    colour: Colour


@dataclass
class Line:
    points: list[Point]


@dataclass
class Box(Generic[T]):
    held: T


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Leaf(pydantic.BaseModel):
    mood: Mood | None = None
    next: Leaf | None = None


class Inner(TypedDict):
    leaf: NotRequired[Leaf]


class Own:
    pass


Name = NewType("Name", Box[int])


class State(TypedDict):
    messages: Annotated[Sequence[AnyMessage], operator.add]
    base: list[BaseMessage]
    lines: dict[str, tuple[Line, ...]]
    page: Page[Leaf] | None
    name: Name
    kind: Literal[Kind.ONE]
    inner: Inner
    path: Path
    array: npt.NDArray[np.float64]
    topic: Annotated[list[Leaf], Topic(Leaf)]
    client: Annotated[Own, UntrackedValue]
    steps: RemainingSteps
    anything: Any
    extra: object


VALUES: list[Any] = [
    Colour.RED, Mood.CALM, Kind.ONE, Point(1, Colour.RED), Line([Point(2, Colour.RED)]), Box(1),
    Page[Leaf](items=[Leaf()]), Leaf(mood=Mood.CALM, next=Leaf()),
]  # fmt: skip


def test_schemas_register_what_they_name() -> None:
    registry = Classes(Registry())
    register_schemas(registry, [State])
    serde = Serde(registry)
    for value in VALUES:
        made = serde.decode(serde.encode(value))
        assert made == value and type(made) is type(value)
    assert registry.of_class(Own) is None


def test_a_class_may_be_named_by_itself_and_twice() -> None:
    registry = Classes(Registry())
    register_schemas(registry, [Leaf, list[Line], State, Leaf])
    assert registry.of_class(Point) is not None


def test_a_class_that_is_registered_keeps_its_id() -> None:
    mine = Registry()
    mine.add(Line, "shop.Line")
    registry = Classes(mine)
    register_schemas(registry, [State])
    entry = registry.of_class(Line)
    assert entry is not None and entry.id == "shop.Line"
    assert registry.of_class(Point) is not None


@pytest.mark.parametrize(
    ("annotation", "named"),
    [
        (threading.Event, "threading.Event"),
        (list[Own | None], "Own"),
        (dict[str, Own], "Own"),
        (Callable[[int], int], "Callable"),
        (type[Own], "builtins.type"),
        (Exception, "builtins.Exception"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_by_its_field(annotation: Any, named: str) -> None:
    made: Any = TypedDict("Made", {"found": annotation})  # type: ignore[misc]
    with pytest.raises(Refused, match=rf"Made\.found cannot be stored: .*{named}") as refused:
        HoldfastSaver.from_url("memory://", schemas=[made])
    assert "encode=" in refused.value.hint


def test_what_a_class_holds_is_looked_at() -> None:
    @dataclass
    class Holder:
        own: Own = field(default_factory=Own)

    with pytest.raises(Refused, match=r"Holder\.own cannot be stored"):
        register_schemas(Classes(Registry()), [Holder])


def test_a_field_that_is_new_has_its_default() -> None:
    def version(fields: dict[str, Any]) -> type:
        return dataclass(type("Grown", (), {"__annotations__": {"a": int, **fields}, "b": 5, "__module__": "shop"}))

    old, new = version({}), version({"b": int})
    before, after = Classes(Registry()), Classes(Registry())
    register_schemas(before, [old])
    register_schemas(after, [new])
    made = Serde(after).decode(Serde(before).encode(old(1)))
    assert (made.a, made.b) == (1, 5)


def _graph(schema: Any, saver: HoldfastSaver) -> Any:
    return StateGraph(schema).add_node("n", lambda state: {}).add_edge(START, "n").compile(checkpointer=saver)


def test_a_graph_is_checked_before_it_runs() -> None:
    with HoldfastSaver.from_url("memory://", schemas=[State]) as saver:
        saver.check(_graph(State, saver))
    with HoldfastSaver.from_url("memory://") as saver:
        with pytest.raises(Refused, match="cannot be stored") as refused:
            saver.check(_graph(State, saver))
        assert "schemas=" in refused.value.hint


class Bad(TypedDict):
    lock: threading.Event


def test_a_subgraph_is_checked_too() -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        inner = StateGraph(Bad).add_node("n", lambda state: {}).add_edge(START, "n").compile()

        class Outer(TypedDict):
            text: str

        outer = StateGraph(Outer).add_node("sub", inner).add_edge(START, "sub").compile(checkpointer=saver)
        with pytest.raises(Refused, match=r"Bad\.lock|lock cannot be stored"):
            saver.check(outer)


def test_an_entrypoint_is_checked_too() -> None:
    with HoldfastSaver.from_url("memory://") as saver:

        def run(own: Any) -> Any:
            return 1

        run.__annotations__ = {"own": Own, "return": int}  # the class, not its name
        with pytest.raises(Refused, match="Own"):
            saver.check(entrypoint(checkpointer=saver)(run))


class Model(pydantic.BaseModel):
    leaf: Leaf = Leaf()
    notes: Annotated[list[str], operator.add] = []


@pytest.mark.parametrize("begin", [Model(), {"leaf": Leaf(mood=Mood.CALM)}], ids=["model", "dict"])
def test_a_graph_of_models_runs_and_goes_on(begin: Any, tmp_path: Path) -> None:
    def node(state: Model) -> dict[str, Any]:
        return {"leaf": Leaf(mood=Mood.CALM, next=state.leaf), "notes": ["n"]}

    builder = StateGraph(Model).add_node("n", node).add_edge(START, "n")
    for _ in range(2):
        with HoldfastSaver.from_url(f"sqlite:///{tmp_path}/state.db", schemas=[Model]) as saver:
            graph = builder.compile(checkpointer=saver)
            saver.check(graph)
            found = graph.invoke(begin, THREAD)
    assert found["notes"] == ["n", "n"]
    assert type(found["leaf"]) is Leaf and found["leaf"].mood is Mood.CALM


@pytest.mark.parametrize("schemas", [Mood, "Mood", ["Mood"]])
def test_what_is_no_list_of_schemas_is_refused(schemas: Any) -> None:
    with pytest.raises(Refused, match="schemas="):
        HoldfastSaver.from_url("memory://", schemas=schemas)
