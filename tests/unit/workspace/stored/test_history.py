"""What checkpoints changed, and which belong to one turn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Workspace
from holdfast.model import Checkpoint, LineCount, PathChange
from holdfast.workspace.stored.history import LINES_MAX_FILES, Summaries, Summary, Turn, group_turns

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


class _Saves:
    """Makes checkpoints as records only; the newest is the last."""

    def __init__(self) -> None:
        self.made: list[Checkpoint] = []

    def save(self, actor: str | None = None, session: str | None = None, message: str = "", **metadata: Any) -> None:
        from datetime import UTC, datetime

        number = len(self.made) + 1
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.made.append(
            Checkpoint(
                f"a{number}-x", message, moment, sequence=number, actor=actor, session=session, metadata=metadata
            )
        )

    def turns(self) -> list[tuple[list[int], str]]:
        return [
            ([each.sequence for each in turn.checkpoints], turn.prompt) for turn in group_turns(reversed(self.made))
        ]


class TestTurns:
    def test_one_turn_of_a_session_is_one(self) -> None:
        saves = _Saves()
        for turn in ("t1", "t1", "t2", "t2"):
            saves.save("claude-code", "s", turn=turn)
        assert saves.turns() == [([4, 3], ""), ([2, 1], "")]

    def test_a_turn_goes_on_past_what_others_saved(self) -> None:
        saves = _Saves()
        saves.save("claude-code", "s", turn="t1")
        saves.save()
        saves.save("gemini", "g", turn="t1")
        saves.save("claude-code/explorer", "s", turn="t1")
        assert saves.turns() == [([4, 1], ""), ([3], ""), ([2], "")]

    def test_the_same_turn_of_another_session_is_another(self) -> None:
        saves = _Saves()
        saves.save("claude-code", "s", turn="t1")
        saves.save("claude-code", "r", turn="t1")
        assert len(saves.turns()) == 2

    def test_without_a_turn_checkpoints_in_a_row_are_one(self) -> None:
        saves = _Saves()
        saves.save("gemini", "s")
        saves.save("gemini", "s")
        saves.save()
        saves.save("gemini", "s")
        saves.save("gemini", "r")
        assert saves.turns() == [([5], ""), ([4], ""), ([3], ""), ([2, 1], "")]

    def test_each_save_of_the_user_is_one(self) -> None:
        saves = _Saves()
        for actor in (None, "user", None):
            saves.save(actor, "s")
        assert [numbers for numbers, _ in saves.turns()] == [[3], [2], [1]]

    def test_prompt_in_the_metadata(self) -> None:
        saves = _Saves()
        saves.save("gemini", "s", prompt="first")
        saves.save("gemini", "s", prompt="first")
        saves.save("gemini", "s", prompt="second")
        assert saves.turns() == [([3], "second"), ([2, 1], "first")]

    def test_prompt_of_the_checkpoint_before(self) -> None:
        saves = _Saves()
        saves.save(None, "s", "before prompt: fix it")
        saves.save("claude-code", "s", turn="t1")
        saves.save("claude-code", "s", turn="t2")
        assert saves.turns() == [([3], ""), ([2], "fix it"), ([1], "")]

    def test_a_turn_that_nobody_continues_ends(self) -> None:
        saves = _Saves()
        saves.save("claude-code", "s", turn="t1")
        for _ in range(300):
            saves.save()
        saves.save("claude-code", "s", turn="t1")
        assert next(iter(group_turns(reversed(saves.made)))).checkpoints[0].sequence == 302
        assert len(saves.turns()) == 302


class TestChanges:
    def test_letters_and_lines(self, ws: Workspace, project: Project) -> None:
        project.write("same", b"1\n")
        project.write("edited", b"1\n2\n")
        project.write("gone", b"never again\n" * 5)
        project.write("old name", b"a longer text\n" * 9)
        first = ws.save()
        project.write("edited", b"1\n3\n4\n")
        project.write("made", b"new\n")
        os.unlink(project.root / "gone")
        os.rename(project.root / "old name", project.root / "sub")
        assert ws.changed_paths(ws.save().id) == [
            PathChange("M", "edited", "", LineCount(2, 1)),
            PathChange("D", "gone", "", LineCount(0, 5)),
            PathChange("A", "made", "", LineCount(1, 0)),
            PathChange("R", "sub", "old name", LineCount(0, 0)),
        ]
        assert [each.letter for each in ws.changed_paths(first.id)] == ["A"] * 4

    def test_without_its_parent_the_letters_are_unknown(self, ws: Workspace, project: Project) -> None:
        project.write("a", b"1\n")
        first = ws.save()
        project.write("a", b"2\n")
        second = ws.save()
        ws.delete(first.id)
        assert ws.changed_paths(second.id) == [PathChange("", "a")]

    def test_deleted_parent_is_replaced_by_the_nearest_older_save(self, ws: Workspace) -> None:
        for name in ("stays", "goes", "changes"):
            (ws.path / name).write_text("one")
        ws.save()
        (ws.path / "stays").write_text("two")
        (ws.path / "short-lived").write_text("two")
        parent = ws.save()
        (ws.path / "changes").write_text("three")
        (ws.path / "new").write_text("three")
        for name in ("goes", "short-lived"):
            (ws.path / name).unlink()
        last = ws.save()
        ws.delete(parent)
        wanted = [("M", "changes"), ("D", "goes"), ("A", "new"), ("D", "short-lived")]
        assert [(each.letter, each.path) for each in ws.changed_paths(last.id)] == wanted
        summary = ws.turns().summaries[0]
        assert [(each.letter, each.path) for each in summary.paths] == wanted and summary.files == 4

    @pytest.mark.parametrize("undo", ["restore and undo", "undo of an agent", "revert"])
    def test_what_an_undo_changed_is_not_the_agents_next_turn(self, ws: Workspace, project: Project, undo: str) -> None:
        project.write("a", b"1\n")
        first = ws.save()
        project.write("b", b"2\n")
        ws.save(actor="claude-code", session="s", metadata={"turn": 1})
        project.write("mine", b"unsaved\n")
        if undo == "undo of an agent":
            ws.restore(first.id, keep_mine=True)
        elif undo == "revert":
            changes = ws.changes(first.id)
            ws.revert(changes, [each.id for each in changes.hunks if each.path == "b"])
        else:
            ws.restore(first.id)
            ws.undo()
        project.write("c", b"3\n")
        next_turn = ws.save(actor="claude-code", session="s", metadata={"turn": 2})
        assert [(each.letter, each.path) for each in ws.changed_paths(next_turn.id)] == [("A", "c")]
        assert [each.path for each in ws.turns().summaries[0].paths] == ["c"]
        assert (ws.changed_count(next_turn.id), ws.get(next_turn.id).files_changed) == (1, ["c"])

    @pytest.mark.parametrize("actor", [None, "user"])
    def test_a_save_of_the_user_has_what_an_undo_brought_back(
        self, ws: Workspace, project: Project, actor: str | None
    ) -> None:
        """Lists show no safety checkpoint, so what only that had would be in no entry."""
        project.write("a", b"1\n")
        first = ws.save()
        project.write("unsaved", b"2\n")
        ws.restore(first.id)
        ws.undo()
        project.write("b", b"3\n")
        assert [each.path for each in ws.changed_paths(ws.save(actor=actor).id)] == ["b", "unsaved"]

    def test_lines_of_many_files_are_not_counted(self, ws: Workspace, project: Project) -> None:
        ws.save(allow_empty=True)
        for number in range(LINES_MAX_FILES + 1):
            project.write(f"f{number}", b"x\n")
        changes = ws.changed_paths(ws.save().id)
        assert len(changes) == LINES_MAX_FILES + 1
        assert {each.lines for each in changes} == {LineCount(None, None)}


class TestSummaries:
    @pytest.fixture
    def turns(self, ws: Workspace, project: Project) -> list[Turn]:
        project.write("a", b"1\n")
        ws.save()
        for number in (2, 3):
            project.write("a", b"%d\n" % number)
            project.write(f"b{number}", b"new\n")
            ws.save(actor="claude-code", session="s", metadata={"turn": 1})
        return list(group_turns(ws.list(None)))

    def test_a_turn_is_compared_with_what_was_before_it(self, ws: Workspace, turns: list[Turn]) -> None:
        found = Summaries(ws._repository).of(turns)
        assert found[0] == Summary(
            3,
            LineCount(3, 1),
            (
                PathChange("M", "a", "", LineCount(1, 1)),
                PathChange("A", "b2", "", LineCount(1, 0)),
                PathChange("A", "b3", "", LineCount(1, 0)),
            ),
        )
        assert found[1].files == 1

    def test_many_at_once_are_as_one_by_one(self, project: Project, ws: Workspace) -> None:
        for number in range(45):
            project.write(f"src/{number % 3}", b"x\n" * (number + 1))
            ws.save(str(number))
        turns = [Turn((each,), "") for each in ws.list(None)]
        together = Summaries(ws._repository).of(turns)
        (ws.store / "holdfast" / "summaries.db").unlink()
        assert together == [Summaries(ws._repository).of([turn])[0] for turn in turns]

    def test_the_names_of_all_refs_are_not_read(
        self, project: Project, ws: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That would take a third of a second for 50 turns of 10,000 checkpoints."""
        project.write("a", b"x")
        turn = Turn((ws.save("one"),), "")
        monkeypatch.setattr(ws._repository, "_outside", lambda: pytest.fail("read the refs"))
        assert Summaries(ws._repository).of([turn])[0].files == 1

    def test_they_are_kept(self, ws: Workspace, turns: list[Turn], monkeypatch: pytest.MonkeyPatch) -> None:
        found = Summaries(ws._repository).of(turns)
        monkeypatch.setattr(Summaries, "_computed", lambda self, run: pytest.fail("computed again"))
        assert Summaries(ws._repository).of(turns) == found

    @pytest.mark.parametrize("data", [b"", b"nonsense" * 100])
    def test_a_damaged_file_is_made_again(self, ws: Workspace, turns: list[Turn], data: bytes) -> None:
        found = Summaries(ws._repository).of(turns)
        (ws.store / "holdfast" / "summaries.db").write_bytes(data)
        assert Summaries(ws._repository).of(turns) == found
        assert Summaries(ws._repository).of(turns) == found

    def test_two_rows_of_one_turn_count_together(self, ws: Workspace, project: Project) -> None:
        project.write("a", b"1\n")
        ws.save()
        for number, actor in enumerate(("agent", None, "agent"), 2):
            project.write("a" if actor else "mine", b"%d\n" % number)
            ws.save(actor=actor, session="s" if actor else None, metadata={"turn": 1} if actor else {})
        turns = list(group_turns(ws.list(None)))
        assert [len(turn.checkpoints) for turn in turns] == [2, 1, 1]
        found = Summaries(ws._repository).of(turns)[0]
        assert (found.files, found.lines, [each.path for each in found.paths]) == (1, LineCount(2, 2), ["a"])
