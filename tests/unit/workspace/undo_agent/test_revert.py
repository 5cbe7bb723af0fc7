"""Taking back chosen hunks: these and nothing else, exactly, or nothing at all."""

from __future__ import annotations

import os
import random
import sqlite3
import stat

import pytest

from holdfast import Conflict, NotFound, Refused
from holdfast.model import documents
from holdfast.testing.disk_contract import describe, differences

LINES = [b"line %d\n" % number for number in range(30)]


def with_lines(**lines: bytes) -> bytes:
    return b"".join(lines.get(f"l{number}", line) for number, line in enumerate(LINES))


@pytest.fixture
def saved(project, ws):
    """A text of thirty lines, saved."""
    project.write("text", with_lines())
    return ws.save().id


def test_one_hunk_goes_and_the_others_stay(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n", l29=b""))
    found = ws.changes(saved)
    first, second, third = found.hunks
    assert [hunk.before for hunk in found.hunks] == [(3, 1), (16, 1), (30, 1)]
    assert (second.removed, second.added) == (("line 15\n",), ("fifteen\n",))
    done = ws.revert(found, [second])
    assert done.ok and done.written == ["text"]
    assert file.read_bytes() == with_lines(l2=b"two\n", l29=b"")
    assert [hunk.id for hunk in ws.changes(saved).hunks] == [first.id, third.id]


def test_undo_and_redo(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n"))
    os.utime(file, ns=(5, 5))
    before = describe(project.root)
    ws.revert(ws.changes(saved), [ws.changes(saved).hunks[0].id])
    after = describe(project.root)
    assert file.read_bytes() == with_lines(l15=b"fifteen\n")
    ws.undo()
    assert not differences(before, describe(project.root))
    ws.redo()
    assert not differences(after, describe(project.root))


def test_all_hunks_bring_back_the_file_with_its_time(project, ws):
    file = project.write("text", with_lines())
    file.chmod(0o600)
    os.utime(file, ns=(7, 7))
    saved = ws.save().id
    before = describe(project.root)["text"]
    file.write_bytes(with_lines(l2=b"two\n", l15=b"fifteen\n"))
    file.chmod(0o755)
    ws.revert(ws.changes(saved))
    assert describe(project.root)["text"] == before


def test_mode_and_lines_are_separate(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n"))
    file.chmod(0o700)
    mode, lines = ws.changes(saved).hunks
    assert (mode.kind, lines.kind) == ("mode", "lines")
    ws.revert(ws.changes(saved), [mode])
    assert stat.S_IMODE(file.stat().st_mode) == 0o644 and file.read_bytes() == with_lines(l2=b"two\n")
    ws.undo()
    ws.revert(ws.changes(saved), [lines])
    assert stat.S_IMODE(file.stat().st_mode) == 0o700 and file.read_bytes() == with_lines()


@pytest.mark.parametrize(
    ("old", "new", "chosen", "wanted"),
    [
        (b"a\r\nb\r\nc\r\n", b"A\r\nb\r\nC\r\n", 1, b"A\r\nb\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", b"a\nb\nc\n", 0, b"a\r\nb\nc\n"),
        (b"a\nb\nc", b"A\nb\nc\n", 1, b"A\nb\nc"),
        (b"a\nb\nc", b"A\nb\nc\nd", 0, b"a\nb\nc\nd"),
        (b"a\nb\nc\n", b"A\nb\nc", 0, b"a\nb\nc"),
        (b"a\nb\n\xff\xfe\n", b"A\nb\n\xff\xfd\n", 1, b"A\nb\n\xff\xfe\n"),
        (b"a\x85b\n\x0bc\nx\n", b"a\x85B\n\x0bc\ny\n", 0, b"a\x85b\n\x0bc\ny\n"),
        (b"a\nb\n", b"", 0, b"a\nb\n"),
        (b"", b"a\nb", 0, b""),
    ],
)
def test_bytes_are_exact(project, ws, old, new, chosen, wanted):
    file = project.write("text", old)
    saved = ws.save().id
    file.write_bytes(new)
    found = ws.changes(saved)
    ws.revert(found, [found.hunks[chosen]])
    assert file.read_bytes() == wanted


def test_any_choice_of_hunks_equals_the_text_made_by_hand(project, ws, saved):
    chance = random.Random(4)
    for _ in range(15):
        changed = {f"l{at}": chance.choice([b"", b"new\n", b"one\ntwo\n"]) for at in chance.sample(range(0, 30, 2), 6)}
        file = project.write("text", with_lines(**changed))
        found = ws.changes(saved)
        assert len(found.hunks) == 6
        by_line = {f"l{hunk.before[0] - 1}": hunk for hunk in found.hunks}
        kept = set(chance.sample(sorted(changed), 3))
        ws.revert(found, [hunk.id for line, hunk in by_line.items() if line not in kept])
        assert file.read_bytes() == with_lines(**{line: changed[line] for line in kept})


def test_added_deleted_and_binary_files_go_whole(project, ws):
    project.write("gone/deep/file", b"gone\n").chmod(0o640)
    project.write("binary", b"\0one")
    (project.root / "link").symlink_to("binary")
    saved = ws.save().id
    before = describe(project.root)
    (project.root / "gone/deep/file").unlink()
    (project.root / "gone/deep").rmdir()
    (project.root / "gone").rmdir()
    project.write("binary", b"\0two")
    project.write("new/folder/file", b"new\n")
    (project.root / "link").unlink()
    (project.root / "link").symlink_to("elsewhere")
    found = ws.changes(saved)
    assert {hunk.path: hunk.kind for hunk in found.hunks} == dict.fromkeys(
        ["binary", "gone/deep/file", "link", "new/folder/file"], "whole"
    )
    for hunk in found.hunks:
        ws.revert(found, [hunk])
    changed = differences(before, describe(project.root))
    assert [line for line in changed if not line.startswith(".: mtime_ns")] == []


def test_folders_of_their_own_and_types_that_changed(project, ws):
    (project.root / "empty").mkdir()
    (project.root / "plain").mkdir()
    project.write("becomes-folder", b"file\n")
    project.write("becomes-file/a", b"a\n")
    saved = ws.save().id
    before = describe(project.root)
    (project.root / "empty").rmdir()
    (project.root / "plain").chmod(0o700)
    (project.root / "added").mkdir()
    (project.root / "becomes-folder").unlink()
    project.write("becomes-folder/b", b"b\n")
    (project.root / "becomes-file/a").unlink()
    (project.root / "becomes-file").rmdir()
    project.write("becomes-file", b"now a file\n")
    found = ws.changes(saved)
    assert [hunk.path for hunk in found.hunks] == ["added", "becomes-file", "becomes-folder", "empty", "plain"]
    ws.revert(found)
    changed = differences(before, describe(project.root))
    assert [line for line in changed if not line.startswith(".: mtime_ns")] == []


def test_a_folder_with_something_else_in_it_stays(project, ws, saved):
    project.write("new/chosen")
    project.write("new/mine")
    found = ws.changes(saved)
    ws.revert(found, [hunk for hunk in found.hunks if hunk.path == "new/chosen"])
    assert sorted(path.name for path in (project.root / "new").iterdir()) == ["mine"]


def test_between_two_checkpoints_applied_to_the_folder_as_it_is(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n"))
    later = ws.save().id
    file.write_bytes(b"above\n" + with_lines(l2=b"two\n", l15=b"fifteen\n", l25=b"mine\n"))
    found = ws.changes(saved, later)
    ws.revert(found, [found.hunks[1].id])
    assert file.read_bytes() == b"above\n" + with_lines(l2=b"two\n", l25=b"mine\n")


def test_lines_that_were_changed_again_are_a_conflict_and_nothing_is_done(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n"))
    project.write("other", b"new\n")
    later = ws.save().id
    file.write_bytes(with_lines(l2=b"two\n", l15=b"changed again\n"))
    before = describe(project.root)
    with pytest.raises(Conflict, match=r"text: .*changed since"):
        ws.revert(ws.changes(saved, later))
    assert not differences(before, describe(project.root)) and ws.next_undo() is None


def test_a_hunk_that_is_not_there_any_more_is_named(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n"))
    found = ws.changes(saved)
    file.write_bytes(with_lines(l2=b"two\n", l15=b"sixteen\n"))
    with pytest.raises(Conflict, match=r"text \(line 16\)"):
        ws.revert(found)
    assert file.read_bytes() == with_lines(l2=b"two\n", l15=b"sixteen\n")
    with pytest.raises(Conflict, match="nonsense"):
        ws.revert(found, ["nonsense"])


def test_a_hunk_is_found_after_a_change_above_it(project, ws, saved):
    file = project.write("text", with_lines(l15=b"fifteen\n"))
    hunk = ws.changes(saved).hunks[0]
    file.write_bytes(with_lines(l2=b"two\nthree\n", l15=b"fifteen\n"))
    ws.revert(ws.changes(saved), [hunk.id])
    assert file.read_bytes() == with_lines(l2=b"two\nthree\n")


def test_a_plan_tells_what_is_done_and_is_held_to(project, ws, saved):
    file = project.write("text", with_lines(l2=b"two\n", l15=b"fifteen\n"))
    project.write("new")
    found = ws.changes(saved)
    plan = ws.preview_revert(found, found.hunks[:2])
    assert (plan.removed, plan.replaced, len(plan.hunks)) == (["new"], ["text"], 2)
    assert file.read_bytes() == with_lines(l2=b"two\n", l15=b"fifteen\n")
    file.write_bytes(with_lines(l2=b"two\n", l15=b"fifteen\n", l25=b"meanwhile\n"))
    with pytest.raises(Conflict):
        ws.revert(found, found.hunks[:2], plan)
    plan = ws.preview_revert(found, found.hunks[:2])
    assert ws.revert(found, found.hunks[:2], plan).ok
    assert file.read_bytes() == with_lines(l15=b"fifteen\n", l25=b"meanwhile\n")


def test_half_a_database_is_refused(project, ws):
    database = sqlite3.connect(project.root / "data.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE t (x)")
    database.commit()
    saved = ws.save().id
    database.execute("INSERT INTO t VALUES (1)")
    database.commit()
    ws.save()
    found = ws.changes(saved)
    log = [hunk for hunk in found.hunks if hunk.path == "data.db-wal"]
    project.write("data.db-wal", (project.root / "data.db-wal").read_bytes() + b"more")
    with pytest.raises(Conflict):
        ws.revert(found, log)
    database.close()


def test_only_the_paths_that_were_asked_for(project, ws, saved):
    project.write("text", with_lines(l2=b"two\n"))
    project.write("src/new")
    assert [hunk.path for hunk in ws.changes(saved, paths=["src"]).hunks] == ["src/new"]
    with pytest.raises(NotFound):
        ws.changes(saved, paths=["nowhere"])


def test_what_is_no_hunk_is_refused(ws, saved):
    for given in ("text", [3], [None]):
        with pytest.raises(Refused):
            ws.revert(ws.changes(saved), given)
    with pytest.raises(Refused):
        ws.revert([], [])


def test_the_document_can_be_sent_to_a_page(project, ws, saved):
    import json

    project.write(os.fsdecode(b"na\xffme"), b"\xff\n")
    found = json.loads(json.dumps(documents.changes(ws.changes(saved))))
    ids = [hunk["id"] for file in found["files"] for hunk in file["hunks"]]
    ws.revert(ws.changes(found["from_id"], found["to_id"]), ids)
    assert sorted(path.name for path in project.root.iterdir()) == ["text"]


def test_the_rest_of_an_agents_work_can_still_be_undone(project, ws, saved):
    file = project.write("text", with_lines(l2=b"agent\n", l15=b"agent\n"))
    ws.save(actor="claude-code")
    found = ws.changes(saved)
    ws.revert(found, [found.hunks[0]])
    ws.restore(saved, keep_mine=True)
    assert file.read_bytes() == with_lines()


def test_blame_names_who_wrote_what_came_back(project, ws, saved):
    file = project.write("text", with_lines(l2=b"agent\n", l15=b"agent\n"))
    ws.save(actor="claude-code")
    found = ws.changes(saved)
    ws.revert(found, [found.hunks[0]])
    lines = ws.blame(file.name).lines
    assert lines[15].origin.actor == "claude-code"
    assert lines[2].origin.is_older


def test_more_hunks_than_anybody_chooses_among_are_one(project, ws):
    old = [b"%d\n" % number for number in range(10_010)]
    new = [b"new\n" if number % 2 else line for number, line in enumerate(old)]
    file = project.write("text", b"".join(old))
    saved = ws.save().id
    file.write_bytes(b"first\n" + b"".join(new))
    found = ws.changes(saved)
    (hunk,) = found.hunks
    assert (hunk.before, hunk.after[1]) == ((0, 0) if not hunk.removed else (1, 10_010), 10_011)
    ws.revert(found, [hunk])
    assert file.read_bytes() == b"".join(old)
