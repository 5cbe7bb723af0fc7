"""Was it good? The check command, by hand and after a turn: real hooks, a real helper, real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import NotFound, Refused
from holdfast.retention import Policy
from holdfast.workspace.config import read_settings

from .conftest import ScriptedAgent, helpers, wait_for
from .test_turns import Talk, cli

CLI = (sys.executable, "-m", "holdfast.cli")
GOOD = "test -e good.txt"


def configure(project: Path, command: str, timeout: str = "60s") -> None:
    (project / "holdfast.toml").write_text(f"check = {json.dumps(command)}\ncheck_timeout = {json.dumps(timeout)}\n")


def opened(project: Path) -> Workspace:
    return Workspace(project, **read_settings(project).options())


def allowed(project: Path, command: str = GOOD, timeout: str = "60s") -> Workspace:
    configure(project, command, timeout)
    ws = opened(project)
    ws.allow_check(command)
    return ws


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], cwd=project, capture_output=True, text=True, check=False)


class TestByHand:
    def test_green_and_red_are_marked_everywhere(self, project: Path) -> None:
        allowed(project)
        red = run(project, "check")
        assert red.returncode == 8 and red.stdout.startswith("a1 is red: exit status 1")
        (project / "good.txt").write_text("x")
        assert run(project, "check").stdout.startswith("a2 is green")
        (project / "a.txt").write_text("later\n")
        run(project, "save", "later")
        log = run(project, "log", "--flat").stdout
        marks = [("green" in line, "red" in line) for line in log.splitlines()[1:]]
        assert marks == [(False, False), (True, False), (False, True)]
        assert "green: test -e good.txt" in run(project, "show", "a2").stdout
        assert cli(project, "show", "a2")["checkpoint"]["check"] == "green"
        assert "a2 green; last green: a2" in run(project, "status").stdout
        status = cli(project, "status")["check"]
        assert status["last_green"].startswith("a2-") and status["last"]["passed"] is True
        assert run(project, "restore", "last-green").returncode == 0
        assert (project / "a.txt").read_text() == "one\n"
        assert run(project, "diff", "last-green", "--name-only").stdout == ""

    def test_mark_is_found_again_without_the_catalog(self, project: Path) -> None:
        ws = allowed(project, "true")
        saved = ws.save()
        assert ws.check(saved).passed
        for file in (ws.store / "holdfast").glob("catalog.db*"):
            file.unlink()
        assert opened(project).get("last-green").id == saved.id
        assert ws.verify().ok

    def test_nothing_green_is_not_found(self, project: Path) -> None:
        ws = Workspace(project)
        ws.save()
        with pytest.raises(NotFound, match="no checkpoint has passed a check"):
            ws.get("last-green")
        with pytest.raises(Refused, match="cannot name"):
            ws.save("x", name="last-green")

    def test_runs_on_the_checkpoint_and_not_on_the_folder(self, project: Path) -> None:
        ws = allowed(project, "grep -q one a.txt && touch made && pwd > /dev/null")
        saved = ws.save()
        (project / "a.txt").write_text("two\n")
        assert ws.check(saved).passed
        assert not (project / "made").exists() and (project / "a.txt").read_text() == "two\n"
        assert not ws.check(ws.save()).passed

    def test_dependencies_are_linked(self, project: Path) -> None:
        (project / ".gitignore").write_text("node_modules/\n")
        (project / "node_modules").mkdir()
        (project / "node_modules" / "big.bin").write_bytes(b"x" * (2 << 20))
        ws = allowed(project, "test -e node_modules/big.bin")
        assert ws.check(ws.save()).passed

    def test_deadline_ends_everything(self, project: Path, tmp_path: Path) -> None:
        sign = tmp_path / "still there"
        ws = allowed(project, f"(sleep 3; touch '{sign}') & sleep 60", "1s")
        result = ws.check(ws.save())
        assert result.passed is False and result.reason == "no result after 1 s"
        time.sleep(3)
        assert not sign.exists()

    @pytest.mark.parametrize("command", ["exit 125", "no-such-program-anywhere"])
    def test_no_result_is_no_mark(self, command: str, project: Path) -> None:
        ws = allowed(project, command)
        saved = ws.save()
        assert ws.check(saved).passed is None
        assert ws.get(saved).is_green is None

    def test_output_is_shown_and_its_end_kept(self, project: Path) -> None:
        ws = allowed(project, "seq 1 30000; echo the end; exit 3")
        ran = run(project, "check")
        assert ran.stderr.endswith("30000\nthe end\n")
        last = ws.check_status().last
        assert last["output"].endswith("the end\n") and len(last["output"]) <= 64 << 10


class TestAllowing:
    def test_nothing_runs_before_it_is_allowed(self, project: Path, tmp_path: Path) -> None:
        sign = tmp_path / "it ran"
        configure(project, f"touch '{sign}'")
        Workspace(project).save()
        ran = run(project, "check")
        assert ran.returncode == 6 and "is not allowed here" in ran.stderr and "check --allow" in ran.stderr
        assert not opened(project).want_check() and not sign.exists()
        assert "is not allowed to run" in run(project, "status").stdout
        ran = run(project, "check", "--allow")
        assert ran.returncode == 6 and "not a terminal" in ran.stderr
        assert run(project, "check", "--allow", "--yes").returncode == 0
        assert run(project, "check").returncode == 0 and sign.exists()

    def test_another_text_has_to_be_allowed_again(self, project: Path) -> None:
        ws = allowed(project, "true")
        assert ws.check(ws.save()).passed
        configure(project, "true ")
        with pytest.raises(Refused, match="not allowed"):
            opened(project).check()
        assert run(project, "check", "--revoke").returncode == 0
        configure(project, "true")
        with pytest.raises(Refused, match="not allowed"):
            opened(project).check()

    def test_what_is_allowed_is_not_in_the_workspace(self, project: Path) -> None:
        before = set(project.rglob("*"))
        allowed(project)
        assert set(project.rglob("*")) - before == {project / "holdfast.toml"}

    def test_tool_of_an_agent_cannot_allow(self, agent: ScriptedAgent, project: Path) -> None:
        configure(project, "true")
        talk = Talk(agent, "claude-code")
        talk.prompt("allow it")
        end = talk.begin(command="holdfast check --allow --yes")
        ran = agent.run(*CLI, "-C", str(project), "check", "--allow", "--yes")
        end()
        assert ran["code"] == 6 and "cannot allow" in ran["err"]


class TestAfterATurn:
    def test_turn_is_checked_in_the_background(self, with_helper: Path, agent: ScriptedAgent, project: Path) -> None:
        allowed(project)
        talk = Talk(agent, "gemini")
        talk.prompt("make it good")
        talk.edit({"good.txt": "x"})
        talk.stop()
        green = wait_for(lambda: [each for each in Workspace(project).list() if each.is_green])
        assert [each.files_changed for each in green] == [["good.txt"]]
        assert green[0].metadata["turn_number"] == 1
        wait_for(lambda: not opened(project).check_status().is_running)

    def test_hook_does_not_wait_and_older_ones_are_skipped(
        self, with_helper: Path, agent: ScriptedAgent, project: Path, tmp_path: Path
    ) -> None:
        gate, ran = tmp_path / "gate", tmp_path / "ran"
        allowed(project, f"echo $HOLDFAST_CHECKPOINT >> '{ran}'; while ! test -e '{gate}'; do sleep 0.1; done")
        talk = Talk(agent, "gemini")
        ends = []
        for number in range(4):
            talk.prompt(f"turn {number}")
            talk.edit({"a.txt": f"{number}\n"})
            talk.stop()  # returns although the first check is waiting
            ends.append(Workspace(project).get("latest").id)
            if number == 0:
                wait_for(ran.exists)
        gate.touch()
        wait_for(lambda: Workspace(project).get("latest").is_green)
        assert ran.read_text().split() == [ends[0], ends[3]]

    def test_not_checked_twice(self, project: Path) -> None:
        ws = allowed(project, "true")
        ws.save()
        assert ws.want_check()
        ws.run_wanted_checks()
        assert ws.get("latest").is_green and not ws.want_check()


class TestKill:
    def _start(self, ws: Workspace, project: Path) -> subprocess.Popen[bytes]:
        told = {"path": str(project), "store": str(ws.store), "allow_home": False, "trust_store": False}
        words = [sys.executable, "-P", "-m", "holdfast.workspace.background", "check", json.dumps(told)]
        return subprocess.Popen(words, start_new_session=True)

    @pytest.mark.parametrize("victim", ["checker", "all"])
    def test_killed_checker_leaves_nothing(
        self, victim: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        gate, pid = tmp_path / "gate", tmp_path / "pid"
        ws = allowed(project, f"echo $$ > '{pid}'; while ! test -e '{gate}'; do sleep 0.1; done")
        ws.save()
        assert ws.want_check()
        checker = self._start(ws, project)
        shell = int(wait_for(lambda: pid.exists() and pid.read_text().strip()))
        assert len(list(tmp_path.glob("holdfast-check-*"))) == 1
        if victim == "all":
            os.killpg(shell, signal.SIGKILL)
        checker.kill()
        checker.wait()
        assert not ws.check_status().is_running and ws.get("latest").is_green is None
        gate.touch()
        if victim == "checker":
            gate.unlink()  # the command is still waiting, and is ended by the next check
        (project / "a.txt").write_text("next\n")
        latest = ws.save()
        assert ws.want_check()
        gate.touch() if victim == "all" else None
        second = self._start(ws, project)
        if victim == "checker":
            wait_for(lambda: not _is_there(shell))
            gate.touch()
        assert second.wait(60) == 0
        assert ws.get(latest).is_green
        assert list(tmp_path.glob("holdfast-check-*")) == []
        assert ws.verify().ok

    def test_link_in_place_of_the_scratch_folder_is_not_followed(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        ws = allowed(project, "true")
        precious = tmp_path / "precious"
        precious.mkdir()
        (tmp_path / "holdfast-check-0").symlink_to(precious)
        for folder in (tmp_path / "holdfast-check-0", precious):
            told: dict[str, Any] = {"folder": str(folder), "process": ""}
            (ws.store / "holdfast" / "check-scratch").write_text(json.dumps(told))
            assert ws.check(ws.save()).passed
            assert precious.is_dir()


class TestKept:
    def test_last_green_is_never_pruned(self, project: Path) -> None:
        ws = allowed(project, GOOD)
        (project / "good.txt").write_text("x")
        green = ws.save()
        assert ws.check(green).passed
        for number in range(5):
            (project / "a.txt").write_text(f"{number}\n")
            ws.save()
        ws.prune(Policy(keep_last=1), dry_run=False)
        assert [each.id for each in ws.list()][1:] == [green.id]
        (project / "good.txt").unlink()
        assert not ws.check(ws.save()).passed
        assert ws.get("last-green").id == green.id


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_helper_killed_between_turn_and_check_loses_no_mark(
    with_helper: Path, agent: ScriptedAgent, project: Path
) -> None:
    allowed(project)
    talk = Talk(agent, "gemini")
    talk.prompt("one")
    talk.edit({"good.txt": "x"})
    for pid in helpers(with_helper):
        os.kill(pid, signal.SIGKILL)
    talk.stop()  # a child of the hook does the work
    wait_for(lambda: Workspace(project).get("latest").is_green)
