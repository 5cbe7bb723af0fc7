"""Another chunker or parser: a whole index is made beside the live one, unless one asks for something else."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.indexing import FolderSource, HashedWords, IndexRun, Pipeline, PlainChunker
from holdfast.indexing.plan import IndexPlan
from holdfast.indexing.spaces import CANARIES

from .scene import Scene
from .stores import KINDS, store
from .test_kill import World

_WORKER = str(Path(__file__).with_name("killed_store.py"))
_SMALL, _LARGE = PlainChunker(size=40), PlainChunker(size=60)


def _expected(scene: Scene, chunker: PlainChunker) -> Counter[tuple[str, str]]:
    return Counter((path.name, text) for path in scene.docs.iterdir() for text in chunker(path.read_text()))


def _answers(scene: Scene) -> Counter[tuple[str, str]]:
    """Every chunk that searches can find."""
    hits = scene.store.search("dense", scene.model.vector("word1"), limit=4000)
    return Counter((each.document, each.text) for each in hits)


def _stopped_midway(scene: Scene) -> IndexPlan:
    """An apply of another chunker that a budget ended when half of the documents were done."""
    scene.chunker = _LARGE
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan, max_embeds=len(CANARIES) + plan.to_embed // 2)
        assert (bool(applied.stopped), applied.published > 0) == (True, True)
        return plan


@pytest.mark.parametrize("kind", KINDS)
def test_killed_rechunk_leaves_the_old_index(scene: Scene, kind: str, tmp_path: Path) -> None:
    for number in range(100):  # more than are published at once
        scene.write(f"{number:03}.md", " ".join(f"w{number % 7}-{each}" for each in range(15)))
    scene.store.close()
    scene.store = store(kind)(tmp_path / kind)
    scene.done().close()
    old, new = _expected(scene, _SMALL), _expected(scene, _LARGE)
    assert _answers(scene) == old != new
    scene.store.close()
    command = [sys.executable, _WORKER, str(tmp_path), kind, "60"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as busy:
        assert busy.stdout is not None
        said = busy.stdout.readline()
        busy.kill()
        assert said == "half\n", busy.stderr.read() if busy.stderr else ""
    scene.store = store(kind)(tmp_path / kind)
    assert _answers(scene) == old, "a half-built index never answers"
    scene.chunker, scene.model.texts = _LARGE, 0
    with scene.run() as run:
        plan = run.plan()
        assert (plan.builds_beside, plan.unchanged) == (True, 64)
        assert run.apply(plan).ok
        assert scene.model.texts == 0, "all chunks were paid for before the kill"
        assert _answers(scene) == new
        assert run.verify().ok
        assert run.plan().is_empty
        run.rollback()
    assert _answers(scene) == old
    scene.chunker = _SMALL
    with scene.run() as run:
        assert run.verify().ok
        assert run.plan().is_empty


@pytest.mark.slow
def test_rechunk_killed_at_every_step_is_old_or_new(tmp_path: Path) -> None:
    place, backup = tmp_path / "place", tmp_path / "backup"
    place.mkdir()
    world = World(place)
    world.change(random.Random(5))
    world.settings |= {"seed": "a", "size": 40, "dimension": None}
    world.save()
    world.index()
    world.settings["size"] = 60
    world.save()
    shutil.copytree(place, backup)
    step, was_killed, seen = 0, True, set()
    while was_killed:
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        was_killed = world.index(step)
        scene = Scene(place)
        rows = scene.store.search("dense", scene.model.vector("w1"), limit=4000)
        scene.store.close()
        found = Counter((each.document, each.text) for each in rows)
        expected = [_expected(scene, each) for each in (_SMALL, _LARGE)]
        assert found in expected, f"killed at step {step}, searches find some of both"
        seen.add(expected.index(found))
        world.index()
        world.check()
        step += 1
    assert (step > 12, seen) == (True, {0, 1})


def test_rechunk_reuses_equal_chunks(scene: Scene) -> None:
    scene.fill(4)
    scene.write("short.md", "one chunk by any chunker")
    scene.done().close()
    known = {text for _, text in _expected(scene, _SMALL)}
    unseen = {text for _, text in _expected(scene, _LARGE)} - known
    scene.chunker, scene.model.texts = _LARGE, 0
    with scene.run() as run:
        plan = run.plan()
        assert (plan.to_embed, plan.builds_beside) == (len(unseen), True)
        assert run.apply(plan).ok
    assert scene.model.texts == len(unseen) + len(CANARIES)


def test_rechunk_set_back_midway_goes_on_with_the_live_index(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    live = scene.store.live()
    _stopped_midway(scene)
    scene.chunker = _SMALL
    with scene.run() as run:
        assert run.plan().is_empty
        scene.write("more.md", "one document more")
        assert run.apply(run.plan()).ok
        assert (scene.store.live(), run.status().building) == (live, None)
        assert run.verify().ok
    assert _answers(scene) == _expected(scene, _SMALL)


def test_rechunk_changed_again_midway_ends_whole(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    _stopped_midway(scene)
    assert _answers(scene) == _expected(scene, _SMALL)
    scene.chunker = PlainChunker(size=80)
    scene.done().close()
    assert _answers(scene) == _expected(scene, PlainChunker(size=80))


def test_rechunk_with_every_document_changed_is_beside(scene: Scene) -> None:
    """Then none is the same content cut anew, and searches would yet find chunks of both."""
    scene.fill(3)
    scene.done().close()
    for number in range(3):
        scene.write(f"{number:02}.md", f"another text {number} altogether")
    scene.chunker = _LARGE
    with scene.run() as run:
        assert run.plan().builds_beside
    scene.chunker = _SMALL
    with scene.run() as run:
        assert not run.plan().builds_beside


def test_in_place_must_be_asked_for(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    live = scene.store.live()
    scene.chunker = _LARGE
    with scene.run() as run:
        plan = IndexPlan.from_dict(run.plan(in_place=True).to_dict())
        assert (plan.builds_beside, plan.in_place, plan.counts["rechunked"]) == (False, True, 12)
        with pytest.raises(Conflict, match="settings"):
            run.apply(replace(plan, in_place=False))
        assert run.apply(plan).ok
        assert (scene.store.live(), run.status().can_roll_back) == (live, False)
        assert run.verify().ok
        assert run.plan().is_empty
    assert _answers(scene) == _expected(scene, _LARGE)


def test_in_place_that_was_stopped_is_ended_beside(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    scene.chunker = _LARGE
    with scene.run() as run:
        plan = run.plan(in_place=True)
        assert run.apply(plan, max_embeds=len(CANARIES) + plan.to_embed // 2).stopped
        assert run.plan().builds_beside
        assert run.apply(run.plan()).ok
    assert _answers(scene) == _expected(scene, _LARGE)


def test_repair_does_not_mix_chunkers(scene: Scene) -> None:
    scene.fill()
    scene.done().close()
    live = scene.store.live()
    assert live is not None
    scene.store.delete(live, [point for point, name, _ in scene.store.scan(live) if name == "02.md"])
    scene.chunker = _LARGE
    with scene.run() as run:
        assert run.verify().missing
        with pytest.raises(Conflict, match="another chunker"):
            run.verify(repair=True)
        assert set(_answers(scene)) < set(_expected(scene, _SMALL))
        assert run.apply(run.plan()).ok
        assert run.verify().ok


# what else changes how chunks and vectors come about


def _upper(data: bytes) -> str:
    return data.decode().upper()


def _with(scene: Scene, **parts: Any) -> IndexRun:
    own = scene.pipeline()
    given = {"source": own.source, "chunk": own.chunk, "embed": own.channels, "store": own.store}
    return IndexRun(ledger=scene.ledger(), pipeline=Pipeline(**given | parts))


@pytest.mark.parametrize("what", ["parser", "sparse model", "document prompt"])
def test_what_makes_chunks_or_vectors_is_changed_beside(scene: Scene, what: str) -> None:
    scene.fill(4)
    channels = scene.pipeline().channels
    with _with(scene, embed={**channels, "words": HashedWords()}) as run:
        assert run.apply(run.plan()).ok
    before = scene.store.live()
    parts: dict[str, Any] = {
        "parser": {"parse": _upper},
        "sparse model": {"embed": {**channels, "words": HashedWords(usual_length=50)}},
        "document prompt": {"embed": {"dense": replace(channels["dense"], doc_prompt="text: ")}},
    }[what]
    with _with(scene, **{"embed": {**channels, "words": HashedWords()}} | parts) as run:
        plan = run.plan()
        assert plan.builds_beside
        assert run.apply(plan).ok
        assert scene.store.live() != before
        run.rollback()
    assert scene.store.live() == before


def test_other_rules_of_the_source_are_applied_in_place(scene: Scene) -> None:
    """Each document is a whole: those that stay are not touched, those that go come back for nothing."""
    scene.fill(4)
    scene.write("more.txt", "one text more")
    scene.done().close()
    live, scene.model.texts = scene.store.live(), 0
    scene.source = FolderSource(scene.docs, include=("*.md",))
    with scene.run() as run:
        plan = run.plan()
        assert (plan.builds_beside, plan.deleted, plan.unchanged) == (False, ("more.txt",), 4)
        assert run.apply(plan).ok
    scene.source = FolderSource(scene.docs)
    with scene.done() as run:
        assert (scene.store.live(), run.verify().ok, scene.model.texts) == (live, True, 0)
