"""An index that is lost costs nothing for good: git makes it again, and until then its pack is left and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Workspace
from holdfast.errors import Damaged

Git = Callable[..., bytes]


@pytest.fixture
def saved(project: Any, ws: Workspace) -> Checkpoint:
    project.write("file", b"the only copy")
    return ws.save("one")


@pytest.fixture
def packs(project: Any, saved: Checkpoint) -> list[Path]:
    """The packs of a store, whose indexes are gone."""
    found = sorted((project.store / "objects" / "pack").glob("*.pack"))
    for path in found:
        path.with_suffix(".idx").unlink()
    return found


def test_a_save_leaves_the_packs_and_git_brings_every_checkpoint_back(
    project: Any, saved: Checkpoint, packs: list[Path], git: Git
) -> None:
    project.write("file", b"written since")
    project.open().save("two")
    assert all(path.exists() for path in packs)
    for path in packs:
        git("index-pack", path)
    ws = project.open()
    assert ws.verify().ok
    assert ws.restore(saved.id).ok
    assert (project.root / "file").read_bytes() == b"the only copy"


def test_verify_names_the_packs_and_what_makes_their_indexes_again(project: Any, packs: list[Path]) -> None:
    told = {problem.what: problem.detail for problem in project.open().verify().problems}
    for path in packs:
        assert f"`git index-pack {path.name}`" in told[path.stem]


def test_merging_is_refused_and_leaves_them(project: Any, packs: list[Path]) -> None:
    ws = project.open()
    ws.save("two")
    with pytest.raises(Damaged):
        ws.merge()
    assert all(path.exists() for path in packs)
