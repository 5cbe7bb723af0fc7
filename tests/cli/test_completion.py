"""Completion, asked for by the shells themselves where they are installed, and as they would ask where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Program

pytestmark = pytest.mark.usefixtures("project")

BASH = r"""
PATH="$1:$PATH"; shift
eval "$(holdfast completion bash)" || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
compopt() { local IFS=' '; echo "compopt $*"; }
_holdfast_completion holdfast
printf '%s\n' "${COMPREPLY[@]}"
"""
ZSH = r"""
PATH="$1:$PATH"; shift
autoload -U compinit && compinit -u -D
eval "$(holdfast completion zsh)" || exit 9
(( $+functions[_holdfast_completion] )) && echo ready
"""
FISH = r"""
set -x PATH $argv[1] $PATH
holdfast completion fish | source
complete -C "holdfast ver"
"""


def asked(*words: str, shell: str = "bash") -> list[str]:
    """What the program answers a shell; the last word is the one to be completed."""
    lines = subprocess.run(
        [sys.executable, "-m", "holdfast.cli"],
        env=os.environ
        | {"_HOLDFAST_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [line.partition(",")[2] or line for line in lines if line]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a `holdfast` that runs this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "holdfast"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.cli "$@"\n')
    program.chmod(0o755)
    return folder


def in_shell(shell: str, script: str, *words: str | Path) -> list[str]:
    path = shutil.which(shell)
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{shell} is needed: .ci/run installs it")
    if path is None:
        pytest.skip(f"there is no {shell}")
    command = [path, "-c", script, *(["x"] if shell != "fish" else []), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout.split("\n")[:-1]


class TestBash:
    def test_a_command_is_completed(self, programs: Path) -> None:
        assert in_shell("bash", BASH, programs, "holdfast", "ver") == ["verify"]

    def test_a_checkpoint_is_completed(self, holdfast: Program, programs: Path) -> None:
        holdfast.saved("one", "--name", "good-one")
        assert in_shell("bash", BASH, programs, "holdfast", "restore", "g") == ["good-one"]
        assert in_shell("bash", BASH, programs, "holdfast", "show", "a") == ["a1"]

    def test_a_folder_is_left_to_the_shell(self, programs: Path) -> None:
        assert "compopt -o dirnames" in in_shell("bash", BASH, programs, "holdfast", "-C", "s")

    def test_paths_after_dashes_are_left_to_the_shell(self, holdfast: Program, programs: Path) -> None:
        holdfast.saved("one")
        assert "compopt -o default" in in_shell("bash", BASH, programs, "holdfast", "diff", "latest", "--", "s")


@pytest.mark.server
def test_zsh_takes_the_script(programs: Path) -> None:
    assert in_shell("zsh", ZSH, programs) == ["ready"]


@pytest.mark.server
def test_fish_completes_a_command(programs: Path) -> None:
    assert [line.partition("\t")[0] for line in in_shell("fish", FISH, programs)] == ["verify"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(holdfast: Program, shell: str) -> None:
    ran = holdfast("completion", shell)
    assert ran.code == 0
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in ran.out
    assert holdfast("completion", shell, "--json").json["script"].strip() == ran.out.strip()


def test_another_shell_is_a_usage_error(holdfast: Program) -> None:
    assert holdfast("completion", "tcsh").code == 2


def test_options_and_commands_are_offered() -> None:
    assert "--dry-run" in asked("holdfast", "restore", "--d")
    assert "completion" in asked("holdfast", "comp")


def test_checkpoints_are_offered_by_latest_name_and_number(holdfast: Program) -> None:
    holdfast.saved("one", "--name", "good")
    holdfast.saved("--allow-empty", "a | b\x1b[31m\nsecond line")
    assert asked("holdfast", "rm", "") == ["latest", "good", "a2", "a1"]
    assert "a | b [31m second line" in asked("holdfast", "rm", "", shell="zsh")


def test_a_name_that_would_need_quoting_is_not_offered(holdfast: Program) -> None:
    for name in ("two words", "$(reboot)", "a,b", "semi;colon"):
        holdfast.saved("--name", name)
    assert asked("holdfast", "show", "") == ["latest", "a4", "a3", "a2", "a1"]


def test_sessions_are_offered(holdfast: Program) -> None:
    holdfast.saved("--session", "s-1")
    assert asked("holdfast", "log", "--session", "s") == ["s-1"]


def test_the_named_workspace_is_asked(holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holdfast.saved("--name", "good")
    monkeypatch.chdir(project / "src")
    assert asked("holdfast", "show", "g") == ["good"]
    monkeypatch.chdir(project.parent)
    assert asked("holdfast", "show", "g") == []
    assert asked("holdfast", "-C", str(project), "show", "g") == ["good"]


def test_without_a_store_nothing_is_offered_or_created(project: Path, tmp_path: Path) -> None:
    assert asked("holdfast", "restore", "") == []
    assert not (tmp_path / "state").exists()


def test_a_broken_catalog_offers_nothing(holdfast: Program, tmp_path: Path) -> None:
    holdfast.saved("one")
    [catalog] = (tmp_path / "state").rglob("catalog.db")
    catalog.write_bytes(b"nonsense" * 1000)
    assert asked("holdfast", "restore", "x") == []


def test_location_completion_does_not_use_the_workspace(holdfast: Program) -> None:
    holdfast.saved("--session", "workspace-session", "--name", "taken")
    assert asked("holdfast", "log", "--session", "work") == ["workspace-session"]
    assert asked("holdfast", "log", "sqlite:///state.db", "--session", "work") == []
    assert asked("holdfast", "diff", "sqlite:///state.db", "ta") == []
    assert not os.path.exists("state.db")
