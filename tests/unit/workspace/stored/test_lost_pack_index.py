"""An index that is lost costs nothing: the next writer makes it again, and until then its pack is left and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Workspace

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


def test_next_save_rebuilds_the_indexes_as_git_would(
    project: Any, saved: Checkpoint, packs: list[Path], git: Git, tmp_path: Path
) -> None:
    project.write("file", b"written since")
    project.open().save("two")
    for path in packs:
        git("index-pack", "-o", tmp_path / "by-git.idx", path)
        assert path.with_suffix(".idx").read_bytes() == (tmp_path / "by-git.idx").read_bytes()
    ws = project.open()
    assert ws.verify().ok
    assert ws.restore(saved.id).ok
    assert (project.root / "file").read_bytes() == b"the only copy"


@pytest.mark.parametrize("harm", ["a flipped bit", "cut", "empty"])
def test_a_damaged_pack_gets_none_and_is_left(project: Any, packs: list[Path], harm: str) -> None:
    for path in packs:
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.chmod(0o600)
        path.write_bytes({"a flipped bit": data, "cut": data[:-30], "empty": b""}[harm])
    project.open().save("two")
    assert all(path.exists() and not path.with_suffix(".idx").exists() for path in packs)


def test_one_with_deltas_that_git_made_is_left_to_git(project: Any, saved: Checkpoint, git: Git) -> None:
    for number in range(5):
        project.write("file", b"".join(b"%d\n" % (each**7) for each in range(2000)) + b"%d" % number)
        project.open().save(f"{number}")
    git(f"--git-dir={project.store}", "repack", "-q", "-a", "-d", "-f")
    pack = max((project.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    pack.with_suffix(".idx").unlink()
    project.open().save("after", allow_empty=True)
    assert pack.exists() and not pack.with_suffix(".idx").exists()
    git("index-pack", pack)
    assert project.open().verify().ok


def test_verify_names_packs_without_index_and_the_remedy(project: Any, packs: list[Path]) -> None:
    told = {problem.what: problem.detail for problem in project.open().verify().problems}
    for path in packs:
        assert f"`git index-pack {path.name}`" in told[path.stem]


def test_merging_makes_them_again_too(project: Any, saved: Checkpoint, packs: list[Path]) -> None:
    ws = project.open()
    ws.merge()
    assert ws.verify().ok
    assert ws.restore(saved.id).ok
