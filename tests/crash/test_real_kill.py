"""A real process, killed at moments that nobody chose."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.testing.faulty_disks import CountingDisk

from .aftermath import is_left
from .busy import digest, known
from .scene import Scene

pytestmark = pytest.mark.crash

_KILLS = 30
_LONGEST_S = 0.25


def test_random_kills_never_lose_a_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (scene.live / "home").mkdir()
    chance = random.Random()
    for kill in range(_KILLS):
        _work_until_killed(scene.live, seed=kill, for_s=chance.random() * _LONGEST_S)
        _check(scene, chance)


def _work_until_killed(area: Path, *, seed: int, for_s: float) -> None:
    busy = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("busy.py")), str(area), str(seed)], stdout=subprocess.PIPE
    )
    with busy:
        assert busy.stdout
        assert busy.stdout.readline() == b"ready\n"
        time.sleep(for_s)
        assert busy.poll() is None, "the process ended by itself"
        busy.kill()


def _check(scene: Scene, chance: random.Random) -> None:
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        doing = json.loads((scene.live / "log").read_text().splitlines()[-1])
        if "after" in doing:
            assert digest(scene.ws) in (doing["before"], doing["after"]), f"in between after {doing['does']}"
        saved = known(scene.live)
        listed = {checkpoint.id for checkpoint in ws.list(None)}
        assert saved.keys() <= listed, "a checkpoint that was made is gone"
        for target in chance.sample(sorted(saved), min(2, len(saved))):
            before = digest(scene.ws)
            assert ws.restore(target).ok
            assert digest(scene.ws) == saved[target]
            assert ws.undo().ok
            assert digest(scene.ws) == before
        ws.save("after the kill")
        assert not [path for path in scene.live.rglob("*") if is_left(path)]
        assert ws.verify().ok
    assert not scene.fsck()
