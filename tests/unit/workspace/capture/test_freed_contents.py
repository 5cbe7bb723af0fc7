"""Saving when a pack has a tree that no checkpoint needs, without the contents of the tree: those were freed (P3)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.retention import Policy
from holdfast.scan import git_refs
from holdfast.shadowgit import ObjectKind, free_unneeded
from holdfast.workspace.git_losses import read_recorded
from holdfast.workspace.upkeep.thinning import Thinner

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IN_PARTS_BYTES = 9 << 20


@pytest.fixture
def ws(project: Any, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """All times are old enough for the caches to be trusted."""
    monkeypatch.setattr(git_refs, "RACY_NS", -(10**11))
    ws: Workspace = project.open(clock=lambda: NOW)
    ws._engine_options["file_clock"] = lambda: time.time_ns() + 10**10
    return ws


def _save_and_free(ws: Workspace, is_freed: Callable[[bytes], bool]) -> None:
    """Save, so that the caches name all of it; delete the checkpoint, and free the blobs that are asked about."""
    ws.save("first")
    os.utime(ws.path / "changing", ns=(0, 0))
    ws.save("second")
    for each in ws.list():
        ws.delete(each.id)
    objects = ws._repository.objects
    oids = {oid for pack in objects.packs() for oid in pack.oids()}
    blobs = [oid for oid in oids if objects.kind_and_size(oid)[0] is ObjectKind.BLOB]
    freed = {oid for oid in blobs if is_freed(objects.blob(oid))}
    assert freed
    with ws._writing():
        free_unneeded(objects, oids - freed)


@pytest.fixture
def changing(project: Any) -> None:
    project.write("changing")


@pytest.mark.usefixtures("changing")
class TestPartlyFreed:
    def test_parts_of_a_large_file(self, project: Any, ws: Workspace) -> None:
        large = random.Random(1).randbytes(IN_PARTS_BYTES)
        project.write("large", large)
        _save_and_free(ws, lambda data: len(data) > 100_000)
        ws.save("again")
        assert ws.verify().ok and ws.file("latest", "large").read() == large

    @pytest.mark.parametrize("count", [3, 2000])
    def test_attributes_of_a_folder(self, project: Any, ws: Workspace, count: int) -> None:
        """Of few files they are a blob beside those of the folders below, of many they are in parts."""
        for number in range(count):
            project.write(f"some/file{number}", b"")
        project.write("some/folder/file", b"")
        _save_and_free(ws, lambda data: b" - file2\n" in data)
        ws.save("again")
        assert ws.verify().ok

    def test_index_of_git(self, project: Any, ws: Workspace, git: Callable[..., bytes]) -> None:
        git("init", "-q", project.root)
        git("-C", project.root, "add", ".")
        _save_and_free(ws, lambda data: data.startswith(b"DIRC"))
        ws.save("again")
        assert ws.verify().ok
        entry = read_recorded(ws._repository, "latest", ws.path).data.file("index")
        assert entry is not None and ws._repository.objects.blob(entry.oid).startswith(b"DIRC")


def test_thinning_that_frees_a_part(project: Any, ws: Workspace) -> None:
    """The last save was deleted; its pack was merged with needed ones and stays, an older pack goes."""
    data = random.Random(2)
    large = data.randbytes(IN_PARTS_BYTES)
    project.write("large", large)
    ws.save("automatic", metadata={"type": "automatic"})
    (project.root / "large").unlink()
    for number in range(8):
        project.write("small", data.randbytes(300_000))
        ws.save(f"{number}")
    project.write("large", large + b"more")
    ws.save("large again")
    assert len(ws._repository.objects.packs()) == 3, "the small packs were merged"
    ws.delete("latest")
    Thinner(ws._repository, ws._writing, lambda: NOW, wait=lambda _: None).run(Policy(keep_last=0))
    ws.save("once more")
    assert ws.verify().ok and ws.file("latest", "large").read() == large + b"more"
