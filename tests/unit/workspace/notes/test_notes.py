"""Writing and checking notes, with real git beside and against us."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.workspace import Workspace
from holdfast.workspace.notes import trace
from holdfast.workspace.notes.notes_ref import NotesRef

from .conftest import Scene, authors_in

ONE = "def one():\n    return 'the first function'\n"
TWO = "def two():\n    return 'the second function'\n"
REF = "refs/notes/holdfast"


@pytest.fixture
def noted(scene: Scene) -> Scene:
    """A commit with lines of an agent and of the person, without a note."""
    scene.agents("app.py", ONE)
    scene.mine("app.py", ONE + TWO)
    scene.commit("work")
    return scene


def _git_files(scene: Scene) -> dict[str, bytes]:
    """Everything in .git but objects, the notes ref and its log."""
    git = scene.repository / ".git"
    every = (path for path in sorted(git.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(git)): path.read_bytes()
        for path in every
        if not str(path.relative_to(git)).startswith(("objects/", REF, f"logs/{REF}"))
    }


def _statuses(workspace: Workspace, *commits: str) -> dict[str, str]:
    return {each.commit: each.status.value for each in workspace.check_notes(commits)}


def test_git_reads_the_note(noted: Scene) -> None:
    (written,) = noted.workspace.write_notes()
    assert written.changed
    assert written.commit == noted.git("rev-parse", "HEAD")
    assert authors_in(noted.note()) == {"app.py": "aapp"}
    assert "claude-opus-4-5" in noted.git("log", "-1", "--notes=holdfast")
    noted.git("fsck", "--strict")


def test_only_the_notes_ref_is_written(noted: Scene) -> None:
    before = _git_files(noted)
    noted.workspace.write_notes()
    assert _git_files(noted) == before


@pytest.mark.parametrize("verb", ["traces", "check_notes"])
def test_reading_writes_nothing(noted: Scene, verb: str) -> None:
    before = sorted((noted.repository / ".git").rglob("*"))
    getattr(noted.workspace, verb)(["HEAD"])
    assert sorted((noted.repository / ".git").rglob("*")) == before


def test_a_record_has_what_agent_trace_requires(noted: Scene) -> None:
    noted.workspace.write_notes()
    trace = noted.note()
    assert re.fullmatch(r"[0-9]+\.[0-9]+", trace["version"])
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", trace["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", trace["timestamp"])
    assert trace["vcs"] == {"type": "git", "revision": noted.git("rev-parse", "HEAD")}
    assert trace["tool"]["name"] == "holdfast"
    (file,) = trace["files"]
    agents, mine = file["conversations"]
    assert agents["contributor"] == {"type": "ai", "model_id": "anthropic/claude-opus-4-5"}
    assert agents["holdfast"] == {"actor": "claude-code", "model": "claude-opus-4-5", "session": "s1", "turn": "1"}
    assert (mine["contributor"], mine["holdfast"]) == ({"type": "human"}, {"actor": "user"})
    (part,) = agents["ranges"]
    assert (part["start_line"], part["end_line"]) == (1, 2)
    import hashlib

    assert part["content_hash"] == f"sha256:{hashlib.sha256(ONE.encode()).hexdigest()}"


def test_writing_again_changes_nothing(noted: Scene) -> None:
    noted.workspace.write_notes()
    tip, first = noted.git("rev-parse", REF), noted.note()
    assert [each.changed for each in noted.workspace.write_notes()] == [False]
    assert (noted.git("rev-parse", REF), noted.note()) == (tip, first)


def test_several_commits_are_one_commit_of_notes(noted: Scene) -> None:
    written = noted.workspace.write_notes(["HEAD~1", "HEAD"])
    assert len(written) == 2
    assert noted.git("rev-list", "--count", REF) == "1"


def test_notes_of_others_stay(noted: Scene) -> None:
    other = noted.git("rev-parse", "HEAD~1")
    noted.git("notes", "--ref=holdfast", "add", "-m", "reviewed by hand", "HEAD")
    noted.git("notes", "--ref=holdfast", "add", "-m", "untouched", other)
    noted.git("notes", "add", "-m", "in another ref", "HEAD")
    noted.workspace.write_notes()
    text = noted.git("notes", "--ref=holdfast", "show", "HEAD")
    assert text.startswith("reviewed by hand\n")
    assert json.loads(text.partition("\n")[2])["tool"]["name"] == "holdfast"
    assert noted.git("notes", "--ref=holdfast", "show", other) == "untouched"
    assert noted.git("notes", "show", "HEAD") == "in another ref"
    assert [each.changed for each in noted.workspace.write_notes()] == [False]
    noted.git("notes", "--ref=holdfast", "append", "-m", "and appended", "HEAD")
    noted.agents("app.py", ONE + TWO + "more of the agent, long enough\n")
    assert [each.changed for each in noted.workspace.write_notes()] == [False]
    assert "and appended" in noted.git("notes", "--ref=holdfast", "show", "HEAD")


def test_a_note_that_pretends_to_be_ours_is_not_trusted(noted: Scene) -> None:
    fake = '{"tool": {"name": "holdfast"}, "vcs": {}, "files": [{"path": "app.py", "conversations": 7}, 3, {}]}'
    noted.git("notes", "--ref=holdfast", "add", "-m", fake, "HEAD")
    assert list(_statuses(noted.workspace, "HEAD").values()) == ["differs"]
    noted.workspace.write_notes()
    assert authors_in(noted.note()) == {"app.py": "aapp"}


def test_notes_in_folders(noted: Scene) -> None:
    """git puts many notes into folders of two digits; ours go there too, and git still reads all."""
    blob = noted.git("hash-object", "-w", "--stdin", given=b"a note\n")
    head = noted.git("rev-parse", "HEAD")
    first = noted.git("rev-parse", "HEAD~1")
    lines = "".join(f"100644 blob {blob}\t{number:02x}/{'0' * 38}\n" for number in range(256))
    index = {"GIT_INDEX_FILE": str(noted.repository / "index-of-notes")}
    noted.git("update-index", "--add", "--index-info", given=lines.encode(), **index)
    same = f"100644 blob {blob}\t{first[:2]}/{first[2:]}\n"
    noted.git("update-index", "--add", "--index-info", given=same.encode(), **index)
    tree = noted.git("write-tree", **index)
    noted.git("update-ref", REF, noted.git("commit-tree", "-m", "notes", tree))
    noted.workspace.write_notes(["HEAD", "HEAD~1"])
    assert authors_in(noted.note()) == {"app.py": "aapp"}
    assert noted.git("notes", "--ref=holdfast", "show", first).startswith("a note\n{")
    names = noted.git("ls-tree", "-r", "--name-only", REF).splitlines()
    assert f"{head[:2]}/{head[2:]}" in names
    assert len(names) == len(set(names)) == 258
    assert list(_statuses(noted.workspace, "HEAD").values()) == ["true"]


def test_check(noted: Scene) -> None:
    head, first = noted.git("rev-parse", "HEAD"), noted.git("rev-parse", "HEAD~1")
    assert _statuses(noted.workspace) == {head: "missing"}
    noted.workspace.write_notes([head, first])
    assert _statuses(noted.workspace) == {head: "true", first: "true"}
    trace = noted.note()
    trace["files"][0]["conversations"][0]["ranges"][0]["end_line"] = 3
    noted.git("notes", "--ref=holdfast", "add", "-f", "-F", "-", "HEAD", given=json.dumps(trace).encode())
    found = {each.commit: each for each in noted.workspace.check_notes()}
    assert (found[head].status.value, found[head].paths) == ("differs", ("app.py",))
    noted.git("notes", "--ref=holdfast", "add", "-f", "-m", "words", "HEAD")
    assert _statuses(noted.workspace, "HEAD") == {head: "missing"}


def test_what_only_the_note_knows_is_kept(noted: Scene) -> None:
    noted.workspace.write_notes()
    for checkpoint in noted.workspace.list(None):
        noted.workspace.delete(checkpoint.id)
    noted.workspace.save("anew")
    assert authors_in(noted.workspace.traces()[0]) == {"app.py": "aapp"}
    assert list(_statuses(noted.workspace, "HEAD").values()) == ["unprovable"]
    assert [each.changed for each in noted.workspace.write_notes()] == [False]
    assert authors_in(noted.note()) == {"app.py": "aapp"}


def test_a_note_that_git_copied_to_another_commit(noted: Scene) -> None:
    noted.workspace.write_notes()
    noted.git("config", "notes.rewriteRef", REF)
    noted.git("commit", "-q", "--amend", "-m", "reworded")
    assert authors_in(noted.note()) == {"app.py": "aapp"}
    (found,) = noted.workspace.check_notes(["HEAD"])
    assert (found.status.value, found.detail) == ("differs", "it was written for another commit")
    noted.workspace.write_notes()
    assert list(_statuses(noted.workspace, "HEAD").values()) == ["true"]


def test_notes_of_commits_that_are_gone(noted: Scene) -> None:
    gone = "ab" * 20
    blob = noted.git("hash-object", "-w", "--stdin", given=noted_text(noted))
    tree = noted.git("mktree", given=f"100644 blob {blob}\t{gone}\n".encode())
    noted.git("update-ref", REF, noted.git("commit-tree", "-m", "notes", tree))
    assert _statuses(noted.workspace)[gone] == "unreadable"


def noted_text(scene: Scene) -> bytes:
    return json.dumps(scene.workspace.traces()[0]).encode()


def test_a_symbolic_ref_is_refused(noted: Scene) -> None:
    noted.git("symbolic-ref", REF, "refs/heads/main")
    before = noted.git("rev-parse", "main")
    with pytest.raises(Refused):
        noted.workspace.write_notes()
    assert noted.git("rev-parse", "main") == before


@pytest.mark.parametrize("what", ["HEAD^{tree}", "HEAD:app.py"])
def test_a_ref_that_leads_to_no_notes_is_refused(noted: Scene, what: str) -> None:
    noted.git("update-ref", REF, noted.git("rev-parse", what))
    with pytest.raises(Refused):
        noted.workspace.write_notes()


def test_a_ref_to_an_ordinary_commit_keeps_its_files(noted: Scene) -> None:
    noted.git("update-ref", REF, "HEAD")
    noted.workspace.write_notes()
    assert authors_in(noted.note()) == {"app.py": "aapp"}
    assert "app.py" in noted.git("ls-tree", "--name-only", REF)


def test_a_locked_ref_is_told(noted: Scene) -> None:
    lock = noted.repository / ".git" / f"{REF}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    with pytest.raises(Unavailable):
        noted.workspace.write_notes()
    lock.unlink()
    assert noted.workspace.write_notes()[0].changed


def test_outside_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotFound):
        Workspace(tmp_path / "plain", store=tmp_path / "store", home=tmp_path, environ={}).write_notes()


@pytest.mark.parametrize("how", [["--object-format=sha256"], ["--ref-format=reftable"]])
def test_repositories_that_cannot_be_read(tmp_path: Path, how: list[str]) -> None:
    place = tmp_path / "project"
    done = subprocess.run(["git", "init", "-q", *how, str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("this git cannot make such a repository")
    (place / "a").write_text("a\n")
    names = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["add", "-A"], [*names, "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=place, check=True)
    workspace = Workspace(place, store=tmp_path / "store", home=tmp_path, environ={})
    with pytest.raises(Unavailable, match="cannot be"):
        workspace.write_notes()


def test_in_a_linked_worktree(noted: Scene, tmp_path: Path) -> None:
    noted.git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"))
    workspace = Workspace(tmp_path / "linked", store=tmp_path / "other-store", home=tmp_path, environ={})
    workspace.save("first")
    workspace.write_notes()
    assert authors_in(noted.note("topic")) == {"app.py": "????"}


_WRITER = """
import sys
from holdfast.workspace import Workspace
area, *commits = sys.argv[1:]
ws = Workspace(area + "/project", store=area + "/store", home=area, environ={})
for commit in commits:
    ws.write_notes([commit])
"""


def test_writers_at_once_lose_nothing(noted: Scene, tmp_path: Path) -> None:
    for number in range(8):
        noted.agents("many.py", f"line {number} is written by the agent\n" * (number + 1))
        noted.commit(f"commit {number}")
    commits = noted.git("rev-list", "HEAD~8..HEAD").split()
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, *commits[start::2]]) for start in range(2)]
    for number in range(8):
        noted.git("notes", "--ref=other", "add", "-m", "x", commits[number])
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert set(_statuses(noted.workspace, *commits).values()) == {"true"}
    assert noted.git("rev-list", "--count", REF) == "8"


@pytest.mark.parametrize("has_notes", [False, True])
def test_a_note_written_between_objects_and_ref(noted: Scene, monkeypatch: pytest.MonkeyPatch, has_notes: bool) -> None:
    if has_notes:
        noted.git("notes", "--ref=holdfast", "add", "-m", "first", "HEAD~1")
    whole, calls = NotesRef._commit, []

    def commit(self: NotesRef, *arguments: Any) -> Any:
        made = whole(self, *arguments)
        if not calls:
            noted.git("notes", "--ref=holdfast", "append", "-m", "meanwhile", "HEAD~1")
        calls.append(made)
        return made

    monkeypatch.setattr(NotesRef, "_commit", commit)
    assert noted.workspace.write_notes()[0].changed
    assert len(calls) == 2
    assert noted.git("notes", "--ref=holdfast", "show", "HEAD~1").endswith("meanwhile")
    assert authors_in(noted.note()) == {"app.py": "aapp"}


_KILLED = """
import os, signal, sys
import pygit2
from holdfast.workspace import Workspace
from holdfast.workspace.notes.notes_ref import NotesRef
whole = NotesRef._commit
def commit(self, *arguments):
    whole(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)  # the objects are written, the ref is not
NotesRef._commit = commit
area = sys.argv[1]
Workspace(area + "/project", store=area + "/store", home=area, environ={}).write_notes()
"""


@pytest.mark.parametrize("has_notes", [False, True])
def test_killed_between_objects_and_ref(noted: Scene, tmp_path: Path, has_notes: bool) -> None:
    if has_notes:
        noted.git("notes", "--ref=holdfast", "add", "-m", "kept", "HEAD~1")
    before: Any = noted.git("for-each-ref")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], env=os.environ)
    assert done.returncode == -signal.SIGKILL
    assert noted.git("for-each-ref") == before
    assert noted.workspace.write_notes()[0].changed
    assert authors_in(noted.note()) == {"app.py": "aapp"}
    noted.git("fsck", "--strict")


def test_a_record_of_others_names_no_more_lines_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of a few bytes may name millions of lines, and there may be many."""
    monkeypatch.setattr(trace, "_MOST_LINES", 10)
    part = {"start_line": 1, "end_line": 6}
    said = {"contributor": {"type": "ai"}, "ranges": [part, part]}
    found = trace.authors_of(
        {"files": [{"path": "a", "conversations": [said]}, {"path": "b", "conversations": [said]}]}
    )
    assert {name: len(file.lines) for name, file in found.items()} == {"a": 6, "b": 0}
