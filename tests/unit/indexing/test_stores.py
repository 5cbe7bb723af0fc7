"""An index in every store there is: moved into it, changed, killed over it, repaired, rolled back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from holdfast.durable import Disk, use_disk
from holdfast.errors import Damaged
from holdfast.indexing import ChangeImpact, HashedWords, IndexRun, Pipeline
from holdfast.indexing.vector_store import Point
from holdfast.testing.store_contract import SHAPES, numbered

from .scene import Model, Scene
from .stores import KINDS, store

_WORKER = str(Path(__file__).with_name("killed_store.py"))


@pytest.mark.parametrize("kind", KINDS)
def test_index_moves_into_a_store_without_a_model(scene: Scene, kind: str, tmp_path: Path) -> None:
    scene.fill()
    with scene.done():
        before = scene.model.texts
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    with scene.run() as run:
        plan = run.plan()
        assert plan.impact is ChangeImpact.MIGRATABLE
        assert run.apply(plan).ok
        assert run.verify().ok
        assert scene.model.texts == before
        scene.write("00.md", "another text altogether")
        (scene.docs / "01.md").unlink()
        assert run.apply(run.plan()).ok
        assert run.verify().ok
    with scene.run(datatype="int8") as run:
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        run.rollback()
    with scene.run() as run:
        assert run.verify().ok
    assert scene.found("another text altogether") == "00.md"
    assert scene.found("word3 thing1") == "03.md"


@pytest.mark.parametrize("kind", KINDS)
def test_lost_points_and_wiped_store_are_repaired(scene: Scene, kind: str, tmp_path: Path) -> None:
    scene.fill(4)
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    with scene.done() as run:
        before = scene.model.texts
        collection = scene.store.live()
        assert collection is not None
        lost = [each for each, document, _ in scene.store.scan(collection) if document == "02.md"]
        scene.store.delete(collection, lost)
        assert len(run.verify().missing) == len(lost) > 0
        assert run.verify(repair=True).ok
    assert scene.found("word2 thing1") == "02.md"
    scene.store.close()
    for each in tmp_path.glob(f"{kind}*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    scene.store = store(kind)(tmp_path / kind)
    with scene.run() as run:
        plan = run.plan()
        assert any("the store was wiped" in each for each in plan.findings)
        assert run.apply(plan).ok
        assert run.verify().ok
    assert scene.found("word2 thing1") == "02.md"
    assert scene.model.texts == before


@pytest.mark.parametrize("kind", KINDS)
def test_manually_changed_points_are_rewritten(scene: Scene, kind: str, tmp_path: Path) -> None:
    scene.fill(4)
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    words = HashedWords() if scene.store.keeps_sparse else Model("second")
    own = scene.pipeline()
    pipeline = Pipeline(source=own.source, chunk=own.chunk, embed={**own.channels, "words": words}, store=own.store)
    with IndexRun(ledger=tmp_path / "ledger.db", pipeline=pipeline) as run:
        assert run.apply(run.plan()).ok
        assert run.verify().compared == run.status().points
        live = scene.store.live()
        assert live is not None
        ids = sorted(each for each, _, _ in scene.store.scan(live))
        texts, vectors, places, others = (scene.store.read(live, ids)[each] for each in ids[:4])
        forged = [
            replace(texts, text="a text that nobody wrote"),
            replace(vectors, vectors={**vectors.vectors, "dense": others.vectors["dense"]}),
            replace(places, document="another.md"),
            replace(others, vectors={**others.vectors, "words": texts.vectors["words"]}),
        ]
        scene.store.upsert(live, forged)
        scene.store.upsert(live, [numbered_like(others)])
        before = scene.model.texts
        report = run.verify()
        assert ({point for point, _ in report.changed}, len(report.orphans)) == (set(ids[:4]), 1)
        assert any("has points without a document" in each for each in run.plan().findings)
        assert {document for _, document in report.changed} == {
            texts.document, vectors.document, places.document, others.document,
        }  # fmt: skip
        assert run.verify(repair=True).ok
        assert scene.store.read(live, [texts.id])[texts.id].text == texts.text
        assert run.verify().ok
        assert scene.model.texts == before
    scene.store.close()


def numbered_like(point: Point) -> Point:
    """A point that no ledger knows."""
    return replace(point, id=str(uuid5(NAMESPACE_URL, "foreign")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_whose_writer_was_killed_is_brought_right(scene: Scene, kind: str, tmp_path: Path) -> None:
    scene.fill()
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    with scene.done():
        pass
    scene.store.close()
    for number in range(8):
        scene.write(f"{number:02}.md", f"changed{number} utterly")
    command = [sys.executable, _WORKER, str(tmp_path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        said = busy.stdout.readline()
        busy.kill()  # while it is at it, or right after
        assert said == "upsert\n", busy.stderr.read() if busy.stderr else ""
    scene.store = store(kind)(tmp_path / kind)
    with scene.run() as run:
        run.verify(repair=True)
        assert run.apply(run.plan()).ok
        assert run.verify().ok
        assert run.plan().is_empty
    for number in range(8):
        assert scene.found(f"changed{number} utterly") == f"{number:02}.md"
    assert scene.found("word9 thing1") == "09.md"


# of one store only


def test_a_vector_of_another_length_is_found_and_written_again(scene: Scene) -> None:
    scene.fill(3)
    with scene.done() as run:
        collection = scene.store.live()
        assert collection is not None
        wrong, document, _ = next(iter(scene.store.scan(collection)))
        scene.store.upsert(collection, [Point(wrong, document, 0, "text", {"dense": bytes(4)})])
        assert run.verify().misshapen == ((wrong, document),)
        before = scene.model.texts
        assert run.verify(repair=True).ok
    assert scene.model.texts == before


def _filled_faiss(path: Path, count: int) -> Any:
    made = store("faiss")(path)
    made.create("c", SHAPES, {"ledger": "l"})
    made.upsert("c", [numbered(each) for each in range(count)])
    made.make_live("c")
    return made


@pytest.mark.extras
def test_foreign_faiss_file_is_reported_and_rebuilt(tmp_path: Path) -> None:
    made = _filled_faiss(tmp_path, 1100)
    made.close()
    (file,) = tmp_path.glob("*.faiss")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    made = store("faiss")(tmp_path)
    assert made.count("c") == 0
    assert {len(sizes) for _, _, sizes in made.scan("c")} == {0}
    with pytest.raises(Damaged, match="lost 1100 vectors"):
        made.search("dense", [1, 2, 3, 4])
    made.upsert("c", [numbered(each) for each in range(1100)])
    assert len(made.search("dense", [1, 2, 3, 4])) == 10
    made.close()


@pytest.mark.extras
def test_faiss_file_changed_while_open_is_noticed(tmp_path: Path) -> None:
    made = _filled_faiss(tmp_path, 1100)
    assert made.count("c") == 1100
    (file,) = tmp_path.glob("*.faiss")
    kept = file.read_bytes()
    file.write_bytes(kept[:-1] + b"x")
    assert made.count("c") == 0
    with pytest.raises(Damaged, match="lost 1100 vectors"):
        made.search("dense", [1, 2, 3, 4])
    file.write_bytes(kept)
    assert len(made.search("dense", [1, 2, 3, 4])) == 10
    file.unlink()
    assert made.count("c") == 0
    made.close()


class _Stopping(Disk):
    """Ends the process, as it were, as soon as a file is in its place."""

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        super().rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        raise KeyboardInterrupt


@pytest.mark.extras
def test_a_file_of_faiss_is_on_the_medium_before_it_is_named(tmp_path: Path) -> None:
    """What waited is dropped once the file counts: a power loss must not take the only copy."""

    class Watching(Disk):
        def fsync(self, fd: int) -> None:
            synced.append(Path(f"/proc/self/fd/{fd}").resolve().name)
            super().fsync(fd)

    synced: list[str] = []
    with use_disk(Watching()):
        made = _filled_faiss(tmp_path, 1100)
    made.close()
    (file,) = tmp_path.glob("*.faiss")
    assert {f"{file.name}.new", tmp_path.name} <= set(synced)


@pytest.mark.extras
def test_faiss_writer_killed_before_publishing_loses_nothing(tmp_path: Path) -> None:
    made = _filled_faiss(tmp_path, 900)
    with use_disk(_Stopping()), pytest.raises(KeyboardInterrupt):
        made.upsert("c", [numbered(each) for each in range(800, 1100)])
    (written,) = tmp_path.glob("*.faiss")
    assert made.count("c") == 1100
    other = store("faiss")(tmp_path)  # as another process sees it
    assert other.count("c") == 1100
    other.upsert("c", [numbered(1100)])
    assert not written.exists()
    assert len(made.search("dense", [1, 2, 3, 4], limit=2000)) == 1101, "what another wrote is seen"
    made.close()
    other.close()


@pytest.mark.extras
def test_a_table_of_lance_is_dropped_in_one_step(tmp_path: Path) -> None:
    made = store("lancedb")(tmp_path)
    made.create("c", SHAPES, {"ledger": "l"})
    made.upsert("c", [numbered(1)])
    with use_disk(_Stopping()), pytest.raises(KeyboardInterrupt):
        made.drop("c")
    assert (made.fingerprint("c"), made.count("c")) == (None, 0)
    assert list(tmp_path.glob("c*"))
    store("lancedb")(tmp_path)
    assert not list(tmp_path.glob("c*"))


@pytest.mark.extras
def test_half_made_chroma_collection_does_not_exist(tmp_path: Path) -> None:
    made = store("chroma")(tmp_path)
    made._client.create_collection("hf.c.0", embedding_function=None).upsert(ids=["x"], embeddings=[[1, 2]])
    made._client.create_collection("hf.old.3", embedding_function=None)
    assert (made.fingerprint("c"), made.count("c"), list(made.scan("c"))) == (None, 0, [])
    made.create("c", SHAPES, {"ledger": "l"})
    assert sorted(each.name for each in made._client.list_collections()) == ["hf.c", "hf.c.0"]
    made.upsert("c", [numbered(1)])
    assert [each for each, _, _ in made.scan("c")] == [numbered(1).id]
    made.close()


@pytest.mark.extras
def test_nothing_of_chroma_speaks_to_others(tmp_path: Path) -> None:
    made = store("chroma")(tmp_path)
    assert made._client.get_settings().anonymized_telemetry is False
    made.close()
