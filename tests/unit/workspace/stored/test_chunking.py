"""Long contents in parts: what a change costs, and that the same content is always cut in the same places."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, ObjectKind, TreeEntry, object_id
from holdfast.shadowgit.objects import decode_tree
from holdfast.workspace.stored.chunking import (
    JSON_TOKENS,
    LARGE_FILES,
    LINES,
    Cutting,
    cut,
    group_parts,
    list_parts,
    read_parts,
    write_parts,
)

SMALL = Cutting(re.compile(rb"\n"), 64, 512, 3)
"""As the others, in small, so that many parts need little content."""


class Memory:
    """Objects in a dictionary, which knows how much was put into it."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.new_bytes = 0

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        oid = object_id(kind, data)
        if oid not in self.objects:
            self.new_bytes += len(data)
            self.objects[oid] = data
        return oid

    def tree(self, oid: bytes) -> list[TreeEntry]:
        return list(decode_tree(self.objects[oid]))

    def blob(self, oid: bytes) -> bytes:
        return self.objects[oid]

    def costs(self, content: bytes, cutting: Cutting) -> int:
        """How many bytes were not there yet."""
        before = self.new_bytes
        write_parts(self, content, cutting)
        return self.new_bytes - before


def lines(count: int, seed: int = 0) -> bytes:
    chance = random.Random(seed)
    return b"".join(b"%d %s\n" % (number, chance.randbytes(20).hex().encode()) for number in range(count))


def in_pieces(content: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size = next(sizes)
        yield content[at : at + size]
        at += size


class TestContent:
    @pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 511, 512, 513, 5_000, 200_000])
    def test_it_comes_back(self, size: int) -> None:
        memory = Memory()
        content = lines(4000)[:size]
        assert read_parts(memory, *write_parts(memory, content, SMALL)) == content

    def test_a_short_one_is_a_blob(self) -> None:
        memory = Memory()
        assert write_parts(memory, b"short", SMALL) == (FILE_MODE, object_id(ObjectKind.BLOB, b"short"))

    def test_a_long_one_is_a_tree_of_parts_that_git_can_read(self) -> None:
        memory = Memory()
        mode, oid = write_parts(memory, lines(2000), SMALL)
        assert mode == FOLDER_MODE
        assert [entry.name for entry in memory.tree(oid)][:2] == [b"00", b"01"]

    @pytest.mark.parametrize("count", [1, 2, 64, 65, 64 * 64, 64 * 64 + 1])
    def test_any_number_of_parts_are_listed_in_order(self, count: int) -> None:
        memory = Memory()
        parts = [memory.add(ObjectKind.BLOB, b"%d" % number) for number in range(count)]
        assert list(list_parts(memory, *group_parts(memory, parts))) == parts
        assert all(len(memory.tree(oid)) <= 64 for oid, data in memory.objects.items() if data.startswith(b"40000 "))

    @pytest.mark.parametrize("cutting", [SMALL, LINES, JSON_TOKENS], ids=["small", "lines", "json"])
    def test_chunks_stay_within_their_size_limits(self, cutting: Cutting) -> None:
        parts = list(cut([lines(20_000)], cutting))
        assert max(map(len, parts)) <= cutting.most_bytes
        assert min(map(len, parts[:-1])) >= cutting.least_bytes

    def test_nothing_to_cut_at_is_cut_at_the_most(self) -> None:
        assert [len(part) for part in cut([b"x" * 2000], SMALL)] == [512, 512, 512, 464]

    @pytest.mark.parametrize("size", [1, 1 << 20, (1 << 20) + 1, 3 << 20])
    def test_a_hole_is_the_same_part_again_and_again(self, size: int) -> None:
        parts = list(cut([bytes(size)], LARGE_FILES))
        assert b"".join(parts) == bytes(size)
        assert len(set(parts[:-1])) <= 1


class TestPieces:
    @pytest.mark.parametrize("cutting", [SMALL, LINES, JSON_TOKENS], ids=["small", "lines", "json"])
    @pytest.mark.parametrize("seed", range(4))
    def test_chunks_do_not_depend_on_how_the_content_arrives(self, cutting: Cutting, seed: int) -> None:
        content = lines(5_000, seed) + bytes(3000) + b"\n" * 3000 + lines(500, seed)
        chance = random.Random(seed)
        sizes = iter(lambda: chance.choice([1, 7, 100, 4096, 40_000]), None)
        assert list(cut(in_pieces(content, sizes), cutting)) == list(cut([content], cutting))

    def test_a_large_file_is_cut_the_same_however_it_is_read(self) -> None:
        content = random.Random(1).randbytes(5 << 20) + bytes(3 << 20) + b"text and text\n" * 100_000
        whole = list(cut([content], LARGE_FILES))
        for size in (1 << 20, 999_983):
            assert list(cut(in_pieces(content, iter(lambda size=size: size, None)), LARGE_FILES)) == whole

    def test_empty_pieces_change_nothing(self) -> None:
        content = lines(100)
        assert list(cut([b"", content[:999], b"", b"", content[999:], b""], SMALL)) == list(cut([content], SMALL))


class TestCost:
    """P8: what is stored grows with what changed."""

    def test_appending_costs_a_bounded_number_of_bytes(self) -> None:
        memory, content = Memory(), lines(100)
        memory.costs(content, SMALL)
        costs = []
        for number in range(500):
            content += b"line %d\n" % number
            costs.append(memory.costs(content, SMALL))
        trees = 3 * 64 * 30
        assert max(costs) <= SMALL.most_bytes + SMALL.least_bytes + trees

    @pytest.mark.parametrize("cutting", [LINES, JSON_TOKENS], ids=["lines", "json"])
    def test_appending_to_a_long_content_costs_a_few_parts(self, cutting: Cutting) -> None:
        memory, content = Memory(), lines(40_000).replace(b" ", b",")
        memory.costs(content, cutting)
        assert memory.costs(content + b"one more,\n", cutting) < 3 * cutting.most_bytes

    @pytest.mark.parametrize("at", [0, 1000, 500_000, 999_999])
    @pytest.mark.parametrize("change", ["insert", "delete", "replace"])
    def test_a_change_anywhere_costs_the_parts_around_it(self, at: int, change: str) -> None:
        memory, content = Memory(), lines(20_000)
        memory.costs(content, LINES)
        new = b"" if change == "delete" else b"something new\n"
        gone = 0 if change == "insert" else 100
        assert memory.costs(content[:at] + new + content[at + gone :], LINES) < 4 * LINES.most_bytes

    def test_a_change_in_a_large_file_costs_the_parts_around_it(self) -> None:
        memory, content = Memory(), random.Random(2).randbytes(16 << 20)
        whole = memory.costs(content, LARGE_FILES)
        assert whole >= len(content)
        assert memory.costs(content[: 5 << 20] + b"inserted" + content[5 << 20 :], LARGE_FILES) < 3 << 20
        assert memory.costs(content + b"appended", LARGE_FILES) < 2 << 20
