"""`holdfast training --info REF`, and the program as a module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.training import save_checkpoint

if TYPE_CHECKING:
    from .conftest import Program


def test_info_is_an_option_too(holdfast: Program, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run", 7, {"a": 1})
    place = str(tmp_path / "run")
    as_command = holdfast("training", "info", "latest", "--dir", place, "--json")
    for words in (
        ("training", "--info", "latest", "--dir", place, "--json"),
        ("--json", "training", f"--dir={place}", "--info=latest"),
        ("--json", "-C", place, "training", "--info", "latest"),
    ):
        ran = holdfast(*words)
        assert (ran.code, ran.json) == (0, as_command.json)
    assert ran.json["checkpoint"]["step"] == 7


def test_where_a_run_is_looked_for(holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four folders deep, not in hidden folders or among dependencies, and not in what a run contains."""
    monkeypatch.chdir(tmp_path)
    for place in (".cache/run", "node_modules/x/run", "a/b/c/d/e"):
        save_checkpoint(tmp_path / place, 1, {"a": 1})
    assert "no checkpoint latest" in holdfast("training", "--info", "latest").err
    save_checkpoint(tmp_path / "a/b/c/d", 7, {"a": 1})
    assert holdfast("training", "--info", "latest", "--json").json["checkpoint"]["step"] == 7
    assert holdfast("-C", "a/b", "training", "--info", "latest", "--json").json["checkpoint"]["step"] == 7
    save_checkpoint(tmp_path / "a/run", 8, {"a": 1})
    ran = holdfast("training", "--info", "latest")
    assert ran.code and "several runs: a/b/c/d, a/run" in ran.err
    assert holdfast("training", "--info", "latest", "--dir", ".").code


def test_wrong_usage_is_told(holdfast: Program, tmp_path: Path) -> None:
    for words in (("--dir", str(tmp_path)), ("--info", "latest", "info"), ("--json",)):
        assert holdfast("training", *words).code == 2


def test_the_program_is_a_module(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 7, {"a": 1})
    command = [sys.executable, "-m", "holdfast", "training", "--info", "latest", "--dir", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["checkpoint"]["step"] == 7


def test_paths_in_the_home_folder(holdfast: Program, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A shell leaves the tilde of `--dir=~/run` to the program."""
    monkeypatch.setenv("HOME", str(tmp_path))
    save_checkpoint(tmp_path / "run", 7, {"a": 1})
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("one\n")
    assert holdfast("training", "info", "--dir=~/run").code == 0
    assert holdfast("--directory=~/project", "--store=~/store", "save", "one").code == 0
    assert (tmp_path / "store" / "holdfast").is_dir()
    assert holdfast("--directory=~/project", "--store=~/store", "export", "latest", "~/out").code == 0
    assert (tmp_path / "out" / "a.txt").is_file()
    assert not list(Path.cwd().glob("~*"))
