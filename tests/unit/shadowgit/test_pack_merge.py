"""Merging packs: which are due, what stays, and what those who read meanwhile see."""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from holdfast import durable
from holdfast.errors import Damaged
from holdfast.shadowgit import (
    FILE_MODE,
    FOLDER_MODE,
    ObjectKind,
    ObjectStore,
    Pack,
    PackWriter,
    TreeEntry,
    encode_commit,
    encode_tree,
    merge_packs,
    object_id,
    packs_due,
    reachable,
)
from holdfast.shadowgit import store as store_module
from holdfast.testing.faulty_disks import CountingDisk, FailingDisk, ForgetfulDisk, every_point

Git = Callable[..., bytes]


class Sized(NamedTuple):
    """All that matters of a pack when it is decided which are due."""

    size_bytes: int


def due(sizes: list[int]) -> list[int]:
    return [pack.size_bytes for pack in packs_due(cast("list[Pack]", [Sized(size) for size in sizes]))]


def saved(packs: list[int], times: int) -> tuple[int, list[int]]:
    """Save one byte a number of times, merging what is due. Return the bytes rewritten, and the packs that are left."""
    rewritten = 0
    for _ in range(times):
        packs = [*packs, 1]
        merged = due(packs)
        if len(merged) > 1:
            for size in merged:
                packs.remove(size)
            packs.append(sum(merged))
            rewritten += sum(merged)
    return rewritten, packs


def add_pack(store: ObjectStore, *contents: bytes) -> Pack:
    """Write one pack of these blobs."""
    writer = store.writer()
    for content in contents:
        writer.add(ObjectKind.BLOB, content)
    name = writer.commit()
    store.refresh()
    return next(pack for pack in store.packs() if pack.name == name)


def contents_of(store: ObjectStore) -> dict[bytes, tuple[ObjectKind, bytes]]:
    return {oid: store.read(oid) for pack in store.packs() for oid in pack.oids()}


class TestPacksDue:
    def test_a_few_packs_are_left_as_they_are(self) -> None:
        assert due([1] * 8) == []

    def test_many_of_about_one_size_are_merged(self) -> None:
        assert due([1] * 9) == [1] * 9
        assert sorted(due([1000 + number for number in range(9)])) == [1000 + number for number in range(9)]

    def test_one_that_is_much_larger_is_left(self) -> None:
        assert due([100, *[1] * 9]) == [1] * 9

    def test_the_smallest_are_merged_first(self) -> None:
        assert due([*[10**6] * 9, *[1] * 9]) == [1] * 9

    def test_packs_each_much_larger_than_the_one_before_are_left(self) -> None:
        assert due([8**number for number in range(20)]) == []

    def test_the_order_in_which_they_are_given_does_not_matter(self) -> None:
        sizes = [1, 1, 2, 3, 1, 2, 3, 1, 1, 3, 1000, 100_000]
        shuffled = random.Random(0).sample(sizes, len(sizes))
        assert sorted(due(shuffled)) == sorted(due(sizes)) != []

    def test_two_thousand_saves_rewrite_each_byte_a_few_times(self) -> None:
        rewritten, packs = saved([], 2000)
        assert sum(packs) == 2000
        assert len(packs) <= 8 * (math.log(2000, 8) + 1)
        assert rewritten <= 2000 * math.log2(2000)

    @pytest.mark.parametrize("large", [10_000, 10**9])
    def test_small_saves_beside_a_large_one_rewrite_little(self, large: int) -> None:
        rewritten, _ = saved([large], 2000)
        assert rewritten <= 2000 * math.log2(2000)


class TestMergePacks:
    def test_one_that_finds_no_room_takes_none(self, store: ObjectStore) -> None:
        packs = [add_pack(store, b"one"), add_pack(store, b"two")]
        before = sorted(os.listdir(store.pack_folder))
        disk = FailingDisk(at=2, error=errno.ENOSPC, once=False)
        with durable.use_disk(disk), pytest.raises(OSError, match="No space left"):
            merge_packs(store, packs)
        assert disk.failed is not None and disk.failed.name == "write"
        assert sorted(os.listdir(store.pack_folder)) == before

    def test_merged_pack_is_sound_for_git(self, store: ObjectStore, git: Git) -> None:
        for number in range(5):
            add_pack(store, b"own %d" % number, b"shared")
        before = contents_of(store)
        merge_packs(store, store.packs())
        assert len(store.packs()) == 1
        assert contents_of(store) == before
        assert contents_of(ObjectStore(store.git_dir)) == before
        git("--git-dir", store.git_dir, "fsck", "--strict", "--no-dangling")
        git("verify-pack", store.packs()[0].path)

    def test_git_midx_goes_with_its_packs(self, store: ObjectStore, git: Git) -> None:
        for number in range(3):
            add_pack(store, b"own %d" % number)
        git("--git-dir", store.git_dir, "multi-pack-index", "write")
        git("--git-dir", store.git_dir, "commit-graph", "write", "--reachable")
        caches = [store.pack_folder / "multi-pack-index", store.git_dir / "objects" / "info" / "commit-graph"]
        assert all(path.exists() for path in caches)
        merge_packs(store, store.packs())
        assert not any(path.exists() for path in caches)
        git("--git-dir", store.git_dir, "fsck", "--strict", "--no-dangling")

    def test_what_git_keeps_goes_before_the_first_pack_that_it_names(self, store: ObjectStore, git: Git) -> None:
        """Git would look in packs that are gone, if this is interrupted."""
        for number in range(3):
            add_pack(store, b"own %d" % number)
        git("--git-dir", store.git_dir, "multi-pack-index", "write")
        calls = every_point(lambda: merge_packs(store, store.packs()), among={"unlink"})
        assert [call.about.endswith("multi-pack-index") for call in calls].index(True) == 0

    def test_what_went_does_not_come_back_when_the_power_goes(self, store: ObjectStore) -> None:
        add_pack(store, b"to be kept", b"to be forgotten")
        disk = ForgetfulDisk(store.git_dir)
        with durable.use_disk(disk):
            merge_packs(store, store.packs(), keep={object_id(ObjectKind.BLOB, b"to be kept")})
        disk.lose_power()
        found = ObjectStore(store.git_dir)
        assert [found.has(object_id(ObjectKind.BLOB, each)) for each in (b"to be kept", b"to be forgotten")] == [
            True,
            False,
        ]

    def test_only_the_packs_that_are_named_are_merged(self, store: ObjectStore) -> None:
        first, second, third = (add_pack(store, b"own %d" % number) for number in range(3))
        merge_packs(store, [first, second])
        names = {pack.name for pack in store.packs()}
        assert third.name in names
        assert not {first.name, second.name} & names

    def test_nothing_is_left_of_the_old_packs(self, store: ObjectStore) -> None:
        pack = add_pack(store, b"content")
        for suffix in (".rev", ".bitmap", ".mtimes"):
            pack.path.with_suffix(suffix).touch()
        merge_packs(store, store.packs())
        (merged,) = store.packs()
        assert sorted(path.name for path in store.pack_folder.iterdir()) == [
            f"{merged.name}.idx",
            f"{merged.name}.pack",
        ]

    def test_merging_one_pack_keeps_it(self, store: ObjectStore) -> None:
        merge_packs(store, store.packs())
        before = contents_of(store)
        merge_packs(store, store.packs())
        assert contents_of(ObjectStore(store.git_dir)) == before

    def test_what_is_not_to_be_kept_goes(self, store: ObjectStore) -> None:
        pack = add_pack(store, b"kept", b"dropped")
        kept, dropped = (object_id(ObjectKind.BLOB, content) for content in (b"kept", b"dropped"))
        merge_packs(store, [pack], keep={kept})
        assert store.blob(kept) == b"kept"
        assert not ObjectStore(store.git_dir).has(dropped)
        assert not pack.path.exists()

    def test_an_object_that_another_pack_has_is_not_written_twice(self, store: ObjectStore) -> None:
        other = add_pack(store, b"shared", b"other")
        twice = PackWriter(store.pack_folder, has=lambda _: False)
        shared, own = twice.add(ObjectKind.BLOB, b"shared"), twice.add(ObjectKind.BLOB, b"own")
        twice.commit()
        store.refresh()
        merge_packs(store, [pack for pack in store.packs() if pack.find(own) is not None])
        assert [pack.name for pack in store.packs() if pack.find(shared) is not None] == [other.name]
        assert store.blob(own) == b"own"

    @pytest.fixture
    def deltas(self, store: ObjectStore, git: Git) -> list[bytes]:
        """Eight texts that git has packed as deltas of each other."""
        texts = [b"\n".join(b"line %d" % (number + version) for number in range(500)) for version in range(8)]
        writer = store.writer()
        blobs = [
            TreeEntry(FILE_MODE, b"%d" % place, writer.add(ObjectKind.BLOB, text)) for place, text in enumerate(texts)
        ]
        tree = writer.add(ObjectKind.TREE, encode_tree(blobs))
        store.set_ref("a1-0", writer.add(ObjectKind.COMMIT, encode_commit(tree, seconds=0, message="x")))
        writer.commit()
        git("--git-dir", store.git_dir, "repack", "-adfq", "--depth=50")
        store.refresh()
        assert self.count_deltas(store) >= 6
        return [blob.oid for blob in blobs]

    def count_deltas(self, store: ObjectStore) -> int:
        return sum(pack.is_delta(pack.header(start)) for pack in store.packs() for start, *_ in pack.entries())

    def test_deltas_of_git_are_copied(self, store: ObjectStore, deltas: list[bytes], git: Git) -> None:
        add_pack(store, b"something else")
        before, count = contents_of(store), self.count_deltas(store)
        merge_packs(store, store.packs())
        assert contents_of(store) == before
        assert len(store.packs()) == 1
        assert self.count_deltas(store) == count
        git("--git-dir", store.git_dir, "fsck", "--strict")

    def test_a_delta_whose_base_goes_is_made_whole(self, store: ObjectStore, deltas: list[bytes], git: Git) -> None:
        before = contents_of(store)
        wholes = {oid for pack in store.packs() for start, _, oid, _ in pack.entries() if not is_delta(pack, start)}
        keep = set(deltas) - wholes
        assert 0 < len(keep) < len(deltas)
        merge_packs(store, store.packs(), keep=keep)
        assert contents_of(store) == {oid: before[oid] for oid in keep}
        git("--git-dir", store.git_dir, "verify-pack", store.packs()[0].path)

    def test_unneeded_packs_go_before_anything_is_written(self, store: ObjectStore) -> None:
        needed, other = add_pack(store, b"needed"), add_pack(store, b"not needed")
        disk = CountingDisk()
        with durable.use_disk(disk):
            merge_packs(store, store.packs(), keep=set(needed.oids()))
        calls = [call.name for call in disk.calls]
        assert calls.index("unlink") < calls.index("create")
        assert not other.path.exists()
        assert store.blob(next(needed.oids())) == b"needed"


def is_delta(pack: Pack, start: int) -> bool:
    return pack.is_delta(pack.header(start))


class TestReadersMeanwhile:
    def test_one_that_has_the_old_packs_open_goes_on(self, store: ObjectStore) -> None:
        for number in range(3):
            add_pack(store, b"own %d" % number)
        reader = ObjectStore(store.git_dir)
        before = contents_of(reader)
        merge_packs(store, store.packs())
        assert {oid: reader.read(oid) for oid in before} == before

    def test_reader_from_before_the_merge_finds_newer_objects(self, store: ObjectStore) -> None:
        reader = ObjectStore(store.git_dir)
        reader.packs()
        add_pack(store, b"newer")
        merge_packs(store, store.packs())
        assert {oid: reader.read(oid) for oid in contents_of(store)} == contents_of(store)

    def test_reader_that_opens_packs_too_late_finds_everything(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            add_pack(store, b"own %d" % number)
        before = contents_of(store)
        reader = ObjectStore(store.git_dir)
        real_listdir = os.listdir
        merged: list[bool] = []

        def list_then_merge(path: object) -> list[str]:
            names = real_listdir(path)
            if not merged:
                merged.append(True)
                merge_packs(store, store.packs())
            return names

        monkeypatch.setattr("os.listdir", list_then_merge)
        assert {oid: reader.read(oid) for oid in before} == before

    @pytest.mark.parametrize("when", ["after the listing", "while it is listed"])
    def test_who_lists_packs_just_while_they_are_merged_looks_again(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        add_pack(store, b"early")
        reader = ObjectStore(store.git_dir)
        reader.packs()
        add_pack(store, b"late")
        merged: list[bool] = []

        def merge() -> None:
            if not merged:
                merged.append(True)
                merge_packs(store, store.packs())

        def open_late(index: Path) -> Pack:
            merge()
            return Pack(index)

        def list_halfway(folder: Path) -> list[str]:
            if merged:
                return real_listing(folder)
            early = [name for name in real_listing(folder) if name.startswith(first)]
            merge()
            return early  # neither what went nor what came, as a folder may show itself that changes meanwhile

        first, real_listing = store.packs()[0].name, os.listdir
        if when == "after the listing":
            monkeypatch.setattr(store_module, "Pack", open_late)
        else:
            monkeypatch.setattr(os, "listdir", list_halfway)
        assert reader.blob(object_id(ObjectKind.BLOB, b"late")) == b"late"
        assert merged

    def test_what_is_not_there_is_looked_for_twice_and_then_damage(self, store: ObjectStore) -> None:
        add_pack(store, b"there")
        with pytest.raises(Damaged, match="is missing from the store"):
            ObjectStore(store.git_dir).blob(object_id(ObjectKind.BLOB, b"not there"))


class TestDamage:
    def test_a_damaged_pack_stays_as_it_is_and_the_others_are_merged(self, store: ObjectStore) -> None:
        damaged = add_pack(store, b"damaged" * 100, b"beside it")
        for number in range(3):
            add_pack(store, b"own %d" % number)
        data = bytearray(damaged.path.read_bytes())
        data[20] ^= 1
        damaged.path.write_bytes(data)
        fresh = ObjectStore(store.git_dir)
        merge_packs(fresh, fresh.packs())
        assert damaged.path.read_bytes() == data
        assert len(fresh.packs()) == 2
        assert any(
            fresh.read(oid)[1] == b"own 2" for pack in fresh.packs() if pack.name != damaged.name for oid in pack.oids()
        )

    def test_the_sound_copy_of_what_a_damaged_pack_has_too_is_kept(self, store: ObjectStore) -> None:
        damaged = add_pack(store, b"shared" * 100)
        twice = PackWriter(store.pack_folder, has=lambda _: False)
        shared, own = twice.add(ObjectKind.BLOB, b"shared" * 100), twice.add(ObjectKind.BLOB, b"own")
        twice.commit()
        data = bytearray(damaged.path.read_bytes())
        data[20] ^= 1
        damaged.path.write_bytes(data)
        fresh = ObjectStore(store.git_dir)
        merge_packs(fresh, [pack for pack in fresh.packs() if pack.find(own) is not None])
        assert fresh.blob(shared) == b"shared" * 100

    @pytest.mark.parametrize("suffix", [".idx", ".pack"])
    def test_pack_with_a_flipped_bit_loses_nothing(self, store: ObjectStore, suffix: str) -> None:
        """Else a merge would write the damage down anew, with checksums that fit it."""
        victim = add_pack(store, *(b"content %d" % number for number in range(4)))
        oids = list(victim.oids())
        sound = {path: path.read_bytes() for path in store.pack_folder.iterdir()}
        broken = victim.path.with_suffix(suffix)
        lost = []
        first = 1032 if suffix == ".idx" else 0  # what stands before it in an index is not read by a merge
        for place in range(first, len(sound[broken]), 4):
            for path in store.pack_folder.iterdir():
                path.unlink()
            for path, data in sound.items():
                path.write_bytes(data)
            flipped = bytearray(sound[broken])
            flipped[place] ^= 2
            broken.write_bytes(flipped)
            fresh = ObjectStore(store.git_dir)
            merge_packs(fresh, fresh.packs())
            if not victim.path.exists() and not all(fresh.has(oid) for oid in oids):
                lost.append(place)
        assert lost == []

    def test_empty_index_does_not_make_its_pack_disposable(self, store: ObjectStore) -> None:
        victim = add_pack(store, *(b"content %d" % number for number in range(4)))
        index = bytearray(victim.path.with_suffix(".idx").read_bytes())
        index[1031] ^= 4  # of four objects none is left
        victim.path.with_suffix(".idx").write_bytes(index)
        fresh = ObjectStore(store.git_dir)
        merge_packs(fresh, fresh.packs())
        assert victim.path.exists()


class TestReachable:
    def add(self, store: ObjectStore) -> tuple[bytes, set[bytes]]:
        writer = store.writer()
        blob = writer.add(ObjectKind.BLOB, b"content")
        inner = writer.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"a", blob)]))
        outer = writer.add(
            ObjectKind.TREE, encode_tree([TreeEntry(FOLDER_MODE, b"a", inner), TreeEntry(FOLDER_MODE, b"b", inner)])
        )
        commit = writer.add(ObjectKind.COMMIT, encode_commit(outer, seconds=0, message="x"))
        writer.add(ObjectKind.BLOB, b"beside it")
        writer.commit()
        store.refresh()
        return commit, {blob, inner, outer, commit}

    def test_it_is_what_a_commit_needs_and_nothing_else(self, store: ObjectStore) -> None:
        commit, needed = self.add(store)
        assert reachable(store, [commit]) == needed

    def test_nothing_is_dropped_when_it_cannot_be_told(self, store: ObjectStore) -> None:
        commit, _ = self.add(store)
        with pytest.raises(Damaged):
            reachable(store, [commit, b"\xab" * 20])
