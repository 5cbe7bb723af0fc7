"""The memory of a scan: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import os
import zlib
from array import array

import pytest

from holdfast.scan.cache import FAILED, FLAGS, IGNORED, INO, LEFT_OUT, UNKNOWN, WIDTH, Folder, dump, load


def make_folder(path: str, names: list[str]) -> Folder:
    folder = Folder(path, (1, 2, 0o040755, 2**62, -5))
    folder.trusted = True
    folder.extra = b"xattr.user.a=YQ=="
    folder.names = sorted(names)
    for place in range(len(names)):
        folder.rows.extend([0o100644, place, 2**40, -1, 2**62, 1, IGNORED])
        folder.contents += bytes([place + 1]) * 20
    folder.extras = dict.fromkeys(names[:1], b"sparse")
    folder.folders = ["inner", "\udcff"]
    folder.skipped = {"left": ("excluded", "a rule"), "\udcfe": ("socket", "")}
    folder.probes = ["inner"]
    folder.sources = (True, False, True)
    folder.rules = b"\1" * 16
    folder.context = "why"
    folder.tree, folder.attrs, folder.attrs_is_tree = b"\2" * 20, b"\3" * 20, True
    folder.count_ignored()
    return folder


def _sealed(data: bytes) -> bytes:
    """The bytes with the checksum that fits them."""
    at = data.index(b"\n") + 1
    return data[:at] + zlib.crc32(data[at + 4 :]).to_bytes(4, "big") + data[at + 4 :]


def told(folder: Folder) -> dict[str, object]:
    return {slot: getattr(folder, slot) for slot in Folder.__slots__ if slot not in ("record", "stored")}


FOLDERS = [make_folder("", ["b", "a", "caf\xe9", "\udcff", 'quo"te', "new\nline"]), make_folder("inner", [])]


class TestCache:
    def test_everything_comes_back(self) -> None:
        found = load(dump(FOLDERS, {"any": ["value", 1, None]}))
        assert found is not None
        memo, folders = found
        assert memo == {"any": ["value", 1, None]}
        assert list(folders) == ["", "inner"]
        assert [told(folder) for folder in folders.values()] == [told(folder) for folder in FOLDERS]

    def test_a_bit_flipped_anywhere_is_noticed(self) -> None:
        data = dump(FOLDERS, None)
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            assert load(bytes(flipped)) is None, place

    def test_the_checksum_is_that_of_zlib(self) -> None:
        data = dump([], {"a": "é" * 5000})
        start = data.index(b"\n") + 5
        assert int.from_bytes(data[start - 4 : start], "big") == zlib.crc32(data[start:])

    def test_a_cache_cut_short_anywhere_is_noticed(self) -> None:
        data = dump(FOLDERS, None)
        for cut in range(len(data)):
            assert load(data[:cut]) is None, cut

    @pytest.mark.parametrize("data", [b"", b"garbage", b"holdfast scan 1 little\n", bytes(1000)])
    def test_garbage_is_noticed(self, data: bytes) -> None:
        assert load(data) is None

    def test_record_cut_short_with_a_right_checksum(self) -> None:
        """Columns that are too short would give an entry the content of another (P2)."""
        data = dump([make_folder("", ["a", "b"])], {})
        begins = len(dump([], {}))
        assert load(_sealed(data[:begins])) == ({}, {})
        for cut in range(begins + 1, len(data)):
            assert load(_sealed(data[:cut])) is None, cut

    @pytest.mark.parametrize("memo", [b'{"packs,["c"],{}]a', b"[" * 100_000, b"\xff"])
    def test_value_that_is_no_json_with_a_right_checksum(self, memo: bytes) -> None:
        start = len(dump([], 0)) - 5
        assert load(_sealed(dump([], 0)[:start] + len(memo).to_bytes(4, "little") + memo)) is None

    @pytest.mark.parametrize("details", [b"{}", b"[1,2,3,4,5,6]", b'["",1,{},{},[],{}]', b"[" * 9000])
    def test_details_of_another_shape_with_a_right_checksum(self, details: bytes) -> None:
        folder = Folder("", (1, 2, 0o040755, 3, 4))
        folder.rules, folder.tree, folder.attrs = bytes(16), bytes(20), bytes(20)
        folder.probes = ["x" * len(details)]
        data, own = dump([folder], None), b'["","",{},{},["' + b"x" * len(details) + b'"],{}]'
        assert own in data
        assert load(_sealed(data.replace(own, details.ljust(len(own))))) is None

    def test_a_folder_that_did_not_change_is_written_as_it_was_read(self) -> None:
        data = dump(FOLDERS, None)
        found = load(data)
        assert found is not None
        for folder in found[1].values():
            folder.names = ["not", "looked", "at"]  # P8: the record is taken as it stands
        assert dump(found[1].values(), None) == data

    def test_a_folder_that_changed_is_written_anew(self) -> None:
        found = load(dump(FOLDERS, None))
        assert found is not None
        found[1][""].set_content(0, b"\7" * 20)
        again = load(dump(found[1].values(), None))
        assert again is not None
        assert again[1][""].content(0) == b"\7" * 20


class TestFolder:
    def test_a_copy_is_changed_without_the_original(self) -> None:
        original = make_folder("", ["a", "b"])
        before = repr(told(original))
        copy = original.copy()
        copy.names.append("c")
        copy.rows[0] = 0
        copy.set_content(0, UNKNOWN)
        copy.extras["b"] = b"sparse"
        copy.folders.append("more")
        copy.skipped["more"] = ("excluded", "")
        copy.probes.append("more")
        assert repr(told(original)) == before

    def test_copied_folder_has_no_tree_of_the_original(self) -> None:
        copy = make_folder("", ["a"]).copy()
        assert (copy.tree, copy.attrs, copy.record) == (b"", b"", b"")

    def test_an_entry_is_found_by_name(self) -> None:
        folder = make_folder("", ["b", "a", "\udcff"])
        assert [folder.place(name) for name in ("a", "b", "\udcff")] == [0, 1, 2]
        assert [folder.place(name) for name in ("", "aa", "c", "\U0010ffff")] == [None] * 4

    def test_an_entry_is_held_unless_it_is_left_out_or_failed(self) -> None:
        folder = make_folder("", ["a", "b", "c"])
        folder.rows[FLAGS] = LEFT_OUT
        folder.rows[WIDTH + FLAGS] = FAILED
        assert [folder.holds(place) for place in range(3)] == [False, False, True]

    def test_ignored_entries_are_added_up(self) -> None:
        folder = Folder("", (0, 0, 0, 0, 0))
        folder.rows = array(
            "q", [0, 0, 10, 0, 0, 1, IGNORED, 0, 0, 5, 0, 0, 1, 0, 0, 0, 7, 0, 0, 1, IGNORED | LEFT_OUT]
        )
        folder.count_ignored()
        assert (folder.ignored_bytes, folder.ignored_count) == (17, 2)


class TestNumbersBeyondAnArray:
    """A time after 2262 or an inode number of all 64 bits, of an entry or of the folder itself."""

    def make_folder(self) -> Folder:
        folder = make_folder("", ["a", "b"])
        status = os.stat_result((0o100644, 2**64 - 3, 1, 1, 0, 0, 5, 0, 0, 0, 0, 2**65, 2**63, 0, 2**65, 2**63))
        folder.set_status(1, status, IGNORED)
        folder.key = (1, 2**64 - 1, 0o040755, -(2**70), 2**63)
        return folder

    def test_come_back_from_the_cache_as_they_were(self) -> None:
        folder = self.make_folder()
        found = load(dump([folder], None))
        assert found is not None
        again = found[1][""]
        assert again.key == folder.key
        assert list(again.rows) == list(folder.rows)
        assert folder.rows[WIDTH + INO] == 2**64 - 3
        assert again.looked_at()[1] == again.rows

    def test_and_their_neighbours_can_still_be_changed(self) -> None:
        folder = self.make_folder()
        status = os.stat(__file__)
        folder.set_status(0, status, 0)
        assert list(folder.rows[:3]) == [status.st_mode, status.st_ino, status.st_size]
        assert folder.rows[WIDTH + INO] == 2**64 - 3
