"""Words that people bring from other tools."""

from __future__ import annotations

import shlex

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


@pytest.mark.parametrize(
    ("typed", "ours"),
    {
        "commit -am 'my message'": "save -m 'my message'", "reset --hard a1": "restore a1", "add .": "save",
        "tag v1": "save --name v1", "branch topic": "fork", "merge topic": "adopt", "stash": "save",
        "stash pop": "restore", "stash list": "log", "revert a1": "restore a1", "op log": "log --all",
        "reset --hard HEAD~2": "restore 'latest~2'", "checkout HEAD^ -- a.txt": "restore 'latest~1' -- a.txt",
        "snapshots": "log", "compare a1 a2": "diff a1 a2", "du": "usage", "back": "undo", "reflog": "log --all",
        "list --all": "log --all", "checkout a1 -- a.txt": "restore a1 -- a.txt",
    }.items(),
)  # fmt: skip
def test_what_is_named_can_be_typed(holdfast: Program, typed: str, ours: str) -> None:
    ran = holdfast(*shlex.split(typed))
    assert ran.code == 2 and ran.err.splitlines()[0].endswith(f"; use: holdfast {ours}")
    assert "no such option" not in holdfast(*shlex.split(ours)).err


@pytest.mark.parametrize(
    ("typed", "ours"),
    {
        "save -am x": "save, which saves every file", "save --amend": "save, which makes a new checkpoint",
        "restore --source a1 a.txt": "restore REF PATH", "restore --staged a.txt": "restore REF PATH",
        "restore -n a1": "restore --dry-run", "log -S text": "search TEXT", "log --max-count 3": "log -n N",
        "-v": "--version", "-V": "--version",
        "log --graph": "log", "log --name-status": "log --stat", "log -p": "diff A B", "status -s": "status",
    }.items(),
)  # fmt: skip
def test_an_option_of_gits_leads_to_ours(holdfast: Program, typed: str, ours: str) -> None:
    ran = holdfast(*shlex.split(typed))
    assert ran.code == 2 and ran.err.splitlines()[0].endswith(f"; use: holdfast {ours}"), ran.err


@pytest.mark.parametrize(
    "typed", ["show HEAD", "diff HEAD", "restore HEAD~1", "diff HEAD~1..HEAD", "cat HEAD:a.txt", "log HEAD"]
)
def test_head_is_latest_here(holdfast: Program, typed: str) -> None:
    holdfast.saved()
    ran = holdfast(*typed.split())
    assert ran.code == 3 and "Here it is `latest`; `latest~1` is the one before." in ran.err, ran


@pytest.mark.parametrize(
    ("typed", "near"), [("purr", None), ("pruge", "purge"), ("purg", "purge"), ("stauts", "status")]
)
def test_a_misspelt_word_leads_to_no_deletion(holdfast: Program, typed: str, near: str | None) -> None:
    said = holdfast(typed, "a1").err.splitlines()[0]
    assert (f"did you mean {near}?" in said) if near else ("purge" not in said)


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
