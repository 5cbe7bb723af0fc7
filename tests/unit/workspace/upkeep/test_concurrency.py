"""Upkeep beside others: two prunes, a save and a restore at once; what dead processes left is swept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Workspace
from holdfast.retention import Policy

BEGIN = """
import os, sys
from pathlib import Path
from holdfast import NotFound, Workspace
from holdfast.retention import Policy
root, store, home = map(Path, sys.argv[1:4])
ws = Workspace(root, store=store, home=home, environ={})
"""
PRUNE = """
for turn in range(8):
    ws.prune(Policy(keep_last=3), dry_run=False, lazily=bool(turn % 2))
    ws.prune(Policy(keep_last=3))
"""
SAVE = """
for turn in range(12):
    for attempt in range(1000):
        try:
            (root / "saver").mkdir(exist_ok=True)
            (root / "saver" / "file").write_bytes(os.urandom(5000) + b"%d" % turn)
            break
        except OSError:  # a restore took the folder away just then
            continue
    print(ws.save(f"save {turn}", allow_empty=True).id)  # a restore may have taken the file away, too
"""
RESTORE = """
others = {"saver", "saver/file"}  # what is written while a restore is under way is left as it is
for turn in range(8):
    done = ws.restore("first")
    assert done.failed.keys() <= others, done.failed
    undone = ws.undo()
    assert undone.failed.keys() <= others, undone.failed
"""
READ = """
for turn in range(25):
    for each in ws.list(3):
        try:
            each.files_changed
        except NotFound:
            assert each.id not in {other.id for other in ws.list(None)}
    ws.usage()
    ws.search("no such text")
    ws.prune(Policy(keep_last=1))
    report = ws.verify()
    assert report.ok, report.problems
"""
COMPACT = """
for turn in range(4):
    ws.compact()
    ws.pin("pin", pinned=bool(turn % 2))
"""


def start(project: Any, script: str) -> subprocess.Popen[bytes]:
    words = [str(project.root), str(project.store), str(project.home)]
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def said(process: subprocess.Popen[bytes]) -> list[str]:
    out, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems.decode(errors="replace")
    return out.decode().split()


@pytest.mark.slow
def test_prunes_saves_restores_and_readers_at_once_lose_nothing(project: Any, ws: Workspace) -> None:
    project.write("kept/file", content := os.urandom(50_000))
    ws.save("first", name="first")
    project.write("kept/other", b"x")
    ws.save("to be pinned", name="pin")
    scripts = [PRUNE, PRUNE, SAVE, RESTORE, COMPACT, READ]
    processes = [start(project, script) for script in scripts]
    try:
        answers = [said(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    saved = answers[2]
    assert len(set(saved)) == 12
    again = project.open()
    assert again.verify().ok
    last = [each.id for each in again.list()]
    assert saved[-1] in last, "the newest save was never one that may go"
    again.prune(Policy(keep_last=1), dry_run=False)
    (project.root / "kept" / "file").unlink()
    assert again.restore("first").ok
    assert (project.root / "kept" / "file").read_bytes() == content
    assert again.verify().ok


class TestLeftovers:
    """A process that dies leaves a few files at most, and the next one that writes removes them."""

    LEFT = (
        "objects/pack/tmp_pack_0123456789abcdef",
        "objects/pack/tmp_pack_0123456789abcdef_idx",
        "objects/pack/tmp_compact-0123456789012345678901234567890123456789.pack",
        "objects/pack/tmp_compact-0123456789012345678901234567890123456789.idx",
        "objects/pack/tmp_idx_x8KdI2",
        "objects/pack/.tmp-1234-pack-0123456789012345678901234567890123456789.pack",
        "objects/pack/.tmp-1234-pack-0123456789012345678901234567890123456789.idx",
        "objects/pack/pack-0123456789012345678901234567890123456789.idx",
        "new-ref",
        "packed-refs.new",
        "HEAD.new",
        "holdfast/scan.cache.new",
        "holdfast/sequence.new",
        "holdfast/store.json.new",
        "holdfast/unmerged.new",
    )

    @pytest.mark.parametrize(
        "write",
        [
            lambda ws: ws.save("x", allow_empty=True),
            lambda ws: ws.prune(Policy(keep_last=1), dry_run=False),
            lambda ws: ws.compact(),
            lambda ws: ws.pin("first"),
        ],
        ids=["save", "prune", "compact", "pin"],
    )
    def test_what_dead_writers_left_is_swept_by_the_next(self, project: Any, ws: Workspace, write: Any) -> None:
        project.write("file")
        ws.save("first", name="first")
        for name in self.LEFT:
            (ws.store / name).write_bytes(b"half of something")
        write(project.open())
        assert [name for name in self.LEFT if (ws.store / name).exists()] == []
        assert ws.verify().ok

    def test_what_is_left_is_not_read_before_it_is_swept(self, project: Any, ws: Workspace) -> None:
        """A pack that git had not finished, whole or not, does not mean that something is held."""
        project.write("file", content := os.urandom(5000))
        ws.delete(ws.save("gone").id)
        pack = max((ws.store / "objects/pack").glob("*.pack"), key=lambda path: path.stat().st_size)
        for suffix in (".pack", ".idx"):
            pack.with_suffix(suffix).rename(pack.with_name(f"tmp_compact-1{suffix}"))
        again = project.open()
        saved = again.save("again", rehash=True)
        (project.root / "file").unlink()
        assert again.restore(saved.id).ok
        assert (project.root / "file").read_bytes() == content
        assert again.verify().ok

    def test_store_stays_small_over_many_prunes_and_saves(self, project: Any, ws: Workspace) -> None:
        for number in range(40):
            project.write("file", os.urandom(20_000))
            ws.save(f"{number}")
            ws.prune(Policy(keep_last=2), dry_run=False, lazily=True)
        packs = list((ws.store / "objects/pack").iterdir())
        assert len(packs) < 30
        assert sum(path.stat().st_size for path in packs) < 20_000 * 14
        assert sorted(path.name for path in (ws.store / "holdfast").iterdir() if "catalog" not in path.name) == [
            "lock",
            "scan.cache",
            "store.json",
            "unmerged",
        ]

    def test_an_odd_tally_is_no_obstacle(self, project: Any, ws: Workspace) -> None:
        project.write("file")
        ws.save("first")
        tally = Path(ws.store / "holdfast" / "unmerged")
        tally.write_bytes(b"garbage")
        project.write("file", b"other")
        ws.save("second")
        assert ws.prune(Policy(keep_last=1), dry_run=False, lazily=True).removed
        assert tally.read_bytes() == b"1\n"


def test_a_search_goes_on_when_a_checkpoint_is_deleted_under_it(project: Any, ws: Workspace) -> None:
    for number in range(3):
        project.write("file", b"version %d\n" % number)
        ws.save(f"{number}")
    gone = ws.list()[1].id
    other = project.open()

    def delete(what: str, number: int, total: int) -> None:
        if number == 1 and other.list(None)[1].id == gone:
            other.delete(gone)
            other.merge()

    found = ws.search("version 2", progress=delete)
    assert [match.path for match in found] == ["file"]
    assert len(ws.list()) == 2


def test_purge_is_planned_again_after_a_concurrent_delete(project: Any, ws: Workspace) -> None:
    for number in range(3):
        project.write("file", b"version %d\n" % number)
        ws.save(f"{number}")
    gone = ws.list()[1].id
    other = project.open()

    def delete(what: str, number: int, total: int) -> None:
        if number == 1 and total == 3:
            other.delete(gone)
            other.merge()

    plan = ws.purge("file", dry_run=True, progress=delete)
    assert gone not in plan.checkpoints and len(plan.checkpoints) == 2


def test_export_of_a_deleted_checkpoint_is_whole_or_absent(project: Any, ws: Workspace) -> None:
    for number in range(5):
        project.write(f"file {number}", b"%d" % number * 1000)
    saved = ws.save("one")
    project.write("file 0", b"other")
    ws.save("two")
    other = project.open()

    def delete(what: str, number: int, total: int) -> None:
        if other.list(None)[-1].id == saved.id:
            other.delete(saved.id)
            other.merge()
            ws._repository.objects.reopen()

    try:
        done = ws.export(saved.id, project.area / "out", progress=delete)
    except NotFound:
        assert not (project.area / "out").exists()
    else:
        assert done.ok and len(done.written) == 5 == len(os.listdir(project.area / "out"))


def test_a_file_of_sqlite_that_goes_meanwhile_is_no_failure(
    project: Any, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's log comes and goes with every reader."""
    for number in range(3):
        project.write("file", b"version %d\n" % number)
        ws.save(f"{number}")
    real = os.lstat

    def lstat(path: Any, **options: Any) -> os.stat_result:
        if os.fspath(path).endswith("catalog.db"):
            raise FileNotFoundError(2, "gone", path)
        return real(path, **options)

    monkeypatch.setattr(os, "lstat", lstat)
    assert len(ws.prune(Policy(keep_last=1), dry_run=False).removed) == 2


def test_a_pack_that_git_is_still_writing_is_no_damage(project: Any, ws: Workspace) -> None:
    project.write("file")
    ws.save()
    for suffix in (".pack", ".idx"):
        (project.store / "objects" / "pack" / f"tmp_compact-1234{suffix}").write_bytes(b"half")
    assert ws.verify().ok


def test_concurrent_rewrite_is_no_damage_in_the_catalog(project: Any, ws: Workspace) -> None:
    project.write("file")
    saved = ws.save()
    other = project.open()

    def pin(what: str, number: int, total: int) -> None:
        other._repository.catalog.add = lambda *given: None  # as if it were between the ref and the catalog
        other.pin(saved.id, pinned=not other.get(saved.id).pinned)

    assert ws.verify(progress=pin).ok
