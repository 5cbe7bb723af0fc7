"""`holdfast config`, and what a configuration does to the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Program

TEXT = 'exclude_patterns = ["*.log"]\n\n[retention]\nkeep_for = "12h"\nkeep_last = 7\n'


def test_the_defaults_are_shown_where_there_is_no_configuration(holdfast: Program, project: Path) -> None:
    ran = holdfast("config", "--json")
    assert (ran.code, ran.json["file"], ran.json["workspace"]) == (0, None, str(project))
    assert ran.json["settings"]["ignored_file_max_bytes"] == {"value": 1048576, "from": "default"}
    assert ran.json["settings"]["retention.keep_last"] == {"value": None, "from": "default"}
    assert holdfast("config", "--check").out == "There is no configuration; that is fine\n"


def test_each_value_is_shown_with_the_file_that_it_comes_from(holdfast: Program, project: Path) -> None:
    (project / "pyproject.toml").write_text(
        "[tool.holdfast]\n" + TEXT.replace("[retention]", "[tool.holdfast.retention]")
    )
    rows = {line.split()[0]: line.split()[1:] for line in holdfast("config").out.splitlines()}
    assert rows["exclude_patterns"] == ["*.log", "pyproject.toml"]
    assert rows["retention.keep_for"] == ["0.5d", "pyproject.toml"]
    assert rows["retention.max_bytes"] == ["-", "default"]
    assert holdfast("config", "--check").out == "pyproject.toml makes sense\n"


def test_the_configuration_of_the_workspace_counts_below_it(
    holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.saved("one")
    (project / "holdfast.toml").write_text(TEXT)
    (project / "src" / "holdfast.toml").write_text("nonsense = 1")
    monkeypatch.chdir(project / "src")
    assert holdfast("config", "--json").json["settings"]["retention.keep_last"]["value"] == 7
    assert holdfast("save", "two").code == 0


def test_a_configuration_that_makes_no_sense_is_refused(holdfast: Program, project: Path) -> None:
    (project / "holdfast.toml").write_text("exclude_pattern = []")
    for command in (["config"], ["config", "--check"], ["save", "x"], ["init"]):
        ran = holdfast(*command)
        assert ran.code == 6, command
        assert "holdfast.toml: there is no key 'exclude_pattern'" in ran.err
        assert "Did you mean exclude_patterns?" in ran.err
    assert holdfast("log").code == 3


def test_a_configuration_that_makes_no_sense_keeps_nobody_from_going_back(holdfast: Program, project: Path) -> None:
    saved = holdfast.saved("good")
    (project / "holdfast.toml").write_text("exclude_pattern = [")
    assert holdfast("save").code == 6
    ran = holdfast("restore", saved, "--yes")
    assert ran.code == 0
    assert "The configuration is not used: holdfast.toml is not TOML" in ran.err
    assert not (project / "holdfast.toml").exists()


def test_what_it_excludes_is_left_out(holdfast: Program, project: Path) -> None:
    (project / "holdfast.toml").write_text(TEXT)
    for name in ("run.log", "run.tmp"):
        (project / name).write_text("x")
    ran = holdfast("save", "--json", "--exclude", "*.tmp")
    left_out = {entry["path"] for entry in ran.json["checkpoint"]["uncovered"]}
    assert left_out == {"run.log", "run.tmp"}
