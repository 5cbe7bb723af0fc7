"""`~` is the home folder in every path that an index takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.adapters.index import open_index
from holdfast.importers.model import ImportRequest
from holdfast.indexing import (
    CheckpointManager,
    FlatStore,
    FolderSource,
    IndexingCheckpoint,
    get_checkpoint_settings_map,
)
from holdfast.indexing.ledger import open_ledger
from holdfast.indexing.model_families import load_families
from holdfast.serde import read_keys


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "docs").mkdir(parents=True)
    (tmp_path / "home" / "docs" / "a.md").write_text("hello\n")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_every_path(home: Path) -> None:
    assert [each.name for each in FolderSource("~/docs")] == ["a.md"]
    with open_ledger("~/ledger.db") as ledger:
        ledger.begin("shape", {}, "store")
    assert str(home / "vectors.db") in FlatStore("~/vectors.db").identity
    assert (home / "ledger.db").is_file()
    (home / "own.toml").write_text("")
    assert load_families(["~/own.toml"]).spaces
    manager = CheckpointManager("~/project", "p", "~/state")
    asyncio.run(manager.save(IndexingCheckpoint(project_path="~/project")))  # type: ignore[arg-type]
    assert manager.project_path == home / "project" and list((home / "state").glob("checkpoint_*"))
    loaded = asyncio.run(manager.load())
    assert loaded is not None and loaded.project_path == home / "project"
    assert get_checkpoint_settings_map("~/project")["project_path"] == str(home / "project")
    (home / "keys.json").write_text("{}")
    with pytest.raises(Exception, match="key file"):
        read_keys("~/missing.json")
    asked = ImportRequest("~/old", "~/new")
    assert (asked.source, asked.target) == (str(home / "old"), str(home / "new"))
    assert not list(home.parent.rglob("~*"))


def test_the_configuration_of_an_index(home: Path) -> None:
    (home / "project").mkdir()
    (home / "project" / "holdfast.toml").write_text('[index]\nsource = "~/docs"\ndirectory = "~/index"\n')
    with open_index("~/project") as run:
        assert run is not None
    assert (home / "index").is_dir() and not list(home.parent.rglob("~*"))
