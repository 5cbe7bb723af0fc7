"""A day with each agent: edits, shell commands, interrupts, a kill, and the user's own work in between.

The streams are events as each agent documents them, and what the agent and the user do meanwhile. Whatever is found
changed must be attributed to the one that changed it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.adapters.agents.names import AGENT_NAMES

from .conftest import ScriptedAgent, helpers, history, log_text

STREAMS = Path(__file__).with_name("streams")


class Day:
    """Plays a stream, and writes down who changed what, in order."""

    def __init__(self, name: str, project: Path, home: Path, start: Callable[[], ScriptedAgent]) -> None:
        self.truth: dict[str, list[str | None]] = {}
        self.mine: dict[str, str] = {}
        """What the folder would have, beside what was there, had only the user worked in it."""
        self.name, self._project, self._home, self._start = name, project, home, start
        self._agent = None

    def play(self) -> None:
        for line in (STREAMS / f"{self.name}.jsonl").read_text().splitlines():
            text = line.replace("$PROJECT", str(self._project)).replace("$HOME", str(self._home))
            self._step(json.loads(text))

    def _step(self, step: dict[str, Any]) -> None:
        if "start" in step:
            self._agent = self._start()
        elif "kill" in step:
            self._agent.kill()
        elif "event" in step:
            self._agent.hook(self.name, step["event"], *([step["as"]] if "as" in step else []))
        else:
            self._change(step)

    def _change(self, step: dict[str, Any]) -> None:
        write, delete = step.get("write", {}), step.get("delete", [])
        actor = {"user": None, "agent": self.name, "sub": f"{self.name}/explorer"}[step["by"]]
        for path in (*write, *delete):
            self.truth.setdefault(path, []).append(actor)
        if step["by"] == "user":
            for path, text in write.items():
                (self._project / path).write_text(text)
                self.mine[path] = "".join(line for line in text.splitlines(True) if not line.startswith("agent"))
        else:
            self._agent.change(write, delete)


@pytest.mark.parametrize(
    "name", [AGENT_NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in AGENT_NAMES[1:])]
)
def test_every_change_of_a_day_has_the_actor_who_made_it(
    name: str, project: Path, home: Path, start: Callable[[], ScriptedAgent], with_helper: Path
) -> None:
    _check(Day(name, project, home, start), project, home)
    assert len(helpers(with_helper)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENT_NAMES)
def test_undo_of_an_agents_day_leaves_exactly_the_users_work(
    name: str, project: Path, home: Path, start: Callable[[], ScriptedAgent]
) -> None:
    day = Day(name, project, home, start)
    before = files(project)
    day.play()
    after = files(project)
    first = history(project)[0]
    words = [sys.executable, "-m", "holdfast.cli", "undo", "--agent", "--since", first.id, "--yes", "--json"]
    ran = subprocess.run(words, cwd=project, capture_output=True, check=False)
    assert ran.returncode == 0, ran
    assert files(project) == {**before, **day.mine}
    Workspace(project).undo()
    assert files(project) == after


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_day_without_a_helper_is_no_different(project: Path, home: Path, start: Callable[[], ScriptedAgent]) -> None:
    _check(Day("opencode", project, home, start), project, home)


def _check(day: Day, project: Path, home: Path) -> None:
    day.play()
    found: dict[str, list[str | None]] = {}
    checkpoints = history(project)
    for checkpoint in checkpoints[1:]:
        for path in checkpoint.files_changed:
            found.setdefault(path, []).append(checkpoint.actor)
    assert checkpoints[0].actor is None
    assert {path: found.get(path) for path in day.truth} == day.truth
    assert set(found) <= set(day.truth)
    for checkpoint in checkpoints:
        assert checkpoint.files_changed and checkpoint.session in ("s1", "s2", "s3", "s4")
        assert checkpoint.metadata["event"] and checkpoint.metadata["agent"] == day.name
    has_conversations = day.name in (
        "claude-code",
        "gemini",
        "qwen",
        "droid",
    )  # the streams name files that are not there
    assert ("is not saved: No such file" in log_text(home)) == has_conversations
    assert has_conversations or log_text(home) == ""
    assert Workspace(project).verify().ok
