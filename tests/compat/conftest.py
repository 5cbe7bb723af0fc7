"""What tests of stored formats and of predecessors' interfaces share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stores and the home folder below the test's own folder."""
    monkeypatch.setenv("HOLDFAST_STORE_ROOT", str(tmp_path / "stores"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
