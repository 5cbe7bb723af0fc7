"""Texts line by line, judged by git."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.workspace.stored.text_merge import LineHunk, hunks, is_text, merge, split_lines

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\xff\r\n", b"\n"]), max_size=8)
TEXTS = st.builds(lambda lines, last: b"".join(lines) + last, LINES, st.sampled_from([b"", b"x", b"\r"]))


@given(TEXTS)
def test_lines_put_together_are_the_text(text: bytes) -> None:
    assert b"".join(split_lines(text)) == text


@given(TEXTS, TEXTS)
def test_an_old_text_with_its_hunks_is_the_new_one(old: bytes, new: bytes) -> None:
    before, after, at, out = split_lines(old), split_lines(new), 0, []
    for hunk in hunks(old, new):
        out += before[at : hunk.start] + after[hunk.new_start : hunk.new_end]
        at = hunk.end
    assert b"".join(out + before[at:]) == new


def test_lines_are_counted_from_nought() -> None:
    assert hunks(b"a\nb\n", b"z\na\nb\n") == [LineHunk(0, 0, 0, 1)]
    assert hunks(b"a\nb\n", b"b\n") == [LineHunk(0, 1, 0, 0)]


@given(TEXTS, TEXTS)
def test_a_side_that_changed_nothing_leaves_the_other(base: bytes, other: bytes) -> None:
    assert merge(base, base, other) == other
    assert merge(base, other, base) == other
    assert merge(base, other, other) == other


@settings(max_examples=examples(150))
@given(base=TEXTS, ours=TEXTS, theirs=TEXTS)
def test_merge_agrees_with_git_or_git_sees_adjacent_lines(
    base: bytes, ours: bytes, theirs: bytes, tmp_path_factory
) -> None:
    found = merge(base, ours, theirs)
    if found is not None:
        by_git = _by_git(tmp_path_factory.getbasetemp(), ours, base, theirs)
        assert found == by_git or (by_git is None and _touch(base, ours, theirs))


def _touch(base: bytes, ours: bytes, theirs: bytes) -> bool:
    both = sorted([*hunks(base, ours), *hunks(base, theirs)])
    return any(one.end == other.start for one, other in pairwise(both))


def _by_git(folder: Path, *texts: bytes) -> bytes | None:
    names = ["ours", "base", "theirs"]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_bytes(text)
    ran = subprocess.run(["git", "merge-file", "-p", *names], cwd=folder, capture_output=True, check=False)
    assert 0 <= ran.returncode < 128, ran  # the number of conflicts
    return ran.stdout if ran.returncode == 0 else None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"1\nX\n3\n4\n", b"1\nY\n3\n4\n"),  # the same line
        (b"1\n2\nX\n3\n4\n", b"1\n2\nY\n3\n4\n"),  # two insertions at one place
        (b"1\n3\n4\n", b"1\nY\n3\n4\n"),  # a line deleted and changed
    ],
)
def test_changes_that_meet_are_not_merged(ours: bytes, theirs: bytes) -> None:
    assert merge(b"1\n2\n3\n4\n", ours, theirs) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        (b"1\nX\n3\n4\n", b"1\n2\nY\n4\n", b"1\nX\nY\n4\n"),
        (b"1\n2\n4\n", b"1\n2\n3\nY\n4\n", b"1\n2\nY\n4\n"),
        (b"1\n2\n3\n", b"1\n2\n3\n4\nY\n", b"1\n2\n3\nY\n"),
        (b"1\n2\nX\n3\n4\n", b"1\n2\nY\n4\n", b"1\n2\nX\nY\n4\n"),
    ],
)
def test_lines_side_by_side_are_two_changes(ours: bytes, theirs: bytes, merged: bytes) -> None:
    assert merge(b"1\n2\n3\n4\n", ours, theirs) == merged
    assert merge(b"1\n2\n3\n4\n", theirs, ours) == merged


@pytest.mark.parametrize("before", [b"1\n2", b"1"])
def test_line_without_newline_is_not_joined_with_the_next(before: bytes) -> None:
    assert merge(b"1\n2\n", b"1\n2\n3\n", before) is None
    assert merge(b"1\n2\n", before, b"1\n2\n3\n") is None
    assert merge(b"1\n2\n", b"X\n2\n", b"1\n2") == b"X\n2"


def test_text_is_what_has_no_zero_byte_near_its_beginning() -> None:
    assert is_text(b"")
    assert is_text(b"\xff" + bytes([1]) * 9000)
    assert not is_text(b"x\0")
