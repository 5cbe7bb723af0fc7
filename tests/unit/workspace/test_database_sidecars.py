"""A database and the files SQLite keeps beside it (-wal, -shm, -journal) are saved and restored as one thing."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.durable import use_disk
from holdfast.model import Reason
from holdfast.testing.faulty_disks import CountingDisk, KillingDisk, die_in_child
from unprivileged import unprivileged

MODES = ["wal", "delete", "truncate", "persist"]
RULES = {
    "ignored": {".gitignore": "*.db\n*.db-*\n*.sqlite*\nnotes*\n"},
    "sidecars excluded": {".holdfastignore": "*-wal\n*-shm\n*-journal\n"},
    "database excluded from git": {".gitignore": "*.db\n"},
    "none": {},
}

# Commits one batch, then leaves a transaction half written: the database is torn without its log or journal.
WRITER = """
import sqlite3, sys
path, mode = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"pragma journal_mode={mode}")
db.execute("pragma cache_size=5")
db.execute("pragma wal_autocheckpoint=0")
db.execute("update rows set text = 'agent' || n")
db.execute("insert into rows select n + 1000000, hex(randomblob(200)) from rows")
db.execute("begin immediate")
db.execute("update rows set text = hex(randomblob(200))")
db.execute("delete from rows where n % 3 = 0")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def ws(root: Path) -> Workspace:
    return Workspace(root, store=root.parent / "store", home=root.parent, environ={})


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(path: Path, rows: int = 200) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table rows (n integer primary key, text)")
        db.executemany("insert into rows values (?, ?)", [(n, f"mine{n}" * 20) for n in range(rows)])


def kill_a_writer(path: Path, mode: str) -> None:
    """Run a server that writes to a database, and kill it."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        server.kill()
    assert sidecars(path)


def sidecars(path: Path) -> set[str]:
    return {other.name[len(path.name) :] for other in path.parent.glob(f"{path.name}-*")}


def rows(path: Path) -> list[tuple[int, str]]:
    """The rows of a database as SQLite finds them; it is sound, and a look at it changes nothing in its folder."""
    scratch = path.parent.parent / "looked at"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for part in ("", "-wal", "-journal"):
        if (path.parent / (path.name + part)).exists():
            shutil.copy(path.parent / (path.name + part), scratch / (path.name + part))
    with closing(sqlite3.connect(scratch / path.name)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        return db.execute("select n, text from rows order by n").fetchall()


@pytest.fixture(params=["ignored", "sidecars excluded"])
def rules(root: Path, request: pytest.FixtureRequest) -> str:
    for name, text in RULES[request.param].items():
        (root / name).write_text(text)
    return str(request.param)


class TestAfterAKilledWriter:
    @pytest.mark.parametrize("rules", list(RULES), indirect=True)
    def test_restore_and_undo(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        theirs = rows(path)
        assert theirs != mine

        done = ws.restore("latest")
        assert not done.failed
        assert rows(path) == mine
        ws.undo()
        assert rows(path) == theirs
        ws.redo()
        assert rows(path) == mine

    def test_restore_of_the_database_alone(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        theirs = rows(path)
        assert not ws.restore("latest", ["app.db"]).failed
        assert rows(path) == mine
        ws.undo()
        assert rows(path) == theirs

    def test_restore_of_a_sidecar_alone(self, root: Path, ws: Workspace, mode: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        (sidecar,) = [name for name in sidecars(path) if name != "-shm"]
        assert not ws.restore("latest", [f"app.db{sidecar}"]).failed
        assert rows(path) == mine

    def test_restore_that_keeps_new_files(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        assert not ws.restore("latest", keep_new=True).failed
        assert rows(path) == mine

    def test_save_holds_what_it_left(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        """The checkpoint holds the log or journal; the folder then moves on, and goes back."""
        path = root / "app.db"
        make(path)
        assert ws.save("at rest").complete
        kill_a_writer(path, mode)
        left = rows(path)
        found = ws.save("left by the server")
        assert found.complete and found.quiet
        with closing(sqlite3.connect(path)) as db, db:  # recovers, and changes
            db.execute("delete from rows")
        assert not ws.restore("latest").failed
        assert rows(path) == left

    @pytest.mark.parametrize("mode", ["wal", "delete"])
    @pytest.mark.parametrize("name", ["data.sqlite", "data.sqlite3", "notes", "Notes 2.data"])
    def test_any_name(self, root: Path, ws: Workspace, mode: str, rules: str, name: str) -> None:
        path = root / "deep" / name
        path.parent.mkdir()
        make(path)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        ws.restore("latest")
        assert rows(path) == mine

    def test_larger_than_the_limits(self, root: Path, mode: str) -> None:
        limits = {"ignored_file_max_bytes": 64 << 10, "ignored_total_max_bytes": 80 << 10}
        ws = Workspace(root, store=root.parent / "store", home=root.parent, environ={}, **limits)
        (root / ".gitignore").write_text("*.db*\n")
        path = root / "app.db"
        make(path, rows=60)
        assert path.stat().st_size < 64 << 10
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        theirs = rows(path)
        assert not ws.restore("latest").failed
        assert rows(path) == mine
        ws.undo()
        assert rows(path) == theirs

    def test_export_and_export_of_the_database_alone(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        kill_a_writer(path, mode)
        left = rows(path)
        ws.save("left by the server")
        ws.export("latest", root.parent / "all")
        ws.export("latest", root.parent / "one", ["app.db"])
        assert rows(root.parent / "all" / "app.db") == left
        assert rows(root.parent / "one" / "app.db") == left

    def test_bisect(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("good")
        kill_a_writer(path, mode)
        ws.save("bad")
        found = ws.bisect("latest~1", "latest", lambda folder, _: rows(folder / "app.db") == mine, scratch=root.parent)
        assert found.first_bad is not None
        assert found.first_bad.message == "bad"

    def test_guard(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)

        def step() -> None:
            with ws.guard("step"):
                kill_a_writer(path, mode)
                raise ValueError

        with pytest.raises(ValueError):
            step()
        assert rows(path) == mine

    def test_undo_of_the_agent_alone(self, root: Path, ws: Workspace, mode: str, rules: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before", actor="user")
        kill_a_writer(path, mode)
        ws.save("after", actor="agent")
        theirs = rows(path)
        (root / "mine.txt").write_text("mine")
        done = ws.restore(ws.beginning().id, keep_mine=True)
        assert not done.failed and not done.conflicts
        assert rows(path) == mine
        assert (root / "mine.txt").exists()
        ws.undo()
        assert rows(path) == theirs

    @pytest.mark.parametrize("mode", ["wal", "delete"])
    def test_undo_of_the_agent_in_the_database_alone(self, root: Path, ws: Workspace, mode: str) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)
        ws.save("before", actor="user")
        kill_a_writer(path, mode)
        ws.save("after", actor="agent")
        done = ws.restore(ws.beginning().id, ["app.db"], keep_mine=True)
        assert not done.failed and not done.conflicts
        assert rows(path) == mine

    def test_undo_of_the_agent_leaves_a_database_others_wrote_to(self, root: Path, ws: Workspace) -> None:
        """The agent folded the log into the database; the user wrote a new log since."""
        path = root / "app.db"
        make(path)
        with closing(sqlite3.connect(path)) as db:
            db.execute("pragma journal_mode=wal")
        ws.save("before", actor="user")
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("delete from rows where n > 10")
        ws.save("after", actor="agent")
        kill_a_writer(path, "wal")
        now = rows(path)
        done = ws.restore(ws.beginning().id, keep_mine=True)
        assert "app.db" in done.conflicts
        assert rows(path) == now

    @pytest.mark.parametrize("mode", ["wal", "delete"])
    def test_a_restore_killed_anywhere_leaves_no_mix(self, root: Path, ws: Workspace, mode: str) -> None:
        """After a kill the database is gone, or one of the two with its own sidecars; then the restore is finished."""
        path = root / "app.db"
        make(path, rows=40)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        theirs = rows(path)
        counting = CountingDisk()
        with use_disk(counting):
            ws.restore("latest")
            ws.undo()
        assert rows(path) == theirs
        calls = [call.number for call in counting.calls if call.name in ("place", "exchange")]
        assert len(calls) >= 6

        def go_there_and_back() -> None:
            here = Workspace(root, store=ws.store, home=root.parent, environ={})
            here.restore("latest")
            here.undo()

        for number in calls:
            assert die_in_child(KillingDisk(at=number, when="after"), go_there_and_back)
            assert not path.exists() or rows(path) in (mine, theirs)
            here = Workspace(root, store=ws.store, home=root.parent, environ={})  # finishes what was interrupted
            if rows(path) == mine:
                here.undo()
            assert rows(path) == theirs


class TestWhatGoesTogether:
    def test_database_is_not_restored_beside_an_unsavable_sidecar(self, root: Path, ws: Workspace) -> None:
        path = root / "app.db"
        make(path)
        ws.save("before")
        kill_a_writer(path, "delete")
        (root / "app.db-journal").chmod(0)
        theirs = path.read_bytes()
        done = unprivileged(lambda: ws.restore("latest"))
        assert "app.db" in done.failed
        assert path.read_bytes() == theirs  # the journal still fits it

    @pytest.mark.parametrize("mode", MODES)
    def test_missing_database_is_restored_despite_old_sidecars(self, root: Path, mode: str) -> None:
        ws = Workspace(root, store=root.parent / "store", home=root.parent, environ={}, ignored_file_max_bytes=64 << 10)
        (root / ".gitignore").write_text("*-wal\n*-journal\n*-shm\n")
        path = root / "app.db"
        make(path, rows=2_000)
        mine = rows(path)
        ws.save("before")
        kill_a_writer(path, mode)
        path.unlink()
        left = {name: (root / f"app.db{name}").read_bytes() for name in sidecars(path) - {"-shm"}}
        assert not ws.restore("latest").failed
        assert rows(path) == mine
        ws.undo()
        assert not path.exists()
        assert {name: (root / f"app.db{name}").read_bytes() for name in left} == left

    def test_a_young_database_at_rest_is_complete(self, root: Path, ws: Workspace) -> None:
        with closing(sqlite3.connect(root / "app.db")) as db:
            db.execute("create table rows (n)")
        saved = ws.save()
        assert saved.complete
        assert saved.uncovered == ()

    def test_files_that_are_only_named_so_are_left_alone(self, root: Path, ws: Workspace) -> None:
        (root / ".gitignore").write_text("*-journal\n")
        (root / "notes").write_text("one")
        ws.save("before")
        (root / "notes").write_text("two")
        (root / "notes-journal").write_text("what a person wrote today")
        done = ws.restore("latest")
        assert done.kept == {"notes-journal": "ignored by git's rules"}
        assert (root / "notes-journal").exists()

    def test_sidecars_of_a_database_that_is_left_out_are_left_out(self, root: Path, ws: Workspace) -> None:
        (root / ".gitignore").write_text("*.db*\n")
        path = root / "app.db"
        make(path, rows=30_000)
        kill_a_writer(path, "wal")
        (root / "file").write_text("one")
        found = ws.save("before")
        assert {"app.db", "app.db-wal"} <= {each.path for each in found.uncovered}
        now = rows(path)
        ws.restore("latest")
        assert rows(path) == now

    def test_journal_that_appears_during_the_read_is_saved(self, root: Path, ws: Workspace) -> None:
        path = root / "app.db"
        make(path)
        mine = rows(path)

        def meanwhile(stage: str, done: int, total: int) -> None:
            if not sidecars(path):
                kill_a_writer(path, "delete")

        found = ws.save("during", progress=meanwhile)
        assert not found.quiet
        left = rows(path)
        assert left != mine
        path.unlink()
        (root / "app.db-journal").unlink()
        ws.restore("latest")
        assert rows(path) == left or Reason.LIVE_DATABASE in [each.reason for each in found.uncovered]
        assert rows(path) == left

    @pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.linux) for mode in MODES[1:])])
    def test_a_database_with_an_idle_connection_is_not_replaced(self, root: Path, ws: Workspace, mode: str) -> None:
        path = root / "app.db"
        make(path)
        ws.save("before")
        code = (
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "db.execute(f'pragma journal_mode={sys.argv[2]}')\n"
            "db.execute('delete from rows where n > 10')\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "db.execute('insert into rows values (77, 0)')\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None and server.stdin is not None
            server.stdout.readline()
            done = ws.restore("latest")
            server.stdin.write(b"\n")
            server.stdin.close()
        assert done.failed["app.db"] == "a database that a process has open"
        assert len(rows(path)) == 12

    def test_the_total_of_ignored_files_does_not_part_them(self, root: Path) -> None:
        limits = {"ignored_file_max_bytes": 1 << 20, "ignored_total_max_bytes": 50 << 10}
        ws = Workspace(root, store=root.parent / "store", home=root.parent, environ={}, **limits)
        (root / ".gitignore").write_text("*.db*\n")
        make(root / "app.db", rows=400)
        assert (root / "app.db").stat().st_size > 50 << 10
        (root / "app.db-journal").write_bytes(bytes(512))
        assert {each.path for each in ws.save("before").uncovered} == {"app.db", "app.db-journal"}
