"""Which of the names that no sync has followed outlive a power loss."""

from __future__ import annotations

from pathlib import Path
from random import Random

from holdfast.testing.power_loss import Survives


def nothing(_: Path) -> bool:
    return False


def everything(_: Path) -> bool:
    return True


def at_random(seed: int) -> Survives:
    random = Random(seed)
    return lambda path: random.random() < 0.5
