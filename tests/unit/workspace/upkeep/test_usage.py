"""Where the bytes are: exact for what only one checkpoint needs, and nothing is counted twice that is there once."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import Refused, Workspace
from holdfast.model import Usage
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, ObjectKind, TreeEntry, encode_commit, encode_tree
from holdfast.workspace.upkeep.object_sizes import ObjectSizes


def packs_bytes(ws: Workspace) -> int:
    return sum(path.stat().st_size for path in (ws.store / "objects" / "pack").iterdir())


def own(found: Usage) -> dict[str, int]:
    return {each.checkpoint.id: each.own_bytes for each in found.checkpoints}


@pytest.fixture
def three(project: Any, ws: Workspace) -> list[str]:
    """Three saves that share a large file; each has one of its own, and the last two share another."""
    project.write("common/large", os.urandom(90_000))
    found = []
    for number in range(3):
        project.write("own", os.urandom(10_000 * (number + 1)))
        if number == 1:
            project.write("deep/er/two", os.urandom(50_000))
        found.append(ws.save(f"{number}").id)
    return found


class TestCheckpoints:
    def test_hole_in_a_large_file_is_counted_once(self, project: Any, ws: Workspace) -> None:
        with open(project.write("sparse"), "wb") as file:
            file.truncate(300 << 20)
        ws.save("first")
        ws.save("second", allow_empty=True)
        assert max(each.shared_bytes for each in ws.usage().checkpoints) < packs_bytes(ws)

    def test_own_bytes_are_what_comes_back_if_it_goes(self, project: Any, ws: Workspace, three: list[str]) -> None:
        ws.merge()
        for key in (three[2], three[0]):
            told, before = own(ws.usage())[key], packs_bytes(ws)
            ws.delete(key)
            ws.merge()
            assert before - packs_bytes(ws) == told

    def test_what_is_shared_is_what_it_needs_besides(self, ws: Workspace, three: list[str]) -> None:
        found = {each.checkpoint.id: each for each in ws.usage().checkpoints}
        assert list(found) == three[::-1], "newest first"
        assert [found[key].own_bytes // 10_000 for key in three] == [1, 2, 3]
        assert [found[key].shared_bytes // 10_000 for key in three] == [9, 14, 14]

    def test_the_same_content_in_two_checkpoints_is_nobodys_own(self, project: Any, ws: Workspace) -> None:
        project.write("a/file", content := os.urandom(40_000))
        ws.save("first")
        (project.root / "a/file").unlink()
        project.write("b/c/file", content)
        ws.save("second")
        assert all(bytes_ < 5_000 for bytes_ in own(ws.usage()).values())

    def test_thousands_of_folders_deep_is_no_obstacle(self, ws: Workspace) -> None:
        objects = ws._repository.objects
        writer = objects.writer()
        entry = TreeEntry(FILE_MODE, b"file", writer.add(ObjectKind.BLOB, b"deep"))
        for _ in range(3000):
            entry = TreeEntry(FOLDER_MODE, b"d", writer.add(ObjectKind.TREE, encode_tree([entry])))
        commit = writer.add(ObjectKind.COMMIT, encode_commit(entry.oid, seconds=0, message="deep"))
        writer.commit()
        objects.refresh()
        sizes = ObjectSizes(objects)
        whole = sizes.whole_bytes(commit)
        assert whole == sizes.needed_bytes([commit]) == sizes.own_bytes({"it": commit})["it"] > 3000 * 50
        assert sizes.left_bytes([commit], []) == [whole, 0]

    def test_one_that_cannot_be_read_is_left_out(self, project: Any, ws: Workspace, three: list[str]) -> None:
        (project.store / "refs" / "tags" / three[0]).write_text("0" * 40 + "\n")
        found = project.open().usage()
        assert own(found).keys() <= set(three[1:]) | {three[0]}
        assert set(three[1:]) <= own(found).keys()


class TestPaths:
    def test_the_largest_come_first_with_all_their_contents(self, ws: Workspace, three: list[str]) -> None:
        found = ws.usage().paths
        assert [(each.path, each.bytes // 10_000, each.contents) for each in found] == [
            ("common/large", 9, 1),
            ("own", 6, 3),
            ("deep/er/two", 5, 1),
        ]

    def test_as_many_as_asked_for_are_told_and_how_many_more(self, ws: Workspace, three: list[str]) -> None:
        found = ws.usage(paths=1)
        assert ([each.path for each in found.paths], found.more_paths) == (["common/large"], 2)
        assert len(ws.usage(paths=None).paths) == 3
        with pytest.raises(Refused):
            ws.usage(paths=-1)

    def test_chunks_of_a_slightly_changed_file_count_once(self, project: Any, ws: Workspace) -> None:
        content = bytearray(os.urandom(9 << 20))
        for number in range(3):
            content[5_000_000] = number
            project.write("large", bytes(content))
            ws.save(f"{number}")
        (found,) = ws.usage().paths
        assert found.contents == 3
        assert 9 << 20 < found.bytes < 13 << 20

    def test_a_content_that_comes_back_counts_once(self, project: Any, ws: Workspace) -> None:
        for content in (b"a" * 3000, b"b" * 3000, b"a" * 3000):
            project.write("file", content)
            ws.save(content[:1].decode(), allow_empty=True)
        assert [each.contents for each in ws.usage().paths] == [2]


class TestFiles:
    def test_the_whole_is_the_sum_of_its_parts(self, ws: Workspace, three: list[str]) -> None:
        found = ws.usage()
        assert found.total_bytes == found.packs_bytes + found.catalog_bytes + found.other_bytes
        assert found.packs_bytes >= packs_bytes(ws)
        assert found.catalog_bytes > 0
        assert found.unneeded_bytes == 0

    def test_what_nothing_needs_is_told(self, ws: Workspace, three: list[str]) -> None:
        ws.delete(three[1])
        assert 20_000 < ws.usage().unneeded_bytes < 30_000

    def test_an_empty_store_has_no_checkpoints_and_no_paths(self, ws: Workspace) -> None:
        found = ws.usage()
        assert (found.checkpoints, found.paths, found.unneeded_bytes) == ([], [], 0)
