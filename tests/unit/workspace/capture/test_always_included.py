"""What is held whatever the ignore rules say: tracked by the user's git, held before, or about to be replaced."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.workspace.capture.always_included import HeldAnyway

NOTHING_HELD = {"held": lambda _: None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def track(repository: Path, *paths: str) -> None:
    """Make a repository whose index has these files."""
    for path in paths:
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).touch()
    for words in (["init", "--quiet"], ["add", "--force", *paths]):
        subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True)


class TestHeld:
    def test_what_the_last_checkpoint_has_is_held_on_as_what_it_was(self, root: Path) -> None:
        known = {"file": False, "folder": True}
        wanted = HeldAnyway(root, held=known.get)
        assert wanted.file("file", hard=False)
        assert wanted.folder("folder", hard=False)
        assert not wanted.file("folder", hard=False)
        assert not wanted.folder("file", hard=False)
        assert not wanted.file("new", hard=False)

    def test_what_the_user_excluded_is_not_held_on(self, root: Path) -> None:
        wanted = HeldAnyway(root, held={"file": False, "folder": True}.get)
        assert not wanted.file("file", hard=True)
        assert not wanted.folder("folder", hard=True)
        assert not wanted.may_override


class TestForce:
    def test_what_is_replaced_is_held_with_its_children_and_parents(self, root: Path) -> None:
        wanted = HeldAnyway(root, **NOTHING_HELD, force=frozenset({"a/b"}))
        assert wanted.may_override
        for hard in (True, False):
            assert wanted.folder("a", hard=hard)
            assert wanted.folder("a/b", hard=hard)
            assert wanted.file("a/b", hard=hard)
            assert wanted.file("a/b/c/d", hard=hard)
            assert not wanted.file("a", hard=hard)
            assert not wanted.file("a/x", hard=hard)
            assert not wanted.file("a/bc", hard=hard)


class TestTracked:
    def test_what_git_tracks_is_held(self, root: Path) -> None:
        track(root, "build/kept.txt", "file")
        wanted = HeldAnyway(root, **NOTHING_HELD)
        assert wanted.file("file", hard=False)
        assert wanted.file("build/kept.txt", hard=False)
        assert wanted.folder("build", hard=False)
        assert not wanted.file("build/made.txt", hard=False)
        assert not wanted.folder("dist", hard=False)
        assert not wanted.file("build/kept.txt", hard=True)

    def test_the_nearest_repository_decides(self, root: Path) -> None:
        track(root, "nested/outer", "file")
        track(root / "nested", "inner")
        wanted = HeldAnyway(root, **NOTHING_HELD)
        assert wanted.file("nested/inner", hard=False)
        assert not wanted.file("nested/outer", hard=False)

    def test_a_folder_without_a_repository_tracks_nothing(self, root: Path) -> None:
        assert not HeldAnyway(root, **NOTHING_HELD).file("file", hard=False)

    def test_answers_are_cached_until_the_index_changes(self, root: Path) -> None:
        track(root, "file")
        first = HeldAnyway(root, **NOTHING_HELD)
        assert first.file("file", hard=False)
        memo = first.memo()
        assert HeldAnyway(root, **NOTHING_HELD, memo=memo).file("file", hard=False)
        track(root, "later")
        assert HeldAnyway(root, **NOTHING_HELD, memo=memo).file("later", hard=False)
