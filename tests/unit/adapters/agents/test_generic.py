"""The protocol for any other agent: one answer a line, whatever the line is."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.adapters.agents import generic

from .conftest import HOOK, history


def tell(project: Path, *lines: object) -> list[Any]:
    data = b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines)
    answers = io.BytesIO()
    generic.serve(io.BytesIO(data), answers, dict(os.environ), str(project))
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def event(name: str, **fields: object) -> dict[str, object]:
    return {"event": name, "session": "s", "agent": "tiny", **fields}


def test_a_tool_is_saved_before_and_after_with_its_actor(project: Path) -> None:
    call = {"tool": "write", "call": "c1", "turn": "1", "paths": ["made.txt", "b"]}
    process = subprocess.Popen([*HOOK, "generic"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(fields: dict[str, object]) -> Any:
        process.stdin.write(json.dumps(fields) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    assert ask(event("prompt", turn="1", prompt="make it"))["ok"]
    assert ask(event("before", **call))["ok"]
    (project / "made.txt").write_text("x\n")
    answer = ask(event("after", **call, subagent="scout"))
    assert ask(event("stop", turn="1", message="Made it.\nAll."))["ok"]
    process.communicate()
    assert process.returncode == 0
    assert [each.closing for each in Workspace(project).turns().turns if each.key] == ["Made it.\nAll."]
    first, second = history(project)
    assert answer["checkpoint"] == second.id
    assert (first.actor, second.actor, second.session) == (None, "tiny/scout", "s")
    assert second.files_changed == ["made.txt"] and second.message == "write: made.txt and 1 more"
    assert second.metadata["prompt"] == "make it"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"3", "not a JSON object"),
        ({"session": "s"}, "'event' is none of"),
        ({"event": ["before"], "session": "s"}, "'event' is none of"),
        ({"event": "stop"}, "'session' is missing"),
        ({"event": "stop", "session": 3}, "'session' is not a string"),
        ({"event": "before", "session": "s"}, "'tool' is missing"),
        (event("stop", paths="a"), "'paths' is not a list"),
        (event("stop", paths=[1]), "'paths' is not a list"),
        ({**event("stop"), "agent": "Tiny Agent"}, "'agent' is not"),
        ({**event("stop"), "agent": "../x"}, "'agent' is not"),
        (event("stop", folder="relative"), "'folder' is not"),
        (event("stop", folder="/nowhere/at/all"), "'folder' is not"),
        (event("stop", folder="/a\0b"), "'folder' is not"),
        (event("stop", folder="/"), ""),
    ],
)
def test_a_bad_line_gets_one_error_and_the_next_is_read(project: Path, line: object, why: str) -> None:
    bad, good = tell(project, line, event("before", tool="write"))
    assert not bad["ok"] and bad["line"] == 1 and why in bad["error"] and "Traceback" not in bad["error"]
    assert good["ok"] and good["line"] == 2 and good["checkpoint"]


def test_a_huge_line_is_skipped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "MAX_BYTES", 1000)
    huge = json.dumps(event("before", tool="x" * 5000)).encode()
    long, good = tell(project, huge, event("before", tool="write"))
    assert long["error"].startswith("longer than") and long["line"] == 1 and good["ok"] and good["line"] == 2


def test_odd_text_is_stored_harmlessly(project: Path) -> None:
    [answer] = tell(project, event("before", tool="w\x1b[31m\ud800", paths=["../../etc/\x07"], prompt=""))
    assert answer["ok"] and "\x1b" not in history(project)[0].message


def test_blank_lines_and_a_missing_last_newline(project: Path) -> None:
    answers = io.BytesIO()
    data = b"\n\n" + json.dumps(event("before", tool="w")).encode()
    generic.serve(io.BytesIO(data), answers, dict(os.environ), str(project))
    assert [json.loads(line)["line"] for line in answers.getvalue().splitlines()] == [3]


def test_a_closed_stdout_is_the_end(project: Path) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen([*HOOK, "generic"], stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE)
    os.close(reader)
    os.close(writer)
    _, said = process.communicate(json.dumps(event("before", tool="w")).encode() + b"\n")
    assert (process.returncode, said) == (0, b"") and history(project)
