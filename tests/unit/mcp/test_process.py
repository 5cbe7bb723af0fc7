"""The server as a process: what is on its streams, who is waited for, and what a kill leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp import MCPError

from holdfast import Workspace

from .clients import COMMAND, Pipe, connected, run

_FILES = 600


def test_stdout_has_nothing_but_the_protocol_whatever_comes_in(project: Path) -> None:
    with Pipe(project) as pipe:
        for line in (b"not json", b"\xff\xfe\x00", b"[]", b'{"jsonrpc": "2.0"}', b"{" * 5000, b'"\\ud800"', b""):
            pipe.write(line + b"\n")
        pipe.send(id=1, method="no/such/method")
        pipe.send(id=2, method="tools/call", params={"arguments": 7})
        pipe.call(3, "save", message="still here")
        answers = {}
        while 3 not in answers:
            message = pipe.receive()
            answers[message.get("id")] = message
        assert answers[3]["result"]["structuredContent"]["checkpoint"]["message"] == "still here"
        assert answers[3]["result"]["structuredContent"]["notes"] == [
            "What this first save found is not attributed to pipe."
        ]
        assert "error" in answers[1] and "error" in answers[2]
        out, err = pipe.end()
    assert out == b"" and b"Traceback" not in err
    assert pipe.process.returncode == 0


def test_pings_and_looks_are_answered_while_a_save_waits(project: Path, ws: Workspace) -> None:
    with Pipe(project) as pipe:
        with ws._repository.lock:
            pipe.call(1, "save", message="late")
            pipe.call(2, "list")
            assert pipe.receive()["id"] == 2
            pipe.send(id=3, method="ping")
            assert pipe.receive()["id"] == 3
        assert pipe.receive()["result"]["structuredContent"]["is_new"]


def test_request_cancelled_before_its_start_is_not_done(project: Path, ws: Workspace) -> None:
    with Pipe(project) as pipe:
        with ws._repository.lock:
            for number, name in ((1, "begun"), (2, "waiting"), (3, "wanted")):
                pipe.call(number, "save", name=name)
            pipe.call(4, "list")
            while pipe.receive()["id"] != 4:  # what was sent before has been taken up
                pass
            for number in (1, 2):
                pipe.send(method="notifications/cancelled", params={"requestId": number})
            pipe.send(id=5, method="ping")
            while pipe.receive()["id"] != 5:
                pass
        while pipe.receive()["id"] != 3:
            pass
        pipe.end()
    assert sorted(each.name or "" for each in ws.list()) == ["begun", "wanted"]  # what had begun is done whole


def test_a_client_that_goes_away_in_the_middle_leaves_it_whole(project: Path, ws: Workspace) -> None:
    state = _two_states(project, ws)
    with Pipe(project) as pipe:
        pipe.call(1, "preview", checkpoint="old")
        digest = pipe.receive()["result"]["structuredContent"]["digest"]
        pipe.call(2, "restore", checkpoint="old", digest=digest)
        one = project / "0" / "0.txt"
        _wait_for(lambda: (ws.store / "holdfast" / "journal.json").exists() or one.read_text().startswith("old"))
        assert pipe.process.stdout
        pipe.process.stdout.close()
        _, err = pipe.end()
        assert (pipe.process.returncode, b"Traceback" in err) == (0, False), err
    assert state() == "old"
    assert Workspace(project).recovered is None


@pytest.mark.slow
def test_server_killed_during_a_restore_leaves_old_or_new(project: Path, ws: Workspace) -> None:
    state = _two_states(project, ws)
    notes: list[str] = []

    async def scene(delay_s: float) -> None:
        async with connected(project) as talk:
            target = "new" if state() == "old" else "old"
            digest = (await talk.ok("preview", checkpoint=target))["digest"]
            restoring = asyncio.create_task(talk.ok("restore", checkpoint=target, digest=digest))
            while not (ws.store / "holdfast" / "journal.json").exists() and not restoring.done():
                await asyncio.sleep(0.001)
            await asyncio.sleep(delay_s)
            os.kill(talk.pid, signal.SIGKILL)
            with contextlib.suppress(MCPError):  # unless it was done just before
                await restoring
        async with connected(project) as talk:
            notes.extend((await talk.ok("list", limit=1))["notes"])
            assert (await talk.ok("list", limit=1))["notes"] == []  # it is shown once
            saved = await talk.ok("save", message="goes on")
            assert saved["checkpoint"]["complete"]
        assert state() in ("old", "new")

    for number in range(30):  # on a busy machine a kill may come too late
        run(scene((0.0, 0.01, 0.03)[number % 3]))
        if number >= 2 and any(note.startswith("An interrupted restore to ") for note in notes):
            break
    else:
        raise AssertionError("no kill hit a restore")
    assert Workspace(project).verify().ok


def test_two_agents_at_once_lose_nothing(project: Path, ws: Workspace) -> None:
    ws.save("start", name="start")

    async def agent(name: str) -> list[str]:
        made = []
        async with connected(project, "--actor", name) as talk:
            for number in range(8):
                (project / f"{name}.txt").write_text(f"{number}\n")
                made.append((await talk.ok("save", message=f"{name} {number}"))["checkpoint"]["id"])
                plan = await talk.ok("preview", checkpoint=made[0], paths=[f"{name}.txt"])
                done = await talk.ok("restore", checkpoint=made[0], paths=[f"{name}.txt"], digest=plan["digest"])
                assert done["ok"] and (project / f"{name}.txt").read_text() == "0\n"
        return made

    async def scene() -> list[list[str]]:
        return await asyncio.gather(agent("kelp"), agent("limpet"))

    made = run(scene())
    listed = {each.id: each for each in ws.list(None)}
    for name, ids in zip(("kelp", "limpet"), made, strict=True):
        for number, checkpoint_id in enumerate(ids):
            ws.restore(checkpoint_id, [f"{name}.txt"])
            assert (project / f"{name}.txt").read_text() == f"{number}\n"
            assert checkpoint_id in listed
    assert ws.verify().ok


def test_bad_folder_is_refused_at_the_start(project: Path) -> None:
    ran = _ran("-C", str(project.parent), "mcp")  # the home folder
    assert (ran.returncode, ran.stdout) == (6, b"") and b"hint:" in ran.stderr
    ran = _ran("-C", str(project / "nowhere"), "mcp")
    assert (ran.returncode, ran.stdout) == (3, b"")


def test_ctrl_c_ends_it_at_once(project: Path) -> None:
    with Pipe(project) as pipe:
        pipe.process.send_signal(signal.SIGINT)
        assert pipe.process.wait(60) == -signal.SIGINT
        assert pipe.process.stderr and b"Traceback" not in pipe.process.stderr.read()


def test_without_the_package_it_says_what_to_install(project: Path) -> None:
    code = f"import sys; sys.modules['mcp'] = None; from holdfast.cli.main import main; sys.exit(main({['mcp']!r}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (7, b"")
    assert b"pip install 'holdfast[mcp]'" in ran.stderr


def _ran(*args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *args], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)


def _two_states(project: Path, ws: Workspace) -> Callable[[], str]:
    """Save two states of many files; what is returned tells in which of them the folder is, if in any."""

    def write(word: str) -> None:
        for number in range(_FILES):
            folder = project / f"{number % 20}"
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.txt").write_text(f"{word} {number}\n")

    def state() -> str:
        words = {path.read_text().split()[0] for path in project.rglob("[0-9]*.txt")}
        return "".join(sorted(words))

    for word in ("old", "new"):
        write(word)
        ws.save(word, name=word)
    assert state() == "new"
    return state


def _wait_for(there: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not there():
        assert time.monotonic() < give_up
        time.sleep(0.001)
