"""A thread is copied, and the process is killed at each statement in turn: all of the copy is there, or nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import Unavailable
from holdfast.flow import Place, States, Write, open_states
from holdfast.testing.flow_contract import StateStoreContract, conversation, point

from .cutting import Wire, Wired

STEPS = 5


def places(session: str) -> list[Place]:
    return [Place(session, "inner" if step == 2 else "", f"c{step}") for step in range(STEPS)]


def fill(states: States) -> None:
    """A session with a history and writes, and one that was deleted."""
    states.clear_all()
    for step, place in enumerate(places("s")):
        states.save(point(f"c{step}", {"messages": conversation(step)}, namespace=place.namespace))
        states.put_writes(place, [Write("t", 0, "x", step)])
    states.save(point("old", session_id="f"))
    states.delete("f")


def is_copied(states: States) -> bool:
    """Whether all of it is there; what is not may not be there in part, and what was deleted stays so."""
    rows = states.metadata("f", None, namespace=None)
    written = [write.value for found in states.writes(places("f")).values() for write in found]
    StateStoreContract.assert_sound(states)
    if not rows:
        assert (written, states.store.tombstones()) == ([], ["f"])
        return False
    assert [each.checkpoint_id for each in rows] == ["c4", "c3", "c2", "c1", "c0"]
    assert (written, states.store.tombstones()) == ([0, 1, 2, 3, 4], [])
    return True


@pytest.mark.parametrize("when", ["request", "answer"])
def test_disconnect_at_any_statement_leaves_all_or_nothing(wired: Wired, when: str) -> None:
    url, options, between = wired
    outcomes: list[bool] = []
    for after in count():
        with open_states(url, **options) as states:
            fill(states)
            is_cut = dies(between, when, after, HoldfastSaver(lambda: states))
        with open_states(url, **options) as states:
            outcomes.append(is_copied(states))
        if not is_cut:
            break
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] and not outcomes[0]
    assert len(outcomes) > 4


def dies(between: Wire, when: str, after: int, saver: HoldfastSaver) -> bool:
    """Whether the connection was cut for good while a thread was copied, after a number of statements."""
    cuts = between.cuts
    between.cut(when, after=after, for_good=True)
    try:
        saver.copy_thread("s", "f")
    except Unavailable:
        assert between.cuts > cuts
    between.mend()
    return between.cuts > cuts


class Dying(sqlite3.Connection):
    """Kills its process before one of the statements."""

    left: Iterator[int]

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self._live_or_die()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        self._live_or_die()
        return super().executemany(*args)

    @classmethod
    def _live_or_die(cls) -> None:
        if next(cls.left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)


def test_kill_at_any_statement_leaves_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P3: kill -9, for real, of a process that writes to the file by itself."""
    outcomes: list[bool] = []
    for after in count():
        url = f"sqlite:///{tmp_path}/{after}.db"
        with open_states(url) as states:
            fill(states)
        child = os.fork()
        if child == 0:
            try:
                Dying.left = iter(range(after))
                sqlite3.connect = partial(sqlite3.connect, factory=Dying)  # type: ignore[assignment]
                HoldfastSaver.from_url(url).copy_thread("s", "f")
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        with open_states(url) as states:
            outcomes.append(is_copied(states))
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] and not outcomes[0]
    assert len(outcomes) > 20
