"""A real graph, run on a saver of LangGraph, and its checkpoints in tables."""

from __future__ import annotations

import json
import operator
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import UUID

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

SCHEMA = """
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
  parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
  task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT,
  value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
VALUES = {
    "set": {1, 2},
    "bytes": b"\0\xff",
    "when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "for": timedelta(days=1),
    "price": Decimal("1.50"),
    "id": UUID(int=5),
    "path": Path("/a/b"),
    1: "int key",
}


@dataclass
class Cart:
    """A class of the user's."""

    items: list[str]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    values: Any


def graph(saver: Any, extra: Any = None) -> Any:
    """Two nodes; the second asks a person and waits."""

    def first(state: State) -> State:
        return {"messages": [AIMessage("hello", id="a1")], "log": ["first"], "values": extra or VALUES}

    def second(state: State) -> State:
        answer = interrupt("go on?")
        return {"log": [f"second {answer}"], "messages": [HumanMessage(answer, id="h2")]}

    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver)


def config(thread: str = "t1") -> Any:
    return {"configurable": {"thread_id": thread}}


def run_graph(saver: Any, *, threads: tuple[str, ...] = ("t1", "t2"), extra: Any = None) -> None:
    for thread in threads:
        graph(saver, extra).invoke({"messages": [HumanMessage("hi", id="h1")], "log": []}, config(thread))


def tables_of(saver: InMemorySaver, path: Path) -> Path:
    """Write what a saver holds as `SqliteSaver` does."""
    serde = JsonPlusSerializer()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        for each in saver.list(None):
            own = each.config["configurable"]
            place = (own["thread_id"], own["checkpoint_ns"], own["checkpoint_id"])
            parent = each.parent_config["configurable"]["checkpoint_id"] if each.parent_config else None
            typed = serde.dumps_typed(each.checkpoint)
            row = (*place, parent, *typed, json.dumps(each.metadata).encode())
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            for (task, index), write in saver.writes.get(place, {}).items():
                _, channel, (kind, data), path_ = write
                values = (*place, task, path_, index, channel, kind, data)
                connection.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    connection.close()
    return path


def database(path: Path, *, threads: tuple[str, ...] = ("t1", "t2"), extra: Any = None) -> Path:
    saver = InMemorySaver()
    run_graph(saver, threads=threads, extra=extra)
    return tables_of(saver, path)
