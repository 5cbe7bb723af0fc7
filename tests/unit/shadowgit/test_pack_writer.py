"""Writing packs: what git says of them, and what is left when writing ends early."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable import Disk, use_disk
from holdfast.shadowgit import ObjectKind, ObjectStore, Pack, PackEntry, encode_entry, object_id
from holdfast.shadowgit.packs import index_file, sweep
from holdfast.testing.faulty_disks import ForgetfulDisk, every_point
from leaks import open_below

Git = Callable[..., bytes]

MEBIBYTE = 1 << 20


class Failing(Disk):
    """The real disk, which fails at the nth call of one kind."""

    def __init__(self, verb: str, number: int) -> None:
        self._verb = verb
        self._left = number

    def _count(self, verb: str) -> None:
        if verb == self._verb:
            self._left -= 1
            if not self._left:
                raise OSError(28, "No space left on device")

    def create(self, name: str, **options: Any) -> int:
        self._count("create")
        return super().create(name, **options)

    def write(self, fd: int, data: Any) -> None:
        self._count("write")
        super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._count("fsync")
        super().fsync(fd)

    def rename(self, src: str, dst: str, **options: Any) -> None:
        self._count("rename")
        super().rename(src, dst, **options)


def incompressible(count: int, size: int) -> list[bytes]:
    chance = random.Random(count)
    return [chance.randbytes(size) for _ in range(count)]


def names_in(store: ObjectStore) -> list[str]:
    return sorted(os.listdir(store.pack_folder))


class TestCommit:
    @pytest.mark.parametrize("count", [1, 2, 300])
    def test_git_finds_no_fault_with_a_pack(self, store: ObjectStore, git: Git, count: int) -> None:
        writer = store.writer()
        contents = [b"content %d" % number for number in range(count)]
        oids = [writer.add(ObjectKind.BLOB, content) for content in contents]
        name = writer.commit()
        git("verify-pack", store.pack_folder / f"{name}.idx")
        git("--git-dir", store.git_dir, "fsck", "--strict", "--no-dangling")
        asked = "\n".join(oid.hex() for oid in oids).encode()
        answer = git("--git-dir", store.git_dir, "cat-file", "--batch=%(objectname)", given=asked)
        assert answer == b"".join(
            b"%s\n%s\n" % (oid.hex().encode(), data) for oid, data in zip(oids, contents, strict=True)
        )

    def test_git_makes_the_same_index_of_it(self, store: ObjectStore, git: Git, tmp_path: Path) -> None:
        writer = store.writer()
        for content in incompressible(50, 100):
            writer.add(ObjectKind.BLOB, content)
        name = writer.commit()
        git("index-pack", "-o", tmp_path / "theirs.idx", store.pack_folder / f"{name}.pack")
        assert (store.pack_folder / f"{name}.idx").read_bytes() == (tmp_path / "theirs.idx").read_bytes()

    def test_more_than_fits_in_memory_is_written_as_it_comes(self, store: ObjectStore, git: Git) -> None:
        writer = store.writer()
        contents = incompressible(19, MEBIBYTE)
        oids = [writer.add(ObjectKind.BLOB, content) for content in contents]
        (temporary,) = (name for name in names_in(store) if name.startswith("tmp_"))
        assert (store.pack_folder / temporary).stat().st_size > 16 * MEBIBYTE
        name = writer.commit()
        git("verify-pack", store.pack_folder / f"{name}.idx")
        store.refresh()
        assert [store.blob(oid) for oid in oids] == contents

    def test_both_files_are_closed_to_others(self, store: ObjectStore) -> None:
        writer = store.writer()
        writer.add(ObjectKind.BLOB, b"secret")
        writer.commit()
        modes = {stat.S_IMODE((store.pack_folder / name).stat().st_mode) for name in names_in(store)}
        assert modes == {0o600}

    def test_nothing_added_is_no_pack(self, store: ObjectStore) -> None:
        before = names_in(store)
        assert store.writer().commit() is None
        assert names_in(store) == before

    def test_an_object_is_written_once(self, store: ObjectStore) -> None:
        writer = store.writer()
        first, again = writer.add(ObjectKind.BLOB, b"content"), writer.add(ObjectKind.BLOB, b"content")
        writer.add_entry(encode_entry(ObjectKind.BLOB, first, b"content"))
        name = writer.commit()
        assert first == again == object_id(ObjectKind.BLOB, b"content")
        assert Pack(store.pack_folder / f"{name}.idx").count == 1

    def test_one_that_several_threads_have_deflated_is_written_once(self, store: ObjectStore, git: Git) -> None:
        writer = store.writer()
        for _ in range(2):
            writer.add_entry(encode_entry(ObjectKind.BLOB, object_id(ObjectKind.BLOB, b"content"), b"content"))
        git("verify-pack", store.pack_folder / f"{writer.commit()}.idx")

    def test_an_object_that_the_store_has_is_not_written_again(self, store: ObjectStore) -> None:
        writer = store.writer()
        oid = writer.add(ObjectKind.BLOB, b"content")
        writer.commit()
        store.refresh()
        writer = store.writer()
        assert writer.holds(oid)
        assert writer.add(ObjectKind.BLOB, b"content") == oid
        assert writer.commit() is None

    def test_nobody_sees_an_object_before_the_commit(self, store: ObjectStore) -> None:
        writer = store.writer()
        oids = [writer.add(ObjectKind.BLOB, content) for content in incompressible(10, MEBIBYTE)]
        store.refresh()
        assert not any(store.has(oid) for oid in oids)
        writer.commit()
        store.refresh()
        assert all(store.has(oid) for oid in oids)

    @pytest.mark.parametrize("names", [False, True], ids=["names-lost", "names-kept"])
    @pytest.mark.parametrize("count", [1, 10], ids=["in memory", "partly on disk"])
    def test_what_was_committed_is_there_when_the_power_goes(self, store: ObjectStore, count: int, names: bool) -> None:
        """Also without a sync: the objects are named only after this."""
        contents = incompressible(count, MEBIBYTE)
        disk = ForgetfulDisk(store.git_dir)
        with use_disk(disk):
            writer = store.writer()
            oids = [writer.add(ObjectKind.BLOB, content) for content in contents]
            name = writer.commit()
        disk.lose_power(survives=lambda _: names)
        assert {f"{name}.idx", f"{name}.pack"} <= set(names_in(store))
        assert [ObjectStore(store.git_dir).blob(oid) for oid in oids] == contents

    def test_pack_is_synced_before_it_is_named_and_comes_last(self, store: ObjectStore) -> None:
        writer = store.writer()
        writer.add(ObjectKind.BLOB, b"content")
        calls = every_point(writer.commit)
        assert [call.name for call in calls] == [
            "create", "write", "fsync", "create", "write", "fsync", "rename", "rename", "fsync",
        ]  # fmt: skip
        assert [call.about.rpartition(".")[2] for call in calls if call.name == "rename"] == ["idx", "pack"]


class TestMemory:
    """A first save may add a million objects, within 200 MiB for 300,000."""

    COUNT = 20_000

    def test_few_bytes_for_each_object_until_it_is_committed(self, store: ObjectStore) -> None:
        writer = store.writer()
        tracemalloc.start()
        try:
            for number in range(self.COUNT):
                writer.add_entry(PackEntry(hashlib.sha1(b"%d" % number).digest(), b"\x30\x78\x9c\x03\0\0\0\0\x01", 1))
            writer.commit()
            writer.forget()
            left, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most / self.COUNT < 280
        assert left / self.COUNT < 20


class TestWithdraw:
    def test_a_pack_that_nothing_came_to_name_goes(self, store: ObjectStore) -> None:
        before = names_in(store)
        writer = store.writer()
        writer.add(ObjectKind.BLOB, b"content")
        name = writer.commit()
        assert name is not None
        writer.withdraw(name)
        assert names_in(store) == before

    def test_it_stays_gone_when_the_power_goes(self, store: ObjectStore) -> None:
        before = names_in(store)
        disk = ForgetfulDisk(store.git_dir)
        with use_disk(disk):
            writer = store.writer()
            writer.add(ObjectKind.BLOB, b"content")
            writer.withdraw(writer.commit() or "")
        disk.lose_power()
        assert names_in(store) == before


class TestAbort:
    @pytest.mark.parametrize("count", [0, 1, 10], ids=["nothing", "in memory", "partly on disk"])
    def test_nothing_is_left(self, store: ObjectStore, count: int) -> None:
        before = names_in(store)
        writer = store.writer()
        for content in incompressible(count, MEBIBYTE):
            writer.add(ObjectKind.BLOB, content)
        writer.abort()
        assert names_in(store) == before

    @pytest.mark.parametrize("count", [1, 10], ids=["in memory", "partly on disk"])
    @pytest.mark.parametrize(
        ("verb", "number"),
        [("create", 1), ("create", 2), ("write", 1), ("write", 2), ("fsync", 1), ("fsync", 2), ("rename", 1)],
    )
    def test_nothing_is_left_after_a_failure(self, store: ObjectStore, count: int, verb: str, number: int) -> None:
        before = names_in(store)
        open_before = open_below(store.git_dir)
        writer = store.writer()
        with use_disk(Failing(verb, number)), pytest.raises(OSError, match="No space"):
            for content in incompressible(count, MEBIBYTE):
                writer.add(ObjectKind.BLOB, content)
            writer.commit()
        writer.abort()
        assert names_in(store) == before
        assert open_below(store.git_dir) == open_before

    def test_a_pack_without_its_index_is_left_to_be_swept(self, store: ObjectStore) -> None:
        before = names_in(store)
        writer = store.writer()
        oid = writer.add(ObjectKind.BLOB, b"content")
        with use_disk(Failing("rename", 2)), pytest.raises(OSError, match="No space"):
            writer.commit()
        writer.abort()
        store.refresh()
        assert not store.has(oid)
        store.sweep()
        assert names_in(store) == before


class TestSweep:
    def test_what_dead_writers_left_goes_and_all_else_stays(self, tmp_path: Path) -> None:
        left = ["tmp_pack_1", "tmp_pack_1_idx", "tmp_idx_x", ".tmp-7-pack-cc.pack", "pack-cc.idx"]
        sound = [
            "pack-aa.pack",  # its index was lost, or git is about to put it there
            "pack-bb.pack",
            "pack-bb.idx",
            "pack-bb.rev",
            "pack-dd.keep",
            "multi-pack-index",
            "other",
        ]
        for name in left + sound:
            (tmp_path / name).touch()
        sweep(tmp_path)
        assert sorted(os.listdir(tmp_path)) == sorted(sound)


class TestFarOffsets:
    """A pack above 2 GiB, of which only the index is made."""

    OFFSETS = (12, 2**31 - 1, 2**31, 2**40)

    def index(self) -> bytes:
        return index_file({self.oid(place): (offset, 0) for place, offset in enumerate(self.OFFSETS)}, bytes(20))

    @staticmethod
    def oid(place: int) -> bytes:
        return bytes([place]) + bytes(19)

    def test_git_reads_them(self, git: Git) -> None:
        listed = git("show-index", given=self.index())
        assert [int(line.split()[0]) for line in listed.splitlines()] == list(self.OFFSETS)

    def test_the_reader_reads_them(self, tmp_path: Path) -> None:
        (tmp_path / "pack-x.idx").write_bytes(self.index())
        (tmp_path / "pack-x.pack").write_bytes(b"PACK")
        pack = Pack(tmp_path / "pack-x.idx")
        assert [pack.find(self.oid(place)) for place in range(len(self.OFFSETS))] == list(self.OFFSETS)
