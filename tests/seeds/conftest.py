"""Stores go to a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE_ROOT", str(tmp_path / "stores"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
