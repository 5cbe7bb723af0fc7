"""The closed table of LangGraph's and LangChain's own classes that may be stored.

These classes gain fields from one release to the next: a field that was not stored gets its default, and a stored field
that is unknown here is Refused rather than dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from langchain_core import agents, chat_history, documents, messages, outputs, prompt_values, structured_query
from langchain_core.exceptions import ErrorCode as ChainErrorCode
from langchain_core.messages import base as message_base
from langgraph import types
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import ErrorCode as GraphErrorCode
from langgraph.store import base as store

from holdfast.adapters.langgraph.translate import name_of, plain_name
from holdfast.errors import Refused
from holdfast.serde import Registry
from holdfast.serde.registry import Registration
from holdfast.serde.types import Unstorable

_MODELS = (
    messages.AIMessage, messages.AIMessageChunk, messages.ChatMessage, messages.ChatMessageChunk,
    messages.FunctionMessage, messages.FunctionMessageChunk, messages.HumanMessage, messages.HumanMessageChunk,
    messages.RemoveMessage, messages.SystemMessage, messages.SystemMessageChunk, messages.ToolMessage,
    messages.ToolMessageChunk, message_base.BaseMessage, message_base.BaseMessageChunk,
    documents.Document, documents.base.Blob, chat_history.InMemoryChatMessageHistory,
    agents.AgentAction, agents.AgentActionMessageLog, agents.AgentFinish, agents.AgentStep,
    outputs.ChatGeneration, outputs.ChatGenerationChunk, outputs.ChatResult, outputs.Generation,
    outputs.GenerationChunk, outputs.LLMResult, outputs.RunInfo,
    prompt_values.ChatPromptValue, prompt_values.ChatPromptValueConcrete, prompt_values.ImagePromptValue,
    prompt_values.StringPromptValue,
    structured_query.Comparison, structured_query.Operation, structured_query.StructuredQuery,
)  # fmt: skip
_DATACLASSES: tuple[type, ...] = (
    types.Command, types.GraphOutput, types.Interrupt, types.Overwrite, types.TimeoutPolicy,
)  # fmt: skip
_NAMED_TUPLES: tuple[type, ...] = (
    types.CacheKey, types.PregelTask, types.StateSnapshot, types.StateUpdate,
    store.GetOp, store.ListNamespacesOp, store.MatchCondition, store.PutOp, store.SearchOp,
)  # fmt: skip
_ITEMS: dict[type, tuple[str, ...]] = {
    store.Item: store.Item.__slots__,
    store.SearchItem: (*store.Item.__slots__, *store.SearchItem.__slots__),
}
_ENUMS = {
    "langchain.ErrorCode": ChainErrorCode,
    "langgraph.ErrorCode": GraphErrorCode,
    "langchain.Comparator": structured_query.Comparator,
    "langchain.Operator": structured_query.Operator,
}
_EXTRA, _PRIVATE = "__pydantic_extra__", "__pydantic_private__"
_SHOWN = attrgetter("__dict__", "__pydantic_fields_set__", _EXTRA, _PRIVATE)
"""All that `_take_model` looks at."""
_GIVEN, _LACKING = "=", "-"
_EMPTY: dict[type, str] = {dict: "{}", list: "[]"}


class Classes(Registry):
    """The table, and the classes that the user registers, now or later."""

    def __init__(self, others: Registry) -> None:
        super().__init__()
        self._others = others
        for model in _MODELS:
            self._add_model(model)
        for cls in _DATACLASSES:
            self._add(cls, f"langgraph.{cls.__name__}", _take_fields, partial(_make_fields, cls))
        for cls in _NAMED_TUPLES:
            self._add(cls, f"langgraph.{cls.__name__}", _take_named, partial(_make_named, cls))
        for cls, names in _ITEMS.items():
            self._add(cls, f"langgraph.{cls.__name__}", partial(_take_item, names), partial(_make_item, cls, names))
        for type_id, enum in _ENUMS.items():
            self.add(enum, type_id)
        self._add(types.Send, "langgraph.Send", self._take_send, _make_send)
        self._add(_DeltaSnapshot, "langgraph.DeltaSnapshot", list, lambda data: _DeltaSnapshot(*data))

    def classes(self) -> list[type]:
        """The classes of the table, without those that the user registers elsewhere."""
        return list(self._by_class)

    def of_class(self, cls: type) -> Registration | None:
        return self._by_class.get(cls) or self._others.of_class(cls)

    def of_id(self, type_id: str) -> Registration | None:
        return self._by_id.get(type_id) or self._others.of_id(type_id)

    def _add_model(self, model: type) -> None:
        make = partial(_make_model, model)
        self.add(model, f"langchain.{model.__name__}", encode=_take_model, decode=make, shown=_SHOWN)

    def _add(self, cls: type, type_id: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self.add(cls, type_id, encode=encode, decode=decode)

    def _take_send(self, send: types.Send) -> dict[str, Any]:
        """The argument is usually a state, whose keys are names of channels."""
        arg = {plain_name(key, self): each for key, each in send.arg.items()} if type(send.arg) is dict else send.arg
        return {"node": name_of(send.node), "arg": arg, "timeout": send.timeout}


def _take_model(model: Any) -> dict[str, Any]:
    """Its fields as they are, without pydantic's own dump, which would lose types.

    There may be thousands in a state, so the result is flat: one string lists the fields that were set, others those
    that are an empty dict, an empty list, or absent.
    """
    own, known = model.__dict__, type(model).__pydantic_fields__
    taken = {_GIVEN: _listed(sorted(model.__pydantic_fields_set__)), **own}
    if own.keys() != known.keys():
        if more := sorted(own.keys() - known.keys()):
            raise Unstorable(f"it has an attribute {more[0]!r} that is not a field")
        taken[_LACKING] = _listed(sorted(known.keys() - own.keys()))
    if (extra := model.__pydantic_extra__) is not None:
        taken[_EXTRA] = extra
    if (private := model.__pydantic_private__) is not None:
        taken[_PRIVATE] = private
    for kind, sign in _EMPTY.items():
        if empty := [name for name, value in taken.items() if type(value) is kind and not value]:
            for name in empty:
                del taken[name]
            taken[sign] = ",".join(empty)
    return taken


def _make_model(cls: Any, data: dict[str, Any]) -> Any:
    for kind, sign in _EMPTY.items():
        data |= {name: kind() for name in _names(data.pop(sign, ""))}
    made = cls.__new__(cls)
    object.__setattr__(made, "__pydantic_fields_set__", set(_names(data.pop(_GIVEN))))
    object.__setattr__(made, _EXTRA, data.pop(_EXTRA, None))
    object.__setattr__(made, _PRIVATE, data.pop(_PRIVATE, None))
    known = cls.model_fields
    if data.keys() != known.keys():
        lacking = _names(data.pop(_LACKING, ""))
        _check_known(cls, data, known)
        data |= {name: _default(known[name]) for name in known.keys() - data.keys() - set(lacking)}
        known = data
    object.__setattr__(made, "__dict__", {name: data[name] for name in known})
    return made


def _default(field: Any) -> Any:
    if field.is_required():
        raise ValueError("a field that it needs was not stored")
    return field.get_default(call_default_factory=True, validated_data={})


def _listed(names: list[str]) -> str | list[str]:
    """Names as one string; as a list if one contains a comma, as names of extra fields may."""
    text = ",".join(names)
    return text if _names(text) == names else names


def _names(listed: str | list[str]) -> list[str]:
    if isinstance(listed, list):
        return listed
    return listed.split(",") if listed else []


def _take_fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def _make_fields(cls: Any, data: dict[str, Any]) -> Any:
    fields = {each.name: each for each in dataclasses.fields(cls)}
    _check_known(cls, data, fields)
    made = cls.__new__(cls)
    for name, each in fields.items():
        is_needed = each.default is dataclasses.MISSING
        object.__setattr__(made, name, data[name] if is_needed else data.get(name, each.default))
    return made


def _take_named(value: Any) -> dict[str, Any]:
    return dict(zip(value._fields, value, strict=True))


def _make_named(cls: Any, data: dict[str, Any]) -> Any:
    _check_known(cls, data, cls._fields)
    return cls(**data)


def _take_item(names: tuple[str, ...], item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def _make_item(cls: Any, names: tuple[str, ...], data: dict[str, Any]) -> Any:
    _check_known(cls, data, names)
    return cls(**data)


def _make_send(data: dict[str, Any]) -> types.Send:
    _check_known(types.Send, data, ("node", "arg", "timeout"))
    return types.Send(data["node"], data["arg"], timeout=data.get("timeout"))


def _check_known(cls: type, stored: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(stored) - set(known))
    if unknown:
        raise Refused(
            f"a stored {cls.__name__} has fields that this one lacks ({', '.join(unknown)})",
            hint="It was written with a newer LangGraph or LangChain: install that.",
        )
