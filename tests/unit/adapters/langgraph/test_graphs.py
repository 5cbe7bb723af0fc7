"""Real graphs of LangGraph over the saver: interrupts, resumes, forks, time travel, files."""

from __future__ import annotations

import asyncio
import enum
import operator
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy, interrupt

from holdfast import HoldfastError, NotFound, Refused, Workspace
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.serde import Keys, Registry

from .savers import Open, opener

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Trip(TypedDict):
    messages: Annotated[list[Any], add_messages]
    notes: Annotated[list[str], operator.add]


def plan(state: Trip) -> dict[str, Any]:
    call = {"name": "book", "args": {"to": "Skye"}, "id": "call-1"}
    return {"messages": [messages.AIMessage("Where to?", tool_calls=[call], id="ai-1")], "notes": ["planned"]}


def ask(state: Trip) -> dict[str, Any]:
    answer = interrupt({"question": "Book it?"})
    return {"messages": [messages.ToolMessage(answer, tool_call_id="call-1", id="tool-1")], "notes": [answer]}


def fan(state: Trip) -> list[Send]:
    return [Send("book", {"leg": leg}) for leg in ("out", "back")]


def book(leg: dict[str, str]) -> dict[str, Any]:
    return {"notes": [f"booked {leg['leg']}"]}


def trip(saver: Any) -> Any:
    builder = StateGraph(Trip)
    for node in (plan, ask, book):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "ask")
    builder.add_conditional_edges("ask", fan, ["book"])
    builder.add_edge("book", END)
    return builder.compile(checkpointer=saver)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return opener(request.param, request, tmp_path)


def test_graph_is_interrupted_resumed_forked_and_rewound(open_saver: Open) -> None:
    with open_saver() as saver:
        stopped = trip(saver).invoke({"messages": [("user", "Take me away")], "notes": []}, THREAD)
        assert stopped["__interrupt__"][0].value == {"question": "Book it?"}

    with open_saver() as saver:  # nothing is left of the first but what was stored
        graph = trip(saver)
        waiting = graph.get_state(THREAD)
        assert waiting.next == ("ask",) and waiting.interrupts[0].value == {"question": "Book it?"}
        done = graph.invoke(Command(resume="yes"), THREAD)
        assert done["notes"] == ["planned", "yes", "booked out", "booked back"]
        assert [type(each) for each in done["messages"]] == [
            messages.HumanMessage, messages.AIMessage, messages.ToolMessage,
        ]  # fmt: skip

        history = list(graph.get_state_history(THREAD))
        asked = next(each for each in history if each.next == ("ask",))
        assert graph.invoke(None, asked.config)["__interrupt__"]  # time travel: it asks again
        other = graph.invoke(Command(resume="no"), THREAD)
        assert other["notes"] == ["planned", "no", "booked out", "booked back"]
        assert graph.get_state(history[0].config).values["notes"][1] == "yes"  # and the old way is still there

        forked = graph.update_state(asked.config, {"notes": ["by hand"]}, as_node="plan")
        assert graph.invoke(None, forked)["__interrupt__"]
        assert graph.invoke(Command(resume="maybe"), THREAD)["notes"][:3] == ["planned", "by hand", "maybe"]


def test_the_same_graph_runs_in_an_event_loop(open_saver: Open) -> None:
    async def scene() -> None:
        async with open_saver() as saver:
            graph = trip(saver)
            await graph.ainvoke({"messages": [("user", "Go")], "notes": []}, THREAD)
            done = await graph.ainvoke(Command(resume="yes"), THREAD)
            assert done["notes"][-2:] == ["booked out", "booked back"]
            history = [each async for each in graph.aget_state_history(THREAD)]
            assert history[0].values == done and len(history) == 5

    asyncio.run(scene())


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_new_run_may_reuse_the_id_of_a_deleted_thread(open_saver: Open, durability: Any) -> None:
    with open_saver() as saver:
        graph = trip(saver)
        graph.invoke({"notes": ["before"]}, THREAD)
        saver.delete_thread("t")
        assert graph.get_state(THREAD).values == {}
        with pytest.raises(HoldfastError, match="deleted"):  # to look at it did not raise it
            saver.put_writes(saver_config("id"), [("notes", ["late"])], "task")
        anew = Command(update={"notes": ["anew"]}, goto="ask")  # is written before there is a checkpoint
        assert graph.invoke(anew, THREAD, durability=durability)["__interrupt__"]
        assert "anew" in graph.get_state(THREAD).values["notes"]


def test_subgraph_does_not_resurrect_a_deleted_thread(open_saver: Open) -> None:
    inner = StateGraph(Trip)
    inner.add_node("plan", plan)
    inner.add_edge(START, "plan")
    sub = inner.compile()
    with open_saver() as saver:

        def delete_and_go_on(state: Trip) -> dict[str, Any]:
            saver.delete_thread("t")
            return {"notes": sub.invoke({"messages": [], "notes": []})["notes"]}

        outer = StateGraph(Trip)
        outer.add_node("plan", plan)  # a step that is saved before anything is deleted
        outer.add_node("delete", delete_and_go_on)
        outer.add_edge(START, "plan")
        outer.add_edge("plan", "delete")
        with pytest.raises(HoldfastError, match="deleted"):
            outer.compile(checkpointer=saver).invoke({"notes": ["late"]}, THREAD, durability="sync")
        assert list(saver.list(THREAD)) == []
        assert saver.states.store.tombstones() == ["t"]


def test_first_write_of_a_run_outlives_expired_ones(open_saver: Open) -> None:
    now = [0.0]
    with open_saver(ttl=timedelta(hours=1), clock=lambda: now[0]) as saver:
        graph = trip(saver)
        graph.invoke({"notes": ["before"]}, THREAD, durability="sync")
        now[0] = 7200
        begun = {"configurable": {**THREAD["configurable"], "__pregel_runtime": None}}
        assert saver.get_tuple(begun) is None
        saver.put_writes(saver_config("anew"), [("notes", ["kept"])], "task")
        saver.put(saver_config(None), empty_checkpoint() | {"id": "anew"}, {"source": "input", "step": -1}, {})
        found = saver.get_tuple(THREAD)
        assert found is not None and found.pending_writes == [("task", "notes", ["kept"])]


def saver_config(checkpoint_id: str | None) -> Any:
    return {"configurable": {**THREAD["configurable"], "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


class Names(enum.StrEnum):
    PLAN = "plan"
    DO = "do"
    JOIN = "join"
    NOTES = "notes"


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
def test_nodes_and_channels_may_be_named_by_an_enum(open_saver: Open, durability: Any) -> None:
    def write(name: str) -> Any:
        return lambda state: {Names.NOTES: [str(name)]}

    builder = StateGraph(Trip)
    for name in (Names.PLAN, Names.DO, Names.JOIN):
        builder.add_node(name, write(name))
    builder.add_node("asked", lambda state: {"notes": [interrupt("Go?")]})
    builder.add_edge(START, Names.PLAN)
    builder.add_edge(START, Names.DO)
    builder.add_edge([Names.PLAN, Names.DO], Names.JOIN)
    builder.add_conditional_edges(Names.JOIN, lambda state: [Send(Names.PLAN, state), Send("asked", state)])
    found = []
    for saver in (InMemorySaver(), open_saver()):
        with saver:
            graph: Any = builder.compile(checkpointer=saver)
            graph.invoke({Names.NOTES: ["begin"]}, THREAD, durability=durability)
            found.append(graph.invoke(Command(resume="yes"), THREAD, durability=durability)["notes"])
    theirs, ours = found
    assert ours == theirs and ours[-1] == "yes"


def test_keys_of_a_registered_enum_come_back_as_its_members() -> None:
    registry = Registry()
    registry.add(Names, "Names")
    sent, given = {Names.PLAN: 1, "other": Names.DO}, {Names.NOTES: 2}
    with HoldfastSaver.from_url("memory://", registry=registry) as saver:
        values = {"__start__": given, "sent": Send("do", sent)}
        checkpoint: Any = empty_checkpoint() | {"id": "1", "channel_values": values}
        saver.put(saver_config(None), checkpoint, {"source": "input", "step": -1}, {})
        saver.put_writes(saver_config("1"), [("__start__", given), ("sent", Send("do", sent))], "task")
        found = saver.get_tuple(saver_config("1"))
    assert found is not None and found.pending_writes is not None
    written = {channel: value for _, channel, value in found.pending_writes}
    for back in (found.checkpoint["channel_values"], written):
        assert [type(key) for key in back["__start__"]] == [Names]
        assert [type(key) for key in back["sent"].arg] == [Names, str]


def test_failed_task_leaves_its_error_and_can_be_retried(url: str) -> None:
    class Broken(Exception):
        pass

    attempts: list[int] = []

    def fragile(state: Trip) -> dict[str, Any]:
        attempts.append(1)
        if len(attempts) == 1:
            raise Broken("the line was busy")
        return {"notes": ["done"]}

    builder = StateGraph(Trip)
    builder.add_node("fragile", fragile)
    builder.add_edge(START, "fragile")
    with HoldfastSaver.from_url(url) as saver:
        graph = builder.compile(checkpointer=saver)
        with pytest.raises(Broken):
            graph.invoke({"messages": [], "notes": []}, THREAD)
        [task] = graph.get_state(THREAD).tasks
        assert "the line was busy" in str(task.error)
        assert graph.invoke(None, THREAD)["notes"] == ["done"]


def test_thread_copied_newest_first_continues(url: str) -> None:
    old = InMemorySaver()
    trip(old).invoke({"messages": [("user", "Go")], "notes": []}, THREAD)
    with HoldfastSaver.from_url(url) as saver:
        for each in old.list(None):
            saver.put(each.parent_config or THREAD, each.checkpoint, each.metadata, {})
            for task_id, channel, value in each.pending_writes or ():
                saver.put_writes(each.config, [(channel, value)], task_id)
        graph = trip(saver)
        assert graph.get_state(THREAD) == trip(old).get_state(THREAD)
        done = graph.invoke(Command(resume="yes"), THREAD)
        assert done["notes"] == ["planned", "yes", "booked out", "booked back"]


def test_with_a_key_nothing_that_was_said_lies_open_in_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sealed.db"
    with HoldfastSaver.from_url(url, keys=Keys({"k": bytes(32)})) as saver:
        trip(saver).invoke({"messages": [("user", "the secret of the kelp")], "notes": []}, THREAD)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert stored and b"kelp" not in stored and b"Book it" not in stored
    with HoldfastSaver.from_url(url) as saver, pytest.raises(HoldfastError):
        saver.get_tuple(THREAD)


def test_a_thread_that_outlived_its_time_is_gone(url: str) -> None:
    now = [1e9]
    with HoldfastSaver.from_url(url, ttl=timedelta(days=1), clock=lambda: now[0]) as saver:
        graph = trip(saver)
        graph.invoke({"messages": [], "notes": []}, THREAD)
        assert graph.get_state(THREAD).next == ("ask",)
        now[0] += 86400
        assert saver.get_tuple(THREAD) is None and list(saver.list(THREAD)) == []


VALUES: list[Any] = [
    messages.HumanMessage([{"type": "text", "text": "hi"}], id="1", name="kelp"),
    messages.AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, mine="extra"),
    messages.AIMessageChunk("x", chunk_position="last"),
    messages.SystemMessage("s"),
    messages.ToolMessage("t", tool_call_id="1", artifact={"a": (1, 2)}, status="error"),
    messages.RemoveMessage(id="3"),
    messages.ChatMessage("c", role="critic"),
    messages.FunctionMessage("f", name="f"),
    Document("d", metadata={"page": 1}, id="9"),
    Send("node", {"a": [1]}, timeout=3),
    Interrupt({"q": 1}, id="i"),
    Command(update={"a": 1}, goto=[Send("n", 1)], resume={"x": (1,)}, graph=Command.PARENT),
    Overwrite([1]),
    TimeoutPolicy(run_timeout=1.5),
    _DeltaSnapshot([1, (2,)]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_langgraphs_own_classes_come_back_equal(value: Any) -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        serde = saver.states.codec.serde
        made = serde.decode(serde.encode(value))
        assert made == value and type(made) is type(value) and repr(made) == repr(value)
        assert vars(made) == vars(value) if hasattr(value, "__dict__") else True


def test_older_langchain_is_read_and_newer_is_refused() -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        serde = saver.states.codec.serde
        registered = serde.registry.of_class(messages.HumanMessage)
        assert registered is not None
        data = registered.kind.take(messages.HumanMessage("hi", id="1"))
        older = data | {"{}": "additional_kwargs,__pydantic_extra__"}
        assert registered.kind.make(dict(older), fill=False) == messages.HumanMessage("hi", id="1")
        with pytest.raises(ValueError, match="was not stored"):
            registered.kind.make({name: value for name, value in data.items() if name != "content"}, fill=False)
        with pytest.raises(Refused, match="mood"):
            registered.kind.make(data | {"mood": "sunny"}, fill=False)
        send = serde.registry.of_class(Send)
        assert send is not None
        with pytest.raises(Refused, match="mood"):
            send.kind.make(send.kind.take(Send("node", 1)) | {"mood": "sunny"}, fill=False)
        assert serde.decode(serde.encode(Interrupt("v", id="i"))).response_schema is None


def test_message_keeps_its_set_fields_only() -> None:
    odd = messages.HumanMessage("x", **{"a,b": 1, "": 2})
    lacking = messages.HumanMessage("x")
    del lacking.id
    unfinished = messages.AIMessage.model_construct()
    with HoldfastSaver.from_url("memory://") as saver:
        serde = saver.states.codec.serde
        for value in (odd, lacking, unfinished):
            made = serde.decode(serde.encode(value))
            assert vars(made) == vars(value) and made.model_extra == value.model_extra
            assert made.model_fields_set == value.model_fields_set
        vars(odd)["mood"] = "sunny"
        with pytest.raises(Refused, match="mood"):
            serde.encode(odd)


def test_user_classes_can_be_registered_after_the_saver_is_made() -> None:
    registry = Registry()
    with HoldfastSaver.from_url("memory://", registry=registry) as saver:

        @registry.register("shop.Cart")
        class Cart(NamedTuple):
            items: tuple[str, ...]

        builder = StateGraph(dict)
        builder.add_node("fill", lambda state: {"cart": Cart(("tea",))})
        builder.add_edge(START, "fill")
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"cart": None}, THREAD)
        assert graph.get_state(THREAD).values["cart"] == Cart(("tea",))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "a.txt").write_text("0")
    return folder


def counting(saver: HoldfastSaver, project: Path) -> Any:
    """A graph that counts to three, in its state and in a file."""

    def count(state: dict[str, int]) -> dict[str, int]:
        (project / "a.txt").write_text(str(state["n"] + 1))
        return {"n": state["n"] + 1}

    class Count(TypedDict):
        n: int

    builder = StateGraph(Count)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: END if state["n"] % 3 == 0 else "count", ["count", END])
    return builder.compile(checkpointer=saver)


@pytest.fixture
def saver(url: str, project: Path) -> Iterator[HoldfastSaver]:
    with HoldfastSaver.from_url(url, workspace=project) as saver:
        yield saver


def test_rewinding_a_graph_can_rewind_the_files(saver: HoldfastSaver, project: Path) -> None:
    graph = counting(saver, project)
    graph.invoke({"n": 0}, THREAD, durability="sync")
    for each in reversed(list(graph.get_state_history(THREAD))[:-1]):  # the first one is before the input
        saver.restore_files(each.config)
        assert (project / "a.txt").read_text() == str(each.values["n"])
        assert Workspace(project).get(each.metadata["workspace"]).session == "t"

    first = next(each for each in graph.get_state_history(THREAD) if each.values.get("n") == 1)
    saver.restore_files(first.config)
    graph.invoke(None, first.config, durability="sync")
    assert (project / "a.txt").read_text() == "3"


def test_files_of_a_step_are_not_saved_during_the_next(saver: HoldfastSaver, project: Path) -> None:
    with pytest.raises(Refused, match="while the next one runs"):
        counting(saver, project).invoke({"n": 0}, THREAD)
    assert saver.get_tuple(THREAD) is None


def test_files_that_were_not_saved_cannot_be_restored(url: str, saver: HoldfastSaver, project: Path) -> None:
    with HoldfastSaver.from_url(url) as without:
        counting(without, project).invoke({"n": 0}, THREAD)
        with pytest.raises(HoldfastError, match="no workspace"):
            without.restore_files(THREAD)
    with pytest.raises(NotFound, match="no files"):
        saver.restore_files(THREAD)
