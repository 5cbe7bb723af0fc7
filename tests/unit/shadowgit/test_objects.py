"""Objects as git spells them; git itself is what they are compared with."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.shadowgit import (
    EMPTY_TREE,
    EXECUTABLE_MODE,
    FILE_MODE,
    FOLDER_MODE,
    LINK_MODE,
    ObjectKind,
    TreeEntry,
    decode_commit,
    encode_commit,
    encode_entry,
    encode_tree,
    object_id,
)
from holdfast.shadowgit.objects import decode_lineage, decode_tree, entry_header, find_entry, raw_entries

Git = Callable[..., bytes]

ENTRIES = [
    TreeEntry(FOLDER_MODE, b"a", EMPTY_TREE),
    TreeEntry(FILE_MODE, b"a-b", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(FILE_MODE, b"a.b", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(EXECUTABLE_MODE, b"a0", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(LINK_MODE, b"A", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(FILE_MODE, b"\xff", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(FILE_MODE, b"new\nline", object_id(ObjectKind.BLOB, b"")),
    TreeEntry(FOLDER_MODE, b"a!", EMPTY_TREE),
    TreeEntry(FILE_MODE, b" ", object_id(ObjectKind.BLOB, b"")),
]


@pytest.fixture
def repository(tmp_path: Path, git: Git) -> Path:
    git("init", "--quiet", "--bare", tmp_path / "repository")
    git("-C", tmp_path / "repository", "hash-object", "-w", "-t", "tree", "--stdin")
    git("-C", tmp_path / "repository", "hash-object", "-w", "-t", "blob", "--stdin")
    return tmp_path / "repository"


@pytest.mark.parametrize("content", [b"", b"content\n", bytes(range(256)) * 100])
@pytest.mark.parametrize("left_bytes", [-1, 1 << 20], ids=["OpenSSL", "built in"])
def test_an_object_has_the_name_that_git_gives_it(
    repository: Path, git: Git, content: bytes, left_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.shadowgit.objects._left_bytes", [left_bytes])
    named = git("-C", repository, "hash-object", "--stdin", given=content)
    assert object_id(ObjectKind.BLOB, content).hex().encode() == named.strip()


def test_the_empty_tree_has_the_name_that_git_gives_it(repository: Path, git: Git) -> None:
    assert git("-C", repository, "mktree").strip() == EMPTY_TREE.hex().encode()


def test_a_tree_is_sorted_as_git_sorts_it(repository: Path, git: Git) -> None:
    lines = [b"%06o %s %s\t%s" % (mode, _kind(mode), oid.hex().encode(), name) for mode, name, oid in ENTRIES]
    named = git("-C", repository, "mktree", "-z", given=b"\0".join(lines) + b"\0").strip()
    assert object_id(ObjectKind.TREE, encode_tree(reversed(ENTRIES))).hex().encode() == named


def _kind(mode: int) -> bytes:
    return b"tree" if mode == FOLDER_MODE else b"blob"


def test_a_tree_comes_back() -> None:
    assert set(decode_tree(encode_tree(ENTRIES))) == set(ENTRIES)


def test_a_tree_cut_short_anywhere_is_damaged() -> None:
    whole = encode_tree(ENTRIES)
    sound = {len(encode_tree(list(decode_tree(whole))[:count])) for count in range(len(ENTRIES) + 1)}
    for cut in range(len(whole)):
        if cut not in sound:
            with pytest.raises(Damaged):
                list(decode_tree(whole[:cut]))


@pytest.mark.parametrize(
    "tree", [b"no mode\0" + bytes(20), b"\0" * 40, b"100644 \0" + bytes(20), b"99 a\0" + bytes(20)]
)
def test_a_tree_of_garbage_is_damaged(tree: bytes) -> None:
    with pytest.raises(Damaged):
        list(decode_tree(tree))


@pytest.mark.parametrize(
    "message",
    ["plain", "", " ", "two\nlines", "\n\n", "nul\0inside", "half \ud800 a character", "\N{SNOWMAN}", "tree 0\n\nx"],
)
def test_git_takes_a_commit_whatever_its_message_says(repository: Path, git: Git, message: str) -> None:
    commit = encode_commit(EMPTY_TREE, seconds=1_700_000_000, message=message)
    named = git("-C", repository, "hash-object", "-w", "-t", "commit", "--stdin", given=commit).strip()
    assert named == object_id(ObjectKind.COMMIT, commit).hex().encode()
    git("-C", repository, "update-ref", "HEAD", named.decode())
    assert git("-C", repository, "fsck", "--strict", "--no-dangling", must_work=False) == b""


@pytest.mark.parametrize("seconds", [-1, 0, 2**33])
def test_git_takes_a_commit_of_any_time(repository: Path, git: Git, seconds: int) -> None:
    commit = encode_commit(EMPTY_TREE, seconds=seconds, message="x")
    named = git("-C", repository, "hash-object", "-w", "-t", "commit", "--stdin", given=commit).strip().decode()
    assert git("-C", repository, "show", "--no-patch", "--format=%at", named).strip() == b"%d" % max(0, seconds)


def test_a_commit_says_which_tree_it_holds() -> None:
    assert decode_commit(encode_commit(EMPTY_TREE, seconds=0, message="x")) == EMPTY_TREE


@pytest.mark.parametrize("commit", [b"", b"tree", b"tree " + b"0" * 39, b"commit " + b"0" * 40, b"tree " + b"z" * 40])
def test_a_commit_of_garbage_is_damaged(commit: bytes) -> None:
    with pytest.raises(Damaged):
        decode_commit(commit)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 2047, 2048, 262143, 262144, 2**32, 2**40])
def test_the_size_before_an_object_is_spelled_as_in_git(size: int) -> None:
    header = entry_header(ObjectKind.BLOB, size)
    assert header[0] >> 4 & 7 == ObjectKind.BLOB
    assert [bool(byte & 0x80) for byte in header] == [True] * (len(header) - 1) + [False]
    rest = sum((byte & 0x7F) << (4 + 7 * place) for place, byte in enumerate(header[1:]))
    assert (header[0] & 15) + rest == size


def test_entry_has_object_id_and_checksum() -> None:
    oid = object_id(ObjectKind.BLOB, b"x" * 1000)
    entry = encode_entry(ObjectKind.BLOB, oid, b"x" * 1000)
    assert entry.oid == oid
    assert len(entry.data) < 100
    assert entry.crc == zlib.crc32(entry.data)


def test_one_entry_is_found_without_decoding_all():
    names = [b"a", b"b c", b"c", b"x\nc", b" c", b"40000 c"]
    entries = [TreeEntry(FILE_MODE, name, bytes([at]) * 20) for at, name in enumerate(names)]
    tree = encode_tree(entries)
    for entry in entries:
        assert find_entry(tree, [entry.name]) == entry
    assert find_entry(tree, [b"d", b"c"]) == entries[2]
    assert find_entry(tree, [b"d"]) is None
    assert find_entry(b"", [b"c"]) is None


def test_ids_that_look_like_entries_are_not_found():
    tree = encode_tree([TreeEntry(FILE_MODE, b"a", b" c\0" + b"1" * 17), TreeEntry(FILE_MODE, b"b", b"\n" * 20)])
    assert find_entry(tree, [b"c"]) is None
    assert [next(decode_tree(entry)).name for entry in raw_entries(tree)] == [b"a", b"b"]


def test_a_malformed_tree_is_damage_also_when_one_entry_is_sought():
    tree = encode_tree([TreeEntry(FILE_MODE, b"a", b"1" * 20), TreeEntry(FILE_MODE, b"b", b"2" * 20)])
    for bad in (tree[:-1], b"x" + tree, tree + b"100644 ", b"999 c\0" + b"3" * 20 + tree):
        with pytest.raises(Damaged):
            find_entry(bad, [b"a"])


def test_a_parent_that_is_no_name_is_left_out() -> None:
    name = b"1" * 40
    commit = b"tree %s\nparent %s\nparent %s\nparent %s\n\nparent %s\n" % (name, name, b"z" * 40, b"\xcf" * 40, name)
    assert decode_lineage(commit) == [bytes.fromhex(name.decode())]
