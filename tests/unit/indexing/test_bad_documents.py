"""Documents, ledgers and stores that are not as they should be."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.indexing import Document, FlatStore, FolderSource, IndexRun, Pipeline
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.spaces import CANARIES

from .scene import Scene


def test_what_cannot_be_indexed_is_named_and_the_rest_is_done(scene: Scene) -> None:
    scene.fill(2)
    scene.write("empty.md", "")
    scene.write("blank.md", " \n\n ")
    (scene.docs / "binary.md").write_bytes(b"a\0b")
    (scene.docs / "latin.md").write_bytes("é".encode("latin-1"))
    scene.write("large.md", "x" * 2000)
    scene.source = FolderSource(scene.docs, max_bytes=1000)
    with scene.run() as run:
        plan = run.plan()
        assert [each.document for each in plan.failures] == ["binary.md", "large.md", "latin.md"]
        applied = run.apply(plan)
        assert applied.is_live
        assert not applied.ok
        assert run.status().documents == 4
        assert run.plan().unchanged == 4


def test_unreadable_document_stays_published(scene: Scene) -> None:
    content: dict[str, Callable[[], str]] = {"a": lambda: "cats purr", "b": lambda: "dogs bark"}
    scene.source = lambda: [Document(name, read) for name, read in content.items()]

    def broken() -> str:
        raise PermissionError(13, "Permission denied")

    with scene.done() as run:
        content["a"] = broken
        plan = run.plan()
        assert (plan.deleted, [each.document for each in plan.failures]) == ((), ["a"])
        run.apply(plan)
        assert scene.found("cats purr") == "a"
        content["a"] = lambda: "cats purr"
        assert run.apply(run.plan()).ok


def test_new_index_waits_for_an_unreadable_document(scene: Scene) -> None:
    content: dict[str, Callable[[], str]] = {"a": lambda: "cats purr", "b": lambda: "dogs bark"}
    scene.source = lambda: [Document(name, read) for name, read in content.items()]

    def broken() -> str:
        raise PermissionError(13, "Permission denied")

    with scene.done():
        content["a"] = broken
    with scene.run(datatype="int8") as run:
        assert "a would be lost" in run.apply(run.plan()).stopped
        assert scene.found("cats purr") == "a"
        content["a"] = lambda: "cats purr"
        assert run.apply(run.plan()).ok


def test_unlistable_folder_is_not_empty(scene: Scene) -> None:
    there = [Document("b", lambda: "dogs bark"), Document("sub/a", lambda: "cats purr")]
    scene.source = lambda: there
    with scene.done() as run:
        there[1] = Document("sub/", lambda: "", problem="Permission denied")
        plan = run.plan()
        assert (plan.deleted, [each.document for each in plan.failures]) == ((), ["sub/"])
        assert not run.apply(plan).ok
        assert scene.found("cats purr") == "sub/a"


def test_documents_changed_after_the_plan_wait_for_the_next(scene: Scene) -> None:
    scene.fill(3)

    def meddle(texts: Sequence[str]) -> None:
        (scene.docs / "01.md").unlink(missing_ok=True)
        scene.write("02.md", "changed while it ran")

    scene.model.fails = meddle  # while the canary texts are sent
    with scene.run() as run:
        applied = run.apply(run.plan())
        assert sorted(applied.moved) == ["01.md", "02.md"]
        assert not applied.is_live
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        assert run.status().documents == 2


class _Parser:
    version = "1"
    _is_well = True

    def __call__(self, data: bytes) -> str:
        if b"word1 " in data and not self._is_well:
            raise ValueError("what reads it is gone")
        return data.decode()


def test_parser_failure_after_the_plan_does_not_stop_the_run(scene: Scene) -> None:
    scene.fill(3)
    own, parse = scene.pipeline(), _Parser()
    pipeline = Pipeline(source=own.source, chunk=own.chunk, parse=parse, embed=own.embed, store=own.store)
    with IndexRun(ledger=scene.path / "index.db", pipeline=pipeline) as run:
        plan = run.plan()
        parse._is_well = False
        applied = run.apply(plan)
        assert (applied.published, applied.moved, applied.ok) == (2, ["01.md"], False)
        (failure,) = run.plan().failures
        assert failure.reason == "ValueError: what reads it is gone"
        parse._is_well = True
        assert run.apply(run.plan()).ok


def test_a_source_that_can_be_gone_through_only_once_is_refused(scene: Scene) -> None:
    scene.source = (each for each in [("a", "text")])
    with pytest.raises(Refused, match="only once"):
        scene.run()


def test_a_name_given_twice_is_refused(scene: Scene) -> None:
    scene.source = [("a", "one"), ("a", "two")]
    with scene.run() as run, pytest.raises(Refused, match="two documents with the name a"):
        run.plan()


@pytest.mark.parametrize("name", ["", "half \ud800"])
def test_a_name_that_is_no_text_is_refused(scene: Scene, name: str) -> None:
    scene.source = [(name, "one")]
    with scene.run() as run, pytest.raises(Refused, match="document with the name"):
        run.plan()


def test_a_text_with_half_a_character_is_recorded(scene: Scene) -> None:
    scene.source = {"good": "text", "bad": "half \ud800"}
    with scene.run() as run:
        applied = run.apply(run.plan())
        assert [each.document for each in applied.failures] == ["bad"]
        assert applied.is_live


def test_a_chunk_with_half_a_character_is_recorded(scene: Scene) -> None:
    scene.source = {"good": "text", "bad": "half"}
    scene.chunker = lambda text: ["half \ud800"] if text == "half" else [text]  # type: ignore[assignment]
    with scene.run() as run:
        assert [each.document for each in run.apply(run.plan()).failures] == ["bad"]


def test_a_file_whose_name_is_no_text_is_indexed(scene: Scene) -> None:
    Path(os.fsdecode(os.fsencode(scene.docs) + b"/\xff.md")).write_text("cats purr")
    with scene.done():
        assert scene.found("cats purr") == "\\xff.md"


def test_a_ledger_that_was_cut_short_is_damaged(scene: Scene) -> None:
    scene.fill(3)
    scene.done().close()
    path = scene.path / "index.db"
    whole = path.read_bytes()
    for length in (10, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged):
            scene.run()
    path.write_bytes(whole)
    with scene.run() as run:
        assert run.plan().is_empty


@pytest.mark.parametrize(
    ("version", "said"), [(99, "version 99, newer than 2.* a newer Holdfast"), (1, "version 1, older than 2.* paid")]
)
def test_ledger_of_another_version_is_refused(scene: Scene, version: int, said: str) -> None:
    scene.fill(1)
    scene.done().close()
    with closing(sqlite3.connect(scene.path / "index.db")) as db, db:
        db.execute(f"PRAGMA user_version={version}")
    db.close()
    with pytest.raises(Refused, match=said):
        scene.run()


def test_a_database_of_another_program_is_refused_and_left_alone(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.path / "index.db")) as db, db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(Refused, match="another program"):
        scene.run()


def test_a_store_that_is_full_ends_the_run_and_nothing_is_lost(scene: Scene) -> None:
    scene.fill()
    with scene.run() as run:
        with scene.store._db.writing():
            pass  # there is a file now
        scene.store._db.execute(f"PRAGMA max_page_count={scene.store._db.pragma('page_count') + 1}")
        with pytest.raises(Unavailable, match="full"):
            run.apply(run.plan())
        paid = scene.model.texts
        scene.store._db.execute("PRAGMA max_page_count=100000")
        plan = run.plan()
        assert plan.to_embed == 0
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.model.texts == paid


@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "replaced"])
@pytest.mark.parametrize("what", ["index", "store"])
def test_a_file_that_is_taken_away_in_the_midst_is_not_paid_into(scene: Scene, what: str, is_replaced: bool) -> None:
    """What is written to a file without a name is lost when it is closed."""
    scene.fill()

    def fails(texts: Sequence[str]) -> None:
        if tuple(texts) != CANARIES:
            for path in scene.path.glob(f"{what}.db*"):
                path.rename(scene.path / f"away-{path.name}")
            if is_replaced:
                (scene.path / f"{what}.db").touch()

    scene.model.fails = fails
    with scene.run() as run, pytest.raises(Unavailable, match="removed or replaced while it was in use") as gone:
        run.apply(run.plan())
    assert gone.value.hint
    assert scene.model.texts <= len(CANARIES) + (8 if what == "index" else 12 * 4)
    scene.store.close()
    for path in scene.path.glob("away-*"):
        path.rename(scene.path / path.name.removeprefix("away-"))
    scene.model.fails = lambda texts: None
    scene.store = FlatStore(scene.path / "store.db")
    with scene.done() as run:
        assert run.verify().ok


def test_copied_ledger_does_not_hide_later_publications(scene: Scene) -> None:
    scene.fill(3)
    with scene.done(), SQLiteLedger(scene.path / "index.db") as ledger:
        ledger.execute("VACUUM INTO ?", str(scene.path / "copy.db"))
    scene.write("ghost.md", "a ghost")
    with scene.done():
        pass
    (scene.docs / "ghost.md").unlink()
    scene.ledger = lambda: scene.path / "copy.db"
    with scene.run() as run:
        plan = run.plan()
        assert plan.is_empty
        assert any("has points without a document" in each for each in plan.findings)
        assert run.verify(repair=True).ok
        assert run.plan().findings == ()
    assert scene.found("a ghost") != "ghost.md"


def test_a_store_that_is_damaged_says_so(scene: Scene) -> None:
    (scene.path / "bad.db").write_bytes(b"this is no database, and it is longer than a header would be" * 20)
    with pytest.raises(HoldfastError, match="damaged"):
        FlatStore(scene.path / "bad.db")


def test_a_stamp_that_is_younger_than_the_look_is_not_trusted(scene: Scene) -> None:
    scene.write("a.md", "one")
    assert [document.is_settled for document in FolderSource(scene.docs)] == [False]
    text = ["one"]
    scene.source = lambda: [Document("a", lambda: text[0], stamp="1", is_settled=False)]
    with scene.done() as run:
        text[0] = "two"
        assert run.plan().counts["changed"] == 1


def test_a_stamp_that_is_settled_spares_the_reading(scene: Scene) -> None:
    reads = []

    def read() -> str:
        reads.append(1)
        return "one"

    scene.source = lambda: [Document("a", read, stamp="1")]
    with scene.done() as run:
        reads.clear()
        assert run.plan().is_empty
    assert reads == []
