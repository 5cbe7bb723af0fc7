"""What is written comes back, for values that nobody thought of; and git agrees where git has a say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.scan.attrs import Attr, decode, encode_line
from holdfast.scan.cache import Folder, dump, load
from holdfast.shadowgit import (
    EXECUTABLE_MODE,
    FILE_MODE,
    FOLDER_MODE,
    LINK_MODE,
    ObjectKind,
    ObjectStore,
    Pack,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
    real_name,
    store_name,
)
from holdfast.shadowgit.objects import decode_tree
from holdfast.workspace.stored.chunking import Cutting, cut, read_parts, write_parts
from holdfast.workspace.stored.ids import new_id, sequence_of
from holdfast.workspace.stored.state import read_state, write_state
from holdfast.workspace.stored.state_json import Spelling

FEW = settings(max_examples=examples(20))

_TRICKY = [
    ".git",
    "git~1",
    ".gitmodules",
    "%2E",
    "%25",
    "%",
    "\u200c",
    "\ufeff",
    "\\",
    " ",
    ".",
    ":",
    "~",
    "i",
    "I",
    "t",
]
TRICKY_NAMES = st.lists(st.sampled_from([piece.encode() for piece in _TRICKY]) | st.binary(max_size=2), max_size=6).map(
    b"".join
)
ANY_NAMES = st.binary(min_size=1, max_size=40)
NAMES = (TRICKY_NAMES | ANY_NAMES).filter(
    lambda name: name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name
)
"""Whatever a file can be called."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Memory:
    """Objects in a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        oid = object_id(kind, data)
        self.objects[oid] = data
        return oid

    def tree(self, oid: bytes) -> list[TreeEntry]:
        return list(decode_tree(self.objects[oid]))

    def blob(self, oid: bytes) -> bytes:
        return self.objects[oid]


class TestNames:
    @given(NAMES, st.booleans())
    @example(b"%2e", False)
    @example(b".git\xe2\x80\x8c", True)
    def test_a_name_comes_back(self, name: bytes, is_link: bool) -> None:
        assert real_name(store_name(name, is_link=is_link)) == name

    @given(st.sets(NAMES, max_size=20))
    def test_two_names_never_become_one(self, names: set[bytes]) -> None:
        assert len({store_name(name) for name in names}) == len(names)
        mixed = {store_name(name, is_link=bool(number % 2)) for number, name in enumerate(sorted(names))}
        assert len(mixed) == len(names)

    @FEW
    @given(st.sets(NAMES, min_size=1, max_size=60), st.sampled_from([FILE_MODE, FOLDER_MODE, LINK_MODE]))
    def test_git_finds_no_fault_with_any_of_them(
        self, tmp_path_factory: pytest.TempPathFactory, names: set[bytes], mode: int
    ) -> None:
        store = _store(tmp_path_factory)
        writer = store.writer()
        content = (
            writer.add(ObjectKind.TREE, b"")
            if mode == FOLDER_MODE
            else writer.add(ObjectKind.BLOB, b'[submodule "../x"]\n')
        )
        stored = [store_name(name, is_link=mode == LINK_MODE) for name in names]
        tree = writer.add(ObjectKind.TREE, encode_tree(TreeEntry(mode, name, content) for name in stored))
        store.set_ref("a1-names", writer.add(ObjectKind.COMMIT, encode_commit(tree, seconds=0, message="names")))
        writer.commit()
        assert _fsck(store) == b""


class TestAttributes:
    @given(
        st.dictionaries(
            NAMES.map(os.fsdecode),
            st.tuples(
                st.integers(0, 0o177777), st.integers(-(2**63), 2**63 - 1), st.sampled_from([b"", b"sparse", b"a=b"])
            ),
            max_size=8,
        )
    )
    def test_the_attributes_of_a_folder_come_back(self, entries: dict[str, tuple[int, int, bytes]]) -> None:
        text = b"".join(encode_line(*attributes, name) for name, attributes in entries.items())
        assert decode(text) == {
            name: Attr(mode, mtime_ns, extras or b"-") for name, (mode, mtime_ns, extras) in entries.items()
        }

    @given(st.lists(NAMES.map(os.fsdecode), unique=True, max_size=6), JSON, st.booleans())
    def test_the_memory_of_a_scan_comes_back(self, names: list[str], memo: object, trusted: bool) -> None:
        folder = Folder("folder", (1, 2, 3, 4, 5))
        folder.trusted, folder.names = trusted, sorted(names)
        folder.rows.extend([7] * 7 * len(names))
        folder.contents = bytearray(b"\5" * 20 * len(names))
        folder.skipped = {name: ("excluded", name) for name in names}
        found = load(dump([folder], memo))
        assert found is not None
        assert found[0] == memo
        again = found[1]["folder"]
        assert (again.trusted, again.names, again.skipped) == (folder.trusted, folder.names, folder.skipped)
        assert (again.rows, again.contents) == (folder.rows, folder.contents)


class TestTrees:
    @given(
        st.dictionaries(
            NAMES,
            st.tuples(
                st.sampled_from([FILE_MODE, EXECUTABLE_MODE, FOLDER_MODE, LINK_MODE]),
                st.binary(min_size=20, max_size=20),
            ),
            max_size=10,
        )
    )
    def test_a_tree_comes_back(self, entries: dict[bytes, tuple[int, bytes]]) -> None:
        tree = [TreeEntry(mode, name, oid) for name, (mode, oid) in entries.items()]
        assert set(decode_tree(encode_tree(tree))) == set(tree)
        assert encode_tree(reversed(tree)) == encode_tree(tree)


class TestParts:
    CUTTINGS = (
        Cutting(re.compile(rb"\n"), 32, 64, 0),
        Cutting(re.compile(rb"[,\]}]"), 32, 100, 1),
        Cutting(re.compile(rb"[^\x00]\x00|[^\n]\n"), 40, 333, 3),
    )
    CONTENTS = st.lists(
        st.binary(max_size=50) | st.sampled_from([b"\n", bytes(400), b"ab,cd]\n" * 40, b"x" * 100]), max_size=12
    )

    @given(CONTENTS, st.sampled_from(CUTTINGS))
    def test_a_content_comes_back(self, pieces: list[bytes], cutting: Cutting) -> None:
        memory, content = Memory(), b"".join(pieces)
        assert read_parts(memory, *write_parts(memory, content, cutting)) == content

    @given(CONTENTS, st.sampled_from(CUTTINGS))
    def test_pieces_are_cut_as_the_whole_is(self, pieces: list[bytes], cutting: Cutting) -> None:
        parts = list(cut(pieces, cutting))
        assert parts == list(cut([b"".join(pieces)], cutting))
        assert all(cutting.least_bytes <= len(part) <= cutting.most_bytes for part in parts[:-1])


class TestState:
    @given(JSON)
    def test_a_value_comes_back(self, value: object) -> None:
        memory = Memory()
        assert read_state(memory, write_state(memory, {"value": value})) == {"value": value}
        spelled = Spelling().spell(value, "value")
        assert spelled == (json.dumps(value, separators=(",", ":")).encode(), False), "JSON stands as it is"


class TestIds:
    @given(st.lists(st.integers(1, 10**15), min_size=2, max_size=10, unique=True))
    def test_ids_sort_as_their_numbers_do_and_tell_them(self, numbers: list[int]) -> None:
        ids = {number: new_id(number) for number in numbers}
        assert sorted(ids.values()) == [ids[number] for number in sorted(numbers)]
        assert [sequence_of(ids[number]) for number in numbers] == numbers


class TestPacks:
    OBJECTS = st.lists(
        st.tuples(st.just(ObjectKind.BLOB), st.binary(max_size=300) | st.integers(0, 70_000).map(bytes)),
        min_size=1,
        max_size=20,
    )

    @FEW
    @given(OBJECTS)
    def test_objects_come_back_and_git_reads_the_same(
        self, tmp_path_factory: pytest.TempPathFactory, objects: list[tuple[ObjectKind, bytes]]
    ) -> None:
        store = _store(tmp_path_factory)
        writer = store.writer()
        expected = {writer.add(kind, data): (kind, data) for kind, data in objects}
        name = writer.commit()
        store.refresh()
        assert {oid: store.read(oid) for oid in expected} == expected
        assert list(Pack(store.pack_folder / f"{name}.idx").oids()) == sorted(expected)
        assert {oid: store.kind_and_size(oid)[1] for oid in expected} == {
            oid: len(expected[oid][1]) for oid in expected
        }
        subprocess.run(["git", "verify-pack", store.pack_folder / f"{name}.idx"], check=True, capture_output=True)


def _store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    store = ObjectStore(Path(tmp_path_factory.mktemp("formats")) / "store")
    store.create()
    return store


def _fsck(store: ObjectStore) -> bytes:
    words = ["git", "--git-dir", store.git_dir, "fsck", "--strict", "--no-dangling"]
    ran = subprocess.run(words, capture_output=True, check=False)
    return ran.stdout + ran.stderr
