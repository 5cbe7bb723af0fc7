"""One file of a checkpoint, its history, and which words are paths."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from .conftest import Program


@pytest.fixture
def edited(holdfast: Program, project: Path) -> Program:
    """`a.txt` changed in a2, `src/b.py` in a3; both differ now."""
    holdfast.saved("first")
    (project / "a.txt").write_text("two\n")
    holdfast.saved("second")
    (project / "src" / "b.py").write_text("print(3)\n")
    holdfast.saved("third")
    (project / "a.txt").write_text("now\n")
    (project / "src" / "b.py").write_text("now\n")
    return holdfast


@pytest.mark.parametrize("command", ["cat", "show"])
class TestContent:
    @pytest.mark.parametrize(
        "words", [["a2:a.txt"], ["a2", "a.txt"], ["a2", "--", "a.txt"], ["latest~1:a.txt"], ["a2:./a.txt"], ["a.txt"]]
    )
    def test_it_is_printed(self, edited: Program, command: str, words: list[str]) -> None:
        ran = edited(command, *words)
        assert (ran.code, ran.out, ran.err) == (0, "two\n", "")

    def test_bytes_are_exact(self, edited: Program, project: Path, command: str) -> None:
        data = bytes(range(256)) + b"\r\n\x1b[2J"
        (project / "b.bin").write_bytes(data)
        edited.saved()
        ran = subprocess.run([*edited.command, command, "latest:b.bin"], capture_output=True, check=True)
        assert ran.stdout == data
        found = edited(command, "latest:b.bin", "--json").json["files"][0]
        assert base64.b64decode(found["base64"]) == data and found["size_bytes"] == len(data)

    def test_a_path_after_a_colon_is_meant_from_the_workspace(
        self, edited: Program, project: Path, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(project / "src")
        assert edited(command, "a1:a.txt").out == "one\n"
        assert edited(command, "a1:./b.py").out == "print(1)\n"
        assert edited(command, "a1", "b.py").out == "print(1)\n"
        assert edited(command, "a1", "../a.txt").out == "one\n"

    def test_several_at_once(self, edited: Program, command: str) -> None:
        assert edited(command, "a1:a.txt", "a2:a.txt").out == "one\ntwo\n"
        assert edited(command, "a1", "a.txt", "src/b.py").out == "one\nprint(1)\n"

    def test_a_deleted_file_needs_no_dashes(self, edited: Program, project: Path, command: str) -> None:
        (project / "a.txt").unlink()
        assert edited(command, "a2", "a.txt").out == "two\n"
        assert edited(command, "a.txt").out == "two\n"

    def test_json_has_the_text(self, edited: Program, command: str) -> None:
        (found,) = edited(command, "a2:a.txt", "--json").json["files"]
        assert (found["path"], found["kind"], found["text"], found["mode"]) == ("a.txt", "file", "two\n", "0644")


def test_show_lists_a_folder(edited: Program) -> None:
    assert edited("show", "a2:src").out == "b.py\n"
    assert edited("show", "a2", ".").out == "a.txt\nsrc/\n"
    assert edited("cat", "a2:src").code == 6


def test_a_name_with_a_colon_is_a_checkpoint(edited: Program) -> None:
    edited.saved("--name", "a1:a.txt", "--allow-empty")
    assert edited("show", "a1:a.txt", "--json").json["checkpoint"]["name"] == "a1:a.txt"


def test_show_tells_whose_commit_it_prints(edited: Program, project: Path) -> None:
    assert "\ngit  " not in edited("show").out
    subprocess.run(["git", "init", "-q", "-b", "trunk", project], check=True)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"], check=True
    )
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    edited.saved()
    shown = edited("show").out
    assert f"branch trunk, commit {head}" in shown
    document = edited("show", "--json").json["checkpoint"]
    assert document["git"] == {"commit": head, "branch": "trunk"}
    assert f"commit {document['commit']} in the store" in shown


def test_restore_says_that_the_branch_is_another(edited: Program, project: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk", project], check=True)
    edited.saved()
    assert "branch" not in edited("restore", "latest", "--dry-run").out
    subprocess.run(["git", "symbolic-ref", "HEAD", "refs/heads/feature"], check=True)
    (project / "a.txt").write_text("on the feature\n")
    said = "a4 was saved on branch trunk; you are on branch feature."
    assert said in edited("restore", "latest", "--dry-run").out
    ran = edited("restore", "latest", "--json")
    assert ran.json["plan"]["branches"] == ["trunk", "feature"]
    (project / "a.txt").write_text("once more\n")
    assert said in edited("restore", "latest").err


def test_show_marks_changed_paths(edited: Program, project: Path) -> None:
    (project / "new.txt").write_text("new\n")
    (project / "src" / "b.py").unlink()
    edited.saved()
    out = edited("show").out
    assert "M a.txt" in out and "A new.txt" in out and "D src/b.py" in out
    changes = edited("show", "--json").json["checkpoint"]["changes"]
    assert {each["path"]: each["status"] for each in changes} == {"a.txt": "M", "new.txt": "A", "src/b.py": "D"}


class TestDiff:
    @pytest.mark.parametrize(
        ("words", "paths"),
        [
            (["a1", "a3"], ["a.txt", "src/b.py"]),
            (["a1..a3"], ["a.txt", "src/b.py"]),
            (["a2.."], ["src/b.py"]),
            (["a1..a3", "a.txt"], ["a.txt"]),
            (["a1", "a3", "src"], ["src/b.py"]),
            (["a1", "src/"], ["src/b.py"]),
            (["a.txt"], ["a.txt"]),
            (["--", "a.txt"], ["a.txt"]),
            (["latest", "--", "src"], ["src/b.py"]),
            ([], ["a.txt", "src/b.py"]),
        ],
    )
    def test_words_are_checkpoints_then_paths(self, edited: Program, words: list[str], paths: list[str]) -> None:
        assert edited("diff", "--name-only", *words).out.splitlines() == paths

    def test_a_deleted_path_needs_no_dashes(self, edited: Program, project: Path) -> None:
        (project / "a.txt").unlink()
        assert edited("diff", "--name-only", "a.txt").out == "a.txt\n"

    def test_a_word_that_is_both_needs_dashes(self, edited: Program, project: Path) -> None:
        edited.saved("--name", "src", "--allow-empty")
        ran = edited("diff", "src")
        assert ran.code == 2 and "put -- before" in ran.err
        assert edited("diff", "a1", "--name-only", "--", "src").out == "src/b.py\n"
        assert edited("diff", "src", "--").code == 0

    @pytest.mark.parametrize("words", ["a1..a99", "a99..a1"])
    def test_a_range_names_the_end_that_is_missing(self, edited: Program, words: str) -> None:
        ran = edited("diff", words)
        assert ran.code == 3 and "there is no checkpoint 'a99'" in ran.err

    def test_a_checkpoint_too_many(self, edited: Program) -> None:
        assert edited("diff", "a1", "a2", "a3").code == 2


class TestHistory:
    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["a.txt"], ["second", "first"]),
            (["--", "a.txt"], ["second", "first"]),
            (["src"], ["third", "first"]),
            (["src/"], ["third", "first"]),
            (["src/b.py", "a.txt"], ["third", "second", "first"]),
            (["a1..a3"], ["third", "second"]),
            (["a2"], ["second", "first"]),
            (["a1..a2", "a.txt"], ["second"]),
            (["..a2"], []),
        ],
    )
    def test_only_what_changed_the_path(self, edited: Program, words: list[str], found: list[str]) -> None:
        listed = edited("log", "--json", *words).json["items"]
        assert [each["message"] for each in listed] == found

    def test_a_deleted_file_has_a_history(self, edited: Program, project: Path) -> None:
        (project / "a.txt").unlink()
        edited.saved("gone")
        assert [each["message"] for each in edited("log", "a.txt", "--json").json["items"]] == [
            "gone",
            "second",
            "first",
        ]

    def test_a_path_that_nothing_changed(self, edited: Program, project: Path) -> None:
        (project / "new").write_text("")
        ran = edited("log", "new")
        assert (ran.code, ran.err) == (0, "No checkpoint changed new.\n")
        assert edited("log", "--", "none").err == "No checkpoint changed none.\n"

    def test_a_folder_with_a_store_is_a_location(self, edited: Program, project: Path) -> None:
        (project / "sub").mkdir()
        assert edited("-C", "sub", "init").code == 0
        assert edited("log", "sub").err == "No checkpoints yet.\n"


def test_the_current_folder_is_a_path_within_a_workspace(edited: Program, project: Path, monkeypatch) -> None:
    for words in (["log", "--json", "."], ["log", "--json", "../src"]):
        monkeypatch.chdir(project)
        expected = edited("log", "--json", "src").json
        monkeypatch.chdir(project / "src")
        assert edited(*words).json["items"] == expected["items"] != []
    assert edited("diff", "a1", "a2", ".").code == 0
