"""A server that goes away in the middle of each verb: the verb is done as if nothing had happened, or says so."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.flow import Checkpoint, Place, States, Write, open_states
from holdfast.retention import Policy
from holdfast.testing.flow_contract import StateStoreContract, conversation, point

from .cutting import Wired

pytestmark = pytest.mark.server

_numbers = itertools.count()


def two(states: States) -> list[Checkpoint]:
    return states.list("s", None)


PLACE = Place("s", "", "b")
VERBS: dict[str, Callable[[States], Any]] = {
    "save": lambda states: states.save(point("c", {"messages": conversation(12)}), expected_parent="b").parent_id,
    "replace": lambda states: states.save(point("a", {"n": 1}), replace=True).checkpoint_id,
    "load": lambda states: states.load("s"),
    "list": two,
    "metadata": lambda states: states.metadata("s"),
    "sessions": lambda states: [each.session_id for each in states.sessions()],
    "delete one": lambda states: states.delete("s", "b") in (0, 1),
    "delete all": lambda states: states.delete("s") in (0, 2),
    "clear": lambda states: states.clear_all(),
    "put_writes": lambda states: states.put_writes(PLACE, [Write("t", 0, "x", 1)]),
    "writes": lambda states: states.writes([PLACE]),
    "fork": lambda states: states.fork("s", "a", into="f").extra,
    "fork with history": lambda states: states.fork("s", "b", into="f", history=True).session_id,
    "diff": lambda states: len(states.diff("s", "a", "b").changes),
    "prune": lambda states: [each.checkpoint_id for each in states.prune(Policy(keep_last=1)).removed],
    "verify": lambda states: states.verify().ok,
}


@pytest.mark.parametrize("when", ["request", "answer"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_connection_cut_in_the_middle_of_a_verb_is_not_noticed(wired: Wired, verb: str, when: str) -> None:
    """P3: also where the server did it and only the answer was lost, it is done once."""
    url, options, between = wired

    def used(cut: bool) -> tuple[Any, ...]:
        with open_states(url, memory_bytes=0, **options) as states:
            states.clear_all()
            for name, length in (("a", 10), ("b", 11)):
                states.save(point(name, {"messages": conversation(length)}))
            if cut:
                between.cut(when)
            answer = VERBS[verb](states)
            StateStoreContract.assert_sound(states)
            sequences = [each.sequence for each in states.metadata(None, None)]
            assert len(set(sequences)) == len(sequences)
            told = [(each.session_id, each.checkpoint_id, each.parent_id) for each in states.metadata(None, None)]
            return answer, told, states.list("s", None), states.list("f", None), states.writes([PLACE])

    assert used(cut=True) == used(cut=False)
    assert between.cuts == 1


WRITER = """
import sys
from holdfast.flow import open_states
from holdfast.testing.flow_contract import conversation, point
states = open_states(sys.argv[1], **{sys.argv[2]: sys.argv[3]})
newest = states.load("s")
step = newest.metadata.step if newest else 0
print("begun", flush=True)
while True:
    step += 1
    states.save(point(f"c{step}", {"messages": conversation(step), "step": step}, step=step))
    print(step, flush=True)
    if step % 4 == 0:
        states.delete("s", f"c{step - 2}")
        print(-(step - 2), flush=True)
"""


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_killed_client_has_what_it_reported_as_saved(request: pytest.FixtureRequest, kind: str) -> None:
    """P3: kill -9 of the client at random moments; the server ends what it heard of, or forgets it."""
    url = request.getfixturevalue(f"{kind}_url")
    option, own = "schema" if kind == "postgres" else "prefix", f"killed{next(_numbers)}"
    chance = random.Random(7)
    said: set[int] = set()
    gone: set[int] = set()
    maybe: set[int] = set()
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, url, option, own],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as writer:  # fmt: skip
            assert writer.stdout is not None
            writer.stdout.readline()
            told = [writer.stdout.readline() for _ in range(5)]
            time.sleep(chance.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            told += writer.stdout.readlines()
        steps = [int(line) for line in told if line.endswith("\n")]
        said |= {step for step in steps if step > 0}
        gone |= {-step for step in steps if step < 0}
        with open_states(url, **{option: own}) as states:  # type: ignore[arg-type]
            found = {each.metadata.step: each.state for each in states.list("s", None)}
            maybe.add(max(said) - 2)  # the last deletion may not have been told
            assert said - gone - maybe <= found.keys()
            assert all(state == {"messages": conversation(step), "step": step} for step, state in found.items())
            StateStoreContract.assert_sound(states)
