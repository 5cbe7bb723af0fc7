"""`holdfast watch`: saves when the folder rests, tells each checkpoint in a line, and ends when it is asked to."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ENDS_S = 120.0


class Watching:
    """A running `holdfast watch`."""

    def __init__(self, command: tuple[str, ...], *args: str) -> None:
        words = [*command, "watch", "--quiet", "0.1", *args]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], ENDS_S)[0], "it prints nothing"
        return self.process.stdout.readline().decode()

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=ENDS_S)
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def start(holdfast) -> Iterator[Callable[..., Watching]]:
    running: list[Watching] = []

    def starting(*args: str) -> Watching:
        running.append(Watching(holdfast.command, *args))
        return running[-1]

    yield starting
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture
def change(project: Path, tmp_path: Path) -> Callable[[], None]:
    """Change a file in one step, so that there is nothing between old and new that could be saved."""

    def replace() -> None:
        (tmp_path / "new").write_text("two\n")
        (tmp_path / "new").replace(project / "a.txt")

    return replace


def test_a_line_for_each_checkpoint(start, holdfast, change) -> None:
    watching = start("--session", "night")
    assert "2 files saved" in watching.line()
    change()
    assert "1 file changed" in watching.line()
    assert watching.end()[0] == 0
    saved = holdfast("log", "--json").json["items"]
    assert [each["message"] for each in saved] == ["watch", "watch"]
    assert {each["session"] for each in saved} == {"night"}


def test_nothing_is_saved_while_nothing_changes(start, holdfast) -> None:
    watching = start("--every", "0.1")
    watching.line()
    time.sleep(0.5)
    assert watching.end()[:2] == (0, "")
    assert len(holdfast("log", "--json").json["items"]) == 1


def test_a_folder_that_never_rests_is_saved_all_the_same(start, project: Path) -> None:
    watching = start("--quiet", "60", "--every", "0.3")
    watching.line()
    writer = subprocess.Popen(["sh", "-c", "while :; do date +%N > busy; done"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        assert "changed" in watching.line()
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_changed_last_is_saved_before_the_end(start, holdfast, write, number: int) -> None:
    watching = start("--quiet", "60")
    watching.line()
    write("a.txt", "last\n")
    code, out, _ = watching.end(number)
    assert (code, "1 file changed" in out) == (0, True)
    assert holdfast("diff", "latest", "--json").json["modified_files"] == []


_STOPPED_IN_THE_MIDDLE = """
import os, signal, sys
from holdfast.cli.start import main
from holdfast.durable.platform.inotify import Inotify
from holdfast.workspace.capture.watch_state import Watching

read, wait = Inotify.read, Watching.wait

def tell_and_wait(self, seconds):
    print("It waits.", file=sys.stderr, flush=True)
    return wait(self, seconds)

def read_and_stop(self):
    told = list(read(self))
    if told:
        Inotify.read = read  # once: the kernel may tell of one write in two reads, and a second signal ends it at once
        os.kill(os.getpid(), signal.SIGINT)
    return told

Inotify.read, Watching.wait = read_and_stop, tell_and_wait
sys.exit(main())
"""


def test_a_change_that_was_told_as_the_end_came_is_saved(start, holdfast, write, tmp_path: Path) -> None:
    """The queue was emptied and the signal came before anything was noted: nobody will tell of that change again."""
    program = tmp_path / "stopped.py"
    program.write_text(_STOPPED_IN_THE_MIDDLE)
    holdfast("save")
    watching = Watching((sys.executable, str(program)), "--quiet", "60")
    try:
        assert watching.process.stderr is not None
        while b"It waits." not in watching.process.stderr.readline():
            assert watching.process.poll() is None
        write("a.txt", "two\n")
        out, _ = watching.process.communicate(timeout=ENDS_S)
    finally:
        watching.process.kill()
    assert watching.process.returncode == 0
    assert "1 file changed" in out.decode()


def test_json_is_one_document_at_the_end(start, change) -> None:
    watching = start("--json")
    assert watching.process.stderr is not None
    watching.process.stderr.readline()
    while not any(top.endswith("refs/tags") and tags for top, _, tags in os.walk(os.environ["XDG_STATE_HOME"])):
        time.sleep(0.02)
    change()
    code, out, _ = watching.end()
    assert code == 0
    assert len(json.loads(out)["items"]) == 2


def test_a_folder_that_is_gone_ends_it(start, project: Path) -> None:
    watching = start()
    watching.line()
    project.rename(project.with_name("elsewhere"))
    assert watching.process.wait(ENDS_S) == 7
