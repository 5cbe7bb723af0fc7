"""The closed table of LangGraph's and LangChain's own classes that may be stored.

They are classes of others, and gain fields from one release to the next: what was stored without a field is read with
its default, and what was stored with one that is not known here is refused, not cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from langchain_core import documents, messages
from langgraph import types
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.errors import Refused
from holdfast.serde import Registry
from holdfast.serde.classes import Registration

_MESSAGES = (
    messages.AIMessage, messages.AIMessageChunk, messages.ChatMessage, messages.ChatMessageChunk,
    messages.FunctionMessage, messages.FunctionMessageChunk, messages.HumanMessage, messages.HumanMessageChunk,
    messages.RemoveMessage, messages.SystemMessage, messages.SystemMessageChunk, messages.ToolMessage,
    messages.ToolMessageChunk,
)  # fmt: skip
_DATACLASSES: tuple[type, ...] = (types.Command, types.Interrupt, types.Overwrite, types.TimeoutPolicy)
_MODEL_STATE = ("__pydantic_extra__", "__pydantic_private__")


class Classes(Registry):
    """The table, and behind it the classes that the user registered, now or later."""

    def __init__(self, others: Registry) -> None:
        super().__init__()
        self._others = others
        for model in _MESSAGES:
            self._add(model, f"langchain.{model.__name__}", _take_model, partial(_make_model, model))
        self._add(documents.Document, "langchain.Document", _take_model, partial(_make_model, documents.Document))
        for cls in _DATACLASSES:
            self._add(cls, f"langgraph.{cls.__name__}", _take_fields, partial(_make_fields, cls))
        self._add(types.Send, "langgraph.Send", _take_send, _make_send)
        self._add(_DeltaSnapshot, "langgraph.DeltaSnapshot", list, lambda data: _DeltaSnapshot(*data))

    def of_class(self, cls: type) -> Registration | None:
        return super().of_class(cls) or self._others.of_class(cls)

    def of_id(self, type_id: str) -> Registration | None:
        return super().of_id(type_id) or self._others.of_id(type_id)

    def _add(self, cls: type, type_id: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self.add(cls, type_id, encode=encode, decode=decode)


def _take_model(model: Any) -> list[Any]:
    """Its fields, which of them were given, and what it has besides; nothing is dumped, so nothing is narrowed."""
    extra, private = (getattr(model, name) for name in _MODEL_STATE)
    return [model.__dict__, sorted(model.__pydantic_fields_set__), extra, private]


def _make_model(cls: Any, data: list[Any]) -> Any:
    fields, given, extra, private = data
    known = cls.model_fields
    if fields.keys() != known.keys():
        _check_known(cls, fields, known)
        missing = known.keys() - fields.keys()
        fields |= {name: known[name].get_default(call_default_factory=True, validated_data={}) for name in missing}
    made = cls.__new__(cls)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(given))
    for name, value in zip(_MODEL_STATE, (extra, private), strict=True):
        object.__setattr__(made, name, value)
    return made


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


def _take_send(send: types.Send) -> dict[str, Any]:
    return {"node": send.node, "arg": send.arg, "timeout": send.timeout}


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
