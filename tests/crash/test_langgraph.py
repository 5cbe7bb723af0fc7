"""A process that runs a graph is killed, again and again; the graph goes on where it was."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver

pytestmark = pytest.mark.crash

STEPS = 120
PROGRAM = f"""
import operator, sys, time
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver


class State(TypedDict):
    numbers: Annotated[list, operator.add]


def step(state):
    time.sleep(0.01)
    return {{"numbers": [len(state["numbers"])]}}


builder = StateGraph(State)
builder.add_node("step", step)
builder.add_edge(START, "step")
builder.add_conditional_edges("step", lambda state: END if len(state["numbers"]) >= {STEPS} else "step", ["step", END])
config = {{"configurable": {{"thread_id": "t"}}, "recursion_limit": 1000}}
with HoldfastSaver.from_url(sys.argv[1]) as saver:
    graph = builder.compile(checkpointer=saver)
    started = saver.get_tuple(config) is not None
    print(graph.invoke(None if started else {{"numbers": []}}, config)["numbers"], flush=True)
"""


def test_killed_graph_resumes_and_loses_no_step(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    command = [sys.executable, "-c", PROGRAM, url]
    for _ in range(3):
        with HoldfastSaver.from_url(url) as saver, subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            goal = saver.states.usage().checkpoints + 5
            while process.poll() is None and saver.states.usage().checkpoints < goal:
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -9
    with HoldfastSaver.from_url(url) as saver:
        left = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert left is not None
        reached = left.checkpoint["channel_values"]["numbers"]
        assert reached == list(range(len(reached))) and 10 < len(reached) < STEPS
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{list(range(STEPS))}\n"
    with HoldfastSaver.from_url(url) as saver:
        assert saver.states.verify().ok
