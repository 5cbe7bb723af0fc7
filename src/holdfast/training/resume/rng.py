"""Random states of Python, NumPy and PyTorch, captured and restored without pickle (P7)."""

from __future__ import annotations

import random
from typing import Any

from holdfast.errors import Damaged
from holdfast.training import frameworks

_SIDES = ("numpy", "torch")


def capture_rng() -> dict[str, Any]:
    """Return the random states of Python and of the loaded libraries, as values that can be saved."""
    version, words, gauss = random.getstate()
    packed = b"".join(word.to_bytes(4, "little") for word in words)
    found: dict[str, Any] = {"python": {"version": version, "words": packed, "gauss": gauss}}
    rank, count = frameworks.rank()
    if count > 1:
        found["rank"] = rank
    return found | {side.NAME: side.capture_rng() for side in frameworks.loaded() if side.NAME in _SIDES}


def restore_rng(captured: dict[str, Any]) -> list[str]:
    """Restore random states. Return what could not be restored, with the reasons (P4).

    The states of another rank are not restored: two ranks would then draw the same numbers.
    """
    notes: list[str] = []
    own, whose = frameworks.rank()[0], captured.get("rank", 0)
    if own != whose:
        return [f"the random states are those of rank {whose}, so rank {own} does not restore them"]
    try:
        if python := captured.get("python"):
            packed = python["words"]
            words = tuple(int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4))
            random.setstate((python["version"], words, python["gauss"]))
        for name in _SIDES:
            if found := captured.get(name):
                notes += frameworks.named(name).restore_rng(found)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise Damaged(f"stored random state is corrupt: {error}", hint="Use another checkpoint.") from None
    return notes
