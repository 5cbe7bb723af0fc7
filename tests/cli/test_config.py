"""`holdfast config`, and what a configuration does to the other commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Program

TEXT = 'exclude_patterns = ["*.log"]\n\n[retention]\nkeep_for = "12h"\nkeep_last = 7\n'


def test_the_defaults_are_shown_where_there_is_no_configuration(holdfast: Program, project: Path) -> None:
    ran = holdfast("config", "--json")
    assert (ran.code, ran.json["file"], ran.json["workspace"]) == (0, None, str(project))
    assert ran.json["settings"]["ignored_file_max_bytes"] == {"value": 1048576, "from": "default"}
    assert ran.json["settings"]["retention.keep_last"] == {"value": None, "from": "default"}
    assert holdfast("config", "--check").out == "No configuration file; the defaults apply\n"


def test_each_value_is_shown_with_the_file_that_it_comes_from(holdfast: Program, project: Path) -> None:
    (project / "pyproject.toml").write_text(
        "[tool.holdfast]\n" + TEXT.replace("[retention]", "[tool.holdfast.retention]")
    )
    rows = {line.split()[0]: line.split()[1:] for line in holdfast("config").out.splitlines()}
    assert rows["exclude_patterns"] == ["*.log", "pyproject.toml"]
    assert rows["retention.keep_for"] == ["0.5d", "pyproject.toml"]
    assert rows["retention.max_bytes"] == ["-", "default"]
    assert holdfast("config", "--check").out == "pyproject.toml is valid\n"


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
        assert "holdfast.toml:1: unknown key 'exclude_pattern'" in ran.err
        assert "Did you mean exclude_patterns?" in ran.err
    assert holdfast("log").code == 3


def test_invalid_configuration_does_not_block_restore(holdfast: Program, project: Path) -> None:
    saved = holdfast.saved("good")
    (project / "holdfast.toml").write_text("exclude_pattern = [")
    assert holdfast("save").code == 6
    ran = holdfast("restore", saved, "--yes")
    assert ran.code == 0
    assert "The configuration is not used: holdfast.toml is not TOML" in ran.err
    assert not (project / "holdfast.toml").exists()


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _huge(place: Path) -> None:
    with open(place, "wb") as file:
        file.truncate(17 << 20)


def _deep(place: Path) -> None:
    place.write_text(f"[tool.holdfast]\nwatch = {'[' * 100_000}\n")


def _long_key(place: Path) -> None:
    place.write_text(f"tool.holdfast.watch{'.a' * 100_000} = 1\nwatch{'.a' * 100_000} = 1\n")


def _long_number(place: Path) -> None:
    place.write_text(f"[tool.holdfast]\nwatch = {'9' * 10_000}\n")


@pytest.mark.parametrize("name", ["holdfast.toml", "pyproject.toml"])
@pytest.mark.parametrize("make", [_pipe, _device, _huge, _deep, _long_key, _long_number])
def test_a_hostile_configuration_keeps_nobody_from_going_back(
    make: Callable[[Path], None], name: str, holdfast: Program, project: Path
) -> None:
    saved = holdfast.saved("good")
    make(project / name)
    failed = holdfast("save")
    assert failed.code == 6 and name in failed.err and "bug" not in failed.err and len(failed.err) < 2000
    (project / "made").write_text("since\n")
    commands = [["log"], ["show", saved], ["diff", saved], ["verify"], ["export", saved, str(project.parent / "out")]]
    for words in [*commands, ["restore", saved, "made", "--yes"], ["undo", "--yes"]]:
        ran = holdfast(*words)
        assert ran.code == 0, (words, ran)
        assert ran.err.count("The configuration is not used: ") == 1, (words, ran.err)
    assert (project / "made").exists()
    assert holdfast("prune").code == 6, "an unreadable file must not lead to deleting anything"
    assert "good" in holdfast("log").out


def test_what_it_excludes_is_left_out(holdfast: Program, project: Path) -> None:
    (project / "holdfast.toml").write_text(TEXT)
    for name in ("run.log", "run.tmp"):
        (project / name).write_text("x")
    ran = holdfast("save", "--json", "--exclude", "*.tmp")
    left_out = {entry["path"] for entry in ran.json["checkpoint"]["uncovered"]}
    assert left_out == {"run.log", "run.tmp"}
