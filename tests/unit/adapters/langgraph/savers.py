"""Savers for LangGraph over the back ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver

Open = Callable[..., HoldfastSaver]


def opener(kind: str, request: pytest.FixtureRequest, folder: Path) -> Open:
    """What opens the same store each time, but for the one in memory."""
    if kind == "memory":
        return partial(HoldfastSaver.from_url, "memory://")
    if kind == "sqlite":
        return partial(HoldfastSaver.from_url, f"sqlite:///{folder}/state.db?synchronous=normal")
    url = request.getfixturevalue(f"{kind}_url")
    options = {"schema" if kind == "postgres" else "prefix": f"lg{uuid.uuid4().hex[:12]}"}
    return partial(HoldfastSaver.from_url, url, **options)
