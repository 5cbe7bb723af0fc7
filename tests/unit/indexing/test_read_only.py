"""What is read-only is called that, in a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from . import crew, read_only
from .stores import KINDS, PLACES


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that somebody else can come to, if this is root."""
    with TemporaryDirectory(prefix="hf-read-only-", dir="/tmp" if os.geteuid() == 0 else None) as made:
        path = Path(made)
        path.chmod(0o755)
        yield path
        for each in (path, *path.rglob("*")):
            if each.is_dir():
                each.chmod(0o755)


def _tried(folder: Path, store: str, part: str) -> dict[str, Any]:
    hears, tells = crew.processes.Pipe(duplex=False)
    child = crew.process(read_only.try_all, folder, PLACES[store], part, tells)
    tells.close()
    assert hears.poll(240)
    said: dict[str, Any] = hears.recv()
    child.join(60)
    return said


@pytest.mark.parametrize("store", KINDS)
def test_a_store_that_is_read_only_is_called_that(folder: Path, store: str) -> None:
    said = _tried(folder, store, "store")
    place = folder / "store" / "vectors"
    assert said["apply"][0] == "Unavailable"
    assert said["apply"][1].endswith("is not writable")
    assert str(place) in said["apply"][1]
    for _, message, hint in said.values():
        assert hint
        assert "\n" not in message


def test_a_ledger_that_is_read_only_is_called_that(folder: Path) -> None:
    said = _tried(folder, "flat", "ledger")
    assert set(said) == {"plan", "search", "apply"}
    for kind, message, hint in said.values():
        assert (kind, message) == ("Unavailable", f"the ledger {folder / 'ledger' / 'index.db'} is not writable")
        assert "writable" in hint
