"""A command that is given something of another kind says what that is, and which commands are for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Program

OF_FOLDERS = [
    ["export", "latest", "out"],
    ["restore", "latest"],
    ["undo"],
    ["redo"],
    ["blame", "a"],
    ["search", "text"],
    ["fork", "latest", "out"],
    ["purge", "a"],
    ["compact"],
    ["where"],
]
words = pytest.mark.parametrize("words", OF_FOLDERS, ids=lambda words: words[0])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What the folder of a training run looks like."""
    folder = tmp_path / "run"
    (folder / ".holdfast").mkdir(parents=True)
    (folder / "step-00000007").mkdir()
    (folder / "last").write_text("step-00000007\n")
    return folder


@words
def test_a_training_run(holdfast: Program, run: Path, words: list[str]) -> None:
    ran = holdfast("-C", str(run), *words)
    assert ran.code == 3
    assert f"{run} is a training run" in ran.err and f"holdfast log {run}" in ran.err
    assert "no checkpoints yet" not in ran.err


@pytest.mark.parametrize("command", ["log", "show", "verify", "export"])
def test_one_step_of_a_training_run(holdfast: Program, run: Path, command: str) -> None:
    ran = holdfast("-C", str(run / "step-00000007"), command, *(["latest", "out"] if command == "export" else []))
    assert ran.code == 3
    assert "is a checkpoint of a training run" in ran.err and f"holdfast show {run} 7" in ran.err


@words
def test_a_training_run_in_an_object_store(holdfast: Program, words: list[str]) -> None:
    ran = holdfast("-C", "s3://bucket/run", *words)
    assert ran.code == 6
    assert "s3://bucket/run is a training run" in ran.err and "holdfast log s3://bucket/run" in ran.err


@pytest.mark.parametrize("words", [*OF_FOLDERS, ["index", "status"], ["save"]], ids=" ".join)
def test_a_flow_location_before_the_command(holdfast: Program, words: list[str]) -> None:
    ran = holdfast("-C", "postgresql://me:secret@host/db", *words)
    assert ran.code == 6
    assert "is a flow store" in ran.err and "holdfast log postgresql://" in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize("command", ["restore", "export", "purge", "blame", "why"])
def test_a_flow_location_after_it(holdfast: Program, command: str) -> None:
    ran = holdfast(command, "sqlite:///state.db", *(["out"] if command == "export" else []))
    assert ran.code == 2
    assert f"sqlite:///state.db is a flow store, and {command} is for folders" in ran.err


def test_the_folder_of_an_index(holdfast: Program, tmp_path: Path) -> None:
    (tmp_path / "p" / ".holdfast-index").mkdir(parents=True)
    ran = holdfast("-C", str(tmp_path / "p" / ".holdfast-index"), "log")
    assert "is the folder of an index" in ran.err and f"holdfast -C {tmp_path / 'p'} index status" in ran.err


def test_a_folder_is_no_flow_location_to_copy(holdfast: Program, run: Path) -> None:
    ran = holdfast("copy", str(run), "sqlite:///a.db")
    assert ran.code == 2 and "copy is for flow stores" in ran.err


def test_a_message_may_be_a_url(holdfast: Program, write) -> None:
    write("a", "text")
    assert holdfast("save", "sqlite:///state.db").code == 0
    assert holdfast("search", "sqlite:///state.db").err == "No checkpoint contains 'sqlite:///state.db'.\n"


def test_folder_with_checkpoints_is_a_workspace(holdfast: Program, run: Path) -> None:
    assert holdfast("-C", str(run), "save", "one").code == 0
    assert holdfast("-C", str(run), "usage").code == 0
