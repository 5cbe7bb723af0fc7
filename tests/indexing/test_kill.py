"""A run that is killed, at every step and at moments that nobody chose, loses nothing and pays for one batch again."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.indexing.spaces import CANARIES

from .scene import Model, Scene

_BATCH = 8
_WORKER = str(Path(__file__).with_name("killed.py"))


class World:
    """A corpus and its settings, changed and indexed over and over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = {"seed": "a", "size": 40, "dimension": None}
        (path / "docs").mkdir(exist_ok=True)
        self.save()

    def save(self) -> None:
        (self.path / "settings.json").write_text(json.dumps(self.settings))

    def index(self, step: str = "never") -> int:
        ran = subprocess.run([sys.executable, _WORKER, str(self.path), step], capture_output=True, text=True)
        assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
        return ran.returncode

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
            rows = scene.store._db.execute("SELECT document, text FROM point WHERE collection = ?", (live,)).fetchall()
            assert Counter(rows) == expected
            for document, text in rows:
                best = scene.store.search("dense", scene.model.vector(text), limit=1)[0]
                assert best.score > 0.999, f"{document} is in the wrong space"
        scene.store.close()


@pytest.mark.parametrize(
    "settings", [{"seed": "a"}, {"seed": "b", "size": 60, "dimension": 32}], ids=["in place", "beside"]
)
def test_a_run_killed_at_every_step_is_resumed_and_pays_for_one_batch_again(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
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
        was_killed = world.index(str(step)) != 0
        world.upset()
        world.index()
        again = sum(count - 1 for count in Counter(world.paid()).values())
        assert again <= _BATCH, f"killed at step {step}, {again} texts were paid for again"
        world.check()
        step += 1
    assert step > 12


def test_a_run_killed_at_random_moments_is_resumed(tmp_path: Path) -> None:
    world = World(tmp_path)
    chance = random.Random()
    kills = 0
    for _ in range(8):
        world.change(chance)
        with subprocess.Popen([sys.executable, _WORKER, str(tmp_path), "never"], stderr=subprocess.PIPE) as busy:
            time.sleep(0.15 + chance.random() * 0.35)
            kills += busy.poll() is None
            busy.kill()
    world.index()
    world.check()
    assert kills
