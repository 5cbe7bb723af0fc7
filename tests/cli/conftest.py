"""The real program, run on a project of its own with a home and a state folder of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main


@dataclass(frozen=True)
class Ran:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Program:
    """Runs `holdfast` in the project folder, in this process or, where that matters, in one of its own."""

    command = (sys.executable, "-m", "holdfast.cli")

    def __init__(self, project: Path) -> None:
        self.project = project

    def __call__(self, *args: str) -> Ran:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2)]
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = main(args)
        out, err = (stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in streams)
        assert "Traceback" not in err
        return Ran(code, out, err)

    def spawn(self, *args: str | bytes, stdin: bytes = b"", **environment: str) -> Ran:
        ran = subprocess.run(
            [*self.command, *args],
            input=stdin,
            capture_output=True,
            env=os.environ | environment,
            timeout=120,
            check=False,
        )
        return Ran(ran.returncode, *(text.decode("utf-8", "surrogateescape") for text in (ran.stdout, ran.stderr)))

    def saved(self, *args: str) -> str:
        """Save a checkpoint and return its id."""
        ran = self("save", "--json", *args)
        assert ran.code == 0, ran
        found: str = ran.json["checkpoint"]["id"]
        return found


def make_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a small folder, with a home of its own, and go there."""
    home, folder = tmp_path / "home", tmp_path / "home" / "code" / "project"
    folder.mkdir(parents=True)
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "XDG_", "GIT_")) or name in {"NO_COLOR", "COLUMNS"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("HOLDFAST_HELPER", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("one\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("print(1)\n")
    return folder


@pytest.fixture(autouse=True)
def interruptible() -> None:
    """In the background of a script Ctrl-C is ignored, and every child inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small folder, which is the current one."""
    return make_project(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program in a project with one checkpoint, called `taken`, for tests that change nothing."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        project = make_project(tmp_path_factory.mktemp("settled"), monkeypatch)
        (project / "nan.json").write_text("[NaN]")
        (project / "deep.json").write_text("[" * 100_000)
        (project / "latin1.json").write_bytes(b'"\xe4"')
        program = Program(project)
        program.saved("--name", "taken")
        yield program


@pytest.fixture
def holdfast(project: Path) -> Program:
    return Program(project)


@pytest.fixture
def write(project: Path) -> Callable[[str, str], Path]:
    """Write a file of the project."""

    def writing(name: str, text: str) -> Path:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return writing
