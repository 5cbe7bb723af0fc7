"""The shadow repository: objects through all packs, and refs as git keeps them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.durable import Disk, use_disk
from holdfast.errors import Damaged, NotFound
from holdfast.shadowgit import (
    EMPTY_TREE,
    FILE_MODE,
    ObjectKind,
    ObjectStore,
    Pack,
    TreeEntry,
    decode_commit,
    encode_commit,
    encode_tree,
)
from holdfast.shadowgit.refs import Refs

Git = Callable[..., bytes]


class CutOff(Disk):
    """The real disk, until something is to be renamed."""

    def rename(self, src: str, dst: str, **_: object) -> None:
        raise InterruptedError


def add_commit(store: ObjectStore, message: str) -> bytes:
    writer = store.writer()
    page = writer.add(ObjectKind.BLOB, message.encode())
    tree = writer.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"page", page)]))
    commit = writer.add(ObjectKind.COMMIT, encode_commit(tree, seconds=0, message=message))
    writer.commit()
    store.refresh()
    return commit


@pytest.fixture
def refs(store: ObjectStore) -> dict[str, bytes]:
    """Three checkpoints."""
    names = {f"a{number}-{number * 8}": add_commit(store, f"message {number}") for number in (1, 2, 3)}
    for name, commit in names.items():
        store.set_ref(name, commit)
    return names


@pytest.fixture
def ask(store: ObjectStore, git: Git) -> Git:
    """Git, asked about the store."""
    return lambda *words, **options: git("--git-dir", store.git_dir, *words, **options)


class TestCreate:
    def test_store_is_a_sound_git_repository(self, ask: Git) -> None:
        assert ask("fsck", "--strict", must_work=False) == b""
        assert b"holdfast" in ask("show", "HEAD:README.md").lower()
        assert ask("rev-parse", "--is-bare-repository").strip() == b"true"

    def test_all_of_it_is_closed_to_others(self, store: ObjectStore) -> None:
        for folder, _, names in os.walk(store.git_dir):
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            assert {stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) for name in names} <= {0o600}

    def test_it_is_there_only_when_it_is_whole(self, tmp_path: Path) -> None:
        store = ObjectStore(tmp_path / "store")
        assert not store.exists
        store.create()
        assert store.exists
        (store.git_dir / "HEAD").unlink()
        assert not store.exists

    def test_making_it_again_keeps_what_is_there(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        (store.git_dir / "HEAD").unlink()
        store.create()
        assert {name: ObjectStore(store.git_dir).ref(name) for name in refs} == refs
        assert ask("fsck", "--strict", "--no-dangling", must_work=False) == b""


class TestObjects:
    def test_objects_are_found_in_any_pack(self, store: ObjectStore) -> None:
        commits = [add_commit(store, f"message {number}") for number in range(5)]
        assert len(store.packs()) == 6
        for number, commit in enumerate(commits):
            assert store.commit(commit).endswith(b"message %d\n" % number)

    def test_an_object_that_is_missing_is_damage(self, store: ObjectStore) -> None:
        for ask in (store.read, store.blob, store.tree, store.commit, store.kind_and_size):
            with pytest.raises(Damaged, match=f"{'ab' * 20} is missing"):
                ask(b"\xab" * 20)
        assert not store.has(b"\xab" * 20)

    def test_an_object_of_another_kind_is_damage(self, store: ObjectStore) -> None:
        commit = add_commit(store, "message")
        with pytest.raises(Damaged, match="is a commit, not a blob"):
            store.blob(commit)
        with pytest.raises(Damaged, match="is a commit, not a tree"):
            store.tree(commit)

    def test_an_object_that_another_process_wrote_is_found(self, store: ObjectStore) -> None:
        reader = ObjectStore(store.git_dir)
        reader.packs()
        commit = add_commit(store, "message")
        assert reader.commit(commit).endswith(b"message\n")

    def test_a_pack_that_cannot_be_opened_does_not_hide_the_others(self, store: ObjectStore) -> None:
        kept, lost = add_commit(store, "kept"), add_commit(store, "lost")
        (broken,) = (pack for pack in store.packs() if pack.find(lost) is not None)
        broken.path.with_suffix(".idx").write_bytes(b"garbage")
        reader = ObjectStore(store.git_dir)
        assert reader.commit(kept).endswith(b"kept\n")
        with pytest.raises(Damaged):
            reader.commit(lost)


class TestRefs:
    def test_git_sees_a_ref_as_a_tag(self, refs: dict[str, bytes], ask: Git) -> None:
        for name, commit in refs.items():
            assert ask("rev-parse", f"refs/tags/{name}").strip() == commit.hex().encode()
        assert b"message 2" in ask("log", "--all", "--format=%s")

    def test_a_ref_that_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        with pytest.raises(NotFound, match="a9-nowhere"):
            store.ref("a9-nowhere")

    @pytest.mark.parametrize("content", [b"", b"garbage\n", b"ab" * 19, b"ref: refs/heads/main\n", b"\xff" * 40])
    def test_a_ref_of_garbage_is_damage(self, store: ObjectStore, refs: dict[str, bytes], content: bytes) -> None:
        name = min(refs)
        (store.git_dir / "refs" / "tags" / name).write_bytes(content)
        with pytest.raises(Damaged, match=name):
            store.ref(name)
        assert store.refs().keys() == refs.keys()

    def test_torn_ref_does_not_exist_for_us_or_git(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        with use_disk(CutOff()), pytest.raises(InterruptedError):
            store.set_ref("a4-32", refs["a1-8"])
        assert store.ref_names() == store.refs().keys() == refs.keys()
        assert ask("tag", "--list").split() == [name.encode() for name in refs]
        assert ask("fsck", "--strict", "--no-dangling", must_work=False) == b""
        store.set_ref("a5-40", refs["a1-8"])
        assert store.ref_names() == {*refs, "a5-40"}

    def test_deleting_a_ref_takes_it_from_git_too(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        store.delete_ref("a2-16")
        assert store.ref_names() == {"a1-8", "a3-24"}
        assert ask("tag", "--list").split() == [b"a1-8", b"a3-24"]

    def test_deleting_a_ref_that_is_not_there_is_nothing(self, store: ObjectStore, refs: dict[str, bytes]) -> None:
        store.delete_ref("a9-nowhere")
        assert store.ref_names() == refs.keys()


class TestAfterGitPackedTheRefs:
    @pytest.fixture(autouse=True)
    def packed(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        ask("gc", "--quiet")
        assert not store.loose_refs(), "git left the refs where they were"
        store.refresh()

    def test_every_ref_and_object_is_still_found(self, store: ObjectStore, refs: dict[str, bytes]) -> None:
        assert {name: store.ref(name) for name in refs} == refs
        assert store.refs() == {name: commit.hex() for name, commit in refs.items()}
        for number, commit in enumerate(refs.values(), 1):
            assert store.commit(commit).endswith(b"message %d\n" % number)

    def test_one_is_deleted_and_the_others_stay(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        store.delete_ref("a2-16")
        assert store.ref_names() == {"a1-8", "a3-24"}
        assert ask("tag", "--list").split() == [b"a1-8", b"a3-24"]
        assert ask("rev-parse", "main") and ask("rev-parse", "a1-8").strip() == refs["a1-8"].hex().encode()
        assert ask("fsck", "--strict", "--no-dangling", must_work=False) == b""

    def test_one_that_is_loose_as_well_is_deleted(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        store.set_ref("a2-16", refs["a1-8"])
        store.delete_ref("a2-16")
        assert "a2-16" not in store.ref_names()
        assert b"a2-16" not in ask("tag", "--list")

    def test_a_loose_ref_outranks_a_packed_one(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        store.set_ref("a2-16", refs["a1-8"])
        assert store.ref("a2-16") == refs["a1-8"]
        assert store.refs()["a2-16"] == refs["a1-8"].hex()
        assert ask("rev-parse", "a2-16").strip() == refs["a1-8"].hex().encode()

    def test_new_refs_stand_beside_packed_ones(self, store: ObjectStore, refs: dict[str, bytes]) -> None:
        store.set_ref("a4-32", refs["a1-8"])
        assert store.ref_names() == {*refs, "a4-32"}

    def test_every_commit_named_by_a_ref_is_listed(self, store: ObjectStore, refs: dict[str, bytes], ask: Git) -> None:
        page = bytes.fromhex(ask("rev-parse", "main").decode())
        assert set(store.commits()) == {*refs.values(), page}


class TestRefsOfOthers:
    """What somebody did with git in the store is left as it is."""

    def test_branches_and_tags_stay_when_a_packed_ref_is_deleted(
        self, store: ObjectStore, refs: dict[str, bytes], ask: Git
    ) -> None:
        ask("branch", "theirs", "a1-8")
        ask("tag", "--annotate", "--message", "a note", "noted", "a3-24")
        ask("update-ref", "refs/remotes/origin/main", "a1-8")
        ask("gc", "--quiet")
        before = ask("show-ref", "--dereference").splitlines()
        store.delete_ref("a2-16")
        assert ask("show-ref", "--dereference").splitlines() == [line for line in before if b"a2-16" not in line]

    def test_what_a_branch_names_counts_among_the_commits(
        self, store: ObjectStore, refs: dict[str, bytes], ask: Git
    ) -> None:
        ask("branch", "theirs", "a1-8")
        store.delete_ref("a1-8")
        assert refs["a1-8"] in set(store.commits())

    def test_a_tag_with_a_slash_in_its_name_does_not_hide_the_others(
        self, store: ObjectStore, refs: dict[str, bytes], ask: Git
    ) -> None:
        ask("tag", "team/one", "a1-8")
        assert refs.items() <= {name: store.ref(name) for name in store.refs() if name in refs}.items()
        assert refs.keys() <= store.ref_names()

    def test_a_commit_is_never_the_empty_tree(self, store: ObjectStore, refs: dict[str, bytes]) -> None:
        assert EMPTY_TREE not in set(store.commits())


@pytest.mark.parametrize("name", [b"a\0b", b"a" * 300])
def test_a_packed_ref_that_no_file_can_have_is_left_out(tmp_path: Path, name: bytes) -> None:
    line = b"1" * 40
    (tmp_path / "packed-refs").write_bytes(b"%s refs/tags/%s\n%s refs/tags/a1\n" % (line, name, line))
    assert Refs(tmp_path).refs() == {"a1": line.decode()}


def test_pack_of_the_last_object_is_asked_first(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [add_commit(store, f"message {number}") for number in range(4)]
    asked: list[str] = []
    find = Pack.find
    monkeypatch.setattr(Pack, "find", lambda self, oid: (asked.append(self.name), find(self, oid))[1])
    for commit in (*commits, *commits):
        tree = decode_commit(store.commit(commit))
        asked.clear()
        (page,) = store.tree(tree)
        assert len(asked) == 1
        assert store.has_sound(page.oid) and len(asked) == 2
