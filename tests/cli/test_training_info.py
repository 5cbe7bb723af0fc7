"""`holdfast training --info REF`, and the program as a module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
