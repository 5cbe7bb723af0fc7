"""Claude Code's file history, as its transcripts describe it."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.workspace import Workspace
from unit.importers.scenes import bytes_and_times, messages, plan, run

SESSION = "0b1c2d3e-0000-4000-8000-000000000001"


class Claude:
    """Writes what Claude Code writes."""

    def __init__(self, home: Path, project: Path, session: str = SESSION) -> None:
        self.home = home / ".claude"
        self.project = project
        self.session = session
        self.folder = self.home / "projects" / str(project).replace("/", "-")
        self.copies = self.home / "file-history" / session
        for each in (self.folder, self.copies):
            each.mkdir(parents=True, exist_ok=True)
        self.transcript = self.folder / f"{session}.jsonl"
        self.minute = 0

    def line(self, record: dict[str, Any]) -> None:
        with self.transcript.open("a") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def prompt(self, uuid: str, text: str) -> None:
        message = {"role": "user", "content": text}
        self.line(
            {"type": "user", "uuid": uuid, "sessionId": self.session, "cwd": str(self.project), "message": message}
        )

    def copy(self, path: str, version: int, content: str | None) -> dict[str, Any]:
        name = f"{sha256(path.encode()).hexdigest()[:16]}@v{version}"
        if content is not None:
            (self.copies / name).write_text(content)
        return {
            "backupFileName": None if content is None else name,
            "version": version,
            "backupTime": "2026-01-02T03:00:00.000Z",
        }

    def snapshot(self, uuid: str, files: dict[str, Any], *, update: bool = False) -> None:
        self.minute += 1
        when = f"2026-01-02T03:{self.minute:02}:00.000Z"
        self.line(
            {
                "type": "file-history-snapshot",
                "messageId": uuid,
                "snapshot": {"messageId": uuid, "trackedFileBackups": files, "timestamp": when},
                "isSnapshotUpdate": update,
            }
        )

    def delta(self, uuid: str, path: str, backup: dict[str, Any]) -> None:
        self.line({"type": "file-history-delta", "messageId": uuid, "trackingPath": path, "backup": backup})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "src").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def claude(home: Path, project: Path) -> Claude:
    """A session: two prompts; the first edited `src/a.py` and made `src/new.py`, the second edited `src/a.py` again."""
    made = Claude(home, project)
    made.prompt("m1", "fix the bug\nplease")
    made.snapshot("m1", {})
    made.delta("m1", "src/a.py", made.copy("src/a.py", 1, "one\n"))
    made.delta("m1", str(project / "src" / "new.py"), made.copy("src/new.py", 1, None))
    made.prompt("m2", "now the tests")
    made.snapshot(
        "m2", {"src/a.py": made.copy("src/a.py", 2, "two\n"), "src/new.py": made.copy("src/new.py", 2, "new\n")}
    )
    (project / "src" / "a.py").write_text("three\n")
    (project / "src" / "new.py").write_text("new\n")
    (project / "other.txt").write_text("never edited by a tool")
    return made


class TestRewindPoints:
    def test_each_becomes_a_checkpoint(self, claude: Claude, project: Path, tmp_path: Path) -> None:
        before = bytes_and_times(claude.home), bytes_and_times(project)
        done = run(claude.transcript)
        assert (done.added, done.not_carried) == (2, ())
        assert (bytes_and_times(claude.home), bytes_and_times(project)) == before
        assert messages(project)[:2] == ["fix the bug", "now the tests"]
        workspace = Workspace(project, create=False)
        first, second = reversed(workspace.list(None)[1:])
        assert first.session == second.session == SESSION
        assert second.files_changed == ["src/a.py", "src/new.py"]
        workspace.export(first.id, tmp_path / "1")
        workspace.export(second.id, tmp_path / "2")
        assert sorted(each.name for each in (tmp_path / "1" / "src").iterdir()) == ["a.py"]
        assert (tmp_path / "1" / "src" / "a.py").read_text() == "one\n"
        assert (tmp_path / "2" / "src" / "new.py").read_text() == "new\n"

    def test_restore_does_what_rewind_does(self, claude: Claude, project: Path) -> None:
        run(claude.transcript)
        workspace = Workspace(project, create=False)
        workspace.restore("latest~2")
        assert (project / "src" / "a.py").read_text() == "one\n"
        assert not (project / "src" / "new.py").exists()
        assert (project / "other.txt").read_text() == "never edited by a tool"
        workspace.undo()
        assert (project / "src" / "new.py").exists()

    def test_snapshot_updates_of_older_versions(self, home: Path, project: Path) -> None:
        made = Claude(home, project)
        made.prompt("m1", "x")
        made.snapshot("m1", {})
        made.snapshot("m1", {"a.py": made.copy("a.py", 1, "one")}, update=True)
        assert run(made.transcript).added == 1

    def test_all_sessions_of_a_folder_by_time(self, claude: Claude, home: Path, project: Path) -> None:
        other = Claude(home, project, "ffff2d3e-0000-4000-8000-000000000002")
        other.minute = 10
        other.prompt("n1", "later")
        other.snapshot("n1", {"b.py": other.copy("b.py", 1, "b")})
        assert run(claude.folder).added == 3
        assert messages(project)[:3] == ["fix the bug", "now the tests", "later"]

    def test_second_run_adds_nothing_and_new_messages_are_added(self, claude: Claude, project: Path) -> None:
        run(claude.transcript)
        before = messages(project)
        assert plan(claude.transcript).new == 0
        assert run(claude.transcript).added == 0
        assert messages(project) == before
        claude.prompt("m3", "and the docs")
        claude.snapshot("m3", {"src/a.py": claude.copy("src/a.py", 3, "three\n")})
        assert run(claude.transcript).added == 1

    def test_strange_names(self, home: Path, project: Path, tmp_path: Path) -> None:
        made = Claude(home, project)
        made.prompt("m1", "x")
        names = ["we ird/*[a]?.py", "!not#.py", "ä\\b.py"]
        made.snapshot("m1", {name: made.copy(name, 1, None) for name in names} | {"k.py": made.copy("k.py", 1, "k")})
        for name in names:
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text("made by the tool")
        (project / "we ird" / "xa.py").write_text("mine")
        run(made.transcript)
        Workspace(project, create=False).restore("latest~1")
        assert not any((project / name).exists() for name in names)
        assert (project / "we ird" / "xa.py").read_text() == "mine"


class TestNotCarried:
    def test_copy_that_claude_code_deleted(self, claude: Claude, project: Path) -> None:
        next(claude.copies.glob("*@v1")).unlink()
        done = run(claude.transcript)
        assert done.added == 2
        assert [(each.what, each.why) for each in done.not_carried] == [
            ("src/a.py", "Claude Code has deleted its copy")
        ]
        Workspace(project, create=False).restore("latest~2")
        assert (project / "src" / "a.py").read_text() == "three\n"

    @pytest.mark.parametrize(
        "path", ["../../.bashrc", "/etc/passwd", ".git/config", "src/.git/hooks/pre-commit", "a\0b"]
    )
    def test_path_elsewhere(self, claude: Claude, path: str, tmp_path: Path) -> None:
        claude.prompt("m3", "x")
        claude.snapshot("m3", {path: claude.copy("x", 1, "evil"), "ok.py": claude.copy("ok.py", 1, "ok")})
        done = run(claude.transcript)
        assert done.added == 3
        assert [each.why for each in done.not_carried] == ["it is not below the folder"]

    @pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "0123456789abcdef@v1/../../x", 5, "x" * 5000])
    def test_name_of_a_copy_that_is_none(self, claude: Claude, name: Any) -> None:
        claude.prompt("m3", "x")
        claude.snapshot("m3", {"z.py": {"backupFileName": name, "version": 1}})
        done = run(claude.transcript)
        assert done.added == 2
        assert [(each.what, each.why) for each in done.not_carried] == [("z.py", "the name of its copy is invalid")]

    def test_copy_that_is_a_link(self, claude: Claude, project: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        place = next(claude.copies.glob("*@v1"))
        place.unlink()
        place.symlink_to(tmp_path / "secret")
        assert "not a regular file" in run(claude.transcript).not_carried[0].why
        assert not Workspace(project, create=False).search("secret")

    def test_damaged_lines(self, claude: Claude) -> None:
        with claude.transcript.open("ab") as file:
            file.write(
                b"\xff\xfe\n" + b"[" * 100_000 + b"\n{}\n[]\n" + b'{"type":"file-history-snapshot","snapshot":5}\n'
            )
            file.write(
                b'{"type":"file-history-snapshot","messageId":"m9","snapshot":{"trackedFileBackups":[1]}}\n{"cut'
            )
        done = run(claude.transcript)
        assert done.added == 2
        assert [each.what for each in done.not_carried] == [f"lines of {SESSION}.jsonl"]


class TestRefused:
    def test_no_history(self, home: Path, project: Path, tmp_path: Path) -> None:
        made = Claude(home, project)
        made.prompt("m1", "x")
        with pytest.raises(NotFound, match="no file history"):
            run(made.transcript)
        assert not list((tmp_path / "state").rglob("HEAD"))

    def test_all_copies_gone(self, home: Path, project: Path) -> None:
        made = Claude(home, project)
        made.prompt("m1", "x")
        made.snapshot("m1", {"a.py": made.copy("a.py", 1, "a")})
        next(made.copies.iterdir()).unlink()
        done = run(made.transcript)
        assert done.not_carried

    def test_folder_is_gone(self, claude: Claude, project: Path, tmp_path: Path) -> None:
        os.rename(project, tmp_path / "moved")
        with pytest.raises(NotFound, match="does not exist"):
            run(claude.transcript)
        assert run(claude.transcript, tmp_path / "moved").added == 2

    def test_other_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "other.jsonl"
        path.parent.mkdir(parents=True)
        for text in ("", "{}\n", "garbage\n", '{"prompt": "x"}\n'):
            path.write_text(text)
            with pytest.raises((Refused, Damaged), match="unknown format"):
                run(path)
