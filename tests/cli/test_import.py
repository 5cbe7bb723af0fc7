"""`holdfast import`, as people run it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from unit.importers.graphs import database
from unit.importers.scenes import Shadow, praisonai

from .conftest import Program
from .test_terminal import Terminal


@pytest.fixture
def shadow(tmp_path: Path) -> Shadow:
    found = praisonai(tmp_path / "shadow")
    found.save("first", {"a": "1"})
    found.save("second", {"a": "2"})
    return found


class TestShadowGit:
    def test_plan_then_result(self, holdfast: Program, shadow: Shadow) -> None:
        source = str(shadow.git_dir.parent)
        ran = holdfast("import", source)
        assert ran.code == 0
        assert ran.out == f"2 checkpoints imported into {shadow.workspace}\n"
        assert "2 new checkpoints" in ran.err
        listed = holdfast("-C", str(shadow.workspace), "log")
        assert "first" in listed.out and "second" in listed.out

    def test_dry_run_changes_nothing(self, holdfast: Program, shadow: Shadow) -> None:
        ran = holdfast("import", str(shadow.git_dir), "--dry-run")
        assert ran.code == 0
        assert "2 new checkpoints" in ran.out
        assert holdfast("-C", str(shadow.workspace), "log").code == 3

    def test_json(self, holdfast: Program, shadow: Shadow) -> None:
        ran = holdfast("import", str(shadow.git_dir), "--json")
        assert (ran.json["plan"]["kind"], ran.json["plan"]["new"]) == ("shadow-git", 2)
        assert ran.json["imported"]["added"] == 2
        again = holdfast("import", str(shadow.git_dir), "--json").json
        assert (again["plan"]["new"], again["plan"]["present"], again["imported"]["added"]) == (0, 2, 0)

    def test_what_is_not_carried_is_in_the_exit_code(self, holdfast: Program, shadow: Shadow) -> None:
        shadow.save("third", {"lib/.git_disabled/HEAD": "x", "b": "1"})
        ran = holdfast("import", str(shadow.git_dir))
        assert ran.code == 8
        assert "lib/.git_disabled" in ran.err

    def test_named_target_and_store(self, holdfast: Program, shadow: Shadow, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        holdfast("--store", str(tmp_path / "s"), "import", str(shadow.git_dir), str(tmp_path / "elsewhere"))
        listed = holdfast("-C", str(tmp_path / "elsewhere"), "--store", str(tmp_path / "s"), "log")
        assert "second" in listed.out

    def test_tilde(self, holdfast: Program, shadow: Shadow, tmp_path: Path) -> None:
        (tmp_path / "home" / "store").symlink_to(shadow.git_dir.parent)
        assert holdfast("import", "~/store").code == 0


class TestStates:
    def test_langgraph_into_a_flow_store(self, holdfast: Program, tmp_path: Path) -> None:
        source, target = str(database(tmp_path / "lg.db")), f"sqlite:///{tmp_path}/state.db"
        ran = holdfast("import", source, target)
        assert (ran.code, ran.out) == (0, f"6 checkpoints imported into {target}\n")
        assert holdfast("log", target, "--json").json["items"]
        again = holdfast("import", source, target)
        assert (again.code, again.out) == (0, f"0 checkpoints imported into {target}; 6 there already\n")

    def test_encrypted_store(self, holdfast: Program, tmp_path: Path) -> None:
        source, target = str(database(tmp_path / "lg.db")), f"sqlite:///{tmp_path}/state.db"
        keys = tmp_path / "keys.json"
        keys.write_text(json.dumps({"k1": base64.b64encode(bytes(range(32))).decode()}))
        assert holdfast("import", source, target, "--keys", str(keys)).code == 0
        assert b"hello" not in (tmp_path / "state.db").read_bytes()
        assert holdfast("import", source, target, "--keys", str(keys)).out.startswith("0 checkpoints imported")

    def test_target_is_needed(self, holdfast: Program, tmp_path: Path) -> None:
        ran = holdfast("import", str(database(tmp_path / "lg.db")))
        assert ran.code == 6
        assert "flow store" in ran.err


class TestQuestion:
    """At a terminal, where there is somebody who has seen the plan."""

    def test_no_imports_nothing(self, holdfast: Program, shadow: Shadow) -> None:
        terminal = Terminal([*Program.command, "import", str(shadow.git_dir)], {})
        terminal.expect("Import them? [y/N]")
        terminal.type(b"n\n")
        code, said = terminal.end()
        assert code == 6
        assert "Nothing was changed" in said
        assert holdfast("-C", str(shadow.workspace), "log").code == 3

    def test_yes_imports(self, holdfast: Program, shadow: Shadow) -> None:
        terminal = Terminal([*Program.command, "import", str(shadow.git_dir)], {})
        terminal.expect("2 new checkpoints")
        terminal.expect("Import them? [y/N]")
        terminal.type(b"y\n")
        assert terminal.end()[0] == 0
        assert holdfast("-C", str(shadow.workspace), "log").code == 0

    def test_option_answers(self, holdfast: Program, shadow: Shadow) -> None:
        code, said = Terminal([*Program.command, "import", "--yes", str(shadow.git_dir)], {}).end()
        assert code == 0
        assert "[y/N]" not in said


class TestErrors:
    def test_nothing_there(self, holdfast: Program, tmp_path: Path) -> None:
        ran = holdfast("import", str(tmp_path / "nowhere"))
        assert ran.code == 3
        assert "does not exist" in ran.err

    def test_unknown_source(self, holdfast: Program, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        ran = holdfast("import", str(tmp_path / "file"))
        assert ran.code == 6
        assert "unknown format" in ran.err

    def test_unknown_kind(self, holdfast: Program, shadow: Shadow) -> None:
        ran = holdfast("import", str(shadow.git_dir), "--kind", "svn")
        assert ran.code == 6
        assert "shadow-git" in ran.err

    def test_directory_option(self, holdfast: Program, shadow: Shadow, tmp_path: Path) -> None:
        assert holdfast("-C", str(tmp_path), "import", str(shadow.git_dir)).code == 2
