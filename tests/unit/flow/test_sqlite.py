"""The file of SQLite: kills, many processes, forks, damage, a full disk, strangers."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, Refused, Unavailable
from holdfast.flow import Place, States, open_states
from holdfast.flow.sqlite import SQLiteStore
from holdfast.testing.flow_contract import StateStoreContract, conversation, point

WRITER = """
import sys, json
from holdfast.flow import States
from holdfast.flow.sqlite import SQLiteStore
from holdfast.testing.flow_contract import conversation, point
states = States(SQLiteStore(sys.argv[1], synchronous=sys.argv[2]))
newest = states.load("s")
step = newest.metadata.step if newest else 0
while True:
    step += 1
    states.save(point(f"c{step}", {"messages": conversation(step), "step": step}, step=step))
    print(step, flush=True)
    if step % 4 == 0:
        states.delete("s", f"c{step - 2}")
        print(-(step - 2), flush=True)
"""


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_killed_process_has_what_it_reported_as_saved(tmp_path: Path, synchronous: str) -> None:
    """P3: kill -9 at random moments, again and again, on one file."""
    chance = random.Random(7)
    said: set[int] = set()
    gone: set[int] = set()
    maybe: set[int] = set()
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "a.db"), synchronous],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as writer:  # fmt: skip
            assert writer.stdout is not None
            told = [int(writer.stdout.readline()) for _ in range(4)]
            time.sleep(chance.random() * 0.15)
            writer.send_signal(signal.SIGKILL)
            told += [int(line) for line in writer.stdout.read().splitlines() if line.strip("-").isdigit()]
        said |= {step for step in told if step > 0}
        gone |= {-step for step in told if step < 0}
        with States(SQLiteStore(tmp_path / "a.db")) as states:
            found = {each.metadata.step: each.state for each in states.list("s", None)}
            maybe.add(max(said) - 2)  # the last deletion may not have been told
            assert said - gone - maybe <= found.keys()
            assert all(state == {"messages": conversation(step), "step": step} for step, state in found.items())
            StateStoreContract.assert_sound(states)
    assert max(said) > 12


def _save_many(path: str, number: int, steps: int) -> None:
    with States(SQLiteStore(path, synchronous="NORMAL")) as states:
        for step in range(steps):
            states.save(point(f"{number}-{step}", {"messages": conversation(step), "of": number}))


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    """P9: all open a file that is not there yet, and save into one session."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_save_many, args=(str(tmp_path / "a.db"), n, 25)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    with States(SQLiteStore(tmp_path / "a.db")) as states:
        assert len(states.metadata("s", None)) == 100
        StateStoreContract.assert_sound(states)


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    with States(SQLiteStore(tmp_path / "a.db")) as states:
        states.save(point("parent"))
        pool = states.store._pool  # type: ignore[attr-defined]
        of_parent = list(pool._idle)
        child = os.fork()
        if child == 0:
            try:
                states.save(point("child"))
                os._exit(0 if pool._idle and not set(map(id, pool._idle)) & set(map(id, of_parent)) else 2)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        states.save(point("after"))
        assert [each.checkpoint_id for each in states.metadata("s")] == ["after", "child", "parent"]


def test_connection_in_use_is_closed_after_its_use(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    with store._pool.reading() as db:
        store.close()
        db.execute("SELECT 1")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def test_a_forked_child_does_not_close_what_is_its_parents(tmp_path: Path) -> None:
    """That could end the log of the parent, who goes on writing to it."""
    with States(SQLiteStore(tmp_path / "a.db")) as states:
        states.save(point("parent"))
        [of_parent] = states.store._pool._idle  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            try:
                states.close()
                of_parent.execute("SELECT 1")  # says so if it is closed
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        states.save(point("after"))
        assert len(states.metadata("s")) == 2


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as db, db:
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in ("checkpoints", "parts")}


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE parts SET data = CAST(x'00' || substr(data, 3) AS BLOB)",
        "UPDATE parts SET data = CAST(substr(data, 1, 20) || x'5a' || substr(data, 22) AS BLOB) WHERE refs = x''",
        "UPDATE parts SET data = 'text'",
        "UPDATE parts SET data = 5",
        "UPDATE parts SET refs = 'text'",
        "UPDATE checkpoints SET shape = 'text', refs = 'text'",
        "UPDATE checkpoints SET digest = 'text'",
        "UPDATE parts SET data = substr(data, 1, 100)",
        "UPDATE parts SET data = x''",
        "UPDATE parts SET data = x'01ffffffff'",
        "UPDATE parts SET refs = name",
        "UPDATE parts SET refs = randomblob(16)",
        "DELETE FROM parts",
        "DELETE FROM parts WHERE number = 1",
        "UPDATE checkpoints SET refs = x''",
        "UPDATE checkpoints SET refs = substr(refs, 2)",
        "UPDATE checkpoints SET shape = x'00'",
        "UPDATE checkpoints SET shape = x'0090'",
        "UPDATE checkpoints SET shape = x'0093010002'",
        "UPDATE checkpoints SET shape = (SELECT shape FROM checkpoints WHERE checkpoint_id = 'other')",
        "UPDATE checkpoints SET digest = randomblob(16)",
        "UPDATE checkpoints SET meta = x'00c0'",
        "UPDATE checkpoints SET meta = x'0095c0c0c0c0c0'",
        "UPDATE checkpoints SET parent_id = 'forged'",
    ],
)
def test_bytes_that_somebody_changed_are_noticed(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        states.save(point("other", {"messages": conversation(30)}))
        states.save(point("c", {"messages": conversation(40)}))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(harm)
    with States(SQLiteStore(path)) as states:
        with pytest.raises((Damaged, Refused)):
            states.load("s", "c")
        assert not states.verify().ok


@pytest.mark.parametrize("meta", ["00c0", "0095c0c0c0c0c0", "0095c0c0c090c0", "0095c0c0c0c080", "01ff"])
def test_what_is_damaged_is_told_and_can_be_deleted(tmp_path: Path, meta: str) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "c")):
            states.save(point(name, parent_id=parent))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE checkpoints SET meta = ? WHERE checkpoint_id IN ('b', 'd')", (bytes.fromhex(meta),))
    with States(SQLiteStore(path)) as states:
        with pytest.raises(Damaged):
            states.metadata("s")
        assert [states.delete("s", name) for name in "abd"] == [1, 1, 1]
        assert states.load("s") == point("c", parent_id="b")


def test_a_part_that_names_itself_is_not_followed_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        states.save(point("c", {"messages": conversation(200)}))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE parts SET refs = CAST(name || name || name AS BLOB), data = x'0091fd'")
    with States(SQLiteStore(path)) as states, pytest.raises(Damaged):
        states.load("s", "c")


def test_relative_path_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_states("sqlite:///state.db") as states, states.store._pool.reading():  # type: ignore[attr-defined]
        monkeypatch.chdir(elsewhere)
        states.save(point("c1", 1))  # on another connection
        assert not list(elsewhere.iterdir())
    with open_states(f"sqlite:///{tmp_path}/state.db") as states:
        assert states.load("s") is not None


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_saved_into_a_file_that_is_not_there_any_more(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "state.db"
    with open_states(f"sqlite:///{path}") as states:
        states.save(point("c1", 1))
        for each in tmp_path.iterdir():
            each.rename(tmp_path / f"moved-{each.name}")
        if replaced:
            open_states(f"sqlite:///{path}").close()
        for verb in (lambda: states.save(point("c2", 2)), lambda: states.delete("s"), states.clear_all):
            with pytest.raises(Unavailable, match="removed or replaced"):
                verb()
        assert path.exists() is replaced
    with open_states(f"sqlite:///{tmp_path}/moved-state.db") as states:
        assert states.load("s") is not None


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE theirs (a)")
    with pytest.raises(Refused, match="another program"):
        SQLiteStore(path)
    path = tmp_path / "text.db"
    path.write_text("this is no database\n" * 100)
    with pytest.raises(Damaged):
        SQLiteStore(path)
    assert path.read_text().startswith("this is")


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    SQLiteStore(tmp_path / "a.db").close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(Refused, match="version 99"):
        SQLiteStore(tmp_path / "a.db")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        states.save(point("a", {"messages": conversation(10)}))
        with states.store._pool.reading() as db:  # type: ignore[attr-defined]
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(Unavailable):
            states.save(point("b", {"messages": conversation(500)}))
        assert [each.checkpoint_id for each in states.metadata("s")] == ["a"]
        StateStoreContract.assert_sound(states)
        with states.store._pool.reading() as db:  # type: ignore[attr-defined]
            db.execute("PRAGMA max_page_count=100000")
        states.save(point("b", {"messages": conversation(500)}))
        assert states.load("s", "b") is not None


def test_a_writer_that_holds_on_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path, timeout=0.2)) as states:
        states.save(point("a"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            states.save(point("b"))
        assert states.load("s") == point("a")
        other.execute("ROLLBACK")
        other.close()
        states.save(point("b"))


def test_deleting_gives_the_disk_back(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        states.save(point("a", {"messages": conversation(2000)}))
        states.delete("s")
    assert path.stat().st_size < 200_000


def test_the_tables_are_read_with_sqlite_alone(tmp_path: Path) -> None:
    """P5: ids in plain columns, values in MessagePack."""
    path = tmp_path / "a.db"
    with States(SQLiteStore(path)) as states:
        states.save(point("c", {"greeting": "hello"}))
    with closing(sqlite3.connect(path)) as db, db:
        [(session, checkpoint, shape)] = db.execute(
            "SELECT session, checkpoint_id, shape FROM checkpoints JOIN sessions ON owner = number"
        ).fetchall()
    assert (session, checkpoint) == ("s", "c")
    assert b"hello" in shape


def test_errors_have_hints(tmp_path: Path) -> None:
    try:
        SQLiteStore(tmp_path)
    except HoldfastError as error:
        assert error.hint
        assert json.dumps(error.message)


def test_a_file_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """`format-1.sql` was written by that version: c1 to c4, of which c4 was deleted, and a session that is gone."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript((Path(__file__).parent / "format-1.sql").read_text())
        said = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'checkpoints'").fetchone()[0]
    with States(SQLiteStore(path)) as states:
        found = states.list("s")
        assert [each.metadata.checkpoint_id for each in found] == ["c3", "c2", "c1"]
        assert all(each.state["messages"] == conversation(each.metadata.step + 4, 700) for each in found)
        assert [write.value for write in states.writes([Place("s", "", "c3")])[Place("s", "", "c3")]] == [["pending"]]
        assert [(each.session_id, each.checkpoints) for each in states.sessions()] == [("s", 3)]
        with pytest.raises(Conflict):
            states.save(point("late", session_id="gone", parent_id="c1"))
        states.save(point("new", session_id="gone"))
        states.delete("gone")
        said += 1
        assert states.save(point("c5")).sequence == said + 1  # P10: after c4, and after what is gone
        StateStoreContract.assert_sound(states)
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_of_the_second_version_goes_on(tmp_path: Path) -> None:
    """`format-2.sql` was written by that version: c1 to c3, a fork, a part larger than a page, a deleted session."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript((Path(__file__).parent / "format-2.sql").read_text())
    with States(SQLiteStore(path)) as states:
        for number in range(1, 4):
            assert _messages(states, f"c{number}") == conversation(number + 4, 700)
        large = states.load("large")
        assert large is not None and large.state["messages"][-1] == {"blob": "x" * 9000}
        states.save(point("c5", {"messages": conversation(300, 700)}))
        states.delete("s", "c1")
        StateStoreContract.assert_sound(states)
    with States(SQLiteStore(path)) as states:
        assert _messages(states, "c5") == conversation(300, 700)
        assert _messages(states, "c3", "branch") == conversation(7, 700)
        states.delete("branch")
        states.delete("s")
        assert states.usage().sessions == 1
        StateStoreContract.assert_sound(states)


def _messages(states: States, checkpoint: str, session: str = "s") -> object:
    found = states.load(session, checkpoint)
    assert found is not None
    return found.state["messages"]


class TestPacks:
    """Small parts share rows."""

    def test_a_first_load_reads_few_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        with States(SQLiteStore(path)) as states:
            for number in range(1, 101):
                states.save(point(f"c{number}", {"messages": conversation(number, 900)}))
            parts = states.usage().parts
        assert parts > 100
        assert len(_rows(path)["parts"]) < parts / 5
        with States(SQLiteStore(path)) as states:
            assert _messages(states, "c100") == conversation(100, 900)
            assert _messages(states, "c50") == conversation(50, 900)

    def test_sessions_that_are_saved_in_turns_have_packs_of_their_own(self, tmp_path: Path) -> None:
        path, names = tmp_path / "a.db", [f"s{number}" for number in range(20)]
        with States(SQLiteStore(path)) as states:
            for number in range(1, 31):
                for name in names:
                    states.save(point(f"c{number}", {"messages": conversation(number, 900)}, session_id=name))
            parts = states.usage().parts
        assert len(_rows(path)["parts"]) < parts / 5
        with States(SQLiteStore(path)) as states:
            for name in names:
                assert _messages(states, "c30", name) == conversation(30, 900)
            states.delete(names[0])
            assert _messages(states, "c30", names[1]) == conversation(30, 900)

    def test_what_nothing_needs_leaves_its_pack(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        with States(SQLiteStore(path)) as states:
            states.save(point("kept", {"messages": conversation(6, 900)}))
            before = states.usage()
            states.save(point("gone", {"messages": [*conversation(6, 900), {"secret": "sesame " * 100}]}))
            states.delete("s", "gone")
            after = states.usage()
            assert (after.parts, after.part_bytes) == (before.parts, before.part_bytes)
            assert _messages(states, "kept") == conversation(6, 900)
        assert all(b"sesame" not in bytes(row[-1]) for row in _rows(path)["parts"])  # type: ignore[call-overload]

    def test_forks_that_go_on_alike_share_parts_and_count_as_elsewhere(self, tmp_path: Path) -> None:
        found = []
        for url in (f"sqlite:///{tmp_path}/a.db", "memory://"):
            with open_states(url, compress=False) as states:
                states.save(point("c1", {"messages": conversation(10, 900)}))
                states.fork("s", into="fork")
                for session in ("s", "fork"):
                    states.save(point("c2", {"messages": conversation(40, 900)}, session_id=session))
                usage = states.usage()
                found.append((usage.parts, usage.part_bytes, [each.family_bytes for each in states.store.sizes(["s"])]))
        assert found[0] == found[1]

    def test_a_lost_pack_is_stored_again(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        with States(SQLiteStore(path)) as states:
            states.save(point("c1", {"messages": conversation(40, 900)}))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM parts WHERE number = 2")
        with States(SQLiteStore(path)) as states:
            with pytest.raises(Damaged):
                states.load("s", "c1")
            states.save(point("c2", {"messages": conversation(41, 900)}))
        with States(SQLiteStore(path)) as states:
            assert _messages(states, "c2") == conversation(41, 900)
            assert _messages(states, "c1") == conversation(40, 900)

    def test_a_damaged_pack_that_may_be_needed_is_not_deleted(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        with States(SQLiteStore(path)) as states:
            states.save(point("c1", {"messages": conversation(40, 900)}))
            states.save(point("c2", {"messages": conversation(41, 900)}))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE parts SET data = x'c1' WHERE number = 2")
        with States(SQLiteStore(path)) as states:
            states.delete("s", "c2")
            assert any(row[-1] == b"\xc1" for row in _rows(path)["parts"])
            states.delete("s")
        assert _rows(path)["parts"] == []

    def test_two_processes_add_to_one_pack(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        with States(SQLiteStore(path)) as one, States(SQLiteStore(path)) as other:
            for number in range(1, 21):
                states = one if number % 2 else other
                states.save(point(f"c{number}", {"messages": conversation(number, 900)}))
            StateStoreContract.assert_sound(one)
        with States(SQLiteStore(path)) as states:
            assert _messages(states, "c20") == conversation(20, 900)
        with closing(sqlite3.connect(path)) as db:
            packed, distinct = db.execute("SELECT count(*), count(DISTINCT name) FROM packed").fetchone()
        assert packed == distinct


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """P3: it is one transaction."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript((Path(__file__).parent / "format-1.sql").read_text())
        db.execute("CREATE TABLE numbers (in_the_way)")
        before = "\n".join(db.iterdump())
    with pytest.raises(Unavailable, match="numbers"):
        SQLiteStore(path)
    with closing(sqlite3.connect(path)) as db, db:
        assert "\n".join(db.iterdump()) == before
        db.execute("DROP TABLE numbers")
    with States(SQLiteStore(path)) as states:
        assert len(states.list("s")) == 3


def test_numbers_of_what_was_deleted_are_not_given_again(tmp_path: Path) -> None:
    """P10: also where nothing that was saved is left, and the file was opened anew."""
    given = []
    for empty in ("delete one", "delete all", "clear"):
        with States(SQLiteStore(tmp_path / "a.db")) as states:
            given.append(states.save(point("c")).sequence)
            latest = states.sessions()[0].latest
            if empty == "delete one":
                states.delete("s", "c")
                assert states.sessions()[0].latest == latest == given[-1]
            elif empty == "delete all":
                states.delete("s", tombstone=False)
            else:
                states.clear_all()
            assert states.usage().sequence == given[-1]
    with States(SQLiteStore(tmp_path / "a.db")) as states:
        given.append(states.save(point("c")).sequence)
    assert given == sorted(set(given))


@pytest.mark.parametrize(("asked", "found"), [("FULL", 2), ("NORMAL", 1), ("EXTRA", 3)])
def test_synchronous_is_set_on_every_connection(tmp_path: Path, asked: str, found: int) -> None:
    with SQLiteStore(tmp_path / "state.db", synchronous=asked) as store:
        connection = store._pool.file.open()
        assert connection.execute("PRAGMA synchronous").fetchone() == (found,)
        connection.close()
