"""What the tests of the predecessors' documents share: a home folder, stores and a working directory of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE_ROOT", str(tmp_path / "stores"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def old() -> Callable[[str], Any]:
    """The names of a module of `holdfast.compat`, without the warnings that a program gets for them."""
    return lambda name: SimpleNamespace(**vars(importlib.import_module(f"holdfast.compat.{name}")))
