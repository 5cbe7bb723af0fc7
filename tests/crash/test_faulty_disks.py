"""The fault layer itself: it counts, kills, refuses and forgets what it says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from holdfast import durable
from holdfast.durable import Disk
from holdfast.testing.disk_contract import DiskContract, describe, differences
from holdfast.testing.faulty_disks import (
    CountingDisk,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
    every_point,
)


class TestTheRealDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return Disk()


class TestACountingDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return CountingDisk()


class TestAKillingDiskBeforeItsTime(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return KillingDisk(at=1000)


class TestAFailingDiskBeforeItsTime(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return FailingDisk(at=1000)


class TestAForgetfulDiskWithPower(DiskContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Disk:
        return ForgetfulDisk(tmp_path)


def test_every_call_of_a_disk_is_counted() -> None:
    changing = {name for name in vars(Disk) if not name.startswith("_")}
    assert changing <= vars(CountingDisk).keys()


def test_the_points_of_an_operation_are_its_calls_in_order(tmp_path: Path) -> None:
    calls = every_point(lambda: durable.write_atomically(tmp_path / "a", b"data"))
    assert [call.name for call in calls] == ["create", "write", "fsync", "rename", "fsync"]
    assert [call.number for call in calls] == [1, 2, 3, 4, 5]
    syncs = every_point(lambda: durable.write_atomically(tmp_path / "a", b"data"), among={"fsync"})
    assert [call.number for call in syncs] == [3, 5]


@pytest.mark.parametrize(("when", "left"), [("before", b""), ("halfway", b"da"), ("after", b"data")])
def test_a_killed_child_leaves_what_it_had_written(tmp_path: Path, when: str, left: bytes) -> None:
    disk = KillingDisk(at=2, when=when)  # type: ignore[arg-type]
    assert die_in_child(disk, lambda: durable.write_atomically(tmp_path / "a", b"data"))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [left]


def test_surviving_child_differs_from_a_killed_one(tmp_path: Path) -> None:
    assert not die_in_child(KillingDisk(at=6), lambda: durable.write_atomically(tmp_path / "a", b"data"))
    assert (tmp_path / "a").read_bytes() == b"data"


def test_a_child_that_fails_is_told_from_one_that_was_killed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="status"):
        die_in_child(KillingDisk(at=1), lambda: 1 // 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_an_error_comes_once(tmp_path: Path) -> None:
    with durable.use_disk(FailingDisk(at=4, error=errno.EROFS)):
        with pytest.raises(OSError, match="Read-only"):
            durable.write_atomically(tmp_path / "a", b"data")
        durable.write_atomically(tmp_path / "a", b"again")
    assert (tmp_path / "a").read_bytes() == b"again"


def test_full_disk_takes_half_a_write_and_allows_deletes(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    disk = FailingDisk(at=2, error=errno.ENOSPC, once=False)
    fd = disk.create(str(tmp_path / "new"))
    with pytest.raises(OSError, match="No space"):
        disk.write(fd, b"data")
    os.close(fd)
    with pytest.raises(OSError, match="No space"):
        disk.mkdir(str(tmp_path / "folder"))
    disk.unlink(str(tmp_path / "old"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new": b"da"}


class TestAfterAPowerLoss:
    """What a forgetful disk has forgotten."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "folder"
        (folder / "inner").mkdir(parents=True)
        (folder / "old").write_bytes(b"old")
        (folder / "inner" / "deep").write_bytes(b"deep")
        os.link(folder / "old", folder / "inner" / "same")
        (folder / "link").symlink_to("old")
        return folder

    @pytest.fixture
    def disk(self, folder: Path) -> ForgetfulDisk:
        return ForgetfulDisk(folder)

    def test_what_was_there_is_there_however_it_was_changed(self, folder: Path, disk: ForgetfulDisk) -> None:
        before = describe(folder)
        fd = os.open(folder, os.O_RDONLY)
        disk.unlink("old", dir_fd=fd)
        disk.unlink("link", dir_fd=fd)
        disk.symlink("elsewhere", "link", dir_fd=fd)
        disk.set_mtime("inner", 5, dir_fd=fd)
        os.close(fd)
        with durable.use_disk(disk):
            durable.remove_tree(str(folder / "inner"))
            os.close(disk.create(str(folder / "inner")))
        disk.lose_power()
        assert not differences(before, describe(folder))

    def test_a_new_file_is_gone_unless_its_name_was_synced(self, folder: Path, disk: ForgetfulDisk) -> None:
        with durable.use_disk(disk):
            for name in ("a", "b"):
                fd = disk.create(str(folder / name))
                disk.write(fd, b"new")
                disk.fsync(fd)
                os.close(fd)
                if name == "a":
                    durable.sync_folder(folder)
        disk.lose_power()
        assert (folder / "a").read_bytes() == b"new"
        assert not (folder / "b").exists()

    def test_a_file_that_was_not_synced_is_empty_though_its_name_was(self, folder: Path, disk: ForgetfulDisk) -> None:
        with durable.use_disk(disk):
            durable.write_atomically(folder / "a", b"unsynced", sync=False)
            durable.write_atomically(folder / "b", b"synced")
        disk.lose_power()
        assert (folder / "a").read_bytes() == b""
        assert (folder / "b").read_bytes() == b"synced"

    def test_a_file_has_what_it_had_at_its_last_sync(self, folder: Path, disk: ForgetfulDisk) -> None:
        fd = disk.create(str(folder / "a"))
        disk.write(fd, b"one ")
        disk.fsync(fd)
        disk.write(fd, b"two")
        os.close(fd)
        with durable.use_disk(disk):
            durable.sync_folder(folder)
        disk.lose_power()
        assert (folder / "a").read_bytes() == b"one "

    def test_a_rename_that_was_not_synced_is_undone(self, folder: Path, disk: ForgetfulDisk) -> None:
        before = describe(folder)
        with durable.use_disk(disk):
            disk.rename(str(folder / "old"), str(folder / "inner" / "deep"))
        disk.lose_power()
        assert not differences(before, describe(folder))

    def test_file_moved_into_an_unsynced_folder_is_lost(self, folder: Path, disk: ForgetfulDisk) -> None:
        with durable.use_disk(disk):
            disk.rename(str(folder / "inner" / "deep"), str(folder / "deep"))
            durable.sync_folder(folder / "inner")
        disk.lose_power()
        assert not (folder / "inner" / "deep").exists()
        assert not (folder / "deep").exists()

    def test_metadata_is_forgotten_with_everything_else(self, folder: Path, disk: ForgetfulDisk) -> None:
        before = describe(folder)
        fd = os.open(folder / "old", os.O_RDONLY)
        disk.chmod(fd, 0o600)
        disk.setxattr(fd, "user.a", b"1")
        os.close(fd)
        with durable.use_disk(disk):
            durable.sync_folder(folder)
        disk.lose_power()
        assert describe(folder)["old"] == before["old"]

    def test_a_sync_of_everything_keeps_everything(self, folder: Path, disk: ForgetfulDisk) -> None:
        (folder / "new" / "newer").mkdir(parents=True)
        (folder / "new" / "newer" / "file").write_bytes(b"new")
        (folder / "old").unlink()
        now = describe(folder)
        fd = os.open(folder, os.O_RDONLY)
        disk.syncfs(fd)
        os.close(fd)
        disk.lose_power()
        assert not differences(now, describe(folder))

    def test_names_may_survive_where_contents_do_not(self, folder: Path, disk: ForgetfulDisk) -> None:
        with durable.use_disk(disk):
            durable.write_atomically(folder / "old", b"unsynced", sync=False)
        disk.lose_power(survives=lambda path: True)
        assert (folder / "old").read_bytes() == b""
        assert (folder / "inner" / "same").read_bytes() == b"old"

    def test_nothing_works_without_power(self, folder: Path) -> None:
        disk = ForgetfulDisk(folder, at=2)
        disk.mkdir(str(folder / "one"))
        for _ in range(2):
            with pytest.raises(PowerLoss):
                disk.mkdir(str(folder / "two"))
        disk.go_on()
        disk.mkdir(str(folder / "two"))

    @pytest.mark.parametrize(("foreign", "left"), [("kept", [b"database"]), ("dropped", [])])
    def test_what_others_write_is_kept_or_dropped(self, folder: Path, foreign: str, left: list[bytes]) -> None:
        disk = ForgetfulDisk(folder, foreign=frozenset({"db"}))
        (folder / "db").write_bytes(b"database")
        disk.lose_power(foreign=foreign)  # type: ignore[arg-type]
        assert [path.read_bytes() for path in folder.glob("db")] == left

    def test_what_others_write_is_garbled_the_same_way_each_time(self, folder: Path) -> None:
        found = set()
        for _ in range(2):
            disk = ForgetfulDisk(folder, foreign=frozenset({"db"}))
            (folder / "db").write_bytes(b"database" * 100)
            disk.lose_power(foreign="garbled", random=Random(3))
            found.add((folder / "db").read_bytes())
        assert len(found) == 1
        assert found != {b"database" * 100}
