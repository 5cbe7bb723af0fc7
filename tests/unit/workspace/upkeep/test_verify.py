"""What `verify` reads and finds, also after somebody used git in the store."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.shadowgit import ObjectKind
from holdfast.workspace import search
from holdfast.workspace.stored import catalog
from holdfast.workspace.stored.record import write_commit
from holdfast.workspace.upkeep import verify

Git = Callable[..., bytes]


@pytest.fixture
def repacked(project: Any, ws: Workspace, git: Git) -> Workspace:
    """A store whose checkpoints git packed as deltas of each other."""
    for number in range(40):
        project.write(f"folder/file {number}", b"%d\n" % number * 50)
    for version in range(6):
        project.write(f"folder/file {version}", b"version\n" * 50)
        ws.save(f"{version}", state={"conversation": list(range(500 + version))})
    git("--git-dir", ws.store, "repack", "-adf", "--depth=50", "--quiet")
    return project.open()


def test_a_store_that_git_repacked_is_sound(repacked: Workspace) -> None:
    assert repacked.verify().problems == []


def test_checkpoints_survive_a_git_repack(project: Any, repacked: Workspace) -> None:
    for checkpoint in repacked.list():
        assert repacked.restore(checkpoint.id).ok
        expected = b"version\n" * 50
        assert (project.root / f"folder/file {checkpoint.message}").read_bytes() == expected
        assert checkpoint.state == {"conversation": list(range(500 + int(checkpoint.message)))}


def test_store_is_sound_after_git_gc_and_a_merge(project: Any, ws: Workspace, git: Git) -> None:
    project.write("file")
    ws.save()
    git("--git-dir", ws.store, "gc", "--quiet")
    again = project.open()
    again.merge()
    assert again.verify().ok
    git("--git-dir", ws.store, "fsck", "--strict", "--no-dangling")
    assert b"Holdfast" in git("--git-dir", ws.store, "show", "HEAD:README.md")


def test_the_bytes_and_objects_that_were_read_are_counted(project: Any, ws: Workspace) -> None:
    project.write("file", b"content")
    ws.save()
    report = ws.verify()
    assert report.ok
    assert report.checkpoints == 1
    packs = list((ws.store / "objects" / "pack").glob("*.pack"))
    assert report.bytes_read == sum(pack.stat().st_size for pack in packs)
    assert report.objects > 5


def test_pack_removed_by_another_process_is_no_damage(
    project: Any, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("file")
    ws.save()
    pack = ws.store / "objects" / "pack" / f"pack-{'0' * 40}.pack"
    for path in (pack, pack.with_suffix(".idx")):
        path.write_bytes(b"")  # nothing that could be opened
    exists = Path.exists

    def remove_first(path: Path) -> bool:
        if path == pack.with_suffix(".idx"):
            for each in (pack, path):
                each.unlink()
        return exists(path)

    assert not ws.verify().ok
    monkeypatch.setattr(Path, "exists", remove_first)
    assert ws.verify().problems == []
    assert not exists(pack)


def test_a_scan_cache_of_an_earlier_version_is_no_damage(project: Any, ws: Workspace) -> None:
    project.write("file")
    ws.save()
    cache = ws.store / "holdfast" / "scan.cache"
    words = cache.read_bytes().split(b" ", 3)
    for version in range(1, int(words[2])):
        cache.write_bytes(b" ".join((*words[:2], b"%d" % version, words[3])))
        assert ws.verify().problems == []
    assert ws.save("again", allow_empty=True).complete


@pytest.mark.parametrize("part", ["uncovered", "changes", "rules"])
def test_a_list_that_checkpoints_share_is_reported_for_each(project: Any, ws: Workspace, part: str) -> None:
    """It is decoded once if it can be."""
    repository = ws._repository
    writer, refs = repository.objects.writer(), {}
    for number in range(3):
        project.write("a", b"%d" % number)
        checkpoint = ws.save(f"{number}")
        if number:
            odd = writer.add(ObjectKind.BLOB, b"[1\n")
            contents = repository.contents(checkpoint)._replace(**{part: odd})
            refs[checkpoint.id] = write_commit(writer, checkpoint, contents)
    writer.commit()
    for checkpoint_id, commit in refs.items():
        repository.objects.set_ref(checkpoint_id, commit)
    ws.close()
    told = {problem.checkpoints for problem in project.open().verify().problems}
    assert {(each,) for each in refs} <= told


def test_a_catalog_that_says_something_else_is_reported(project: Any, ws: Workspace) -> None:
    for number in range(3):
        project.write("a", b"%d" % number)
        ws.save(f"{number}")
    ws.close()
    again = project.open()
    newest = again.list(1)[0].id
    assert again.verify().ok
    with contextlib.closing(sqlite3.connect(again.store / "holdfast" / "catalog.db")) as db, db:
        db.execute("UPDATE checkpoints SET message = 'another' WHERE id = ?", (newest,))
        [row] = db.execute(f"SELECT {catalog._COLUMNS} FROM checkpoints WHERE id = ?", (newest,))
        db.execute("UPDATE checkpoints SET checksum = ? WHERE id = ?", (catalog._checksum(row[:-1]), newest))
    [problem] = again.verify().problems
    assert problem.what == "holdfast/catalog.db" and newest in problem.detail


def test_many_folders_are_not_remembered(project: Any, ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification, and a search, find the same when they read everything again."""
    for number in range(4):
        project.write(f"folder {number % 2}/file", b"text %d\n" % number)
        ws.save(f"{number}")
    whole, found = ws.verify(), ws.search("text")
    monkeypatch.setattr(verify, "_CACHED_ENTRIES", 0)
    monkeypatch.setattr(search, "_CACHED_ENTRIES", 0)
    assert (ws.verify(), ws.search("text")) == (whole, found)
    assert len(found) == 2
