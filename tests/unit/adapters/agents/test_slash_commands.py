"""Commands inside of agents: what they run, that nothing typed reaches a shell, and that their files go exactly."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.adapters.agents.base import SettingsPaths, SettingsScope, find_agent
from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.settings.install import (
    apply_change,
    plan_install,
    plan_install_commands,
    plan_uninstall,
    plan_uninstall_commands,
)
from holdfast.adapters.agents.settings.shim import shim_path, write_shim
from holdfast.adapters.agents.slash_commands import FIRST_WORDS, command_of, is_slash_command
from holdfast.errors import Refused
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss, every_point

from .conftest import ScriptedAgent, history
from .test_commands import run

USER, PROJECT = SettingsScope.USER, SettingsScope.PROJECT
WITH_COMMANDS = [name for name in AGENT_NAMES if find_agent(name).commands]
HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a1\ntouch pwned",
]


@pytest.fixture
def places(home: Path, project: Path) -> SettingsPaths:
    return SettingsPaths(home, {"HOME": str(home)}, project)


def words(name: str) -> list[str]:
    return ["/opt/holdfast", "slash", name]


def install(name: str, places: SettingsPaths, scope: SettingsScope = USER) -> list[bool]:
    changes = plan_install_commands(find_agent(name), scope, places, words(name))
    for change in changes:
        apply_change(change, places.environ)
    return [change.is_kept for change in changes]


def uninstall(name: str, places: SettingsPaths, scope: SettingsScope = USER) -> list[bool]:
    changes = plan_uninstall_commands(find_agent(name), scope, places, words(name))
    for change in changes:
        apply_change(change, places.environ)
    return [change.is_kept for change in changes]


def tree(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if ".local" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"/" for path in found}


class TestFiles:
    @pytest.mark.parametrize("scope", [USER, PROJECT])
    @pytest.mark.parametrize("name", WITH_COMMANDS)
    def test_installed_once_and_removed_exactly(self, name: str, scope: SettingsScope, places: SettingsPaths) -> None:
        before = tree(places.home)
        install(name, places, scope)
        assert not any(plan_install_commands(find_agent(name), scope, places, words(name)))
        assert sum("undo" in path for path in tree(places.home)) >= 1
        uninstall(name, places, scope)
        assert tree(places.home) == before

    @pytest.mark.parametrize("name", WITH_COMMANDS)
    def test_what_a_person_wrote_or_edited_stays(self, name: str, places: SettingsPaths) -> None:
        first, second, *_ = find_agent(name).commands(places, USER, words(name))
        first.parent.mkdir(parents=True)
        first.write_text("mine\n")
        assert install(name, places)[:2] == [True, False]
        second.write_text(second.read_text() + "\nmore of mine\n")
        assert install(name, places)[:2] == [True, True]
        assert first.read_text() == "mine\n" and second.read_text().endswith("more of mine\n")
        assert sum(uninstall(name, places)) == 2
        assert first.read_text() == "mine\n" and second.read_text().endswith("more of mine\n")
        assert {path for path in tree(places.home) if "holdfast" in path} <= {
            str(each.relative_to(places.home)) for path in (first, second) for each in (path, *path.parents[:-1])
            if each.is_relative_to(places.home) and each != places.home
        }  # fmt: skip

    def test_an_older_version_of_ours_is_replaced(self, places: SettingsPaths) -> None:
        install("cursor", places)
        newer = plan_install_commands(find_agent("cursor"), USER, places, ["/elsewhere/holdfast", "slash", "cursor"])
        assert all(newer) and not any(change.is_kept for change in newer)

    @pytest.mark.parametrize("verb", [install, uninstall], ids=["install", "uninstall"])
    def test_interrupted_anywhere_it_is_finished_by_the_next_call(self, tmp_path: Path, verb: object) -> None:
        def at(folder: Path) -> SettingsPaths:
            folder.mkdir()
            places = SettingsPaths(folder, {"HOME": str(folder)}, folder / "project")
            if verb is uninstall:
                install("claude-code", places)
            return places

        assert callable(verb)
        counted = at(tmp_path / "counted")
        points = every_point(lambda: verb("claude-code", counted))
        for point in points:
            places = at(tmp_path / str(point.number))
            with durable.use_disk(ForgetfulDisk(places.home, at=point.number)), pytest.raises(PowerLoss):
                verb("claude-code", places)
            if verb is install:
                install("claude-code", places)
            uninstall("claude-code", places)
            assert tree(places.home) == {}, point

    def test_hooks_interrupted_leave_no_folder(self, tmp_path: Path) -> None:
        agent = find_agent("cursor")
        for number in range(1, 200):
            places = SettingsPaths(tmp_path / str(number), {"HOME": str(tmp_path / str(number))}, tmp_path)
            places.home.mkdir()
            disk = ForgetfulDisk(places.home, at=number)
            try:
                with durable.use_disk(disk):
                    apply_change(plan_install(agent, USER, places, words("cursor")), places.environ)
                    apply_change(plan_uninstall(agent, USER, places), places.environ)
            except PowerLoss:
                apply_change(plan_uninstall(agent, USER, places), places.environ)
                assert tree(places.home) == {}, number
            else:
                break
        assert 10 < number < 199


class TestNothingTypedReachesAShell:
    @pytest.fixture
    def program(self, tmp_path: Path) -> list[str]:
        """A program that prints its arguments and its stdin."""
        path = tmp_path / "bin dir" / "show"
        path.parent.mkdir()
        path.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n[ "$4" = - ] && cat\ntrue\n')
        path.chmod(0o755)
        return [str(path), "slash"]

    @pytest.mark.parametrize("typed", HOSTILE)
    def test_claude_code_has_it_in_a_here_document(
        self, typed: str, program: list[str], places: SettingsPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for change in plan_install_commands(find_agent("claude-code"), USER, places, [*program, "claude-code"]):
            apply_change(change, places.environ)
        text = (places.home / ".claude" / "commands" / "holdfast" / "restore.md").read_text()
        given = text.replace("$ARGUMENTS", typed)  # as the agent does, before it looks for the command
        line = given.partition("!`")[2].partition("`")[0]
        ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert not Path("pwned").exists()
        assert ran.stdout.startswith("<slash><claude-code><restore><->")

    def test_the_end_of_the_here_document_is_random(self, places: SettingsPaths, tmp_path: Path) -> None:
        install("claude-code", places)
        other = SettingsPaths(tmp_path / "other", {"HOME": str(tmp_path / "other")}, places.project)
        install("claude-code", other)
        texts = [
            (each.home / ".claude" / "commands" / "holdfast" / "restore.md").read_text() for each in (places, other)
        ]
        ends = {text.rstrip("`\n").rpartition("\n")[2] for text in texts}
        assert len(ends) == 2 and all(len(end) == len("HOLDFAST_") + 32 for end in ends)

    @pytest.mark.parametrize("typed", HOSTILE)
    def test_droid_passes_it_as_one_argument(self, typed: str, program: list[str], places: SettingsPaths) -> None:
        for change in plan_install_commands(find_agent("droid"), USER, places, [*program, "droid"]):
            apply_change(change, places.environ)
        script = places.home / ".factory" / "commands" / "holdfast-restore"
        ran = subprocess.run([str(script), typed], capture_output=True, text=True, check=True)
        assert ran.stdout == f"<slash><droid><restore><--><{typed}>" and not Path("pwned").exists()

    def test_gemini_and_qwen_have_it_where_it_is_escaped(self, places: SettingsPaths) -> None:
        install("gemini", places)
        install("qwen", places)
        folder = places.home / ".gemini" / "extensions" / "holdfast" / "commands" / "holdfast"
        prompt = tomllib.loads((folder / "restore.toml").read_text())["prompt"]
        assert prompt.count("{{args}}") == 1 and "!{/opt/holdfast slash gemini restore -- {{args}}}" in prompt
        text = (places.home / ".qwen" / "commands" / "holdfast" / "restore.md").read_text()
        assert text.count("{{args}}") == 1 and "!{/opt/holdfast slash qwen restore -- {{args}}}" in text

    @pytest.mark.parametrize("typed", ["--help", "a1 --json", "-C / a1", "'a1", "a1 ''"])
    def test_options_are_refused(self, typed: str) -> None:
        with pytest.raises(Refused):
            command_of("gemini", "restore", typed)

    def test_a_program_in_an_odd_folder_is_refused(self, places: SettingsPaths) -> None:
        with pytest.raises(Refused, match="characters"):
            plan_install_commands(find_agent("gemini"), USER, places, ["/home/`x`/holdfast", "slash", "gemini"])


class TestRunning:
    def test_undo_means_the_turn_before_it(self, agent: ScriptedAgent, project: Path) -> None:
        common = {"session_id": "s", "cwd": str(project)}
        tool = {**common, "tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "make"}}
        agent.hook("claude-code", {**common, "hook_event_name": "UserPromptSubmit", "prompt": "x", "prompt_id": "p1"})
        agent.hook("claude-code", {**tool, "hook_event_name": "PreToolUse", "prompt_id": "p1"})
        agent.change({"made.txt": "by the agent\n"}, [])
        agent.hook("claude-code", {**tool, "hook_event_name": "PostToolUse", "prompt_id": "p1"})
        agent.hook("claude-code", {**common, "hook_event_name": "Stop", "prompt_id": "p1"})
        typed = {"hook_event_name": "UserPromptSubmit", "prompt": "/holdfast:undo", "prompt_id": "p2"}
        agent.hook("claude-code", {**common, **typed})
        said = run("slash", "claude-code", "undo")
        assert "D made.txt" in said and not (project / "made.txt").exists()

    def test_a_command_begins_no_turn_and_saves_nothing(self, agent: ScriptedAgent, project: Path) -> None:
        common = {"session_id": "s", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
        agent.hook("claude-code", {**common, "prompt": "x", "prompt_id": "p1"})
        (project / "a.txt").write_text("by the user\n")
        agent.hook("claude-code", {**common, "prompt": "/holdfast:status", "prompt_id": "p2"})
        assert len(history(project)) == 1
        agent.hook("claude-code", {**common, "prompt": "go on", "prompt_id": "p3"})
        assert len(history(project)) == 2

    def test_a_model_that_runs_undo_in_its_shell_undoes_the_turn_before(
        self, agent: ScriptedAgent, project: Path
    ) -> None:
        common = {"session_id": "s", "cwd": str(project)}
        for turn, prompt, id_ in (("1", "x", "c1"), ("2", "$holdfast-undo", "c2")):
            call = {**common, "turn_id": turn, "tool_name": "Bash", "tool_use_id": id_, "tool_input": {"command": "c"}}
            agent.hook("codex", {**common, "hook_event_name": "UserPromptSubmit", "turn_id": turn, "prompt": prompt})
            agent.hook("codex", {**call, "hook_event_name": "PreToolUse"})
            if turn == "1":
                agent.change({"made.txt": "by the agent\n"}, [])
            else:
                assert "D made.txt" in run("slash", "codex", "undo")
            agent.hook("codex", {**call, "hook_event_name": "PostToolUse"})
        assert not (project / "made.txt").exists()

    def test_restore_timeline_and_status(self, project: Path) -> None:
        run("save", "good")
        (project / "a.txt").write_text("broken\n")
        listed = run("slash", "gemini", "restore")
        assert "Type the checkpoint" in listed and "good" in listed and "good" in run("slash", "gemini", "timeline")
        assert "last save" in run("slash", "gemini", "status")
        assert "'nope;' is neither" in run("slash", "gemini", "restore", "--", "nope; touch pwned")
        assert "no options" in run("slash", "gemini", "restore", "--", "--dry-run a1")
        assert "M a.txt" in run("slash", "gemini", "restore", "--", f"{history(project)[0].id} a.txt")
        assert (project / "a.txt").read_text() == "one\n" and not (project / "pwned").exists()

    def test_what_is_installed_can_be_run_as_it_stands(self, project: Path, home: Path) -> None:
        run("save", "good")
        run("install", "claude-code", "droid")
        text = (home / ".claude" / "commands" / "holdfast" / "status.md").read_text()
        line = text.partition("!`")[2].partition("`")[0]
        assert f"allowed-tools: Bash({line})" in text
        ran = subprocess.run(shlex.split(line), capture_output=True, text=True, check=True)
        assert "last save" in ran.stdout
        ran = subprocess.run(
            [str(home / ".factory" / "commands" / "holdfast-timeline")], capture_output=True, text=True
        )
        assert "good" in ran.stdout

    def test_install_tells_what_stays(self, home: Path, project: Path) -> None:
        mine = home / ".cursor" / "commands" / "holdfast-undo.md"
        mine.parent.mkdir(parents=True)
        mine.write_text("mine\n")
        assert f"stays ({mine})" in run("install", "cursor")
        assert f"stays ({mine})" in run("uninstall", "cursor")
        assert mine.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("prompt", "is_ours"),
    [
        ("/holdfast:undo", True),
        (" /holdfast-restore a3", True),
        ("$holdfast-undo", True),
        (f"{FIRST_WORDS} Show …", True),
        ("/holdfast:undone", False),
        ("explain /holdfast:undo", False),
        ("", False),
    ],
)
def test_prompts_that_are_commands(prompt: str, is_ours: bool) -> None:
    assert is_slash_command(prompt) is is_ours


def test_the_script_outlives_an_upgrade(places: SettingsPaths) -> None:
    write_shim(places.environ, "/usr/bin/python3")
    assert "slash" not in shim_path(places.environ).read_text(), "it passes any command on"
