"""Every class of LangChain and LangGraph that a state can hold comes back, or is listed here with the reason."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import importlib
import inspect
import ipaddress
import pathlib
import re
import uuid
import warnings
import zoneinfo
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

import langchain_core
import langgraph.types
import pytest
from langchain_core import agents, chat_history, documents, exceptions, messages, outputs, prompt_values
from langchain_core import structured_query as query
from langchain_core.messages.base import BaseMessage, BaseMessageChunk, TextAccessor
from langchain_core.runnables import Runnable
from langchain_core.runnables.utils import AddableDict
from langgraph import errors, types
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store import base as store
from pydantic import BaseModel

from holdfast.adapters.langgraph import HoldfastSaver

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
ACTION = agents.AgentAction("search", {"q": 1}, "log")
ITEM: dict[str, Any] = {"namespace": ("a", "b"), "key": "k", "value": {"v": (1,)}, "created_at": NOW, "updated_at": NOW}
COMPARISON = query.Comparison(comparator=query.Comparator.EQ, attribute="a", value=1)
OPERATION = query.Operation(operator=query.Operator.NOT, arguments=[COMPARISON])
USAGE: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
TASK = types.PregelTask("id", "name", ("__pregel_pull", "name"), None, (types.Interrupt(1, id="i"),), None, {"a": 1})


def _history() -> chat_history.InMemoryChatMessageHistory:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and in use
        return chat_history.InMemoryChatMessageHistory(messages=[messages.HumanMessage("hi")])


SAMPLES: list[Any] = [
    # plain values, by way of LangChain's and LangGraph's own subclasses
    messages.AIMessage("text").text, AddableDict(a=1), uuid6(),
    # messages
    messages.AIMessage("x", usage_metadata=USAGE, mine="extra"), messages.AIMessageChunk("x", chunk_position="last"),
    messages.HumanMessage([{"type": "text", "text": "hi"}], id="1"), messages.HumanMessageChunk("h"),
    messages.SystemMessage("s"), messages.SystemMessageChunk("s"),
    messages.ToolMessage("t", tool_call_id="1", artifact={"a": (1, 2)}, status="error"),
    messages.ToolMessageChunk("t", tool_call_id="1"),
    messages.RemoveMessage(id="3"), messages.ChatMessage("c", role="r"), messages.ChatMessageChunk("c", role="r"),
    messages.FunctionMessage("f", name="f"), messages.FunctionMessageChunk("f", name="f"),
    BaseMessage("b", type="own"), BaseMessageChunk("b", type="own"),
    _history(),
    # documents, prompts, what models answer, agents, queries
    documents.Document("d", metadata={"page": 1}, id="9"),
    documents.base.Blob(data=b"x", mimetype="text/plain", path=pathlib.PurePosixPath("a")),
    prompt_values.StringPromptValue(text="t"), prompt_values.ChatPromptValue(messages=[messages.HumanMessage("hi")]),
    prompt_values.ChatPromptValueConcrete(messages=[messages.AIMessage("hi")]),
    prompt_values.ImagePromptValue(image_url={"url": "u"}),
    outputs.Generation(text="g", generation_info={"a": 1}), outputs.GenerationChunk(text="g"),
    outputs.ChatGeneration(message=messages.AIMessage("a")),
    outputs.ChatGenerationChunk(message=messages.AIMessageChunk("a")),
    outputs.ChatResult(generations=[outputs.ChatGeneration(message=messages.AIMessage("a"))], llm_output={"m": 1}),
    outputs.LLMResult(generations=[[outputs.Generation(text="g")]], run=[outputs.RunInfo(run_id=uuid.UUID(int=1))]),
    outputs.RunInfo(run_id=uuid.UUID(int=1)),
    ACTION, agents.AgentActionMessageLog(tool="t", tool_input="i", log="l", message_log=[messages.AIMessage("a")]),
    agents.AgentFinish({"output": 1}, "log"), agents.AgentStep(action=ACTION, observation=(1,)),
    COMPARISON, OPERATION, query.StructuredQuery(query="q", filter=OPERATION, limit=1), query.Comparator.GT,
    query.Operator.AND, exceptions.ErrorCode.INVALID_PROMPT_INPUT, errors.ErrorCode.GRAPH_RECURSION_LIMIT,
    # LangGraph
    types.Send("node", {"a": [1]}, timeout=3), types.Interrupt({"q": 1}, id="i"), types.Overwrite([1]),
    types.Command(update={"a": 1}, goto=[types.Send("n", 1)], resume={"x": (1,)}, graph=types.Command.PARENT),
    types.TimeoutPolicy(run_timeout=1.5), types.GraphOutput({"a": 1}, (types.Interrupt(1, id="i"),)),
    types.CacheKey(("a",), "k", 3), types.StateUpdate({"a": 1}, "node", "task"), TASK,
    types.StateSnapshot({"a": 1}, ("n",), {"configurable": {"thread_id": "1"}}, {"step": 1}, "now", None, (TASK,), ()),
    _DeltaSnapshot([1, (2,)]),
    store.Item(**ITEM), store.SearchItem(**ITEM, score=0.5), store.GetOp(("a",), "k"),
    store.PutOp(("a",), "k", {"v": 1}), store.SearchOp(("a",), filter={"x": 1}),
    store.MatchCondition("prefix", ("a", "*")), store.ListNamespacesOp((store.MatchCondition("suffix", ("a",)),)),
    # Python's own
    NOW, NOW.date(), NOW.timetz(), datetime.timedelta(1), datetime.UTC, uuid.UUID(int=1), decimal.Decimal("1.0"), {1},
    frozenset({1}), deque([1]), pathlib.Path("a"), zoneinfo.ZoneInfo("Asia/Tokyo"), re.compile("a", re.IGNORECASE),
    *map(ipaddress.ip_address, ("10.0.0.1", "::1")), *map(ipaddress.ip_network, ("10.0.0.0/8", "fe80::/10")),
    *map(ipaddress.ip_interface, ("10.0.0.1/8", "fe80::1/10")),
]  # fmt: skip

NOT_STORED: dict[str, str] = {
    "langchain_core.documents.base.BaseMedia": "only a base class",
    "langchain_core.embeddings.fake.DeterministicFakeEmbedding": "a model, for tests",
    "langchain_core.embeddings.fake.FakeEmbeddings": "a model, for tests",
    "langchain_core.example_selectors.length_based.LengthBasedExampleSelector": "holds functions",
    "langchain_core.example_selectors.semantic_similarity.MaxMarginalRelevanceExampleSelector": "holds a vector store",
    "langchain_core.example_selectors.semantic_similarity.SemanticSimilarityExampleSelector": "holds a vector store",
    "langchain_core.load.serializable.Serializable": "only a base class",
    "langchain_core.prompts.chat.AIMessagePromptTemplate": "a prompt template holds parsers and functions",
    "langchain_core.prompts.chat.ChatMessagePromptTemplate": "a prompt template holds parsers and functions",
    "langchain_core.prompts.chat.HumanMessagePromptTemplate": "a prompt template holds parsers and functions",
    "langchain_core.prompts.chat.MessagesPlaceholder": "a prompt template holds parsers and functions",
    "langchain_core.prompts.chat.SystemMessagePromptTemplate": "a prompt template holds parsers and functions",
    "langchain_core.runnables.configurable.StrEnum": "only a base class",
    "langchain_core.runnables.graph.Branch": "a drawing of a graph",
    "langchain_core.runnables.graph.CurveStyle": "a drawing of a graph",
    "langchain_core.runnables.graph.Edge": "a drawing of a graph",
    "langchain_core.runnables.graph.Graph": "a drawing of a graph",
    "langchain_core.runnables.graph.MermaidDrawMethod": "a drawing of a graph",
    "langchain_core.runnables.graph.Node": "a drawing of a graph",
    "langchain_core.runnables.graph.NodeStyles": "a drawing of a graph",
    "langchain_core.runnables.utils.ConfigurableField": "a setting of a runnable",
    "langchain_core.runnables.utils.ConfigurableFieldMultiOption": "a setting of a runnable",
    "langchain_core.runnables.utils.ConfigurableFieldSingleOption": "a setting of a runnable",
    "langchain_core.runnables.utils.ConfigurableFieldSpec": "a setting of a runnable",
    "langchain_core.structured_query.Expr": "only a base class",
    "langchain_core.structured_query.FilterDirective": "only a base class",
    "langchain_core.tools.retriever.RetrieverInput": "the schema of a tool, never an argument",
    "langgraph.callbacks.GraphInterruptEvent": "told to callbacks",
    "langgraph.callbacks.GraphResumeEvent": "told to callbacks",
    "langgraph.checkpoint.base.CheckpointTuple": "a checkpoint itself",
    "langgraph.errors.NodeError": "holds an exception",
    "langgraph.prebuilt.chat_agent_executor.AgentStatePydantic": "a schema of the user's graph: give it to schemas=",
    "langgraph.prebuilt.chat_agent_executor.AgentStateWithStructuredResponsePydantic": "a schema, likewise",
    "langgraph.prebuilt.tool_node.ToolCallRequest": "holds tools",
    "langgraph.prebuilt.tool_node.ToolRuntime": "a run that is under way",
    "langgraph.runtime.ExecutionInfo": "a run that is under way",
    "langgraph.runtime.Runtime": "a run that is under way",
    "langgraph.runtime.ServerInfo": "a run that is under way",
    "langgraph.types.CachePolicy": "holds a function",
    "langgraph.types.PregelExecutableTask": "a run that is under way",
    "langgraph.types.RetryPolicy": "holds functions",
    "langgraph.types.TracePolicy": "holds functions",
}


# packages of savers, which `make test-all` installs: nothing of theirs is in a state
_SAVERS = tuple(f"langgraph.{part}.{store}" for part in ("checkpoint", "store") for store in ("postgres", "sqlite"))


def _published() -> Iterator[type]:
    """The public classes of the packages whose objects carry named data: what a state may be made of."""
    for folder in (pathlib.Path(langchain_core.__path__[0]), pathlib.Path(langgraph.types.__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            name = ".".join((folder.name, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            if "conformance" in name or name.startswith(_SAVERS):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = importlib.import_module(name)
            except ImportError:  # of a package that is not needed
                continue
            yield from (cls for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == name)


def _is_data(cls: type) -> bool:
    if cls.__name__.startswith("_") or "[" in cls.__name__ or ".pregel." in cls.__module__ or "._" in cls.__module__:
        return False
    if issubclass(cls, Runnable) or inspect.isabstract(cls):
        return False
    has_fields = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return has_fields or issubclass(cls, BaseModel | Enum | store.Item) or dataclasses.is_dataclass(cls)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@pytest.fixture(scope="module")
def saver() -> Iterator[HoldfastSaver]:
    with HoldfastSaver.from_url("memory://") as opened:
        yield opened


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: type(value).__name__)
def test_comes_back_equal(saver: HoldfastSaver, value: Any) -> None:
    serde = saver.states.codec.serde
    made = serde.decode(serde.encode([value]))[0]
    assert made == value
    assert repr(made) == repr(value) or isinstance(value, documents.base.Blob)  # which tells its address
    if isinstance(value, TextAccessor | AddableDict | uuid.UUID):
        assert type(made) in (str, dict, uuid.UUID)
    else:
        assert type(made) is type(value)
    if isinstance(value, BaseModel):
        assert (made.model_fields_set, made.model_extra) == (value.model_fields_set, value.model_extra)
    if isinstance(value, store.SearchItem):
        assert made.score == value.score


def test_all_published_classes_are_known_or_listed() -> None:
    known = {_name(type(value)) for value in SAMPLES} | NOT_STORED.keys()
    found = {_name(cls) for cls in _published() if _is_data(cls)}
    assert len(found) > 80, "the packages lie elsewhere"
    assert sorted(found - known) == []
    assert sorted(NOT_STORED.keys() - found) == [], "listed, but gone"


def test_what_is_listed_is_refused(saver: HoldfastSaver) -> None:
    registry = saver.states.codec.serde.registry
    known = [cls for cls in _published() if _name(cls) in NOT_STORED and registry.of_class(cls) is not None]
    assert known == []


def test_all_that_langgraph_calls_safe_is_known() -> None:
    names = {_name(type(value)).replace("pathlib._local", "pathlib") for value in SAMPLES}  # of Python 3.13
    names |= {"re.compile", "pathlib.Path", "pathlib.WindowsPath"}
    safe = {".".join(each) for each in SAFE_MSGPACK_TYPES if not each[0].startswith("pathlib._local")}
    assert sorted(safe - names) == []
