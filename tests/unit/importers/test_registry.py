"""Which kind a source is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.importers import KINDS, ImportRequest, open_import
from holdfast.training import save_checkpoint
from unit.importers.graphs import SCHEMA, database
from unit.importers.scenes import Shadow, plan, praisonai, run
from unprivileged import unprivileged


def test_every_kind_has_a_module() -> None:
    for kind in KINDS:
        module = kind.load()
        assert callable(module.recognize) and callable(module.open_source)
        assert not module.recognize("/nowhere")


def test_folder_of_several_sources(tmp_path: Path) -> None:
    shadow = praisonai(tmp_path)
    with pytest.raises(Refused, match="contains several sources") as caught:
        plan(shadow.git_dir.parents[1])
    assert str(shadow.git_dir.parent) in caught.value.hint


def test_database_of_two_tools(tmp_path: Path) -> None:
    source, target = database(tmp_path / "both.db"), f"sqlite:///{tmp_path}/out.db"
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("CREATE TABLE llmfy_checkpoint (x)")
    connection.close()
    with pytest.raises(Refused, match="several kinds of source") as caught:
        run(source, target)
    assert "llmfy or langgraph" in caught.value.hint
    opened = open_import(ImportRequest(str(source), target), kind="langgraph")
    assert opened.plan().new == 6
    opened.close()


def test_kind_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for kind in KINDS:
        with pytest.raises((Refused, NotFound)):
            open_import(ImportRequest(str(tmp_path / "empty"), f"sqlite:///{tmp_path}/x.db"), kind=kind.name).plan()


def test_unknown_url(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="unknown format"):
        plan("ftp://example.com/x")


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite+aiosqlite:///{}", "{}"])
def test_missing_file(tmp_path: Path, form: str) -> None:
    with pytest.raises(NotFound, match=r"gone\.db does not exist"):
        plan(form.format(tmp_path / "gone.db"), f"sqlite:///{tmp_path}/x.db")
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("scheme", ["mysql+aiomysql", "mysql", "mariadb"])
def test_other_database(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(Refused, match="only SQLite, PostgreSQL and Redis") as caught:
        plan(f"{scheme}://ada:secret@host/x", f"sqlite:///{tmp_path}/x.db")
    assert "secret" not in str(caught.value) and "SQLite file" in caught.value.hint


def test_password_is_in_no_message(tmp_path: Path) -> None:
    with pytest.raises(Exception) as caught:
        plan(f"postgresql://ada:secret@/x?host={tmp_path}", f"sqlite:///{tmp_path}/x.db")
    assert "secret" not in str(caught.value)


def test_progress_is_told(tmp_path: Path) -> None:
    shadow: Shadow = praisonai(tmp_path)
    for number in range(3):
        shadow.save(f"c{number}", {"a": str(number)})
    opened = open_import(ImportRequest(str(shadow.git_dir)))
    told: list[tuple[str, int, int]] = []
    opened.plan(lambda *each: told.append(each))
    assert ("reading", 3, 3) in told
    opened.run(lambda *each: told.append(each))
    assert told[-1] == ("importing", 3, 3)
    opened.close()


def test_empty_tables_of_a_tool_are_not_another(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.executescript(SCHEMA)
    connection.close()
    with pytest.raises(NotFound, match="no states"):
        run(tmp_path / "x.db", f"sqlite:///{tmp_path}/out.db")


def test_what_holdfast_saved_is_no_source(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run", 1, {"epoch": 1})
    with pytest.raises(Refused, match="is already a training run of Holdfast"):
        plan(tmp_path / "run", tmp_path / "other")
    with open_states(f"sqlite:///{tmp_path}/own.db") as own:
        own.save(Checkpoint(CheckpointMetadata("c1", "s", datetime.now(UTC), node_name="plan", step=1), {"a": 1}))
    with pytest.raises(Refused, match="unknown format"):
        plan(tmp_path / "own.db", f"sqlite:///{tmp_path}/x.db")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_invalid_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist") as caught:
        plan(name, tmp_path)
    assert caught.value.message.partition(" does")[0] and "\0" not in caught.value.message


def _database(folder: Path) -> Path:
    return database(folder / "lg.db")


def _codeweaver(folder: Path) -> Path:
    path = folder / "checkpoint_shop-0123abcd.json"
    path.write_text("{}")
    return path


def _transcript(folder: Path) -> Path:
    path = folder / "projects" / "-p" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


def _skill(folder: Path) -> Path:
    path = folder / ".claude" / "checkpoints" / "checkpoint-20250115-103000" / "metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("make", [_database, _codeweaver, _transcript, _skill])
def test_unreadable_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    path = make(folder)
    path.chmod(0)
    source = folder if make is _skill else path
    target = f"sqlite:///{tmp_path}/out.db" if make is _database else folder
    with pytest.raises((Unavailable, Damaged), match="ermission denied"):
        unprivileged(lambda: run(source, target))
