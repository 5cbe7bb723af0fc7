"""Wait for a condition, never for a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.scan.classify import young

T = TypeVar("T")
_POLL_S = 0.002


def wait_for(condition: Callable[[], T], *, timeout_s: float = 120) -> T:
    """Return what a condition returns, once that is true."""
    give_up = time.monotonic() + timeout_s
    while True:
        if found := condition():
            return found
        assert time.monotonic() < give_up, "the condition never became true"
        time.sleep(_POLL_S)


def settle(folder: Path) -> None:
    """Wait until a scan trusts everything below a folder: no change can leave the same times as before any more."""
    paths = [folder, *folder.rglob("*")]
    wait_for(lambda: not any(young(os.lstat(path), time.time_ns()) for path in paths))
