"""Who each line came from."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from holdfast import NotFound, Refused
from holdfast.model import Blame
from holdfast.workspace.blame import changed_lines
from holdfast.workspace.stored.text_merge import split_lines


def told(found: Blame) -> list[tuple[str, str | None]]:
    """By line: the actor, and the message of the checkpoint."""
    return [(line.origin.actor, line.origin.checkpoint and line.origin.checkpoint.message) for line in found.lines]


def test_each_line_is_told_with_its_actor_and_checkpoint(project, ws):
    project.write("a", b"one\ntwo\nthree\n")
    ws.save("first")
    project.write("a", b"one\nagent\nthree\n")
    ws.save("second", actor="claude-code/helper")
    project.write("b", b"something else\n")
    ws.save("third", actor="codex")
    project.write("a", b"zero\none\nagent\nthree\n")
    found = ws.blame("a")
    assert told(found) == [("user", None), ("user", "first"), ("claude-code/helper", "second"), ("user", "first")]
    assert [line.origin.is_older for line in found.lines] == [False, True, False, True]
    assert [line.number for line in found.lines] == [1, 2, 3, 4]
    assert found.whole.checkpoint is None


def test_a_checkpoint_is_blamed_as_it_was(project, ws):
    project.write("a", b"one\n")
    first = ws.save("first")
    project.write("a", b"one\ntwo\n")
    ws.save("second", actor="codex")
    assert told(ws.blame("a", first.id)) == [("user", "first")]
    assert told(ws.blame(project.root / "a", "latest")) == [("user", "first"), ("codex", "second")]


def test_a_renamed_file_is_followed(project, ws):
    project.write("old", b"1\n2\n3\n4\n")
    ws.save("first")
    (project.root / "old").rename(project.write("folder/new"))
    project.write("folder/new", b"1\n2\n3\nagent\n")
    ws.save("second", actor="codex")
    found = ws.blame("folder/new")
    assert told(found) == [*[("user", "first")] * 3, ("codex", "second")]
    assert [line.origin.path for line in found.lines] == ["old", "old", "old", "folder/new"]


def test_a_file_that_came_later_is_its_makers(project, ws):
    project.write("a")
    ws.save("first")
    project.write("b", b"agent\n")
    ws.save("second", actor="codex")
    [line] = ws.blame("b").lines
    assert (line.origin.actor, line.origin.is_older) == ("codex", False)


def test_binary_and_large_files_are_answered_for_as_a_whole(project, ws):
    project.write("binary", b"\0\1")
    project.write("large", b"line\n" * 2_000_000)
    ws.save("first")
    project.write("binary", b"\0\2")
    ws.save("second", actor="codex")
    found, large = ws.blame("binary"), ws.blame("large")
    assert (found.is_text, found.lines, found.whole.actor) == (False, [], "codex")
    assert (large.is_text, large.whole.is_older) == (False, True)
    project.write("large", b"other\n" * 2_000_000)
    assert ws.blame("large").whole.checkpoint is None


def test_what_an_undo_brought_back_is_still_its_makers(project, ws):
    lines = [b"%d\n" % number for number in range(9)]
    project.write("a", b"".join(lines))
    first = ws.save("first")
    project.write("a", b"".join([b"agent\n", *lines[2:]]))
    ws.save("second", actor="codex")
    project.write("a", b"".join([b"agent\n", *lines[2:], b"user\n"]))
    ws.restore(first.id, keep_mine=True)
    found = ws.blame("a")
    assert told(found)[:9] == [("user", "first")] * 9
    assert found.lines[9].origin.actor == "user"


def test_blame_after_restore_is_that_of_the_restored_file(project, ws):
    project.write("a", b"one\n")
    first = ws.save("first")
    project.write("a", b"agent\n")
    ws.save("second", actor="codex")
    ws.restore(first.id)
    assert told(ws.blame("a")) == [("user", "first")]


def test_an_empty_file_has_no_lines_and_came_from_somewhere(project, ws):
    project.write("a", b"")
    ws.save("first")
    found = ws.blame("a")
    assert (found.is_text, found.lines, found.whole.checkpoint.message) == (True, [], "first")


def test_a_link_is_answered_for_by_where_it_leads(project, ws):
    (project.root / "link").symlink_to("nowhere")
    ws.save("first")
    assert [line.text for line in ws.blame("link").lines] == ["nowhere"]


def test_missing_path_is_not_found_and_folder_is_refused(project, ws):
    project.write("folder/a")
    first = ws.save("first")
    with pytest.raises(NotFound, match="nothing"):
        ws.blame("nothing")
    with pytest.raises(NotFound, match="nothing"):
        ws.blame("nothing", first.id)
    with pytest.raises(Refused):
        ws.blame("folder")
    with pytest.raises(Refused):
        ws.blame("../outside")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_checkpoints(project, ws):
    for number in range(400):
        project.write(f"file-{number}", b"content\n")
    project.write("deep/a", b"one\n" * 50)

    def peak_after(saves: int) -> int:
        for number in range(saves):
            project.write("file-0", b"changed\n" * (len(ws.list(None)) + 1))
            if number % 10 == 0:
                project.write("deep/a", b"one\n" * (50 + number))
            ws.save("s")
        again = project.open()
        again.blame("deep/a")  # what is loaded once
        tracemalloc.start()
        try:
            again.blame("deep/a")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak_after(20), peak_after(100)
    assert many < 2 * few


def test_the_root_is_no_file_of_a_checkpoint(project, ws):
    project.write("a")
    saved = ws.save("first")
    with pytest.raises((NotFound, Refused)):
        ws.blame(".", saved.id)


def test_names_that_git_forbids_and_large_files_are_followed(project, ws):
    project.write("x/.gitattributes", b"one\n")
    project.write("x/large", bytes(9 << 20))
    (project.root / "x" / ".gitignore").symlink_to("a")
    ws.save("first")
    project.write("x/.gitattributes", b"one\ntwo\n")
    last = ws.save("second", actor="codex")
    assert told(ws.blame("x/.gitattributes", last.id)) == [("user", "first"), ("codex", "second")]
    assert ws.blame("x/large", last.id).whole.checkpoint.message == "first"
    assert ws.blame("x/.gitignore", last.id).whole.checkpoint.message == "first"
    with pytest.raises(NotFound):
        ws.blame("x", last.id)


def test_skipping_common_lines_does_not_change_the_answer():
    dice = random.Random(9)
    for _ in range(400):
        old = [dice.choice([b"a\n", b"b\n", b"c\n", b"\n"]) for _ in range(dice.randrange(12))]
        new = list(old)
        for _ in range(dice.randrange(4)):
            new[dice.randrange(len(new) + 1) : dice.randrange(len(new) + 1)] = [dice.choice([b"x\n", b"a\n"])]
        before, after = (b"".join(lines)[: -1 if dice.random() < 0.2 else None] for lines in (old, new))
        made, at = [], 0
        for start, end, first, last in changed_lines(before, after):
            made += split_lines(before)[at:start] + split_lines(after)[first:last]
            at = end
        assert b"".join(made + split_lines(before)[at:]) == after
