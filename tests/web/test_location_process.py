"""The processes that answer what would leave the server large."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast.errors import NotFound, Unavailable
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.web import location_process
from holdfast.web.jobs import KEPT, Job, Jobs
from waiting import wait_for

from .test_locations import NOON

pytestmark = pytest.mark.linux  # /proc says which processes there are


@pytest.fixture
def question(tmp_path: Path) -> dict[str, Any]:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with open_states(url) as states:
        told = CheckpointMetadata("c", "talk", timestamp=NOON, node_name="n", step=1)
        states.save(Checkpoint(told, {"rows": list(range(300_000))}))
    options = {"session": "talk"}
    return {"what": "state", "address": url, "project": "", "options": options, "ref": "c", "at": "0", "as_json": True}


def children() -> list[str]:
    return [
        pid
        for task in os.listdir("/proc/self/task")
        for pid in Path(f"/proc/self/task/{task}/children").read_text().split()
        if b"location_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_document_comes_in_pieces(question: dict[str, Any]) -> None:
    pieces = location_process.stream(question, os.environ)
    assert not children()  # whoever reads slowly keeps no process
    found = [*pieces]
    assert len(found) > 10
    assert json.loads(b"".join(found)) == {"value": list(range(300_000))}


def test_errors_come_before_the_document(question: dict[str, Any]) -> None:
    with pytest.raises(NotFound, match="no such place"):
        location_process.stream(question | {"at": "9"}, os.environ)
    assert not children()


def test_who_stops_waiting_ends_the_process(tmp_path: Path) -> None:
    from holdfast.workspace import Workspace

    from .sessions import environment

    environ = environment(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "kelp.txt").write_text("kelp\n")
    with_store = Workspace(tmp_path / "shop", environ=environ, home=environ["HOME"])
    with_store.save("first")

    def stop(name: str, value: Any) -> None:
        raise Unavailable(f"{name} is enough")

    asked = {"text": "kelp", "path": "", "regex": False, "ignore_case": False, "limit": 9, "what": "search_folder"}
    asked |= {"address": str(tmp_path / "shop"), "home": environ["HOME"], "store": str(with_store.store)}
    with pytest.raises(Unavailable, match="found is enough"):
        location_process.ask(asked, environ, stop)
    assert not children()


def test_whatever_it_does_it_can_be_ended(question: dict[str, Any]) -> None:
    process = location_process._Process(question, os.environ)
    os.kill(process._process.pid, signal.SIGSTOP)
    ending = threading.Thread(target=process.end)
    ending.start()
    ending.join(60)
    try:
        assert not ending.is_alive()
    finally:
        process._process.kill()
    assert not children()


def test_a_process_that_fails_says_why(question: dict[str, Any]) -> None:
    for _ in range(location_process.AT_ONCE + 1):  # each leaves room for the next
        with pytest.raises(Unavailable, match="KeyError: 'nonsense'"):
            location_process.ask(question | {"what": "nonsense"}, os.environ)


def test_few_run_at_once(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location_process, "WAIT_S", 0.01)
    for _ in range(location_process.AT_ONCE):
        assert location_process._running.acquire(timeout=60)
    with pytest.raises(Unavailable, match="other work keeps this waiting"):
        location_process.stream(question, os.environ)
    location_process._running.release()
    assert [*location_process.stream(question, os.environ)]
    assert location_process.ask(question | {"as_json": False, "start": 0}, os.environ)
    for _ in range(location_process.AT_ONCE - 1):
        location_process._running.release()


def test_one_that_takes_too_long_is_ended(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location_process, "TIMEOUT_S", 0.0)
    with pytest.raises(Unavailable, match="no answer within"):
        location_process.ask(question | {"as_json": False, "start": 0}, os.environ)
    assert not children()


def test_few_results_are_kept() -> None:
    jobs, go_on = Jobs(), threading.Event()

    def wait(_: Job) -> str:
        go_on.wait(120)
        return "done"

    running = jobs.start("search", "running", work=wait)
    last = [jobs.start("search", str(number), work=lambda _: "found") for number in range(KEPT + 5)][-1]
    wait_for(lambda: last.result)
    jobs.start("search", "another", work=lambda _: "found")
    assert jobs.find("search", "0") is None
    assert jobs.find("search", str(KEPT + 4)) is last
    assert jobs.find("search", "running") is running
    go_on.set()
