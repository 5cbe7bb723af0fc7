"""A pack without an index is never ours, so that nothing has to remove one: it may hold every checkpoint."""

from __future__ import annotations

import os
import zlib
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable import Disk, use_disk
from holdfast.shadowgit import ObjectKind, ObjectStore
from holdfast.shadowgit.pack_merge import merge_packs
from holdfast.shadowgit.packs import index_lone_packs
from holdfast.testing.faulty_disks import ForgetfulDisk


class Interrupted(Disk):
    """The real disk, until a call of one kind was made a number of times; then the process would be dead."""

    def __init__(self, verb: str, number: int) -> None:
        self._verb = verb
        self._left = number

    def _count(self, verb: str) -> None:
        if verb == self._verb:
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1

    def rename(self, src: str, dst: str, **options: Any) -> None:
        self._count("rename")
        super().rename(src, dst, **options)

    def unlink(self, name: str, **options: Any) -> None:
        self._count("unlink")
        super().unlink(name, **options)


def write_pack(store: ObjectStore, data: bytes) -> tuple[bytes, str]:
    """Write a pack of one object; its name and that of the pack."""
    writer = store.writer()
    oid = writer.add(ObjectKind.BLOB, data)
    name = writer.commit()
    assert name is not None
    store.refresh()
    return oid, name


def lone_packs(store: ObjectStore) -> list[str]:
    names = os.listdir(store.pack_folder)
    return [name for name in names if name.endswith(".pack") and f"{name[:-5]}.idx" not in names]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_writing_one_that_is_interrupted_leaves_none(store: ObjectStore, number: int) -> None:
    with use_disk(Interrupted("rename", number)):
        try:
            write_pack(store, b"content")
        except KeyboardInterrupt:
            pass
    assert lone_packs(store) == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_withdrawing_one_that_is_interrupted_leaves_none(store: ObjectStore, number: int) -> None:
    _, name = write_pack(store, b"content")
    with use_disk(Interrupted("unlink", number)):
        try:
            store.writer().withdraw(name)
        except KeyboardInterrupt:
            pass
    assert lone_packs(store) == []


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_merging_them_that_is_interrupted_leaves_none(store: ObjectStore, number: int) -> None:
    oids = [write_pack(store, data)[0] for data in (b"first", b"second")]
    with use_disk(Interrupted("unlink", number)):
        try:
            merge_packs(store, store.packs())
        except KeyboardInterrupt:
            pass
    assert lone_packs(store) == []
    store.sweep()
    store.refresh()
    assert [store.blob(oid) for oid in oids] == [b"first", b"second"]


def test_next_writer_rebuilds_a_lost_index(store: ObjectStore) -> None:
    oid, name = write_pack(store, b"the only copy")
    (store.pack_folder / f"{name}.idx").unlink()
    store.sweep()
    store.refresh()
    assert store.blob(oid) == b"the only copy"


def test_the_index_that_it_got_outlives_the_power(store: ObjectStore) -> None:
    oid, name = write_pack(store, b"the only copy")
    (store.pack_folder / f"{name}.idx").unlink()
    disk = ForgetfulDisk(store.git_dir)
    with use_disk(disk):
        store.sweep()
    disk.lose_power(survives=lambda _: True)
    store.sweep()
    assert ObjectStore(store.git_dir).blob(oid) == b"the only copy"


@pytest.mark.parametrize("body", [b"\x3a" + zlib.compress(b"0123456789")[:-6], b"\x3ano zlib", b"\xba\x80"])
def test_a_pack_whose_last_object_does_not_end_is_left_as_it_is(tmp_path: Path, body: bytes) -> None:
    """Its checksum is right all the same: somebody made it so."""
    data = b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + body
    pack = tmp_path / "pack-1234.pack"
    pack.write_bytes(data + sha1(data).digest())
    index_lone_packs(tmp_path)
    assert os.listdir(tmp_path) == [pack.name]


def test_damaged_pack_is_left_alone(store: ObjectStore) -> None:
    _, name = write_pack(store, b"content")
    path = store.pack_folder / f"{name}.pack"
    (store.pack_folder / f"{name}.idx").unlink()
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # all objects are sound, and the checksum is not theirs
    store.sweep()
    assert lone_packs(store) == [path.name]
