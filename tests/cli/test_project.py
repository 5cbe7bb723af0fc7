"""`fork` and `adopt`, and what `usage` and `prune` say of a store in which a project is kept."""

from __future__ import annotations

import pytest

from holdfast.project import SyncCheckpointManager


@pytest.fixture
def manager(project) -> SyncCheckpointManager:
    return SyncCheckpointManager(project)


def test_a_fork_is_made_changed_and_adopted(holdfast, project, tmp_path):
    holdfast.saved("--name", "good")
    fork = tmp_path / "fork"
    ran = holdfast("fork", "good", str(fork))
    assert ran.code == 0 and ran.out == f"Forked a1 to {fork}: 3 paths\n"
    assert f"holdfast adopt {fork}" in ran.err
    (fork / "a.txt").write_text("from the fork\n")
    ran = holdfast("adopt", str(fork), "--yes")
    assert ran.code == 0 and ran.out.startswith("Adopted as a2: 1 written, 0 removed")
    assert (project / "a.txt").read_text() == "from the fork\n"
    assert holdfast("undo").code == 0
    assert (project / "a.txt").read_text() == "one\n"


def test_adopt_does_not_ask_and_can_be_undone(holdfast, project, tmp_path):
    holdfast.saved()
    holdfast("fork", "latest", str(tmp_path / "fork"))
    (tmp_path / "fork" / "a.txt").write_text("from the fork\n")
    ran = holdfast("adopt", str(tmp_path / "fork"))
    assert ran.code == 0 and "  M a.txt\n" in ran.err
    assert (project / "a.txt").read_text() == "from the fork\n"
    assert holdfast("undo").code == 0 and (project / "a.txt").read_text() == "one\n"


def test_both_print_one_document(holdfast, project, tmp_path):
    saved = holdfast.saved()
    forked = holdfast("fork", "latest", str(tmp_path / "fork"), "--json").json["forked"]
    assert (forked["source"], forked["ok"], forked["directory"]) == (saved, True, str(tmp_path / "fork"))
    (project / "a.txt").write_text("gone on\n")
    adopted = holdfast("adopt", str(tmp_path / "fork"), "--yes", "--json").json["adopted"]
    assert (adopted["source"], adopted["changed_since_fork"], adopted["ok"]) == (saved, True, True)
    assert "a.txt" in adopted["restored"]["written"]


def test_it_says_that_the_workspace_had_gone_on(holdfast, project, tmp_path):
    holdfast.saved()
    holdfast("fork", "latest", str(tmp_path / "fork"))
    (project / "a.txt").write_text("gone on\n")
    assert "The workspace changed since a1; holdfast undo" in holdfast("adopt", str(tmp_path / "fork"), "--yes").err


def test_what_is_no_fork_and_a_folder_in_use_are_refused(holdfast, project, tmp_path):
    holdfast.saved()
    assert holdfast("fork", "latest", str(project / "inside")).code == 6
    assert holdfast("fork", "missing", str(tmp_path / "fork")).code == 3
    (tmp_path / "plain").mkdir()
    ran = holdfast("adopt", str(tmp_path / "plain"), "--yes")
    assert ran.code == 3 and "has no checkpoints" in ran.err


def test_pruning_without_options_goes_by_the_types_of_the_store(holdfast, project, manager):
    for number in range(7):
        (project / "a.txt").write_text(f"{number}\n")
        manager.create_checkpoint(f"feature {number}", type="feature")
        manager.workspace.save(f"auto {number}", metadata={"type": "automatic"}, allow_empty=True)
    ran = holdfast("prune", "--dry-run")
    assert ran.code == 0, ran
    assert "auto 1" in ran.out and "auto 2" not in ran.out and "feature" not in ran.out
    assert "7 kept until it is deleted" in ran.out
    ran = holdfast("prune", "--keep-last", "1", "--yes", "--json")
    assert [each["message"] for each in ran.json["items"]] == ["auto 0", "auto 1"]
    assert len(manager.list(None, type="feature")) == 7


def test_usage_shows_each_type_and_its_rule(holdfast, project, manager):
    manager.create_checkpoint("a", type="feature")
    (project / "a.txt").write_text("two\n")
    manager.create_checkpoint("b", type="automatic")
    ran = holdfast("usage")
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert any(line.startswith("automatic 1 ") and line.endswith("the last 5") for line in lines), ran.out
    assert any(line.startswith("feature 1 ") and line.endswith("until deleted") for line in lines)
    types = {each["type"]: each for each in holdfast("usage", "--json").json["types"]}
    assert types["session"] == {"type": "session", "checkpoints": 0, "own_bytes": 0, "kept": "the last 3"}
    assert types["automatic"]["own_bytes"] > 0


def test_usage_of_a_store_without_types_has_none(holdfast):
    holdfast.saved()
    assert holdfast("usage", "--json").json["types"] == []


class TestTypes:
    def test_a_checkpoint_is_saved_with_its_type(self, holdfast, project):
        (project / "a.txt").write_text("one\n")
        assert holdfast("save", "one").code == 0
        assert holdfast("save", "login works", "--type", "feature").code == 0  # though nothing changed
        assert holdfast("save", "--type", "manual", "-m", "by hand").code == 0
        [feature] = SyncCheckpointManager(project).list(type="feature")
        assert feature.description == "login works"
        found = holdfast("log", "--type", "feature", "--json").json["items"]
        assert [each["message"] for each in found] == ["login works"]
        assert "login works" in holdfast("log", "--type=feature").out
        assert len(holdfast("log", "--json").json["items"]) == 3

    def test_an_unknown_type_is_told(self, holdfast, project):
        (project / "a.txt").write_text("one\n")
        holdfast("save", "one")
        assert holdfast("save", "--type", "feat").code == 2
        assert holdfast("save", "--type", "feature", "--meta", "type=manual").code == 2
        ran = holdfast("log", "--type", "feat")
        assert ran.code != 0 and "automatic, manual, feature, session" in ran.err
        assert "No checkpoints of this type." in holdfast("log", "--type", "session").err
