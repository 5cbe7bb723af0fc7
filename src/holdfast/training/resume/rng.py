"""Random states of Python, NumPy and PyTorch: taken and set back, none of them pickled."""

from __future__ import annotations

import random
from typing import Any

from holdfast.errors import Damaged
from holdfast.training import frameworks

_SIDES = ("numpy", "torch")


def capture_rng() -> dict[str, Any]:
    """The random states of what this process has loaded, as values that can be saved."""
    version, words, gauss = random.getstate()
    packed = b"".join(word.to_bytes(4, "little") for word in words)
    found: dict[str, Any] = {"python": {"version": version, "words": packed, "gauss": gauss}}
    rank, count = frameworks.rank()
    if count > 1:
        found["rank"] = rank
    return found | {side.NAME: side.capture_rng() for side in frameworks.loaded() if side.NAME in _SIDES}


def restore_rng(captured: dict[str, Any]) -> list[str]:
    """Set random states back; returns what could not be, each with the reason.

    Those of another rank are left alone: with the same ones, two ranks would draw the same numbers.
    """
    notes: list[str] = []
    own, whose = frameworks.rank()[0], captured.get("rank", 0)
    if own != whose:
        return [f"the random states are those of rank {whose}, and are not restored on rank {own}"]
    try:
        if python := captured.get("python"):
            packed = python["words"]
            words = tuple(int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4))
            random.setstate((python["version"], words, python["gauss"]))
        for name in _SIDES:
            if found := captured.get(name):
                notes += frameworks.named(name).restore_rng(found)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise Damaged(f"a random state is not as it was written: {error}", hint="Use another checkpoint.") from None
    return notes
