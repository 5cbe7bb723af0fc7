"""Words that people bring from other tools."""

from __future__ import annotations

import pytest

from .conftest import Program

WORDS = {
    "rewind": "restore", "rollback": "restore", "checkout": "restore", "checkpoint": "save", "commit": "save",
    "history": "log", "list": "log", "ls": "log", "info": "show", "validate": "verify", "fsck": "verify", "gc": "prune",
    "stores": "workspaces",
}  # fmt: skip


@pytest.mark.parametrize(("theirs", "ours"), WORDS.items())
def test_the_command_is_named_as_it_is_typed_here(holdfast: Program, theirs: str, ours: str) -> None:
    ran = holdfast(theirs, "a1", "my file")
    assert ran.code == 2 and f"use: holdfast {ours} a1 'my file'" in ran.err


@pytest.mark.parametrize("name", ["save", "log", "status", "cat", "workspaces", "import"])
def test_help_of_a_command(holdfast: Program, name: str) -> None:
    assert holdfast("help", name) == holdfast(name, "--help")


def test_help_alone_and_below(holdfast: Program) -> None:
    assert holdfast("help") == holdfast("--help")
    assert holdfast("help", "index", "apply") == holdfast("index", "apply", "--help")
    assert holdfast("help", "rewind").err.startswith("error: there is no command 'rewind'; use: holdfast restore\n")
    assert holdfast("help", "nonsense").code == 2


@pytest.mark.parametrize("name", ["claude", "Claude", "claude-code"])
def test_install_claude(holdfast: Program, name: str) -> None:
    ran = holdfast("install", name, "--dry-run", "--json")
    assert ran.code == 0 and "claude-code" in ran.out
    assert holdfast("doctor", name).out.startswith("Claude Code")
    assert holdfast("uninstall", name).code == 0
