"""A run that is killed, at every step and again and again, loses nothing and pays for one batch again."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.indexing.spaces import CANARIES

from . import killed
from .crew import process
from .scene import Model, Scene

_BATCH = 8
_LIVE = "SELECT document, text FROM point WHERE collection = (SELECT number FROM collection WHERE name = ?)"


class World:
    """A corpus and its settings, changed and indexed over and over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = {"seed": "a", "size": 40, "dimension": None}
        (path / "docs").mkdir(exist_ok=True)
        self.save()

    def save(self) -> None:
        (self.path / "settings.json").write_text(json.dumps(self.settings))

    def start(self, step: int | None = None, verb: str = "apply") -> Any:
        return process(killed.main, self.path, step, verb)

    def index(self, step: int | None = None, verb: str = "apply") -> bool:
        """Whether it was killed before it was done."""
        started = self.start(step, verb)
        started.join()
        assert started.exitcode in (0, -signal.SIGKILL)
        return bool(started.exitcode)

    def change(self, chance: random.Random) -> None:
        docs = self.path / "docs"
        for _ in range(6):
            name = docs / f"{chance.randrange(12):02}.md"
            if chance.random() < 0.25:
                name.unlink(missing_ok=True)
            else:
                words = [f"w{chance.randrange(60)}" for _ in range(chance.randrange(1, 40))]
                name.write_text(" ".join(words))
        (docs / "always.md").write_text("this one is always there")
        self.settings["size"] = chance.choice([40, 40, 60])
        self.settings["seed"] = chance.choice(["a", "a", "b"])
        self.settings["dimension"] = chance.choice([None, None, 32])
        self.save()

    def upset(self) -> None:
        """Have every document changed or gone: what a killed run was about to publish is not wanted any more."""
        for number, path in enumerate(sorted((self.path / "docs").iterdir())):
            path.unlink() if number % 3 == 1 else path.write_text(f"another text {number}, and {path.read_text()[:50]}")

    def paid(self) -> list[str]:
        log = self.path / "paid.log"
        lines = log.read_text().splitlines() if log.exists() else []
        texts = [text for line in lines for text in json.loads(line)]
        return [text for text in texts if text not in CANARIES]

    def check(self) -> None:
        """What is live is exactly what the documents and settings are, in the right space."""
        scene = Scene(self.path)
        scene.model = Model(str(self.settings["seed"]))
        scene.chunker = type(scene.chunker)(size=int(str(self.settings["size"])))
        with scene.run(model=f"model-{self.settings['seed']}", dimension=self.settings["dimension"]) as run:
            assert run.verify().ok
            assert run.plan().is_empty
            expected: Counter[tuple[str, str]] = Counter()
            for path in (self.path / "docs").iterdir():
                expected.update((path.name, text) for text in scene.chunker(path.read_text()))
            live = scene.store.live()
            rows = scene.store._db.execute(_LIVE, (live,)).fetchall()
            assert Counter(rows) == expected
            for document, text in rows:
                best = scene.store.search("dense", scene.model.vector(text), limit=1)[0]
                assert best.score > 0.999, f"{document} is in the wrong space"
        scene.store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"seed": "a"}, {"seed": "b", "size": 60, "dimension": 32}], ids=["in place", "beside"]
)
def test_run_killed_at_every_step_repeats_one_batch(tmp_path: Path, settings: dict[str, Any]) -> None:
    place, backup = tmp_path / "place", tmp_path / "backup"
    place.mkdir()
    world = World(place)
    chance = random.Random(7)
    world.change(chance)
    world.settings |= {"seed": "a", "size": 40, "dimension": None}
    world.save()
    world.index()
    world.change(chance)
    world.settings |= {"size": 40, "dimension": None} | settings
    world.save()
    (place / "paid.log").unlink()
    shutil.copytree(place, backup)
    step, was_killed = 0, True
    while was_killed:
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        was_killed = world.index(step)
        world.upset()
        world.index()
        again = sum(count - 1 for count in Counter(world.paid()).values())
        assert again <= _BATCH, f"killed at step {step}, {again} texts were paid for again"
        world.check()
        step += 1
    assert step > 12


def _two_generations(path: Path) -> World:
    """A world whose index was built anew beside the old one."""
    world = World(path)
    world.change(random.Random(3))
    world.settings |= {"seed": "a", "size": 40, "dimension": None}
    world.save()
    world.index()
    world.settings |= {"dimension": 32}
    world.save()
    world.index()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["rollback", "prune", "repair"])
def test_verb_killed_at_every_step_is_old_or_new(tmp_path: Path, verb: str) -> None:
    place, backup = tmp_path / "place", tmp_path / "backup"
    place.mkdir()
    world = _two_generations(place)
    if verb == "repair":
        scene = Scene(place)
        live = scene.store.live() or ""
        scene.store.delete(live, [point for point, _, _ in scene.store.scan(live)][::3])
        scene.store.close()
    (place / "paid.log").unlink()
    shutil.copytree(place, backup)
    step, was_killed = 0, True
    while was_killed:
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        was_killed = world.index(step, verb)
        _check_after(world, verb)
        step += 1
    assert step > {"rollback": 4, "prune": 6, "repair": 4}[verb]


def _check_after(world: World, verb: str) -> None:
    """Either generation is live, whole, in ledger and store alike, after a plan and an apply at most."""
    scene = Scene(world.path)
    with scene.run(model="model-a", dimension=32) as run:
        is_back = run._ledger.generations()[0].state == "live"
    scene.store.close()
    world.settings["dimension"] = None if is_back and verb == "rollback" else 32
    world.save()
    world.index()
    if verb == "repair":
        world.index(None, "repair")
    assert world.paid() == [], "nothing is paid for again"
    world.check()
    if verb != "prune":  # which takes away what one could go back to
        world.settings["dimension"] = 32 if world.settings["dimension"] is None else None
        world.save()
        world.index(None, "rollback")
        world.check()


def test_repeatedly_killed_runs_are_resumed(tmp_path: Path) -> None:
    world = World(tmp_path)
    chance = random.Random(11)
    kills = 0
    for _ in range(10):
        world.change(chance)
        kills += world.index(chance.randrange(24))
    world.index()
    world.check()
    assert kills > 3
