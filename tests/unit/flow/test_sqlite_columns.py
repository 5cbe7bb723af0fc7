"""SQLite holds anything in any column: what is not as it should be gives typed errors, and can be deleted."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.flow import Place, States, Write, open_states
from holdfast.flow.sqlite import SQLiteStore
from holdfast.retention import Policy
from holdfast.testing.flow_contract import conversation, point


@pytest.mark.parametrize("lost", ["number IN (3, 4)", "refs != x''", "1"])
def test_what_is_saved_after_parts_were_lost_is_whole(tmp_path: Path, lost: str) -> None:
    path, states = tmp_path / "a.db", [{"messages": conversation(length)} for length in (100, 101)]
    with States(SQLiteStore(path)) as store:
        store.save(point("c1", states[0]))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"DELETE FROM parts WHERE {lost}")
        db.commit()
    with States(SQLiteStore(path)) as store:
        store.save(point("c2", states[1]))
    with States(SQLiteStore(path)) as store:
        assert store.load("s") == point("c2", states[1])


@pytest.mark.parametrize("value", ["x''", "x'ff'", "'text'", "''", "1.5", "-1", "9223372036854775807"])
@pytest.mark.parametrize(
    "columns",
    [
        "checkpoints.namespace checkpoints.parent_id checkpoints.run_id checkpoints.saved_at checkpoints.refs",
        "checkpoints.checkpoint_id checkpoints.first_part checkpoints.last_part",
        "parts.refs parts.data",
        "sessions.session sessions.family sessions.latest sessions.saved_at",
        "writes.task_id writes.idx writes.task_path writes.channel writes.data",
    ],
    ids=lambda columns: columns.partition(".")[0],
)
def test_any_column_content_gives_typed_answers(tmp_path: Path, columns: str, value: str) -> None:
    path, place = tmp_path / "a.db", Place("s", "", "c")
    with States(SQLiteStore(path)) as states:
        states.save(point("c", {"messages": conversation(40)}))
        states.put_writes(place, [Write("task", 0, "to", 1)])
    for column in columns.split():
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())
        with contextlib.closing(sqlite3.connect(copy)) as db:
            db.execute("UPDATE {} SET {} = {}".format(*column.split("."), value))
            db.commit()
        with States(SQLiteStore(copy), ttl=timedelta(days=999)) as states:
            for verb in (
                lambda: states.load("s"),
                lambda: states.list("s"),
                lambda: states.metadata(None, namespace=None),
                states.sessions,
                lambda: states.writes([place]),
                states.verify,
                states.usage,
                lambda: states.sizes(["s"]),
                lambda: states.copy_to(open_states("memory://"), go_on=True),
                lambda: states.fork("s", into="fork"),
                lambda: states.fork("s", into="history", history=True),
                lambda: states.save(point("next")),
                lambda: states.prune(Policy(keep_last=1, max_bytes=1)),
            ):
                with contextlib.suppress(HoldfastError):
                    verb()
            assert states.delete("s", tombstone=False), "whatever is wrong with it, it can be deleted"
            states.save(point("c"))
            assert states.load("s") == point("c")
