"""What `status` finds changed is what a comparison of the stored trees finds, though it reads none of them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.model import PathChange
from holdfast.workspace.stored import diff

from .conftest import Project

FILES = ["a.txt", "b.bin", "one/c.txt", "one/two/d.txt", "one/two/e.txt", "three/f.txt", "three/.hidden"]
Edit = Callable[[Path, random.Random], None]


def _add(root: Path, dice: random.Random) -> None:
    folder = dice.choice(["", "one/", "new/", "one/two/deep/"])
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / f"added-{dice.randrange(5)}").write_text("added\n")


def _change(root: Path, dice: random.Random) -> None:
    if (root / (path := dice.choice(FILES))).is_file():
        (root / path).write_text(f"changed {dice.random()}\n")


def _remove(root: Path, dice: random.Random) -> None:
    if (root / (path := dice.choice(FILES))).is_file():
        (root / path).unlink()


def _remove_folder(root: Path, dice: random.Random) -> None:
    shutil.rmtree(root / dice.choice(["one/two", "three"]), ignore_errors=True)


def _touch(root: Path, dice: random.Random) -> None:
    if (root / (path := dice.choice(FILES))).is_file():
        os.utime(root / path, ns=(0, dice.randrange(1 << 60)))


def _set_mode(root: Path, dice: random.Random) -> None:
    if (root / (path := dice.choice([*FILES, "one"]))).exists():
        (root / path).chmod(dice.choice([0o600, 0o700]) if path != "one" else 0o711)


def _move(root: Path, dice: random.Random) -> None:
    if (root / (path := dice.choice(FILES))).is_file():
        (root / path).rename(root / f"moved-{dice.randrange(3)}")


def _make_folder_of_file(root: Path, dice: random.Random) -> None:
    if (root / "a.txt").is_file():
        (root / "a.txt").unlink()
        (root / "a.txt").mkdir()
        (root / "a.txt" / "below").write_text("below\n")


def _make_file_of_folder(root: Path, dice: random.Random) -> None:
    shutil.rmtree(root / "three", ignore_errors=True)
    if not (root / "three").exists():
        (root / "three").write_text("a file now\n")


def _make_link(root: Path, dice: random.Random) -> None:
    (root / "b.bin").unlink(missing_ok=True)
    (root / "b.bin").symlink_to("a.txt")


def _make_pipe(root: Path, dice: random.Random) -> None:
    if not (root / "pipe").exists():
        os.mkfifo(root / "pipe")


def _exclude(root: Path, dice: random.Random) -> None:
    (root / ".holdfastignore").write_text(dice.choice(["three/\n", "*.bin\n", "/one/two/d.txt\n"]))


def _include_again(root: Path, dice: random.Random) -> None:
    (root / ".holdfastignore").unlink(missing_ok=True)


EDITS: list[Edit] = [
    _add, _change, _remove, _remove_folder, _touch, _set_mode, _move, _make_folder_of_file, _make_file_of_folder,
    _make_link, _make_pipe, _exclude, _include_again,
]  # fmt: skip


@pytest.mark.parametrize("watch", [False, True], ids=["alone", "watching"])
@pytest.mark.parametrize("seed", range(12))
def test_the_same_as_comparing_trees(project: Project, seed: int, watch: bool) -> None:
    dice = random.Random(seed)
    for path in FILES:
        project.write(path, os.fsencode(path) * 3)
    with_trees = 0
    ws = project.open(watch=watch)
    ws.save()
    for number in range(14):
        for edit in dice.choices(EDITS if dice.random() < 0.6 else [_change, _touch], k=dice.choice([1, 1, 2, 4])):
            edit(project.root, dice)
        head = ws.head()
        assert head is not None
        expected = tuple((each.letter, each.path, each.old) for each in ws.diff(head.id).paths)
        found = (ws if dice.random() < 0.5 else project.open()).status().changes
        assert tuple(each[:3] for each in found) == expected
        with_trees += bool(expected)
        if number % 3 == 2:
            ws.save()
    assert with_trees
    ws.close()


class TestReadsNoTree:
    """P8: the cost of `status` follows what changed."""

    @pytest.fixture
    def saved(self, project: Project) -> Workspace:
        for path in FILES:
            project.write(path)
        ws = project.open()
        ws.save()
        return ws

    @pytest.mark.parametrize("edits", [[_change], [_add, _change], [_remove, _change], [_touch]])
    def test_without_renames(
        self, project: Project, saved: Workspace, edits: list[Edit], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for edit in edits:
            edit(project.root, random.Random(3))
        monkeypatch.delattr(diff, "make_diff")
        assert bool(saved.status().changes) == (edits != [_touch])

    def test_but_where_a_file_may_be_renamed(self, project: Project, saved: Workspace) -> None:
        (project.root / "a.txt").write_text("a text that tells\n" * 4)
        saved.save()
        (project.root / "a.txt").rename(project.root / "z.txt")
        assert saved.status().changes == (PathChange("R", "z.txt", "a.txt"),)
