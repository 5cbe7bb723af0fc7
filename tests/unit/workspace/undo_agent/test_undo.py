"""Undoing only what an agent did: everything else stays, and what cannot be told apart is named."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from pathlib import Path

import pytest

from holdfast import Checkpoint, Conflict, NotFound, Refused, Workspace
from holdfast.model import Restored
from holdfast.retention import Policy
from holdfast.testing.disk_contract import describe, differences

A, B = "claude-code", "codex"
LINES = [f"line {number}\n" for number in range(20)]


class Stage:
    """A folder that a user and two agents work in, each closing its window with a save."""

    def __init__(self, root: Path, ws: Workspace) -> None:
        self.root, self.ws = root, ws
        self.write("text", "".join(LINES))

    def write(self, path: str, text: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def change(self, **lines: str) -> None:
        """Give lines of the text, by their numbers, another content."""
        found = self.read("text").splitlines(keepends=True)
        for name, text in lines.items():
            found[int(name[1:])] = text + "\n"
        self.write("text", "".join(found))

    def text(self, **lines: str) -> str:
        return "".join(lines.get(f"l{number}", line.rstrip("\n")) + "\n" for number, line in enumerate(LINES))

    def save(self, actor: str | None = None, **told: object) -> Checkpoint:
        return self.ws.save("", actor=actor, **told)  # type: ignore[arg-type]

    def undo(self, since: Checkpoint, agent: str | None = A, **options: object) -> Restored:
        """By plan, which must tell just what is done."""
        plan = self.ws.preview(since.id, keep_mine=True, agent=agent, **options)  # type: ignore[arg-type]
        done = self.ws.restore(since.id, plan=plan)
        assert sorted(done.written) == sorted(plan.written + plan.replaced)
        assert (sorted(done.removed), done.conflicts, done.failed) == (sorted(plan.removed), plan.conflicts, {})
        return done


@pytest.fixture
def scene(project, ws) -> Stage:
    return Stage(project.root, ws)


# lines


def test_lines_that_others_changed_stay_and_the_agents_go(scene):
    start = scene.save()
    scene.change(l2="agent", l17="agent")
    scene.save(A)
    scene.change(l5="user")
    scene.save()
    scene.change(l8="other agent")
    scene.save(B)
    scene.change(l11="agent again")
    scene.save(A)
    scene.change(l14="saved nowhere")
    assert scene.ws.preview(start.id, keep_mine=True, agent=A).bytes_to_write > len(scene.text())
    done = scene.undo(start)
    assert done.ok
    assert done.written == ["text"]
    assert scene.read("text") == scene.text(l5="user", l8="other agent", l14="saved nowhere")


def test_without_a_name_every_agent_is_undone(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l8="other agent")
    scene.save(B)
    scene.change(l5="user")
    scene.save("user")
    assert scene.undo(start, None).ok
    assert scene.read("text") == scene.text(l5="user")


def test_a_sub_agent_is_undone_with_its_agent_and_also_alone(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l8="helper")
    scene.save(f"{A}/helper")
    scene.change(l12="namesake")
    scene.save(f"{A}-2")
    assert scene.undo(start, f"{A}/helper").ok
    assert scene.read("text") == scene.text(l2="agent", l12="namesake")
    scene.ws.undo()
    assert scene.undo(start).ok
    assert scene.read("text") == scene.text(l12="namesake")


def test_lines_changed_by_both_are_left_as_they_are_and_named(scene):
    start = scene.save()
    scene.change(l2="agent", l9="agent")
    left = scene.save(A)
    scene.change(l2="user over agent")
    before = scene.read("text")
    done = scene.undo(start)
    assert not done.ok
    assert scene.read("text") == before, "nothing half undone, and no marks, in a file of the user's"
    overlap = done.conflicts["text"]
    assert (overlap.actor, overlap.before, overlap.after) == (A, start.id, left.id)
    assert scene.ws.get(done.checkpoint).metadata["conflicts"]["text"]["before"] == start.id


def test_what_is_newer_than_a_conflict_is_undone(scene):
    """The file is then as the user last saw it, apart from what the user did since."""
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l2="user over agent")
    scene.save()
    scene.write("text", "all of it thrown away by the agent\n")
    scene.save(A)
    done = scene.undo(start)
    assert list(done.conflicts) == ["text"]
    assert scene.read("text") == scene.text(l2="user over agent")


def test_windows_of_the_agent_in_a_row_are_one(scene):
    """What it wrote and took back itself is in nobody's way."""
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.write("other", "user")
    scene.save()
    scene.change(l2="line 2")
    scene.save(A)
    scene.change(l3="user")
    assert scene.undo(start).ok
    assert scene.read("text") == scene.text(l3="user")


def test_binary_files_are_undone_whole_or_not_at_all(scene):
    scene.write("one", b"\0one")
    scene.write("two", b"\0two")
    start = scene.save()
    scene.write("one", b"\0one of the agent")
    scene.write("two", b"\0two of the agent")
    scene.save(A)
    scene.write("two", b"\0two of the agent and the user")
    done = scene.undo(start)
    assert (scene.root / "one").read_bytes() == b"\0one"
    assert (scene.root / "two").read_bytes() == b"\0two of the agent and the user"
    assert list(done.conflicts) == ["two"]


def test_binary_bytes_and_line_ends_survive_a_merge(scene):
    scene.write("latin", b"\xe4\r\n" * 9 + b"no newline \xff")
    start = scene.save()
    scene.write("latin", b"agent\r\n" + b"\xe4\r\n" * 8 + b"no newline \xff")
    scene.save(A)
    scene.write("latin", b"agent\r\n" + b"\xe4\r\n" * 7 + b"user\n\xe4\r\nno newline \xff")
    assert scene.undo(start).ok
    assert (scene.root / "latin").read_bytes() == b"\xe4\r\n" * 8 + b"user\n\xe4\r\nno newline \xff"


def test_merged_file_has_the_time_of_the_merge(scene):
    os.utime(scene.root / "text", ns=(10**18, 10**18))
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l8="user")
    os.utime(scene.root / "text", ns=(10**18, 10**18))
    scene.undo(start)
    assert (scene.root / "text").stat().st_mtime_ns > 10**18


# files and folders that came and went


def test_files_of_the_agent_go_and_those_of_the_user_stay(scene):
    start = scene.save()
    scene.write("made/by/agent", "a")
    scene.write("made/both", "a")
    scene.save(A)
    scene.write("made/by_user", "u")
    scene.write("mine", "u")
    done = scene.undo(start)
    assert done.removed == ["made/both", "made/by", "made/by/agent"]
    assert (scene.read("made/by_user"), scene.read("mine")) == ("u", "u")


def test_agents_file_edited_by_the_user_stays_and_is_named(scene):
    start = scene.save()
    scene.write("made", "a\n")
    scene.save(A)
    scene.write("made", "a\nu\n")
    done = scene.undo(start)
    assert scene.read("made") == "a\nu\n"
    assert list(done.conflicts) == ["made"]


def test_agents_file_that_was_only_touched_goes(scene):
    start = scene.save()
    scene.write("made", "a\n")
    scene.save(A)
    os.utime(scene.root / "made", ns=(1, 1))
    scene.save()
    assert scene.undo(start).removed == ["made"]


def test_what_the_agent_deleted_comes_back_with_its_folder(scene):
    place = scene.write("deep/er/file", "kept\n")
    place.chmod(0o640)
    (scene.root / "deep").chmod(0o750)
    (scene.root / "empty").mkdir()
    start = scene.save()
    before = describe(scene.root)
    shutil.rmtree(scene.root / "deep")
    (scene.root / "empty").rmdir()
    scene.save(A)
    assert scene.undo(start).ok
    assert differences(before, describe(scene.root)) == []


def test_agents_change_deleted_by_the_user_stays_deleted(scene):
    scene.write("file", "one\n")
    start = scene.save()
    scene.write("file", "agent\n")
    scene.save(A)
    (scene.root / "file").unlink()
    scene.save()
    assert scene.undo(start).ok
    assert not (scene.root / "file").exists()


def test_file_deleted_by_the_agent_returns_with_the_users_edit(scene):
    start = scene.save()
    scene.write("made", "a\n")
    scene.save(A)
    scene.write("made", "a\nu\n")
    scene.save()
    (scene.root / "made").unlink()
    scene.save(A)
    done = scene.undo(start)
    assert scene.read("made") == "a\nu\n"
    assert list(done.conflicts) == ["made"]


def test_a_name_that_the_user_took_since_is_not_taken_back(scene):
    scene.write("file", "first\n")
    start = scene.save()
    (scene.root / "file").unlink()
    scene.save(A)
    scene.write("file", "of the user\n")
    done = scene.undo(start)
    assert scene.read("file") == "of the user\n"
    assert list(done.conflicts) == ["file"]


# renames


def test_users_edit_of_a_renamed_file_goes_back_with_it(scene):
    start = scene.save()
    (scene.root / "text").rename(scene.root / "renamed")
    scene.save(A)
    found = (scene.root / "renamed").read_text().splitlines(keepends=True)
    scene.write("renamed", "".join([*found[:7], "user\n", *found[8:]]))
    assert scene.undo(start).ok
    assert scene.read("text") == scene.text(l7="user")
    assert not (scene.root / "renamed").exists()


def test_the_agents_lines_go_from_a_file_that_the_user_renamed(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    (scene.root / "text").rename(scene.root / "renamed")
    scene.save()
    assert scene.undo(start).ok
    assert scene.read("renamed") == scene.text()
    assert not (scene.root / "text").exists()


def test_agents_file_renamed_by_the_user_stays_and_is_named(scene):
    start = scene.save()
    scene.write("made", "by the agent\n")
    scene.save(A)
    (scene.root / "made").rename(scene.root / "taken over")
    done = scene.undo(start)
    assert scene.read("taken over") == "by the agent\n"
    assert list(done.conflicts) == ["taken over"]


def test_a_folder_that_the_agent_renamed_gets_its_name_back(scene):
    scene.write("old/one", "one\n" * 9)
    scene.write("old/two", "two\n" * 9)
    start = scene.save()
    (scene.root / "old").rename(scene.root / "new")
    scene.save(A)
    scene.write("new/two", "two\n" * 9 + "user\n")
    scene.write("new/mine", "mine\n")
    assert scene.undo(start).ok
    assert (scene.read("old/one"), scene.read("old/two")) == ("one\n" * 9, "two\n" * 9 + "user\n")
    assert os.listdir(scene.root / "new") == ["mine"]


def test_renamed_file_stays_if_its_old_name_is_taken(scene):
    start = scene.save()
    (scene.root / "text").rename(scene.root / "renamed")
    scene.save(A)
    scene.write("text", "of the user\n")
    done = scene.undo(start)
    assert scene.read("text") == "of the user\n"
    assert scene.read("renamed") == scene.text()
    assert list(done.conflicts) == ["renamed"]


def test_a_rename_is_undone_whole_or_not_at_all(scene):
    """Also where only one of the two names was asked for."""
    start = scene.save()
    (scene.root / "text").rename(scene.root / "renamed")
    scene.save(A)
    done = scene.ws.restore(start.id, ["renamed"], keep_mine=True)
    assert scene.read("renamed") == scene.text()
    assert list(done.conflicts) == ["renamed"]
    assert scene.ws.restore(start.id, ["renamed", "text"], keep_mine=True).ok
    assert os.listdir(scene.root) == ["text"]


def test_names_that_went_round_go_back_all_or_none(scene):
    for name in ("folder/f", "g"):
        scene.write(name, f"{name}\n" * 9)
    start = scene.save()
    (scene.root / "g").rename(scene.root / "h")
    scene.save(A)
    scene.write("other", "of the user\n")
    scene.save()
    (scene.root / "folder" / "f").rename(scene.root / "g")
    (scene.root / "folder").rmdir()
    scene.save(A)
    scene.write("folder", "of the user\n")  # so that f cannot go back, nor therefore g
    done = scene.undo(start)
    assert (scene.read("g"), scene.read("h")) == ("folder/f\n" * 9, "g\n" * 9)
    assert {"g", "h"} <= set(done.conflicts)
    assert scene.read("folder") == "of the user\n"


class TestFilesThatChangePlaces:
    """A path may stand for two files: the one that was there, and the one that came."""

    @pytest.fixture
    def start(self, scene) -> Checkpoint:
        for name in ("a", "b", "c"):
            scene.write(name, "".join(f"{name} {line}\n" for line in range(12)))
        return scene.save()

    @staticmethod
    def turn(scene, *names: str) -> None:
        """What is at each name goes to the next, and the last to the first."""
        (scene.root / names[-1]).rename(scene.root / "aside")
        for old, new in reversed([*itertools.pairwise(names)]):
            (scene.root / old).rename(scene.root / new)
        (scene.root / "aside").rename(scene.root / names[0])

    def first(self, scene) -> dict[str, str]:
        return {name: scene.read(name).splitlines()[0] for name in sorted(os.listdir(scene.root)) if name != "text"}

    def test_an_edit_goes_back_with_the_swapped_file(self, scene, start):
        self.turn(scene, "a", "b")
        scene.save(A)
        scene.write("a", "mine\n" + scene.read("a"))
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "a 0", "b": "mine", "c": "c 0"}
        assert scene.read("b").splitlines()[1] == "b 0"

    def test_swapped_and_rewritten_file_is_not_lost(self, scene, start):
        self.turn(scene, "a", "b")
        scene.save(A)
        scene.write("a", "another text\n" * 9)
        scene.undo(start)
        texts = {scene.read(name) for name in ("a", "b")}
        assert {"another text\n" * 9, "".join(f"a {line}\n" for line in range(12))} == texts

    def test_what_the_user_deleted_after_a_swap_is_the_only_one_gone(self, scene, start):
        self.turn(scene, "a", "b")
        scene.save(A)
        (scene.root / "a").unlink()  # what was called b
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "a 0", "c": "c 0"}

    def test_three_in_a_circle_go_back_with_an_edit(self, scene, start):
        self.turn(scene, "a", "b", "c")
        scene.save(A)
        scene.write("c", scene.read("c") + "mine\n")
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "a 0", "b": "b 0", "c": "c 0"}
        assert scene.read("b").endswith("mine\n")

    def test_a_chain_of_names_goes_back_with_an_edit(self, scene, start):
        (scene.root / "b").rename(scene.root / "d")
        (scene.root / "a").rename(scene.root / "b")
        scene.save(A)
        scene.write("d", scene.read("d") + "mine\n")
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "a 0", "b": "b 0", "c": "c 0"}
        assert scene.read("b").endswith("mine\n")

    def test_a_file_renamed_onto_another_leaves_both(self, scene, start):
        (scene.root / "a").rename(scene.root / "b")
        scene.save(A)
        scene.write("b", scene.read("b") + "mine\n")
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "a 0", "b": "b 0", "c": "c 0"}
        assert scene.read("a").endswith("mine\n")

    def test_the_agents_lines_go_from_files_that_the_user_swapped(self, scene, start):
        scene.write("a", "agent\n" + scene.read("a"))
        scene.save(A)
        self.turn(scene, "a", "b")
        assert scene.undo(start).ok
        assert self.first(scene) == {"a": "b 0", "b": "a 0", "c": "c 0"}

    def test_a_file_and_a_folder_that_were_swapped_go_back(self, scene, start):
        scene.write("d/x", "".join(f"x {line}\n" for line in range(12)))
        start = scene.save()
        self.turn(scene, "a", "d")
        scene.save(A)
        scene.write("d", scene.read("d") + "mine\n")
        scene.write("a/x", scene.read("a/x") + "mine\n")
        assert scene.undo(start).ok
        assert scene.read("a").startswith("a 0\n") and scene.read("a").endswith("mine\n")
        assert scene.read("d/x").startswith("x 0\n") and scene.read("d/x").endswith("mine\n")

    def test_a_link_and_a_file_that_were_swapped_and_edited_go_back(self, scene, start):
        (scene.root / "link").symlink_to("text")
        start = scene.save()
        self.turn(scene, "a", "link")
        scene.write("link", "agent\n" + scene.read("link"))
        scene.save(A)
        scene.write("link", scene.read("link") + "mine\n")
        assert scene.undo(start).ok
        assert os.readlink(scene.root / "link") == "text"
        assert scene.read("a") == "".join(f"a {line}\n" for line in range(12)) + "mine\n"

    def test_a_few_bytes_that_two_files_exchange_are_no_swap(self, scene):
        scene.write("debug", "on\n")
        scene.write("color", "off\n")
        start = scene.save()
        scene.write("debug", "off\n")
        scene.write("color", "on\n")
        scene.save(A)
        scene.write("debug", "auto\n")
        done = scene.undo(start)
        assert (scene.read("debug"), scene.read("color")) == ("auto\n", "off\n")
        assert list(done.conflicts) == ["debug"]

    def test_a_file_that_must_stay_keeps_its_folder(self, scene, start):
        (scene.root / "new").mkdir()
        (scene.root / "a").rename(scene.root / "new" / "a")
        scene.write("a/x", "agent\n")
        scene.save(A)
        scene.write("a/mine", "mine\n")  # so that a cannot come back to its name
        done = scene.undo(start)
        assert scene.read("new/a").startswith("a 0\n")
        assert scene.read("a/mine") == "mine\n"
        assert "new/a" in done.conflicts


def test_a_file_comes_back_to_the_folder_that_the_user_put_it_in(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    (scene.root / "mine").mkdir()
    (scene.root / "text").rename(scene.root / "mine" / "text")
    scene.save()
    (scene.root / "mine" / "text").unlink()
    scene.save(A)
    (scene.root / "mine").rmdir()
    assert scene.undo(start).ok
    assert scene.read("mine/text") == scene.text()


def test_a_conflict_has_the_name_that_the_file_has(scene):
    start = scene.save()
    scene.change(l2="agent")
    left = scene.save(A)
    scene.change(l2="user over agent")
    scene.save()
    (scene.root / "text").rename(scene.root / "renamed")
    scene.save(A)
    done = scene.undo(start)
    assert os.listdir(scene.root) == ["text"]
    assert list(done.conflicts) == ["text"]
    scene.ws.undo()
    (scene.root / "renamed").rename(scene.root / "mine")
    found = scene.undo(start).conflicts
    assert list(found) == ["mine"]
    overlap = found["mine"]
    assert (overlap.before, overlap.path_before, overlap.after, overlap.path_after) == (
        start.id,
        "text",
        left.id,
        "text",
    )


def test_agents_file_makes_way_for_the_former_folder(scene):
    scene.write("d/x", "kept\n")
    start = scene.save()
    (scene.root / "d" / "x").unlink()
    scene.save(A)
    (scene.root / "d").rmdir()
    scene.save()
    scene.write("d", "agent\n")
    scene.save(A)
    assert scene.undo(start).ok
    assert scene.read("d/x") == "kept\n"


# kinds, modes, links


def test_agents_folder_goes_unless_others_put_files_in_it(scene):
    scene.write("one", "one\n")
    scene.write("two", "two\n")
    start = scene.save()
    for name in ("one", "two"):
        (scene.root / name).unlink()
        scene.write(f"{name}/inside", "agent\n")
    scene.save(A)
    scene.write("two/mine", "mine\n")
    done = scene.undo(start)
    assert scene.read("one") == "one\n"
    assert os.listdir(scene.root / "two") == ["mine"]
    assert list(done.conflicts) == ["two"]


def test_agents_file_in_place_of_a_folder_goes_unless_edited(scene):
    scene.write("one/inside", "one\n")
    scene.write("two/inside", "two\n")
    start = scene.save()
    for name in ("one", "two"):
        shutil.rmtree(scene.root / name)
        scene.write(name, "agent\n")
    scene.save(A)
    scene.write("two", "agent and user\n")
    done = scene.undo(start)
    assert scene.read("one/inside") == "one\n"
    assert scene.read("two") == "agent and user\n"
    assert {path.split("/")[0] for path in done.conflicts} == {"two"}


@pytest.mark.linux
def test_modes_links_and_attributes_are_undone_each_by_itself(scene):
    for name in ("mode", "both", "attribute"):
        scene.write(name, f"{name}\n")
    (scene.root / "link").symlink_to("mode")
    (scene.root / "link2").symlink_to("mode")
    start = scene.save()
    (scene.root / "mode").chmod(0o600)
    (scene.root / "both").chmod(0o600)
    os.setxattr(scene.root / "attribute", "user.agent", b"1")
    for name in ("link", "link2"):
        (scene.root / name).unlink()
        (scene.root / name).symlink_to("both")
    scene.save(A)
    scene.write("mode", "user\n")
    (scene.root / "both").chmod(0o700)
    os.setxattr(scene.root / "attribute", "user.mine", b"2")
    (scene.root / "link2").unlink()
    (scene.root / "link2").symlink_to("nowhere")
    done = scene.undo(start)
    assert (scene.read("mode"), stat.S_IMODE((scene.root / "mode").stat().st_mode)) == ("user\n", 0o644)
    assert stat.S_IMODE((scene.root / "both").stat().st_mode) == 0o700
    assert os.listxattr(scene.root / "attribute") == ["user.mine"]
    assert (os.readlink(scene.root / "link"), os.readlink(scene.root / "link2")) == ("mode", "nowhere")
    assert sorted(done.conflicts) == ["both", "link2"]


def test_hard_links_split_instead_of_sharing_wrong_content(scene):
    scene.write("a", "first\n")
    start = scene.save()
    scene.write("a", "agent\n")
    scene.save(A)
    os.link(scene.root / "a", scene.root / "b")  # the user's, of what the agent wrote
    scene.save()
    scene.undo(start)
    assert (scene.read("a"), scene.read("b")) == ("first\n", "agent\n")


def test_hard_links_split_if_they_would_differ(scene):
    scene.write("a", scene.text())
    scene.write("b", scene.text(l18="b"))
    start = scene.save()
    scene.write("a", scene.text(l1="agent", l9="agent"))
    scene.write("b", scene.text(l1="agent", l18="b"))
    scene.save(A)
    (scene.root / "b").unlink()
    os.link(scene.root / "a", scene.root / "b")
    assert scene.undo(start).ok
    assert (scene.read("a"), scene.read("b")) == (scene.text(), scene.text(l9="agent"))


def test_files_that_were_one_are_one_again(scene):
    scene.write("a", "first\n")
    os.link(scene.root / "a", scene.root / "b")
    start = scene.save()
    before = describe(scene.root)
    (scene.root / "b").unlink()
    scene.write("b", "agent\n")
    scene.save(A)
    assert scene.undo(start).ok
    assert differences(before, describe(scene.root)) == []


# what is not held


def test_ignored_and_uncovered_files_stay(scene):
    scene.write(".gitignore", "*.log\n")
    scene.write(".holdfastignore", "secret\n")
    start = scene.save()
    scene.write("build.log", "made in the window of the agent, by anyone\n")
    scene.write("folder/secret", "held by nobody\n")
    scene.write("folder/made", "agent\n")
    scene.save(A)
    done = scene.undo(start)
    assert done.removed == ["folder/made"]
    assert done.kept == {"build.log": "ignored by git's rules"}
    assert scene.read("folder/secret") == "held by nobody\n"


def test_the_same_is_found_where_everything_has_to_be_read_again(scene, project):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l9="user, saved nowhere")
    (project.store / "holdfast" / "scan.cache").unlink()
    assert scene.undo(start).ok
    assert scene.read("text") == scene.text(l9="user, saved nowhere")


def test_uncovered_path_is_not_the_agents(scene, project):
    """P4: absent from the checkpoint is never read as made by the agent."""
    scene.write("folder/data", "of the user\n")
    start = project.open(exclude_patterns=["data"]).save("without it")
    assert "folder/data" in [item.path for item in start.uncovered]
    scene.change(l2="agent")
    assert "folder/data" in scene.save(A).files_changed
    done = scene.undo(start)
    assert (done.written, done.kept) == (["text"], {"folder/data": f"not covered by {start.id}: excluded"})
    assert scene.read("folder/data") == "of the user\n"


def test_newly_uncovered_path_is_not_a_deletion(scene, project):
    scene.write("folder/data", "of the user\n")
    start = scene.save()
    scene.change(l2="agent")
    project.open(exclude_patterns=["data"]).save("without it", actor=A)
    scene.write("folder/data", "changed by the user\n")
    done = project.open(exclude_patterns=["data"]).restore(start.id, keep_mine=True)
    assert (done.written, done.conflicts) == (["text"], {})
    assert scene.read("folder/data") == "changed by the user\n"


def test_the_first_checkpoint_is_nobodys_work(scene):
    only = scene.save(A)
    assert scene.ws.beginning(A).id == only.id
    assert not scene.ws.preview(only.id, keep_mine=True)


def test_a_repository_that_was_cloned_meanwhile_stays(scene, git):
    start = scene.save()
    git("init", "-q", scene.root / "cloned")
    scene.write("cloned/file", "from far away\n")
    scene.save(A)
    done = scene.undo(start)
    assert scene.read("cloned/file") == "from far away\n"
    assert "cloned" in done.kept


# going back and forth


def test_the_undo_of_an_undo_brings_everything_back_exactly(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.write("made", "a")
    scene.save(A)
    scene.change(l9="user")
    before = describe(scene.root)
    scene.undo(start)
    after = describe(scene.root)
    assert scene.ws.undo().ok
    assert differences(before, describe(scene.root)) == []
    assert scene.ws.redo().ok
    assert differences(after, describe(scene.root)) == []
    assert scene.ws.verify().ok


def test_second_undo_finds_nothing_and_older_work_is_undone(scene):
    start = scene.save()
    scene.change(l2="turn 1", l3="turn 1")
    scene.save(A, session="s", metadata={"turn": 1})
    scene.change(l3="turn 2")
    scene.save(A, session="s", metadata={"turn": 2})
    scene.change(l9="user")
    scene.undo(scene.ws.beginning())
    assert scene.read("text") == scene.text(l2="turn 1", l3="turn 1", l9="user")
    scene.undo(scene.ws.beginning())
    assert scene.read("text") == scene.text(l9="user")
    assert not scene.ws.preview(start.id, keep_mine=True)


def test_work_goes_on_after_an_undo_and_is_told_apart_again(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l9="user")
    scene.undo(start)
    scene.change(l5="agent once more")
    scene.save(A)
    scene.change(l12="user once more")
    assert scene.undo(start).ok
    assert scene.read("text") == scene.text(l9="user", l12="user once more")


def test_a_prune_leaves_what_the_way_back_needs(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    scene.change(l9="user")
    before = describe(scene.root)
    done = scene.undo(start)
    gone = scene.ws.prune(Policy(keep_last=1), dry_run=False)
    assert start.id in [each.id for each in gone.removed]
    assert (scene.ws.head().id, scene.ws.verify().ok) == (done.checkpoint, True)
    assert scene.ws.undo().ok
    assert differences(before, describe(scene.root)) == []


def test_some_paths_alone_can_be_undone(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.write("made", "a")
    scene.save(A)
    done = scene.ws.restore(start.id, ["made"], keep_mine=True)
    assert done.removed == ["made"]
    assert scene.read("text") == scene.text(l2="agent")
    assert scene.ws.undo().ok
    assert scene.read("made") == "a"


def test_unsaved_changes_are_the_users_by_default(scene):
    start = scene.save()
    scene.change(l2="unsaved")
    assert not scene.ws.preview(start.id, keep_mine=True)
    scene.undo(start, unsaved_by=A)
    assert scene.read("text") == scene.text()


def test_a_plan_is_held_to(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    plan = scene.ws.preview(start.id, keep_mine=True)
    scene.change(l9="user")
    with pytest.raises(Conflict):
        scene.ws.restore(start.id, plan=plan)
    assert scene.read("text") == scene.text(l2="agent", l9="user")


def test_a_failed_undo_leaves_no_checkpoint_behind(scene):
    start = scene.save()
    scene.change(l2="agent")
    scene.save(A)
    before = [each.id for each in scene.ws.list(None, safety=True)]
    plan = scene.ws.preview(start.id, keep_mine=True)
    scene.change(l9="user")
    with pytest.raises(Conflict):
        scene.ws.restore(start.id, plan=plan)
    assert [each.id for each in scene.ws.list(None, safety=True)] == before


def test_undo_target_is_not_listed_and_changes_nothing(scene):
    start = scene.save()
    scene.change(l2="agent")
    newest = scene.save(A)
    done = scene.undo(start)
    assert [each.id for each in scene.ws.list()] == [newest.id, start.id]
    assert scene.ws.head().id == done.checkpoint


# what cannot be told


def test_a_deleted_checkpoint_on_the_way_is_a_reason_to_refuse(scene):
    start = scene.save()
    scene.change(l2="agent")
    middle = scene.save(A)
    scene.change(l9="user")
    last = scene.save()
    scene.ws.delete(middle.id)
    with pytest.raises(Refused, match="a2 is deleted, so changes before a3"):
        scene.ws.preview(start.id, keep_mine=True)
    assert not scene.ws.preview(last.id, keep_mine=True)


def test_checkpoint_of_another_lineage_is_refused(scene):
    start = scene.save()
    scene.change(l2="agent")
    other = scene.save(A)
    scene.ws.restore(start.id)
    with pytest.raises(Refused, match="is not in the history of the folder"):
        scene.ws.preview(other.id, keep_mine=True)


@pytest.mark.parametrize("options", [{"agent": A}, {"unsaved_by": A}, {"agent": "", "keep_mine": True}])
def test_a_wish_that_makes_no_sense_is_refused(scene, options):
    start = scene.save()
    with pytest.raises(Refused):
        scene.ws.restore(start.id, **options)


# where an agent's latest work began


def test_the_beginning_is_that_of_the_turn_or_of_the_session(scene):
    saved = [scene.save()]
    for session, turn, actor in [("s1", 1, A), ("s2", 1, A), ("s2", 2, A), ("s2", 2, None), ("s2", 2, f"{A}/sub")]:
        scene.change(**{f"l{len(saved)}": "x"})
        saved.append(scene.save(actor, session=session, metadata={"turn": turn}))
    assert scene.ws.beginning().id == saved[2].id
    assert scene.ws.beginning(A, whole_session=True).id == saved[1].id


def test_without_a_session_consecutive_turns_are_one(scene):
    saved = [scene.save()]
    for actor in (A, None, A, A, None):
        scene.change(**{f"l{len(saved)}": "x"})
        saved.append(scene.save(actor))
    assert scene.ws.beginning(A).id == saved[2].id


def test_the_windows_of_another_agent_are_passed_over(scene):
    saved = [scene.save()]
    for actor, session in ((A, "a"), (B, "b"), (A, "a"), (B, "b")):
        scene.change(**{f"l{len(saved)}": "x"})
        saved.append(scene.save(actor, session=session))
    assert scene.ws.beginning(A).id == saved[0].id
    assert scene.ws.beginning(B).id == saved[1].id
    assert scene.ws.beginning().id == saved[1].id


def test_an_agent_that_did_nothing_has_no_beginning(scene):
    scene.save()
    with pytest.raises(NotFound, match="no agent changed"):
        scene.ws.beginning()
    with pytest.raises(NotFound, match=A):
        scene.ws.beginning(A)
