"""Whether the agent that a window belongs to still lives."""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.adapters.agents.parent_process import is_alive, owner_of


def test_zombie_process_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = owner_of(process.pid)
        assert owner and is_alive(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its number is still taken
        assert not is_alive(owner)
    assert not is_alive(owner)


def test_another_process_that_got_the_number_is_not_taken_for_it() -> None:
    number, _, started = owner_of(os.getpid()).partition(":")
    assert is_alive(f"{number}:{started}")
    assert not is_alive(f"{number}:{int(started) + 1}")


def test_shells_in_between_are_passed_over() -> None:
    script = "read line; exit 0"
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE) as shell:
        assert owner_of(shell.pid) == owner_of(os.getpid())


def test_nonsense_is_nobody() -> None:
    assert not any(map(is_alive, ("", ":", "x:1", "0:0", f"{2**40}:1")))
    assert owner_of(0) == owner_of(2**40) == ""
