"""`undo --agent`, `restore --keep-mine`, `blame` and `log --actor`."""

from __future__ import annotations

import pytest

from holdfast import Workspace

LINES = [f"line {number}\n" for number in range(9)]


def text(**lines: str) -> str:
    return "".join(lines.get(f"l{number}", line.rstrip()) + "\n" for number, line in enumerate(LINES))


@pytest.fixture
def worked(holdfast, write):
    """A turn of an agent's, and edits of a user's in the same file and in one that the agent made."""
    write("text", text())
    holdfast.saved("before")
    write("text", text(l1="agent"))
    write("made", "agent\n")
    write("both", "agent\n")
    holdfast.saved("worked", "--actor", "claude-code", "--session", "s1")
    write("text", text(l1="agent", l6="user"))
    write("both", "agent\nuser\n")
    return holdfast


def test_agents_work_is_undone_and_conflicts_exit_8(worked, project):
    ran = worked("undo", "--agent", "--yes")
    assert ran.code == 8
    assert ran.out == "Undid what agents did since a1: 1 written, 1 removed, 1 conflict; undo with: holdfast undo\n"
    assert "both  (by claude-code: created, and changed since; before it: a1, after it: a2)" in ran.err
    assert (project / "text").read_text() == text(l6="user")
    assert not (project / "made").exists()
    back = worked("undo", "--yes")  # it asks nothing, and is not surprised to be told so
    assert back.code == 0 and back.out.startswith("Undid the undo of an agent's work since a1: ")
    assert (project / "made").exists()
    assert worked("redo").out.startswith("Redid the undo of an agent's work since a1: ")


def test_a_conflict_tells_the_name_it_had(worked, project):
    (project / "both").rename(project / "mine")
    ran = worked("undo", "--agent", "--yes")
    assert "mine  (by claude-code: created, and changed since; before it: a1, after it: a2 as both)" in ran.err


def test_the_plan_is_shown_and_nothing_is_done(worked, project):
    ran = worked("undo", "--agent", "claude-code", "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"Undoing claude-code since a1 in {project} would:"
    assert "  leave 1 path as it is, changed by others since" in ran.out
    assert (project / "text").read_text() == text(l1="agent", l6="user")


def test_what_may_not_be_the_agents_alone_is_told(holdfast, write, project):
    write("text", text())
    holdfast.saved("before")
    write("text", text(l1="somebody"))
    Workspace(project).save("", actor="claude-code", session="s1", metadata={"perhaps": ["user", "claude-code/x"]})
    ran = holdfast("undo", "--agent", "--dry-run")
    assert "  undo what may not be the agent's alone\n    a2  (perhaps also by user)\n" in ran.out
    assert list(holdfast("undo", "--agent", "--dry-run", "--json").json["plan"]["doubts"].values()) == ["user"]
    assert "may not be the agent's alone:\n    a2  (perhaps also by user)" in holdfast("undo", "--agent", "--yes").err


def test_it_does_not_ask(worked, project):
    assert worked("undo", "--agent").code == 8
    assert not (project / "made").exists()


def test_it_prints_one_document(worked):
    ran = worked("undo", "--agent", "--since", "a1", "--yes", "--json")
    assert ran.code == 8
    conflict = ran.json["restored"]["conflicts"]["both"]
    assert (conflict["actor"], conflict["before"][:2], conflict["after"][:2]) == ("claude-code", "a1", "a2")
    assert ran.json["plan"]["keep_mine"] is True
    shown = worked("show", ran.json["restored"]["checkpoint"], "--json").json["checkpoint"]
    assert list(shown["metadata"]["conflicts"]) == ["both"]


def test_a_restore_can_keep_what_is_mine(worked, project):
    ran = worked("restore", "a1", "text", "--keep-mine", "--agent", "claude-code", "--yes")
    assert (ran.code, ran.out) == (0, "Undid claude-code since a1: 1 written, 0 removed; undo with: holdfast undo\n")
    assert (project / "text").read_text() == text(l6="user")
    assert (project / "made").exists()


def test_what_was_never_saved_goes_too_if_asked_for(worked, project):
    assert worked("undo", "--agent", "--unsaved", "--yes").code == 0
    assert (project / "text").read_text() == text()
    assert not (project / "both").exists()


def test_where_nothing_is_left_it_says_so(worked):
    worked("undo", "--agent", "--unsaved", "--yes")
    ran = worked("undo", "--agent", "--since", "a1", "--yes")
    assert (ran.code, ran.err) == (0, "Nothing to undo: nothing is left of what agents did since a1.\n")


def test_where_only_conflicts_are_left_they_are_named(worked):
    worked("undo", "--agent", "--yes")
    ran = worked("restore", "a1", "both", "--keep-mine")
    assert ran.code in (0, 8)


@pytest.mark.parametrize(
    "words",
    [
        ["undo", "--since", "a1"],
        ["undo", "--agent", "--since", "a1", "--session"],
        ["restore", "a1", "--agent", "claude-code"],
    ],
)
def test_options_that_do_not_go_together_are_refused(worked, words):
    assert worked(*words).code == 2


def test_an_agent_that_did_nothing_is_not_found(worked):
    ran = worked("undo", "--agent", "nobody", "--yes")
    assert ran.code == 3
    assert "no agent 'nobody' changed this folder" in ran.err


def test_the_target_of_an_undo_is_shown_among_all(worked):
    worked("undo", "--agent", "--yes")
    assert "undo changes of agents since a1\n" in worked("log", "--all").out
    assert "without" not in worked("log").out
    shown = worked("show", "a3").out
    assert "made to undo an agent since a1" in shown


# who


def test_checkpoints_of_an_actor_are_listed(worked):
    worked.saved("by a helper", "--actor", "claude-code/helper")
    worked.saved("by hand", "--allow-empty")
    by_agent = worked("log", "--actor", "claude-code", "--json").json["items"]
    assert [each["message"] for each in by_agent] == ["by a helper", "worked"]
    by_hand = worked("log", "--actor", "user", "--json").json["items"]
    assert [each["message"] for each in by_hand] == ["by hand", "before"]
    more = worked("log", "--flat", "-n1", "--actor", "claude-code").err
    assert more.startswith("There are more: holdfast log --actor claude-code --flat -n 1 --before a3\n")
    assert worked("log", "--actor", "claude").err == "No checkpoints of this actor.\n"


def test_each_line_is_shown_with_its_checkpoint_and_actor(worked):
    lines = worked("blame", "text").out.splitlines()
    assert lines[0] == "^a1                         1  line 0"
    assert lines[1] == "a2             claude-code  2  agent"
    assert lines[6] == "not saved yet  you          7  user"


def test_blame_prints_one_document_and_takes_a_checkpoint(worked):
    found = worked("blame", "text", "latest", "--json").json
    assert [line["actor"] for line in found["items"]][:2] == ["user", "claude-code"]
    assert found["checkpoints"][found["items"][1]["checkpoint"]]["session"] == "s1"
    assert found["items"][1]["text"] == "agent\n"


def test_a_binary_file_is_blamed_as_a_whole(worked, project):
    (project / "binary").write_bytes(b"\0")
    worked.saved("x", "--actor", "codex")
    assert worked("blame", "binary").out == "a3  codex  binary  (no text, or a long one: as a whole)\n"


def test_what_a_line_holds_cannot_harm_a_terminal(worked, write):
    write("evil", "\x1b[2J\n")
    assert "\\x1b[2J" in worked("blame", "evil").out
