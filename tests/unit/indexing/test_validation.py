"""What constructors take for paths and collections, and what they say of anything else."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict, Refused
from holdfast.flow import open_states
from holdfast.indexing import FlatStore, FolderSource, IndexRun, Pipeline
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.model_families import load_families

FOLDERS = {"qdrant": "QdrantStore", "lancedb": "LanceStore", "chroma": "ChromaStore", "faiss": "FaissStore"}
FILES = {"sqlite_vec": "SQLiteVecStore"}


def _store(kind: str) -> Any:
    if kind in ("flat", "ledger"):
        return {"flat": FlatStore, "ledger": SQLiteLedger}[kind]
    return getattr(import_module(f"holdfast.adapters.stores.{kind}"), (FOLDERS | FILES)[kind])


def _run(ledger: Any) -> IndexRun:
    pipeline = Pipeline(
        source={"a": "one text"}, embed={"dense": lambda texts: [[1.0, 2.0]] * len(texts)}, store=FlatStore(":memory:")
    )
    return IndexRun(ledger=ledger, pipeline=pipeline)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "patterns",
    ["*.md", ["*.md"], ("*.md",), {"*.md"}, frozenset({"*.md"}), iter(["*.md"])],
    ids=lambda x: type(x).__name__,
)
def test_folder_takes_patterns_in_any_collection(elsewhere: Path, patterns: Any) -> None:
    for name in ("a.md", "b.txt"):
        (elsewhere / name).write_text("text")
    assert [each.name for each in FolderSource(elsewhere, include=patterns)] == ["a.md"]


@pytest.mark.parametrize("name", ["exclude", "without"])
def test_folder_takes_lists_for_what_it_leaves_out(elsewhere: Path, name: str) -> None:
    (elsewhere / "below").mkdir()
    for path in ("a.md", "below/b.md"):
        (elsewhere / path).write_text("text")
    for given in (["below"], {"below"}, "below", Path("below")):
        assert [each.name for each in FolderSource(elsewhere, **{name: given})] == ["a.md"]


@pytest.mark.parametrize("given", [None, 3, b"*.md", {"*.md": 1}, [3], [None, "*.md"], [b"*.md"]])
@pytest.mark.parametrize("name", ["include", "exclude", "without"])
def test_folder_refuses_what_is_no_text(name: str, given: Any) -> None:
    with pytest.raises(Refused, match=name) as refused:
        FolderSource(".", **{name: given})
    assert refused.value.hint


@pytest.mark.parametrize("options", [{"path": None}, {"path": ""}, {"path": 3}, {"path": ".", "max_bytes": "1"}])
def test_folder_refuses_what_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        FolderSource(**options)


def test_families_may_be_one_path(elsewhere: Path) -> None:
    (elsewhere / "own.toml").write_text("")
    for given in ("own.toml", Path("own.toml"), ["own.toml"], {Path("own.toml")}):
        assert load_families(given)  # type: ignore[arg-type]
    for wrong in (None, 3, [3]):
        with pytest.raises(Refused, match="families"):
            load_families(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [None, 3, object()])
def test_pipeline_refuses_what_is_no_source(source: Any) -> None:
    with pytest.raises(Refused, match="source"):
        Pipeline(source=source, embed={"dense": len}, store=FlatStore(":memory:"))


@pytest.mark.parametrize("embed", [None, len, [len], {}, "model"])
def test_pipeline_refuses_models_without_names(embed: Any) -> None:
    with pytest.raises(Refused, match="has no models"):
        Pipeline(source={}, embed=embed, store=FlatStore(":memory:"))


@pytest.mark.parametrize("ledger", [None, 3, object()])
def test_run_refuses_what_is_no_ledger(ledger: Any) -> None:
    with pytest.raises(Refused, match="ledger"):
        _run(ledger)


# names of databases


def test_ledger_and_stores_in_memory_leave_no_file(elsewhere: Path) -> None:
    with _run(":memory:") as run:
        assert run.apply(run.plan()).ok
        assert run.verify(repair=True).ok
        run.prune()
    store = _store("sqlite_vec")(":memory:")
    store.create("c", {}, {})
    store.close()
    assert os.listdir(elsewhere) == []


def test_ledger_in_memory_is_for_one_run_at_a_time() -> None:
    ledger = SQLiteLedger(":memory:")
    seen: list[Conflict] = []

    def second() -> None:
        try:
            with ledger.writing():
                pass
        except Conflict as error:
            seen.append(error)

    with ledger.writing():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    second()
    assert len(seen) == 1
    ledger.close()


@pytest.mark.parametrize("kind", ["flat", "ledger", *FOLDERS, *FILES])
@pytest.mark.parametrize("name", ["", "file:x.db", "file::memory:", "file:x?mode=memory", "a\0b", None, 3])
def test_names_that_are_no_paths_are_refused(elsewhere: Path, name: Any, kind: str) -> None:
    with pytest.raises(Refused) as refused:
        _store(kind)(name)
    assert refused.value.hint
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("kind", FOLDERS)
def test_stores_in_folders_are_not_in_memory(elsewhere: Path, kind: str) -> None:
    with pytest.raises(Refused, match="in memory"):
        _store(kind)(":memory:")
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("name", [":memory:", "%3Amemory%3A", "file:x.db", "file::memory:"])
def test_states_refuse_names_of_sqlite(elsewhere: Path, name: str) -> None:
    with pytest.raises(Refused, match="special name of SQLite") as refused:
        open_states(f"sqlite:///{name}")
    assert "memory://" in refused.value.hint
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("kind", ["flat", "faiss", "lancedb"])
def test_a_store_stays_where_it_is_when_the_program_moves(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (elsewhere / "other").mkdir()
    store = _store(kind)("here")
    before = store.identity
    monkeypatch.chdir(elsewhere / "other")
    assert store.identity == before
    store.create("c", {}, {"ledger": "l"})
    store.close()
    assert os.listdir(elsewhere / "other") == []


@pytest.mark.extras
def test_qdrant_needs_a_path_or_a_client(elsewhere: Path) -> None:
    with pytest.raises(Refused, match="a path or a client"):
        _store("qdrant")()
    assert os.listdir(elsewhere) == []
