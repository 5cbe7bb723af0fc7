"""A home folder with a project in it, and the program that agents call."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Workspace

HOOK = (sys.executable, "-m", "holdfast.cli", "hook")
SCRIPTED = Path(__file__).with_name("scripted.py")


class ScriptedAgent:
    """A process that stands for an agent."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPTED)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=project
        )

    def hook(self, agent: str, payload: Any, *more: str) -> Any:
        """Run the hook as the agent would."""
        text = payload if isinstance(payload, str) else json.dumps(payload)
        ran = self._tell({"hook": [*HOOK, agent, *more], "input": text})
        assert ran["code"] == 0 and ran["err"] == "", ran
        assert ran["out"] == "" or isinstance(json.loads(ran["out"]), dict)
        return ran

    def run(self, *words: str) -> Any:
        """Run a program as a tool of the agent would."""
        return self._tell({"hook": words, "input": ""})

    def change(self, write: dict[str, str], delete: list[str]) -> None:
        """Change files of the project."""
        named = {str(self._project / path): text for path, text in write.items()}
        self._tell({"write": named, "delete": [str(self._project / path) for path in delete]})

    def kill(self) -> None:
        """Be gone, as with kill -9."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _tell(self, what: dict[str, Any]) -> Any:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, with nothing around that could lead elsewhere."""
    folder = tmp_path / "home"
    folder.mkdir()
    dropped = (
        "HOLDFAST_",
        "XDG_",
        "GIT_",
        "CLAUDE",
        "GEMINI_",
        "CODEX_",
        "CURSOR_",
        "COPILOT_",
        "OPENCODE_",
        "KILO_",
        "QWEN_",
        "FACTORY_",
        "AI_AGENT",
    )
    for name in list(os.environ):
        if name.startswith(dropped):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("HOLDFAST_HELPER", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    return folder


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in the home folder; the current folder."""
    folder = home / "code" / "project"
    (folder / "src").mkdir(parents=True)
    for name, text in {"a.txt": "one\n", "old.txt": "old\n", "src/app.py": "print(1)\n"}.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def with_helper(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let hooks leave a helper behind, and end it afterwards. Gives the folder of its socket."""
    monkeypatch.delenv("HOLDFAST_HELPER")
    monkeypatch.setenv("HOLDFAST_HELPER_IDLE_S", "30")
    run = home / ".local" / "state" / "holdfast" / "agents" / "run"
    yield run
    for pid in helpers(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def helpers(run: Path) -> list[int]:
    """The helpers that said where they are, and are there."""
    found = [int(text) for lock in run.glob("*.lock") if (text := lock.read_text().strip())]
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


def wait_for(what: Callable[[], Any]) -> Any:
    """Wait until something is so."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came to be")


@pytest.fixture
def agent(project: Path) -> Iterator[ScriptedAgent]:
    scripted = ScriptedAgent(project)
    yield scripted
    scripted.close()


@pytest.fixture
def start(project: Path) -> Iterator[Callable[[], ScriptedAgent]]:
    """Start scripted agents, which end with the test."""
    started: list[ScriptedAgent] = []

    def starting() -> ScriptedAgent:
        started.append(ScriptedAgent(project))
        return started[-1]

    yield starting
    for scripted in started:
        scripted.close()


def history(project: Path) -> list[Checkpoint]:
    """The checkpoints of a project, oldest first."""
    return list(reversed(Workspace(project, create=False).list(None)))


def log_text(home: Path) -> str:
    path = home / ".local" / "state" / "holdfast" / "agents" / "hook.log"
    return path.read_text() if path.exists() else ""
