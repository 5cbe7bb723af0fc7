"""Which checkpoints have a text, where it came and where it went."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast import Damaged, Refused, Workspace
from holdfast.shadowgit import ObjectStore
from holdfast.workspace.search import EXCERPT_MAX_CHARS


def seen(ws: Workspace, text: str, **options: Any) -> list[tuple[str, str, str, str | None]]:
    """Path, first, last and where it is gone, by message."""
    return [
        (
            match.path,
            match.first.message,
            match.last.message,
            match.disappeared_in.message if match.disappeared_in else None,
        )
        for match in ws.search(text, **options)
    ]


def test_a_text_is_followed_from_where_it_came_to_where_it_went(project, ws: Workspace) -> None:
    project.write("a", b"nothing\n")
    ws.save("one")
    project.write("a", b"nothing\n  has the Needle here\n")
    ws.save("two", actor="claude", session="s1")
    project.write("b")
    ws.save("three")
    project.write("a", b"nothing\n")
    ws.save("four", actor="someone")
    [match] = ws.search("Needle")
    assert seen(ws, "Needle") == [("a", "two", "three", "four")]
    assert (match.line, match.excerpt) == (2, "has the Needle here")
    assert (match.first.actor, match.first.session) == ("claude", "s1")
    assert match.disappeared_in is not None
    assert match.disappeared_in.actor == "someone"


def test_what_the_newest_checkpoint_has_is_not_gone(project, ws: Workspace) -> None:
    project.write("a", b"Needle\n")
    ws.save("one")
    project.write("a", b"Needle, and more\n")
    ws.save("two")
    assert seen(ws, "Needle") == [("a", "one", "two", None)]


def test_what_comes_again_is_found_again(project, ws: Workspace) -> None:
    for number, text in enumerate([b"Needle\n", b"gone\n", b"Needle\n"]):
        project.write("a", text)
        ws.save(str(number), allow_empty=True)
    assert seen(ws, "Needle") == [("a", "0", "0", "1"), ("a", "2", "2", None)]


def test_matches_are_told_as_they_appear(project, ws: Workspace) -> None:
    for number, text in enumerate([b"Needle\n", b"gone\n", b"Needle again\n"]):
        project.write("a", text)
        ws.save(str(number))
    told: list[tuple[str, str]] = []
    seen_at: list[tuple[int, int]] = []
    ws.search(
        "Needle",
        found=lambda match: told.append((match.excerpt, match.first.message)),
        progress=lambda stage, done, total: seen_at.append((done, len(told))),
    )
    assert told == [("Needle", "0"), ("Needle again", "2")]
    assert seen_at == [(1, 1), (2, 1), (3, 2)]


def test_a_deleted_folder_takes_its_text_with_it(project, ws: Workspace) -> None:
    project.write("folder/deep/a", b"Needle\n")
    project.write("other")
    ws.save("one")
    (project.root / "folder" / "deep" / "a").unlink()
    (project.root / "folder" / "deep").rmdir()
    (project.root / "folder").rmdir()
    project.write("folder", b"a file, with Needle\n")
    ws.save("two")
    assert seen(ws, "Needle") == [("folder", "two", "two", None), ("folder/deep/a", "one", "one", "two")]


def test_a_file_that_became_a_folder_is_gone(project, ws: Workspace) -> None:
    project.write("x", b"Needle\n")
    ws.save("one")
    (project.root / "x").unlink()
    project.write("x/y", b"none\n")
    ws.save("two")
    assert seen(ws, "Needle") == [("x", "one", "one", "two")]


def test_what_only_a_safety_checkpoint_has_is_found(project, ws: Workspace) -> None:
    project.write("a", b"plain\n")
    ws.save("one")
    project.write("a", b"Needle\n")
    ws.restore("latest")
    [match] = ws.search("Needle")
    assert match.first.operation is not None


def test_expressions_and_case(project, ws: Workspace) -> None:
    project.write("a", "key = 'Ünïque-42'\n".encode())
    ws.save("one")
    assert seen(ws, r"^key = '\w+-\d+'$", regex=True)
    assert not seen(ws, r"\w+-\d+")
    assert not seen(ws, "ünïque")
    assert seen(ws, "ünïque", ignore_case=True)
    with pytest.raises(Refused, match="expression"):
        ws.search("(", regex=True)
    with pytest.raises(Refused):
        ws.search("")


def test_binary_files_are_passed_over(project, ws: Workspace) -> None:
    project.write("a.bin", b"\0\1Needle")
    project.write("late.txt", b"x" * 9000 + b"\0Needle")
    ws.save("one")
    assert seen(ws, "Needle") == [("late.txt", "one", "one", None)]


def test_only_some_paths(project, ws: Workspace) -> None:
    for path in ("src/a.py", "src/b.txt", "c.py"):
        project.write(path, b"Needle\n")
    ws.save("one")
    assert [match.path for match in ws.search("Needle", paths=["src"])] == ["src/a.py", "src/b.txt"]
    assert [match.path for match in ws.search("Needle", paths=["*.py"])] == ["c.py", "src/a.py"]
    assert len(ws.search("Needle", limit=2)) == 2


def test_text_across_two_chunks_is_found(project, ws: Workspace) -> None:
    line = b"0123456789abcdef" * 4 + b"\n"
    data = bytearray(line * ((9 << 20) // len(line)))
    project.write("large", bytes(data))
    ws.save("plain")
    sizes = _part_sizes(project, ws)
    at = sizes[0] - 3
    data[at : at + 6] = b"Needle"
    project.write("large", bytes(data))
    ws.save("with")
    [match] = ws.search("Needle")
    assert match.line == bytes(data[:at]).count(b"\n") + 1
    assert "Needle" in match.excerpt


def _part_sizes(project, ws: Workspace) -> list[int]:
    from holdfast.shadowgit import FOLDER_MODE
    from holdfast.workspace.stored.chunking import list_parts
    from holdfast.workspace.stored.record import read_contents

    objects = ObjectStore(project.store)
    contents = read_contents(objects, objects.commit(objects.ref(ws.get("latest").id)))
    [entry] = [entry for entry in objects.tree(contents.root.tree) if entry.name == b"large"]
    return [len(objects.blob(oid)) for oid in list_parts(objects, FOLDER_MODE, entry.oid)]


def test_the_excerpt_of_a_long_line_shows_the_place(project, ws: Workspace) -> None:
    project.write("a", b"x" * 5000 + b"Needle" + b"y" * 5000)
    ws.save("one")
    [match] = ws.search("Needle")
    assert "Needle" in match.excerpt
    assert len(match.excerpt) <= EXCERPT_MAX_CHARS


def test_each_content_is_read_once(project, ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        project.write(f"copy-{number}", b"the same Needle\n")
        ws.save(str(number))
    read: list[bytes] = []
    real = ObjectStore.blob

    def blob(self: ObjectStore, oid: bytes) -> bytes:
        data = real(self, oid)
        if b"Needle" in data:
            read.append(oid)
        return data

    monkeypatch.setattr(ObjectStore, "blob", blob)
    assert len(ws.search("Needle")) == 5
    assert len(read) == 1


def test_damage_is_said_unless_it_is_to_be_passed_over(project, ws: Workspace) -> None:
    project.write("a", random.Random(1).randbytes(3000).hex().encode())
    project.write("b", b"Needle\n")
    ws.save("one")
    pack = max((project.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.chmod(0o600)
    pack.write_bytes(data)
    again = project.open()
    with pytest.raises(Damaged):
        again.search("Needle")
    assert [match.path for match in again.search("Needle", skip_damaged=True)] == ["b"]


class TestStates:
    def test_a_text_in_a_state_is_found_from_where_to_where(self, project: Any, ws: Workspace) -> None:
        talk = [{"role": "user", "text": 'first\nsecond "quoted" line'}]
        project.write("a")
        ws.save("none")
        one = ws.save("one", state={"talk": talk, "step": 12345}, actor="somebody")
        two = ws.save("two", state={"talk": [*talk, "more"], "step": 2})
        three = ws.save("three", state={"talk": []})
        [match] = ws.search('"quoted"')
        assert (match.path, match.line, match.excerpt) == ("(state) talk", 5, 'second "quoted" line')
        assert (match.first.id, match.last.id, match.disappeared_in.id) == (one.id, two.id, three.id)
        assert match.first.actor == "somebody"
        assert [each.path for each in ws.search("12345")] == ["(state) step"]
        assert [each.path for each in ws.search("text", regex=True)] == ["(state) talk"]

    def test_paths_narrow_it_to_files_or_to_states(self, project: Any, ws: Workspace) -> None:
        project.write("file", b"a word\n")
        ws.save("one", state={"talk": "a word", "other": "a word"})
        assert [each.path for each in ws.search("word")] == ["(state) other", "(state) talk", "file"]
        assert [each.path for each in ws.search("word", paths=["file"])] == ["file"]
        assert [each.path for each in ws.search("word", paths=["(state) *"])] == ["(state) other", "(state) talk"]

    @pytest.mark.parametrize("text", ["naïve – ☃", "tab\there", "zero\0byte", "back\\slash"])
    def test_it_is_found_however_json_spells_it(self, project: Any, ws: Workspace, text: str) -> None:
        ws.save("one", state={"talk": ["x" * 50_000, f"before {text} after", "y" * 50_000]}, allow_empty=True)
        assert [each.path for each in ws.search(text)] == ["(state) talk"]
        assert ws.search(text + "!") == []

    def test_one_across_two_parts_is_found(self, project: Any, ws: Workspace) -> None:
        items = [f"item {number}, and so on" for number in range(20_000)]
        ws.save("one", state={"talk": items}, allow_empty=True)
        for number in range(0, 20_000, 997):
            assert [each.path for each in ws.search(items[number])] == ["(state) talk"]


class TestSafetyCheckpoints:
    def test_they_do_not_split_a_line_of_history(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        ws.save("one")
        for _ in range(2):
            project.write("a", b"tried without\n")
            ws.restore("latest")  # saves what lacks it, and brings it back
        project.write("b")
        ws.save("two")
        assert seen(ws, "Needle") == [("a", "one", "two", None)]

    def test_what_a_restore_brought_back_is_not_gone(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        ws.save("one")
        project.write("a", b"without\n")
        ws.restore("latest")
        [match] = ws.search("Needle")
        assert match.disappeared_in is None and match.in_folder is True

    def test_what_a_save_lacked_was_gone(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        first = ws.save("one")
        project.write("a", b"without\n")
        ws.save("two")
        ws.restore(first.id)
        project.write("b")
        ws.save("three")
        assert seen(ws, "Needle") == [("a", "one", "one", "two"), ("a", "three", "three", None)]

    def test_they_do_not_end_a_line_of_history(self, project, ws: Workspace) -> None:
        project.write("a", b"plain\n")
        first = ws.save("one")
        project.write("a", b"Needle\n")
        ws.save("two")
        ws.restore(first.id)
        ws.undo()  # saves what lacks it, and brings it back
        [match] = ws.search("Needle")
        assert (match.last.message, match.disappeared_in, match.in_folder) == ("two", None, True)
        project.write("a", b"without\n")
        [match] = ws.search("Needle")
        assert (match.disappeared_in, match.in_folder) == (None, False)
        ws.save("three")
        assert seen(ws, "Needle") == [("a", "two", "two", "three")]

    def test_what_saves_have_too_is_no_match_of_its_own(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        first = ws.save("one")
        project.write("a", b"without\n")
        ws.save("two")
        ws.restore(first.id)
        ws.restore("latest")  # its safety checkpoint has it
        project.write("b")
        ws.save("three")
        assert seen(ws, "Needle") == [("a", "one", "one", "two")]

    def test_another_line_that_only_they_have_is_found(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle 1\n")
        ws.save("one")
        project.write("a", b"Needle 2\n")
        ws.restore("latest")
        assert [(match.excerpt, match.first.operation is None) for match in ws.search("Needle")] == [
            ("Needle 1", True),
            ("Needle 2", False),
        ]

    def test_what_only_they_have_is_one_match_each_time(self, project, ws: Workspace) -> None:
        project.write("a", b"plain\n")
        ws.save("one")
        for number in range(2):
            project.write("a", b"Needle\n")
            ws.restore("latest")
            project.write("b", b"%d" % number)
            ws.save("more")
        assert len(ws.search("Needle")) == 2


class TestTheFolder:
    def test_unsaved_text_is_in_the_folder_though_gone_from_checkpoints(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        ws.save("one")
        project.write("a", b"without\n")
        ws.save("two")
        assert ws.search("Needle")[0].in_folder is False
        project.write("a", b"the Needle again\n")
        [match] = ws.search("Needle")
        assert match.disappeared_in is not None and match.in_folder is True

    def test_restored_text_is_in_the_folder(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        first = ws.save("one")
        project.write("a", b"without\n")
        ws.save("two")
        ws.restore(first.id)
        [match] = ws.search("Needle")
        assert match.disappeared_in is not None and match.in_folder is True

    def test_what_was_deleted_and_not_saved_is_not_in_the_folder(self, project, ws: Workspace) -> None:
        project.write("a", b"Needle\n")
        ws.save("one")
        (project.root / "a").unlink()
        [match] = ws.search("Needle")
        assert match.disappeared_in is None and match.in_folder is False

    def test_it_is_unknown_for_states_and_what_rules_leave_out(self, project, ws: Workspace) -> None:
        project.write("big/a", b"Needle\n")
        ws.save("one", state={"talk": "Needle"})
        project.write(".holdfastignore", b"big\n")
        assert [(match.path, match.in_folder) for match in ws.search("Needle")] == [
            ("(state) talk", None),
            ("big/a", None),
        ]
