"""A checkpoint in a folder of its own: exactly as it was, or not at all."""

from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path

import pytest

from holdfast import Damaged, NotFound, Refused, Unavailable, Workspace, durable
from holdfast.testing.disk_contract import describe, differences
from holdfast.testing.faulty_disks import FailingDisk, every_point
from holdfast.workspace.export import PREFIX


@pytest.fixture
def full(project, ws: Workspace) -> Path:
    """A workspace with one of everything, saved as `full`."""
    root: Path = project.root
    project.write("src/deep/a.py", b"print(1)\n").chmod(0o755)
    project.write("secret", b"s").chmod(0o600)
    project.write("large.bin", random.Random(1).randbytes((9 << 20) + 5))
    project.write("hard-a", b"one file\n")
    os.link(root / "hard-a", root / "src" / "hard-b")
    (root / "link").symlink_to("src/deep")
    (root / "empty").mkdir(mode=0o750)
    os.mkfifo(root / "pipe")
    os.setxattr(root / "secret", "user.tag", b"blue")
    (root / "src").chmod(0o700)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(1_600_000_000_123_456_789 + number,) * 2, follow_symlinks=False)
    os.utime(root, ns=(1_500_000_000_000_000_001,) * 2)
    ws.save("full", name="full")
    return root


@pytest.mark.linux
def test_everything_is_as_it_was(project, ws: Workspace, full: Path, tmp_path: Path) -> None:
    before = describe(full)
    (full / "hard-a").unlink()
    done = ws.export("full", tmp_path / "out")
    assert not differences(before, describe(tmp_path / "out"))
    assert done.ok
    assert {"src", "src/deep/a.py", "link", "empty", "pipe", "large.bin"} <= set(done.written)
    assert done.directory == str(tmp_path / "out")
    assert (tmp_path / "out" / "hard-a").samefile(tmp_path / "out" / "src" / "hard-b")


def test_nothing_else_is_left_beside_it(ws: Workspace, full: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    ws.export("full", tmp_path / "out")
    assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}


def test_some_paths_come_with_the_folders_above_them(ws: Workspace, full: Path, tmp_path: Path) -> None:
    done = ws.export("full", tmp_path / "out", ["src/deep", "h*"])
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*"))
    assert found == ["hard-a", "src", "src/deep", "src/deep/a.py"]
    assert done.written == ["hard-a", "src/deep", "src/deep/a.py"]
    assert stat.S_IMODE((tmp_path / "out" / "src").stat().st_mode) == 0o700


def test_an_empty_folder_is_taken_and_keeps_its_mode(ws: Workspace, full: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o711)
    ws.export("full", tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o711
    assert (tmp_path / "out" / "secret").exists()


def test_a_folder_with_something_in_it_is_refused(ws: Workspace, full: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        ws.export("full", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize("where", ["project/out", "project", "store/out", "."])
def test_the_workspace_and_the_store_are_refused(project, ws: Workspace, full: Path, where: str) -> None:
    with pytest.raises(Refused):
        ws.export("full", project.area / where)


def test_a_link_into_the_workspace_is_refused(project, ws: Workspace, full: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(full)
    with pytest.raises(Refused):
        ws.export("full", tmp_path / "alias" / "out")


def test_a_place_that_is_no_folder_is_said_to_be_none(ws: Workspace, full: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused):
        ws.export("full", tmp_path / "file")
    with pytest.raises(NotFound):
        ws.export("full", tmp_path / "nowhere" / "out")
    with pytest.raises(NotFound):
        ws.export("full", tmp_path / "out", ["no-such-path"])
    assert not (tmp_path / "out").exists()


def test_what_the_checkpoint_does_not_hold_is_named(project, ws: Workspace, tmp_path: Path) -> None:
    project.write("node_modules/x.js")
    project.write("a")
    ws.save()
    assert ws.export("latest", tmp_path / "out").missing == {"node_modules": "dependencies"}


def test_an_error_at_any_call_leaves_nothing(project, ws: Workspace, tmp_path: Path) -> None:
    project.write("a")
    project.write("folder/b")
    ws.save()
    before = set(tmp_path.iterdir())
    calls = every_point(lambda: ws.export("latest", tmp_path / "trial"))
    assert len(calls) > 10
    before.add(tmp_path / "trial")
    for call in calls[:-1]:  # after the last but one it is in place
        with durable.use_disk(FailingDisk(at=call.number, error=errno.ENOSPC)), pytest.raises(Unavailable):
            ws.export("latest", tmp_path / "out")
        assert set(tmp_path.iterdir()) == before, call


def test_what_a_killed_export_left_is_named(project, ws: Workspace, tmp_path: Path) -> None:
    project.write("a")
    ws.save()
    (tmp_path / f"{PREFIX}dead").mkdir()
    assert ws.export("latest", tmp_path / "out").leftovers == [str(tmp_path / f"{PREFIX}dead")]


def test_no_file_is_ever_more_open_than_it_was(project, ws: Workspace, tmp_path: Path) -> None:
    project.write("secret").chmod(0o600)
    ws.save()
    modes = []

    class Watching(durable.Disk):
        def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
            modes.append(mode)
            return super().create(name, mode=mode, dir_fd=dir_fd)

        def mkdir(self, name: str, *, mode: int = 0o700, dir_fd: int | None = None) -> None:
            modes.append(mode)
            super().mkdir(name, mode=mode, dir_fd=dir_fd)

    with durable.use_disk(Watching()):
        ws.export("latest", tmp_path / "out")
    assert modes
    assert not any(mode & 0o077 for mode in modes)


def test_damage_stops_it_unless_it_is_to_be_passed_over(project, ws: Workspace, tmp_path: Path) -> None:
    project.write("a", random.Random(1).randbytes(5000))
    project.write("b")
    ws.save()
    [pack] = sorted((project.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)[-1:]
    data = bytearray(pack.read_bytes())
    at = data.index((project.root / "a").read_bytes()[1000:1100])
    data[at] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    again = project.open()
    with pytest.raises(Damaged, match="a"):
        again.export("latest", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = again.export("latest", tmp_path / "out", skip_damaged=True)
    assert list(done.failed) == ["a"]
    assert (tmp_path / "out" / "b").exists()
