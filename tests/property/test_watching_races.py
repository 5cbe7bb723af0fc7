"""A thousand edits race with the saves of a watching workspace; whenever they rest, a save equals a full scan."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.scan.partial_walk import Narrowed
from holdfast.workspace.stored.object_sink import ObjectSink
from waiting import settle

BATCH = 20
NAMES = ["a", "b", "c", "d e", "\udcff", "node_modules", "secret", ".gitignore", "x-shm"]
EXCHANGE = 2


class Editor:
    """Changes a folder at random, in every way that a program could."""

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root = root
        self.outside = outside
        self.chance = random.Random(seed)
        self.kinds: list[Callable[[], None]] = [
            *(self.create, self.create, self.write, self.write, self.append, self.truncate, self.same_size),
            *(self.replace, self.rename_file, self.rename_folder, self.exchange, self.delete, self.delete_folder),
            *(self.chmod, self.utime, self.link, self.edit_through_link, self.symlink, self.swap_kind, self.deep_tree),
            *(self.ignore, self.xattr, self.quick_twice, self.link_out, self.write_to_a_lost_name),
        ]

    def edit(self) -> None:
        """One edit; what is not possible just now is not done."""
        with contextlib.suppress(OSError):
            self.chance.choice(self.kinds)()

    def folders(self) -> list[Path]:
        return [Path(top) for top, _, _ in os.walk(self.root)]

    def files(self) -> list[Path]:
        return [Path(top, name) for top, _, names in os.walk(self.root) for name in names]

    def folder(self) -> Path:
        return self.chance.choice(self.folders())

    def file(self) -> Path:
        files = self.files()
        return self.chance.choice(files) if files else self.create()

    def new(self) -> Path:
        return self.folder() / self.chance.choice(NAMES)

    def bytes(self) -> bytes:
        return self.chance.randbytes(self.chance.choice([0, 1, 5, 100]))

    def create(self) -> Path:
        path = self.new()
        path.write_bytes(self.bytes())
        return path

    def write(self) -> None:
        self.file().write_bytes(self.bytes())

    def append(self) -> None:
        with self.file().open("ab") as file:
            file.write(b"more")

    def truncate(self) -> None:
        os.truncate(self.file(), self.chance.randrange(8))

    def same_size(self) -> None:
        path = self.file()
        path.write_bytes(self.chance.randbytes(path.lstat().st_size))

    def quick_twice(self) -> None:
        path = self.file()
        for content in (b"one", b"two", b"six"):
            path.write_bytes(content)

    def replace(self) -> None:
        path = self.file()
        beside = path.with_name("replacing")
        beside.write_bytes(self.bytes())
        beside.replace(path)

    def rename_file(self) -> None:
        self.file().rename(self.new())

    def rename_folder(self) -> None:
        self.folder().rename(self.new())

    def exchange(self) -> None:
        paths = [os.fsencode(self.chance.choice([*self.folders(), *self.files()])) for _ in range(2)]
        ctypes.CDLL(None).renameat2(-100, paths[0], -100, paths[1], EXCHANGE)

    def delete(self) -> None:
        self.file().unlink()

    def delete_folder(self) -> None:
        folder = self.folder()
        if folder != self.root and self.chance.random() < 0.4:
            shutil.rmtree(folder)

    def chmod(self) -> None:
        path = self.chance.choice([*self.files(), *self.folders()])
        path.chmod(self.chance.choice([0o700, 0o755, 0o711]))

    def utime(self) -> None:
        path = self.chance.choice([*self.files(), *self.folders()])
        os.utime(path, ns=(0, self.chance.choice([10**18, 10**18 + 1])))

    def link(self) -> None:
        os.link(self.file(), self.new())

    def edit_through_link(self) -> None:
        linked = [path for path in self.files() if path.lstat().st_nlink > 1]
        if linked:
            self.chance.choice(linked).write_bytes(self.bytes())

    def link_out(self) -> None:
        """A second name elsewhere, through which the file is written once a save has seen that there is one."""
        for path in self.outside.iterdir():
            path.write_bytes(self.bytes())
        path = self.file()
        if path.lstat().st_nlink > 1 and len(list(self.outside.iterdir())) < 5:
            os.link(path, self.outside / f"{self.chance.random()}")

    def write_to_a_lost_name(self) -> None:
        path = self.file()
        with path.open("ab") as file:
            os.link(path, self.new())
            path.unlink()
            file.write(b"through a name that is gone")

    def symlink(self) -> None:
        self.new().symlink_to(self.chance.choice(["a", "../b", "nowhere"]))

    def swap_kind(self) -> None:
        path = self.file()
        path.unlink()
        path.mkdir()
        (path / "inside").write_bytes(self.bytes())

    def deep_tree(self) -> None:
        folder = self.folder()
        for _ in range(self.chance.randrange(1, 6)):
            folder /= self.chance.choice(NAMES[:5])
            folder.mkdir()
            (folder / "leaf").write_bytes(self.bytes())

    def ignore(self) -> None:
        (self.folder() / ".gitignore").write_text(self.chance.choice(["", "secret\n", "/b/\n", "*\n!a\n"]))

    def xattr(self) -> None:
        os.setxattr(self.chance.choice([*self.files(), *self.folders()]), b"user.mark", self.bytes())


@pytest.fixture
def narrowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many folders each look that relied on the hint looked at."""
    found: list[int] = []
    run = Narrowed.run

    def counted(self: Narrowed) -> object:
        listing = run(self)
        found.append(len(self._done))
        return listing

    monkeypatch.setattr(Narrowed, "run", counted)
    yield found


def saved_files(workspace: Workspace) -> tuple[object, ...]:
    """The trees of a save made now, and what it does not hold."""
    saved = workspace.save(allow_empty=True)
    return (*workspace._repository.contents(saved).root, list(saved.uncovered))


def scanned_files(workspace: Workspace) -> tuple[object, ...]:
    """The same of a full scan that knows nothing: nothing was ever saved there."""
    snapshot, _ = workspace._engine.scanner.take(ObjectSink(workspace._repository.objects), head=None)
    return (*snapshot.root, snapshot.uncovered)


@pytest.mark.parametrize(
    ("seed", "edits"),
    [(2, 100), pytest.param(2, 1000, marks=pytest.mark.slow), pytest.param(7, 1000, marks=pytest.mark.slow)],
)
def test_edits_race_with_saves_and_every_rest_equals_a_full_scan(
    tmp_path: Path, narrowed: list[int], seed: int, edits: int
) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    for number in range(40):
        (root / f"still-{number}" / "deep").mkdir(parents=True)
        (root / f"still-{number}" / "file").write_bytes(b"as it was\n")
    home = tmp_path / "home"
    for folder in (home, outside):
        folder.mkdir()
    watching = Workspace(root, store=tmp_path / "store", home=home, environ={}, watch=True)
    scanning = Workspace(root, store=tmp_path / "other", home=home, environ={})
    editor = Editor(root, outside, seed)

    def edit() -> None:
        for _ in range(BATCH):
            editor.edit()

    for batch in range(edits // BATCH):
        thread = threading.Thread(target=edit)
        thread.start()
        while thread.is_alive():
            watching.save()
        thread.join()
        assert saved_files(watching) == scanned_files(scanning), f"at once, in batch {batch}"
        settle(root)
        assert saved_files(watching) == scanned_files(scanning), f"after a while, in batch {batch}"
    assert len(narrowed) > edits // BATCH  # or the hint was of no use
    assert min(narrowed) < 20
    watching.close()
    assert watching.verify().ok
