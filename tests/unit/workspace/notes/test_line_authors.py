"""Who wrote the lines of a commit, with real git: by content, so that rewriting history keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import NotFound, Refused, Unavailable

from .conftest import EMAIL, Scene

ONE = "def one():\n    return 'the first function'\n"
TWO = "def two():\n    return 'the second function'\n"
THREE = "def three():\n    return 'the third function'\n"


def test_agent_person_and_what_was_there(scene: Scene) -> None:
    assert scene.authors() == {"old.txt": "?"}  # there when the first checkpoint was made
    scene.agents("app.py", ONE + TWO)
    scene.mine("app.py", ONE + TWO + THREE)
    scene.commit()
    assert scene.authors() == {"app.py": "aaaapp"}


def test_a_line_that_the_person_changed_is_the_persons(scene: Scene) -> None:
    scene.agents("app.py", ONE + TWO)
    scene.mine("app.py", ONE + TWO.replace("second", "other"))
    scene.commit()
    assert scene.authors() == {"app.py": "aaap"}


def test_only_lines_that_the_commit_added_count(scene: Scene) -> None:
    scene.agents("app.py", ONE)
    scene.commit()
    scene.mine("app.py", ONE + TWO)
    scene.commit()
    assert scene.authors() == {"app.py": "pp"}
    (trace,) = scene.workspace.traces(["HEAD"])
    assert [each["start_line"] for each in trace["files"][0]["conversations"][0]["ranges"]] == [3]


def test_lines_that_no_checkpoint_has_are_unknown(scene: Scene) -> None:
    scene.agents("app.py", ONE)
    scene.write("app.py", ONE + TWO)
    scene.commit()
    assert scene.authors() == {"app.py": "aa??"}
    scene.write("never.py", THREE)
    scene.commit()
    assert scene.authors() == {"never.py": "??"}


def test_squash_amend_and_rebase_keep_it(scene: Scene) -> None:
    start = scene.git("rev-parse", "HEAD")
    scene.agents("app.py", ONE)
    scene.commit("a")
    scene.mine("app.py", ONE + TWO)
    scene.commit("b")
    scene.agents("app.py", ONE + TWO + THREE, turn=2)
    scene.commit("c")
    before = [scene.authors(f"HEAD~{back}") for back in (2, 1, 0)]
    assert before == [{"app.py": "aa"}, {"app.py": "pp"}, {"app.py": "aa"}]

    scene.git("checkout", "-q", "-b", "upstream", start)
    scene.write("app2.py", "somebody else\n")
    scene.write("old.txt", "changed upstream\nthere before\n")
    scene.commit("upstream", "--author=Other <o@x>")
    scene.git("checkout", "-q", "main")
    scene.git("rebase", "-q", "upstream")
    assert [scene.authors(f"HEAD~{back}") for back in (2, 1, 0)] == before

    scene.git("commit", "-q", "--amend", "-m", "reworded", "--date=2020-01-01T00:00:00Z")
    assert scene.authors() == {"app.py": "aa"}
    scene.git("reset", "-q", "--soft", "HEAD~3")
    scene.commit("squashed")
    assert scene.authors() == {"app.py": "aappaa"}


def test_rebase_onto_changes_of_the_same_file(scene: Scene) -> None:
    head = "".join(f"line {number} of the old file\n" for number in range(12))
    scene.mine("app.py", head)
    start = scene.commit("base")
    scene.agents("app.py", head + ONE)
    scene.commit("a")
    scene.mine("app.py", head + ONE + TWO)
    scene.commit("b")
    scene.git("checkout", "-q", "-b", "upstream", start)
    scene.write("app.py", "from upstream, unknown to all\n" + head)
    scene.commit("upstream", "--author=Other <o@x>")
    scene.git("checkout", "-q", "main")
    scene.git("rebase", "-q", "upstream")
    assert scene.authors("HEAD~1") == {"app.py": "aa"}
    assert scene.authors() == {"app.py": "pp"}
    scene.git("reset", "-q", "--soft", f"{start}")
    scene.git("commit", "-q", "-m", "all in one")
    assert scene.authors() == {"app.py": "?aapp"}


def test_branch_switches_between_checkpoints_do_not_make_lines_the_persons(scene: Scene) -> None:
    scene.git("checkout", "-q", "-b", "feature")
    scene.agents("app.py", ONE + TWO)
    scene.commit("feature")
    scene.git("checkout", "-q", "main")
    scene.workspace.save("on main")
    scene.git("checkout", "-q", "feature")
    scene.workspace.save("back")  # by the user: the file came back, but the agent wrote it
    scene.agents("app.py", ONE + TWO + THREE, turn=2)
    scene.commit("more")
    scene.git("reset", "-q", "--soft", "HEAD~2")
    scene.commit("squashed")
    assert scene.authors() == {"app.py": "aaaaaa"}


def test_rebased_work_that_was_saved_after_a_switch(scene: Scene) -> None:
    """The combination of upstream's change and the agent's appears at once, in a checkpoint of the user."""
    base = "".join(f"line {number} of the old file\n" for number in range(12))
    scene.mine("app.py", base)
    start = scene.commit("base")
    scene.agents("app.py", base + ONE)
    scene.commit("a")
    scene.git("checkout", "-q", "-b", "upstream", start)
    scene.write("app.py", "from upstream, unknown to all\n" + base)
    scene.commit("upstream", "--author=Other <o@x>")
    scene.workspace.save("on upstream")
    scene.git("checkout", "-q", "main")
    scene.git("rebase", "-q", "upstream")
    scene.workspace.save("rebased")
    assert scene.authors() == {"app.py": "aa"}
    assert scene.authors("upstream") == {"app.py": "?"}  # git brought it, nobody here wrote it


def test_cherry_pick(scene: Scene) -> None:
    scene.git("checkout", "-q", "-b", "feature")
    scene.mine("mine.py", THREE)
    scene.commit("mine")
    scene.agents("app.py", ONE)
    picked = scene.commit("agents")
    scene.git("checkout", "-q", "main")
    scene.git("cherry-pick", picked)
    assert scene.authors() == {"app.py": "aa"}


def test_merge_commits_count_only_what_the_merge_added(scene: Scene) -> None:
    scene.mine("app.py", "top of the file\n" + "middle\n" * 5 + "bottom of the file\n")
    scene.commit("base")
    scene.git("checkout", "-q", "-b", "feature")
    scene.agents("app.py", "TOP of the file, by the agent\n" + "middle\n" * 5 + "bottom of the file\n")
    scene.commit("agents")
    scene.git("checkout", "-q", "main")
    scene.workspace.save("switched")
    scene.mine("app.py", "top of the file\n" + "middle\n" * 5 + "BOTTOM of the file, by me\n")
    scene.commit("mine")
    scene.git("merge", "-q", "--no-commit", "feature")
    assert scene.git("diff", "--cached", "--name-only") == "app.py"
    scene.git("commit", "-q", "-m", "merge")
    assert scene.authors() == {}  # every line is of one side
    text = (scene.root / "app.py").read_text()
    scene.agents("app.py", text + "added while merging, by the agent\n", turn=3)
    scene.git("add", "-A")
    scene.git("commit", "-q", "--amend", "-m", "merge with more")
    assert scene.authors() == {"app.py": "a"}


def test_renamed_files(scene: Scene) -> None:
    scene.agents("app.py", ONE + TWO)
    scene.commit("agents")
    scene.git("mv", "app.py", "moved.py")
    scene.mine("moved.py", ONE + TWO + THREE)
    scene.commit("renamed and edited")
    assert scene.authors() == {"moved.py": "pp"}
    scene.git("reset", "-q", "--soft", "HEAD~2")
    scene.commit("squashed")
    assert scene.authors() == {"moved.py": "aaaapp"}


def test_a_rename_that_no_checkpoint_saw(scene: Scene) -> None:
    scene.mine("app.py", ONE + TWO)
    scene.commit("base")
    scene.agents("app.py", ONE + TWO + THREE)
    scene.git("mv", "app.py", "moved.py")
    scene.commit("renamed")
    assert scene.authors() == {"moved.py": "aa"}


def test_moved_lines_stay_the_agents(scene: Scene) -> None:
    scene.agents("app.py", ONE + TWO + THREE)
    scene.mine("other.py", "# mine, and rather long for a comment\n")
    scene.write("app.py", ONE + THREE)
    scene.mine("other.py", "# mine, and rather long for a comment\n" + TWO)  # the person moved it
    scene.commit()
    assert scene.authors() == {"app.py": "aaaa", "other.py": "paa"}
    scene.mine("app.py", THREE + ONE)  # and within a file
    scene.git("reset", "-q", "--soft", "HEAD~1")
    scene.commit()
    assert scene.authors() == {"app.py": "aaaa", "other.py": "paa"}


def test_short_equal_lines_are_not_taken_for_moved(scene: Scene) -> None:
    scene.agents("app.py", "x\n}\n\nend of it\n")
    scene.write("app.py", "x\n")
    scene.mine("other.py", "}\n\nend of it\n")
    scene.commit()
    assert scene.authors() == {"app.py": "a", "other.py": "ppp"}


def test_a_copy_that_the_person_typed_is_the_persons(scene: Scene) -> None:
    scene.agents("app.py", ONE)
    scene.mine("copy.py", ONE)  # the original is still there
    scene.commit()
    assert scene.authors() == {"app.py": "aa", "copy.py": "pp"}


def test_binary_files_count_as_a_whole(scene: Scene) -> None:
    scene.agents("a.bin", b"\0agent\n" * 10)
    scene.mine("b.bin", b"\0mine\n")
    scene.write("c.bin", b"\0nobody\n")
    scene.commit()
    assert scene.authors() == {"a.bin": "a", "b.bin": "p", "c.bin": "?"}


def test_line_ends_that_git_converts(scene: Scene) -> None:
    (scene.repository / ".gitattributes").write_text("*.py text eol=crlf\n")
    scene.workspace.save("attributes")
    scene.agents("app.py", ONE.replace("\n", "\r\n"))
    scene.mine("app.py", (ONE + TWO).replace("\n", "\r\n"))
    scene.commit()
    assert b"\r" not in scene.git("cat-file", "blob", "HEAD:app.py").encode()
    assert scene.authors()["app.py"] == "aapp"


def test_line_ends_that_git_keeps(scene: Scene) -> None:
    scene.agents("app.py", ONE.replace("\n", "\r\n"))
    scene.mine("app.py", (ONE + TWO).replace("\n", "\r\n"))
    scene.commit()
    assert scene.authors() == {"app.py": "aapp"}


@pytest.mark.parametrize(
    "name",
    ["n" * 255, " ", "a\nb", "ü" * 120, "e\u0301", "\\x41", "-rf", "a b/c d", ".gitmodules~", "tab\there", 'q"uote'],
)
def test_odd_names(scene: Scene, name: str) -> None:
    scene.agents(name, ONE)
    scene.commit()
    assert list(scene.authors().values()) == ["aa"]
    assert scene.workspace.write_notes()[0].changed
    assert [each.status for each in scene.workspace.check_notes(["HEAD"])] == ["true"]


def test_names_that_are_not_utf_8(scene: Scene) -> None:
    name = "odd\udcff"
    scene.agents(name, ONE)
    scene.commit()
    assert scene.authors() == {"odd\\xff": "aa"}


def test_two_agents_and_doubt(scene: Scene) -> None:
    scene.agents("app.py", ONE, actor="codex/reviewer")
    scene.write("app.py", ONE + TWO)
    scene.workspace.save("unsure", actor="claude-code", metadata={"perhaps": ["user"]})
    scene.write("app.py", ONE + TWO + THREE)
    scene.workspace.save("which agent", actor="claude-code", metadata={"perhaps": ["codex"]})
    scene.commit()
    (trace,) = scene.workspace.traces()
    found = {each["holdfast"].get("actor", ""): each for each in trace["files"][0]["conversations"]}
    assert found["codex/reviewer"]["contributor"] == {"type": "ai", "model_id": "anthropic/claude-opus-4-5"}
    assert scene.authors() == {"app.py": "aa??aa"}
    doubts = [
        each["holdfast"]["perhaps"] for each in trace["files"][0]["conversations"] if "perhaps" in each["holdfast"]
    ]
    assert sorted(doubts) == [["claude-code", "codex"], ["claude-code", "user"]]


def test_what_an_agent_pulled_is_not_the_agents(scene: Scene, tmp_path: Path) -> None:
    scene.git("clone", "-q", str(scene.repository), str(tmp_path / "other"))
    (tmp_path / "other" / "lib.py").write_text(ONE)
    other = ("-C", str(tmp_path / "other"), "-c", "user.name=Other", "-c", "user.email=other@example.org")
    scene.git(*other, "add", "-A")
    scene.git(*other, "commit", "-q", "-m", "theirs")
    scene.git("pull", "-q", str(tmp_path / "other"), "main")
    scene.workspace.save("Bash: git pull", actor="claude-code", session="s1")
    assert scene.authors() == {"lib.py": "??"}


def test_what_the_user_authored_within_a_step_is_the_steps(scene: Scene) -> None:
    scene.write("app.py", ONE)
    scene.commit("edited and committed in one tool call", f"--author=Me <{EMAIL}>")
    scene.workspace.save("Bash", actor="claude-code", session="s1")
    assert scene.authors() == {"app.py": "aa"}


def test_a_workspace_inside_a_repository(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "packages/a")
    scene.mine("x.py", "first\n")
    scene.commit("first")
    scene.agents("x.py", "first\n" + ONE)
    (scene.repository / "outside.py").write_text(ONE)
    scene.commit()
    assert scene.authors() == {"packages/a/x.py": "aa", "outside.py": "??"}


def test_a_first_commit_and_a_range(scene: Scene) -> None:
    start = scene.git("rev-parse", "HEAD")
    scene.agents("a.py", ONE)
    first = scene.commit("a")
    scene.mine("b.py", TWO)
    second = scene.commit("b")
    found = scene.workspace.traces([f"{start}..HEAD"])
    assert [each["vcs"]["revision"] for each in found] == [first, second]
    assert [each["vcs"]["revision"] for each in scene.workspace.traces([start, "HEAD", "main"])] == [start, second]


@pytest.mark.parametrize("name", ["nope", "", "HEAD^{tree}", "--upload-pack=x", "HEAD..nope", "\0", "@{-9}"])
def test_names_of_no_commit(scene: Scene, name: str) -> None:
    with pytest.raises(NotFound):
        scene.workspace.traces([name])


def test_what_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        scene.workspace.traces(["HEAD...main"])
    scene.agents("app.py", ONE)
    scene.commit()
    blob = scene.git("rev-parse", "HEAD:app.py")
    (scene.repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Unavailable):
        scene.workspace.traces()


def test_hostile_content(scene: Scene) -> None:
    """A file that looks like a note, a diff, or has no end of a line."""
    text = '{"tool":{"name":"holdfast"},"files":[],"vcs":{}}\n@@ -1 +1 @@\n\x1b[31m\r\n\n' + "x" * 100_000
    scene.agents("note.txt", text)
    scene.commit('{"tool":{"name":"holdfast"},"files":[]}')
    assert scene.authors() == {"note.txt": "aaaaa"}


def test_links_and_modes(scene: Scene) -> None:
    (scene.root / "link").symlink_to("old.txt")
    scene.workspace.save("linked", actor="claude-code")
    (scene.root / "old.txt").chmod(0o755)
    scene.commit()
    assert scene.authors() == {"link": "a"}


def test_deleted_checkpoints_make_lines_unknown(scene: Scene) -> None:
    scene.agents("app.py", ONE)
    scene.commit()
    for checkpoint in scene.workspace.list(None):
        if checkpoint.actor:
            scene.workspace.delete(checkpoint.id)
    assert scene.authors() == {"app.py": "??"}
