"""A command that waits for a lock says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast import durable


@pytest.mark.parametrize("words", [["save", "--allow-empty"], ["save", "--allow-empty", "--json"]], ids=" ".join)
def test_a_writer_that_waits_says_who_has_the_lock(holdfast, words):
    holdfast.saved()
    lock = durable.Lock(Path(holdfast("where", "--json").json["store"]) / "holdfast" / "lock")
    with lock:
        process = subprocess.Popen([*holdfast.command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = process.stderr.readline()  # comes while it waits: neither stream is a terminal
    out, err = process.communicate(timeout=60)
    assert line == b"Waiting for another process (%d) that writes to this store; Ctrl-C gives up.\n" % os.getpid()
    assert process.returncode == 0 and out and b"Waiting" not in err


def test_one_that_waits_for_a_moment_says_nothing(holdfast):
    assert "Waiting" not in holdfast.spawn("save").err
