"""The skill: every file installed, run from there, and removed again exactly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.adapters.agents.base import SettingsPaths, SettingsScope
from holdfast.adapters.agents.settings.install import apply_change
from holdfast.adapters.agents.settings.skill import plan_install_skill, plan_uninstall_skill, remove_bytecode
from holdfast.errors import Refused
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss, every_point

USER, PROJECT = SettingsScope.USER, SettingsScope.PROJECT
FILES = {
    "SKILL.md",
    "references/CHECKPOINT-STRATEGY.md",
    "references/ROLLBACK-PROCEDURES.md",
    "scripts/checkpoint_manager.py",
    "scripts/git_snapshot.py",
    "scripts/rollback_handler.py",
    "scripts/state_snapshot.py",
}


@pytest.fixture
def places(home: Path, project: Path) -> SettingsPaths:
    return SettingsPaths(home, {"HOME": str(home)}, project)


def install(places: SettingsPaths, scope: SettingsScope = PROJECT) -> None:
    for change in plan_install_skill(scope, places):
        apply_change(change, places.environ)


def uninstall(places: SettingsPaths, scope: SettingsScope = PROJECT) -> None:
    remove_bytecode(scope, places)
    for change in plan_uninstall_skill(scope, places):
        apply_change(change, places.environ)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


class TestInstalling:
    @pytest.mark.parametrize("scope", [USER, PROJECT])
    def test_where_agents_read_skills(self, places: SettingsPaths, scope: SettingsScope) -> None:
        above = places.project if scope is PROJECT else places.home
        before = names(above)
        install(places, scope)
        assert names(above / ".claude" / "skills" / "checkpoint-manager") == FILES
        assert not any(plan_install_skill(scope, places))
        uninstall(places, scope)
        assert names(above) - {name for name in names(above) if name.startswith(".local/")} == before
        assert not (above / ".claude" / "skills").exists()

    def test_in_the_folder_that_claude_code_was_told(self, places: SettingsPaths, tmp_path: Path) -> None:
        elsewhere = SettingsPaths(
            places.home, {**places.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, places.project
        )
        install(elsewhere, USER)
        assert (tmp_path / "c" / "skills" / "checkpoint-manager" / "SKILL.md").is_file()

    def test_the_instructions_are_last(self, places: SettingsPaths) -> None:
        planned = [change.path.name for change in plan_install_skill(PROJECT, places)]
        assert planned[-1] == "SKILL.md"
        install(places)
        assert [change.path.name for change in plan_uninstall_skill(PROJECT, places)] == planned[::-1]

    def test_another_skill_of_that_name_is_not_replaced(self, places: SettingsPaths) -> None:
        folder = places.project / ".claude" / "skills" / "checkpoint-manager"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: checkpoint-manager\n---\nsomebody's own\n")
        with pytest.raises(Refused, match="was not written by Holdfast"):
            plan_install_skill(PROJECT, places)
        uninstall(places)
        assert names(folder) == {"SKILL.md"}

    def test_what_was_edited_or_added_stays(self, places: SettingsPaths) -> None:
        folder = places.project / ".claude" / "skills" / "checkpoint-manager"
        install(places)
        (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "\nAlways ask me first.\n")
        (folder / "scripts" / "mine.py").write_text("print(1)\n")
        uninstall(places)
        assert names(folder) == {"SKILL.md", "scripts/mine.py"}
        assert (folder / "SKILL.md").read_text().endswith("Always ask me first.\n")

    def test_an_older_version_is_replaced_and_saved(self, places: SettingsPaths) -> None:
        install(places)
        skill = places.project / ".claude" / "skills" / "checkpoint-manager" / "SKILL.md"
        skill.write_text("an edit; `holdfast install skill` wrote the rest\n")
        [change] = [each for each in plan_install_skill(PROJECT, places) if each]
        apply_change(change, places.environ)
        assert change.backup.read_text().startswith("an edit") and skill.read_text().startswith("---")

    def test_interrupted_anywhere_it_is_finished_by_the_next_call(self, tmp_path: Path) -> None:
        def at(folder: Path) -> SettingsPaths:
            (folder / "project").mkdir(parents=True)
            return SettingsPaths(folder, {"HOME": str(folder)}, folder / "project")

        counted = at(tmp_path / "counted")
        points = every_point(lambda: install(counted))
        assert len(points) > 20
        for point in points[:: len(points) // 12]:
            places = at(tmp_path / str(point.number))
            with durable.use_disk(ForgetfulDisk(places.home, at=point.number)), pytest.raises(PowerLoss):
                install(places)
            install(places)
            assert names(places.project) == {f".claude/skills/checkpoint-manager/{name}" for name in FILES}
            uninstall(places)
            assert names(places.project) == set()


class TestContent:
    def test_the_instructions_have_a_name_and_a_description(self, places: SettingsPaths) -> None:
        install(places)
        text = (places.project / ".claude/skills/checkpoint-manager/SKILL.md").read_text()
        head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n", text)
        assert head is not None and head[1] == "checkpoint-manager"

    def test_every_file_and_command_that_is_named_exists(self, places: SettingsPaths) -> None:
        from holdfast.cli.group import COMMANDS

        install(places)
        folder = places.project / ".claude/skills/checkpoint-manager"
        text = "".join((folder / name).read_text() for name in FILES if name.endswith(".md"))
        assert {f"scripts/{name}.py" for name in re.findall(r"scripts/(\w+)\.py", text)} <= FILES
        assert set(re.findall(r"references/[A-Z-]+\.md", text)) <= FILES
        assert set(re.findall(r"holdfast ([a-z]+)", text)) <= set(COMMANDS)


class TestScripts:
    """Run as an agent runs them."""

    @pytest.fixture
    def run(self, places: SettingsPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
        install(places)
        monkeypatch.setenv("HOME", str(places.home))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

        def call(script: str, *words: str, code: int = 0) -> object:
            path = places.project / ".claude/skills/checkpoint-manager/scripts" / f"{script}.py"
            command = [sys.executable, "-W", "error", str(path), *words]
            ran = subprocess.run(command, cwd=places.project, capture_output=True, text=True)
            assert ran.returncode == code, ran.stderr
            return json.loads(ran.stdout) if code == 0 else ran.stderr

        return call

    def test_create_list_roll_back_and_undo(self, run: object, places: SettingsPaths) -> None:
        assert callable(run)
        file = places.project / "a.txt"
        file.write_text("good\n")
        saved = run("checkpoint_manager", "create", "before-refactor", "why", "--context", '{"session_number": 5}')
        assert (saved["name"], saved["description"], saved["checkpoint_type"]) == ("before-refactor", "why", "manual")
        assert saved["context"] == {"session_number": 5}
        file.write_text("broken\n")
        done = run("rollback_handler", "latest")
        assert done["ok"] and done["written"] == ["a.txt"] and file.read_text() == "good\n"
        run("rollback_handler", "--undo")
        assert file.read_text() == "broken\n"
        assert run("checkpoint_manager", "rollback", "before-refactor")["checkpoint"] == saved["id"]
        assert [each["id"] for each in run("checkpoint_manager", "list", "--type", "manual")] == [saved["id"]]
        assert run("checkpoint_manager", "show", saved["id"])["name"] == "before-refactor"
        assert run("checkpoint_manager", "delete", saved["id"])["id"] == saved["id"]
        assert "no checkpoint" in run("rollback_handler", "latest", code=1)

    def test_snapshots_save_nothing(self, run: object, places: SettingsPaths) -> None:
        assert callable(run)
        subprocess.run(["git", "init", "-q", "-b", "main", str(places.project)], check=True)
        (places.project / "feature_list.json").write_text('[{"id": "a", "passes": true}, {"id": "b", "passes": false}]')
        (places.project / "claude-progress.txt").write_text("half done\n")
        assert run("git_snapshot")["branch"] == "main"
        found = run("state_snapshot")
        assert (found["feature_state"]["current"], found["feature_state"]["completed"]) == ("b", ["a"])
        assert found["progress"] == "half done\n" and run("checkpoint_manager", "list") == []

    def test_another_python_finds_the_one_that_holdfast_is_installed_for(
        self, run: object, places: SettingsPaths, tmp_path: Path
    ) -> None:
        program = tmp_path / "bin" / "holdfast"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n")
        program.chmod(0o755)
        script = places.project / ".claude/skills/checkpoint-manager/scripts/checkpoint_manager.py"
        without = [sys.executable, "-I", "-S", str(script), "list"]  # -S: nothing that is installed is found
        environ = {"PATH": str(program.parent), "HOME": os.environ["HOME"]}
        ran = subprocess.run(without, cwd=places.project, env=environ, capture_output=True, text=True)
        assert "not installed" in ran.stderr  # it is this very Python
        link = tmp_path / "python3"
        link.symlink_to(sys.executable)
        ran = subprocess.run([str(link), *without[1:]], cwd=places.project, env=environ, capture_output=True, text=True)
        assert json.loads(ran.stdout) == []

    def test_the_scripts_can_be_imported(self, run: object, places: SettingsPaths) -> None:
        folder = places.project / ".claude/skills/checkpoint-manager"
        code = (
            "from scripts.checkpoint_manager import CheckpointManager, CheckpointType, GitState\n"
            "from scripts.rollback_handler import RollbackHandler\n"
        )
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, env=environ, check=True)
        assert (folder / "scripts" / "__pycache__").is_dir()
        uninstall(places)
        assert not folder.exists()
