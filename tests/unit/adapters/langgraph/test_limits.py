"""What a graph asks for with a limit costs that limit, however long its thread is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from contract.test_flow_stores import steps_of_sqlite
from holdfast.adapters.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
ASKED: dict[str, Callable[[HoldfastSaver], Any]] = {
    "the newest": lambda saver: saver.get_tuple(THREAD),
    "list of a thread": lambda saver: list(saver.list(THREAD, limit=1)),
    "list before": lambda saver: list(saver.list(THREAD, limit=1, before=_config("00020"))),
    "list of one": lambda saver: list(saver.list(_config("00003"))),
    "list of all": lambda saver: list(saver.list(None, limit=1)),
}


def _config(checkpoint_id: str) -> Any:
    return {"configurable": THREAD["configurable"] | {"checkpoint_id": checkpoint_id}}


@pytest.mark.parametrize("what", ASKED)
def test_a_short_answer_reads_little(tmp_path: Path, what: str) -> None:
    costs = []
    with HoldfastSaver.from_url(f"sqlite:///{tmp_path}/state.db?synchronous=normal") as saver:
        for begin, end in ((0, 40), (40, 400)):
            for number in range(begin, end):
                checkpoint = empty_checkpoint() | {"id": f"{number:05}"}
                saver.put(THREAD, checkpoint, {"source": "loop", "step": number, "parents": {}}, {})  # type: ignore[arg-type]
            saver.states.forget()
            saver.states.forget_parts()
            assert ASKED[what](saver)
            costs.append(steps_of_sqlite(saver.states.store, lambda: ASKED[what](saver)))
    few, many = costs
    assert many < 2 * few + 100


def test_all_threads_are_listed_by_when_they_were_saved() -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        for name in ("b", "c", "a"):
            config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
            saver.put(config, empty_checkpoint() | {"id": f"id {name}"}, {"source": "loop"}, {})  # type: ignore[arg-type]
        found = [each.config["configurable"]["thread_id"] for each in saver.list(None)]
        assert found == ["a", "c", "b"]
        assert len(list(saver.list(None, limit=2))) == 2
        assert list(saver.list(None, limit=0)) == []


def test_an_empty_checkpoint_id_stands_for_any() -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        for name in ("1", "2"):
            saver.put(THREAD, empty_checkpoint() | {"id": name}, {"source": "loop"}, {})  # type: ignore[arg-type]
        anything: Any = {"configurable": {"thread_id": "t", "checkpoint_id": ""}}
        for found in (
            saver.list(_config("")),
            saver.list(anything),
            saver.list(THREAD, before=_config("")),
            saver.list(None, before=_config("")),
        ):
            assert [each.config["configurable"]["checkpoint_id"] for each in found] == ["2", "1"]
