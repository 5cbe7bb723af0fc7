"""Names that git forbids in a tree: stored under names that it takes, and told apart when they are read."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, LINK_MODE, ObjectKind, ObjectStore, TreeEntry, encode_tree
from holdfast.shadowgit.objects import encode_commit, real_name, store_name

Git = Callable[..., bytes]

FORBIDDEN = [
    ".git",
    ".GIT",
    ".Git",
    ".git.",
    ".git ",
    ".git . .",
    ".git:",
    ".git::$INDEX_ALLOCATION",
    "git~1",
    "GIT~1",
    "git~1 ",
    ".g\N{ZERO WIDTH NON-JOINER}it",
    "\N{RIGHT-TO-LEFT MARK}.GiT",
    ".git\N{ZERO WIDTH NO-BREAK SPACE}",
    ".gi\N{NOMINAL DIGIT SHAPES}t",
    ".git\udc80",  # to git a name ends where it is no longer UTF-8
    ".g\N{ZERO WIDTH JOINER}it\udcff and so on",
    ".git\uffff",
    "a\\.git",
    "a\\git~1",
    "a\\.GIT.\\b",
    "\\.git",
]
"""What `git fsck --strict` finds fault with in any mode."""

LOOKED_INTO = [
    ".gitmodules\udcff",
    ".gitmodules",
    ".GITMODULES",
    "gitmod~1",
    "gi7eba~1",
    ".gitmodules ",
    ".gitmodules:x",
]
"""What git reads as a list of submodules."""

SUBMODULES = b'[submodule "../x"]\n\tpath = x\n\turl = x\n'
"""A list of submodules that git finds fault with."""

FORBIDDEN_LINKS = [
    *LOOKED_INTO,
    ".gitattributes",
    "gitatt~1",
    "gi7d29~1",
    ".gitignore",
    ".GITIGNORE ",
    "gitign~1",
    "gi250a~1",
    ".mailmap",
    "mailma~1",
    "maba30~1",
    ".g\N{ZERO WIDTH JOINER}itignore",
    ".mail\N{LEFT-TO-RIGHT MARK}map",
    ".gitignore\udcff",
]
"""What it finds fault with in a link."""

AMBIGUOUS = ["%", "%%", "%2E", "%2e", "%2Egit", "%25", "%252E", "100%25", "a%5Cb", "%7E1"]
"""Names that could be read as the escape of others."""

PLAIN = ["README.md", ".github", "git", "gitk", ".gitkeep", "100%", "%41", "a~1", "back\\slash", "caf\xe9", "m", "G"]


class Names:
    """Puts names into trees as they are given, and asks git what it thinks of them."""

    def __init__(self, store: ObjectStore, git: Git) -> None:
        self._store = store
        self._git = git

    def faulty(self, names: list[bytes], mode: int, content: bytes = b"not a list\n") -> set[bytes]:
        """Those of the names that git finds fault with, each in a tree of its own."""
        objects: dict[bytes, bytes] = {}
        writer = self._store.writer()
        for number, name in enumerate(names):
            text = content + b"# %d\n" % number  # so that each name has content of its own
            oid = writer.add(ObjectKind.TREE, b"") if mode == FOLDER_MODE else writer.add(ObjectKind.BLOB, text)
            tree = writer.add(ObjectKind.TREE, encode_tree([TreeEntry(mode, name, oid)]))
            objects |= {oid: name} if mode != FOLDER_MODE else {}
            objects[tree] = name
            commit = writer.add(ObjectKind.COMMIT, encode_commit(tree, seconds=0, message="a name"))
            self._store.set_ref(f"a1-{number:08}", commit)
        writer.commit()
        said = self._git("--git-dir", self._store.git_dir, "fsck", "--strict", "--no-dangling", must_work=False)
        assert b"missing" not in said
        return {name for oid, name in objects.items() if oid.hex().encode() in said}


@pytest.fixture
def names(store: ObjectStore, git: Git) -> Names:
    return Names(store, git)


def encoded(names: list[str]) -> list[bytes]:
    return [os.fsencode(name) for name in names]


@pytest.mark.parametrize("mode", [FILE_MODE, FOLDER_MODE, LINK_MODE], ids=["files", "folders", "links"])
def test_git_finds_no_fault_with_any_stored_name(names: Names, mode: int) -> None:
    every = encoded([*FORBIDDEN, *FORBIDDEN_LINKS, *AMBIGUOUS, *PLAIN])
    stored = [store_name(name, is_link=mode == LINK_MODE) for name in every]
    assert names.faulty(stored, mode, SUBMODULES) == set()


@pytest.mark.parametrize("mode", [FILE_MODE, FOLDER_MODE, LINK_MODE], ids=["files", "folders", "links"])
def test_git_would_find_fault_with_the_names_themselves(names: Names, mode: int) -> None:
    assert names.faulty(encoded(FORBIDDEN), mode) == set(encoded(FORBIDDEN))


def test_git_would_find_fault_with_links_of_these_names(names: Names) -> None:
    assert names.faulty(encoded(FORBIDDEN_LINKS), LINK_MODE) == set(encoded(FORBIDDEN_LINKS))


def test_git_would_look_into_files_of_these_names(names: Names) -> None:
    assert names.faulty(encoded(LOOKED_INTO), FILE_MODE, SUBMODULES) == set(encoded(LOOKED_INTO))


@pytest.mark.parametrize("name", [*FORBIDDEN, *FORBIDDEN_LINKS, *AMBIGUOUS, *PLAIN])
@pytest.mark.parametrize("is_link", [True, False], ids=["link", "file"])
def test_a_name_comes_back(name: str, is_link: bool) -> None:
    assert real_name(store_name(os.fsencode(name), is_link=is_link)) == os.fsencode(name)


@pytest.mark.parametrize("name", [*PLAIN, ".gitignore", ".mailmap"])
def test_ordinary_name_is_stored_as_it_is(name: str) -> None:
    assert store_name(name.encode()) == name.encode()


def test_no_two_names_are_stored_under_one() -> None:
    names = {os.fsencode(name) for name in [*FORBIDDEN, *FORBIDDEN_LINKS, *AMBIGUOUS, *PLAIN]}
    names |= {store_name(name, is_link=True) for name in names}
    assert len({store_name(name) for name in names}) == len(names)


def test_no_name_collides_with_the_attributes_file() -> None:
    assert store_name(b"%") != b"%"


def test_binary_name_is_stored_as_it_is_unless_special() -> None:
    assert store_name(b"\xff\xfe") == b"\xff\xfe"
    assert store_name(b"\xff\\.git") == b"\xff%5C%2Egit"
    assert real_name(store_name(b"\xff\\.git")) == b"\xff\\.git"
