"""How many files changed is the same number wherever it is said."""

from __future__ import annotations

import re

import pytest


def numbers(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"(\d+) files?\b", text)]


def renamed(write, project):
    (project / "a.txt").rename(project / "b.txt")


def renamed_and_edited(write, project):
    renamed(write, project)
    write("src/b.py", "print(2)\n")


def swapped(write, project):
    (project / "a.txt").write_text("print(1)\n")
    (project / "src" / "b.py").write_text("one\n")


def replaced_by_a_folder(write, project):
    (project / "a.txt").unlink()
    write("a.txt/inner", "x\n")


@pytest.mark.parametrize(
    ("change", "count"),
    [(renamed, 1), (renamed_and_edited, 2), (swapped, 2), (replaced_by_a_folder, 2)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_change_is_counted_alike(holdfast, project, write, change, count):
    holdfast.saved()
    change(write, project)
    said = [
        holdfast("status").out.split("changed since")[0].splitlines()[-1],
        holdfast("diff", "--stat").out.splitlines()[-1],
        holdfast("save").out,
        holdfast("show", "latest").out.split("changed ")[1].splitlines()[0],
        holdfast("log").out.splitlines()[0],
        holdfast("diff", "--stat", "a1", "a2").out.splitlines()[-1],
    ]
    assert [numbers(each) for each in said] == [[count]] * len(said), said


def test_a_save_after_an_undo_counts_what_log_counts(holdfast, write):
    """Its parent is a checkpoint that no list shows, and that contains the change already."""
    holdfast.saved()
    write("a.txt", "not saved\n")
    holdfast("restore", "a1")
    holdfast("undo")
    assert numbers(holdfast("save").out) == numbers(holdfast("log").out.splitlines()[0]) == [1]
