"""Reading packs: those of git with its deltas, and those in which a byte is not what was written."""

from __future__ import annotations

import random
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path

import pytest
from isal import isal_zlib

from holdfast.errors import Damaged
from holdfast.shadowgit import ObjectKind, ObjectStore, Pack, object_id
from holdfast.shadowgit.objects import KIND_NAMES, entry_header
from holdfast.shadowgit.packs import INDEX_MAGIC, apply_delta

Git = Callable[..., bytes]


def versions(count: int) -> Iterator[bytes]:
    """A text that changes a little from version to version, so that git stores it as deltas."""
    lines = [f"line {number} {number * number}" for number in range(300)]
    for version in range(count):
        lines[version * 7 % 300] = f"changed in version {version}"
        yield "\n".join(lines).encode()


def repacked_by_git(repository: Path, git: Git, count: int, bases: str) -> ObjectStore:
    """A repository whose objects git packed as deltas of each other, naming what they build on by offset or name."""
    git("init", "--quiet", "--bare", repository)
    script = b""
    for version, text in enumerate(versions(count)):
        script += b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata 1\nx\n" % version
        for name, content in ((b"file", text), (b"many/other-%d" % version, text[:100])):
            script += b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(content), content)
    git("-C", repository, "fast-import", "--quiet", given=script)
    by_offset = f"repack.useDeltaBaseOffset={'true' if bases == 'offsets' else 'false'}"
    git("-C", repository, "-c", by_offset, "repack", "-adf", "--depth=50", "--quiet")
    return ObjectStore(repository)


@pytest.fixture(params=["offsets", "names"])
def repacked(request: pytest.FixtureRequest, tmp_path: Path, git: Git) -> ObjectStore:
    return repacked_by_git(tmp_path / "repository", git, 12, request.param)


def objects_of(store: ObjectStore, git: Git) -> dict[bytes, tuple[ObjectKind, bytes]]:
    """Every object, as git reads it."""
    listed = git("--git-dir", store.git_dir, "cat-file", "--batch-all-objects", "--batch")
    kinds = {name: kind for kind, name in KIND_NAMES.items()}
    found, at = {}, 0
    while at < len(listed):
        end = listed.index(b"\n", at)
        oid, kind, size = listed[at:end].split()
        at = end + 1 + int(size) + 1
        found[bytes.fromhex(oid.decode())] = (kinds[kind], listed[end + 1 : at - 1])
    return found


class TestDeltas:
    def test_every_object_is_read_as_git_reads_it(self, repacked: ObjectStore, git: Git) -> None:
        expected = objects_of(repacked, git)
        (index,) = repacked.pack_folder.glob("*.idx")
        chains = git("-C", repacked.git_dir, "verify-pack", "--stat-only", index)
        assert b"chain length = 5" in chains, "git did not make deltas of deltas"
        assert {oid: repacked.read(oid) for oid in expected} == expected

    def test_every_object_is_measured_as_git_measures_it(self, repacked: ObjectStore, git: Git) -> None:
        for oid, (kind, data) in objects_of(repacked, git).items():
            assert repacked.kind_and_size(oid) == (kind, len(data))

    @pytest.mark.parametrize("few", [0, 1000])
    def test_every_object_is_sound(
        self, repacked: ObjectStore, git: Git, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        monkeypatch.setattr("holdfast.shadowgit.packs._FEW", few)  # by its checksum alone, or read and hashed
        assert all(repacked.has_sound(oid) for oid in objects_of(repacked, git))

    def test_a_whole_pack_is_read_once(self, repacked: ObjectStore, git: Git) -> None:
        (pack,) = repacked.packs()
        expected = objects_of(repacked, git)
        found = list(pack.contents())
        assert {oid: (kind, data) for oid, kind, data in found} == expected and len(found) == len(expected)

    @pytest.mark.parametrize("few", [0, 1000])
    def test_nothing_that_builds_on_damage_is_sound(
        self, repacked: ObjectStore, git: Git, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        monkeypatch.setattr("holdfast.shadowgit.packs._FEW", few)
        expected = objects_of(repacked, git)
        (pack,) = repacked.packs()
        data = pack.path.read_bytes()
        pack.path.chmod(0o600)
        for start, end, _, _ in pack.entries():
            changed = bytearray(data)
            changed[(start + end) // 2] ^= 4
            pack.path.write_bytes(changed)
            repacked.reopen()
            bad = {oid for oid in expected if not repacked.has_sound(oid)}
            assert bad == {oid for oid in expected if not _is_readable(repacked, oid)} and bad
            (again,) = repacked.packs()
            read = {oid for oid, kind, data in again.contents() if data is not None and (kind, data) == expected[oid]}
            assert read == expected.keys() - bad

    def test_the_index_lists_every_object(self, repacked: ObjectStore, git: Git) -> None:
        (pack,) = repacked.packs()
        expected = objects_of(repacked, git)
        assert list(pack.oids()) == sorted(expected)
        assert pack.count == len(expected)
        assert {oid for _, _, oid, _ in pack.entries()} == set(expected)
        assert not list(pack.checksum_problems())


def _is_readable(store: ObjectStore, oid: bytes) -> bool:
    try:
        return bool(store.read(oid))
    except Damaged:
        return False


def small_store(tmp_path: Path, git: Git, kind: str) -> ObjectStore:
    repository = tmp_path / "repository"
    if kind != "plain":
        return repacked_by_git(repository, git, 5, kind)
    store = ObjectStore(repository)
    store.create()
    writer = store.writer()
    for text in versions(6):
        writer.add(ObjectKind.BLOB, text)
    writer.commit()
    store.refresh()
    return store


class Mutants:
    """Copies of a store, each with one damaged file, each tried to the end."""

    def __init__(self, tmp_path: Path, source: ObjectStore) -> None:
        largest = max(source.packs(), key=lambda pack: pack.count)
        self.oids = list(largest.oids())
        self.index = largest.path.with_suffix(".idx").read_bytes()
        self.pack = largest.path.read_bytes()
        self._folder = tmp_path / "mutants"

    def try_one(self, *, index: bytes | None = None, pack: bytes | None = None) -> int:
        """Read everything there is to read; how many objects were sound. Any error but Damaged fails the test."""
        shutil.rmtree(self._folder, ignore_errors=True)
        store = ObjectStore(self._folder)
        store.pack_folder.mkdir(parents=True)
        (store.pack_folder / "pack-x.idx").write_bytes(self.index if index is None else index)
        (store.pack_folder / "pack-x.pack").write_bytes(self.pack if pack is None else pack)
        sound = 0
        for oid in self.oids:
            try:
                kind, data = store.read(oid)
                assert object_id(kind, data) == oid
                sound += 1
            except Damaged:
                pass
            for ask in (store.kind_and_size, store.has_sound):
                try:
                    ask(oid)
                except Damaged:
                    pass
        for each in store.packs():
            assert len(list(each.oids())) == each.count
            try:
                each.entries()
                list(each.checksum_problems())
                read = sum(data is not None and object_id(kind, data) == oid for oid, kind, data in each.contents())
                assert read <= sound or not each.is_index_sound  # then `read` may not find what is there
            except Damaged:
                pass
        return sound


@pytest.fixture(params=["plain", "offsets", "names"])
def mutants(request: pytest.FixtureRequest, tmp_path: Path, git: Git) -> Mutants:
    return Mutants(tmp_path, small_store(tmp_path, git, request.param))


class TestDamage:
    @pytest.mark.parametrize("few", [0, 1000])
    def test_an_object_with_a_changed_byte_is_not_sound(
        self, mutants: Mutants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        monkeypatch.setattr("holdfast.shadowgit.packs._FEW", few)
        (tmp_path / "pack-x.idx").write_bytes(mutants.index)
        (tmp_path / "pack-x.pack").write_bytes(mutants.pack)
        for start, end, oid, _ in Pack(tmp_path / "pack-x.idx").entries():
            changed = bytearray(mutants.pack)
            changed[(start + end) // 2] ^= 4
            (tmp_path / "pack-x.pack").write_bytes(changed)
            assert not Pack(tmp_path / "pack-x.idx").is_sound(oid)

    def test_a_pack_that_is_whole_is_sound(self, mutants: Mutants) -> None:
        assert mutants.try_one() == len(mutants.oids)

    def test_a_pack_cut_short_anywhere_is_damaged_and_no_worse(self, mutants: Mutants) -> None:
        without_checksums = len(mutants.pack) - 24  # of the last object and of the pack
        for cut in range(0, without_checksums, max(1, len(mutants.pack) // 25)):
            assert mutants.try_one(pack=mutants.pack[:cut]) < len(mutants.oids)

    def test_an_index_cut_short_anywhere_is_damaged_and_no_worse(self, mutants: Mutants) -> None:
        for cut in range(0, len(mutants.index), max(1, len(mutants.index) // 25)):
            assert mutants.try_one(index=mutants.index[:cut]) < len(mutants.oids)

    def test_flipped_bytes_in_a_pack_are_damage_and_no_worse(self, mutants: Mutants) -> None:
        chance = random.Random(1)
        for _ in range(40):
            data = bytearray(mutants.pack)
            for _ in range(chance.choice([1, 1, 2, 8])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            mutants.try_one(pack=bytes(data))

    def test_flipped_bytes_in_an_index_are_damage_and_no_worse(self, mutants: Mutants) -> None:
        chance = random.Random(2)
        for _ in range(40):
            data = bytearray(mutants.index)
            for _ in range(chance.choice([1, 1, 2, 8])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            mutants.try_one(index=bytes(data))

    def test_garbage_in_the_place_of_a_pack_is_damage_and_no_worse(self, mutants: Mutants) -> None:
        chance = random.Random(3)
        for size in (1, 12, 100, len(mutants.pack), 2 * len(mutants.pack)):
            assert mutants.try_one(pack=chance.randbytes(size)) == 0
            assert mutants.try_one(pack=b"\xff" * size) == 0
            assert mutants.try_one(pack=bytes(size)) == 0

    def test_garbage_in_the_place_of_an_index_is_damage_and_no_worse(self, mutants: Mutants) -> None:
        chance = random.Random(4)
        for size in (1, 8, 1032, 1072, len(mutants.index)):
            assert mutants.try_one(index=INDEX_MAGIC + chance.randbytes(size)) == 0
            assert mutants.try_one(index=INDEX_MAGIC + b"\xff" * size) == 0
            assert mutants.try_one(index=INDEX_MAGIC + bytes(size)) == 0

    def test_what_is_not_what_was_written_is_said(self, tmp_path: Path, git: Git) -> None:
        (pack, *_) = small_store(tmp_path, git, "plain").packs()
        for suffix in (".pack", ".idx"):
            path = pack.path.with_suffix(suffix)
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        said = " ".join(Pack(pack.path.with_suffix(".idx")).checksum_problems())
        assert "the index file" in said
        assert "the pack file" in said

    def test_an_index_that_belongs_to_another_pack_is_said(self, tmp_path: Path, git: Git) -> None:
        one, other = small_store(tmp_path, git, "plain").packs()
        shutil.copy(other.path, one.path)
        said = list(Pack(one.path.with_suffix(".idx")).checksum_problems())
        assert said == [f"the index of {one.name} belongs to another pack"]


def lone_object(tmp_path: Path, entry: bytes) -> tuple[ObjectStore, bytes]:
    """A store of one object, whose entry is given as it is to stand in the pack."""
    oid = bytes([0x80]) + bytes(19)
    store = ObjectStore(tmp_path / "lone")
    store.pack_folder.mkdir(parents=True)
    pack = b"PACK" + struct.pack(">II", 2, 1) + entry
    pack += sha1(pack).digest()
    fanout = struct.pack(">256I", *([0] * 128 + [1] * 128))
    index = INDEX_MAGIC + fanout + oid + struct.pack(">II", 0, 12) + pack[-20:]
    (store.pack_folder / "pack-x.pack").write_bytes(pack)
    (store.pack_folder / "pack-x.idx").write_bytes(index + sha1(index).digest())
    return store, oid


class TestHostileEntries:
    @pytest.mark.parametrize("size", [2**31, 2**40, 2**62, 2**63, 2**64, 2**80])
    def test_an_object_that_claims_to_be_huge_is_damaged(self, tmp_path: Path, size: int) -> None:
        store, oid = lone_object(tmp_path, entry_header(ObjectKind.BLOB, size) + isal_zlib.compress(b"small"))
        with pytest.raises(Damaged):
            store.read(oid)

    def test_an_object_that_is_larger_than_it_claims_is_damaged(self, tmp_path: Path) -> None:
        store, oid = lone_object(tmp_path, entry_header(ObjectKind.BLOB, 10) + isal_zlib.compress(bytes(100_000)))
        with pytest.raises(Damaged):
            store.read(oid)

    @pytest.mark.parametrize("kind", [0, 5])
    def test_an_object_of_no_kind_is_damaged(self, tmp_path: Path, kind: int) -> None:
        store, oid = lone_object(tmp_path, bytes([kind << 4 | 5]) + isal_zlib.compress(b"small"))
        with pytest.raises(Damaged):
            store.read(oid)
        with pytest.raises(Damaged):
            store.kind_and_size(oid)

    def test_a_delta_that_builds_on_itself_is_damaged(self, tmp_path: Path) -> None:
        delta = isal_zlib.compress(b"\x05\x05\x90\x05")
        by_name, oid = lone_object(tmp_path / "name", bytes([7 << 4 | 4, 0x80]) + bytes(19) + delta)
        by_offset, _ = lone_object(tmp_path / "offset", bytes([6 << 4 | 4, 0]) + delta)
        for store in (by_name, by_offset):
            with pytest.raises(Damaged):
                store.read(oid)

    def test_delta_with_a_base_before_the_pack_is_damaged(self, tmp_path: Path) -> None:
        store, oid = lone_object(tmp_path, bytes([6 << 4 | 4, 0x7F]) + isal_zlib.compress(b"\x05\x05\x90\x05"))
        with pytest.raises(Damaged):
            store.read(oid)

    def test_a_delta_whose_end_is_missing_is_damaged(self, tmp_path: Path) -> None:
        store, oid = lone_object(tmp_path, bytes([7 << 4 | 4]))
        path = store.pack_folder / "pack-x.pack"
        for cut in range(12, path.stat().st_size):
            path.write_bytes(path.read_bytes()[: 12 + 1 + 20][:cut])
            with pytest.raises(Damaged):
                ObjectStore(store.git_dir).read(oid)


class TestApplyDelta:
    BASE = b"0123456789"

    def test_copies_and_insertions_make_the_new_object(self) -> None:
        delta = bytes([10, 8]) + bytes([0x91, 2, 4]) + bytes([4]) + b"abcd"
        assert apply_delta(self.BASE, delta) == b"2345abcd"

    def test_a_copy_without_a_length_is_of_64_kib(self) -> None:
        base = bytes(range(256)) * 256
        assert apply_delta(base, b"\x80\x80\x04\x80\x80\x04" + b"\x80") == base

    @pytest.mark.parametrize("cut", range(10))
    def test_a_delta_cut_short_is_damaged(self, cut: int) -> None:
        delta = bytes([10, 8]) + bytes([0x91, 2, 4]) + bytes([4]) + b"abcd"
        with pytest.raises(Damaged):
            apply_delta(self.BASE, delta[:cut])

    def test_a_delta_of_another_base_is_damaged(self) -> None:
        with pytest.raises(Damaged):
            apply_delta(b"short", bytes([10, 4]) + bytes([0x91, 0, 4]))

    def test_a_copy_beyond_the_base_is_damaged(self) -> None:
        with pytest.raises(Damaged):
            apply_delta(self.BASE, bytes([10, 4]) + bytes([0x91, 8, 4]))


def test_removing_the_files_does_not_disturb_a_pack_that_is_open(tmp_path: Path, git: Git) -> None:
    store = small_store(tmp_path, git, "plain")
    expected = {oid: store.read(oid) for pack in store.packs() for oid in pack.oids()}
    shutil.rmtree(store.pack_folder)
    assert {oid: store.read(oid) for oid in expected} == expected


def test_a_pack_that_is_asked_again_and_again_finds_the_same(tmp_path: Path, git: Git) -> None:
    (pack,) = repacked_by_git(tmp_path / "store", git, 5, "offsets").packs()
    oids, absent = list(pack.oids()), bytes(20)
    first = [pack.find(oid) for oid in oids]
    for _ in range(300):
        assert pack.find(absent) is None
    assert [pack.find(oid) for oid in oids] == first
    assert None not in first


def test_a_delta_that_asks_for_gigabytes_is_damaged() -> None:
    """Each copy is a few bytes long, and no more is made than the delta says that there is."""
    base = bytes(1 << 16)
    copies = b"\x80" * 200_000  # 64 KiB each
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            apply_delta(base, b"\x80\x80\x04" + b"\x10" + copies)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
