"""The native sweep: what it calls unchanged is unchanged, and a walk with it finds what a walk without it finds."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.errors import Unavailable
from holdfast.model import Reason
from holdfast.scan import cache, sweep
from holdfast.scan.cache import YOUNG, Folder, dump, load, records_at
from holdfast.scan.cached_folders import CachedFolders, encoded, notable, removed
from holdfast.scan.dir_handles import Handles
from holdfast.scan.ignore import Rules
from holdfast.scan.limits import Limits
from holdfast.scan.sweep import Sweep
from holdfast.scan.walk import Listing, Walk
from unprivileged import unprivileged

LIMITS = Limits(folder_max_entries=3)
HAS_COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang"))


class Nothing:
    """Wants nothing that the rules leave out."""

    may_override = False

    def file(self, path: str, *, hard: bool) -> bool:
        return False

    def folder(self, path: str, *, hard: bool) -> bool:
        return False


def later() -> int:
    """A clock by which nothing is young."""
    return time.time_ns() + 10_000_000_000


def walk(root: Path, known: Mapping[str, Folder]) -> Listing:
    """Walk; with what a sweep found if `known` is that."""
    swept = known if isinstance(known, CachedFolders) else None
    with Handles(str(root)) as handles:
        given: dict[str, Any] = {"rules": Rules.root(), "wanted": Nothing(), "limits": LIMITS, "clock": later}
        return Walk(handles, root, cache=known, swept=swept, **given).run()


def scan_cache(root: Path) -> bytes:
    """The cache that a save of a folder leaves, with a made-up content for every file and tree for every folder."""
    return saved(walk(root, {}))


def saved(listing: Listing) -> bytes:
    """The cache that a save leaves of a listing."""
    for folder, place in listing.pending:
        folder.set_content(place, b"\7" * 20)
    for _, folder in notable(listing.folders):
        folder.tree = folder.attrs = b"\3" * 20
        folder.record = b""
    return dump(encoded(listing.folders), {})


def folders_of(data: bytes) -> dict[str, Folder]:
    found = load(data)
    assert found is not None
    return found[1]


def swept(data: bytes, root: Path) -> Mapping[str, Folder]:
    """The cache, compared with the disk; as it is without the native module."""
    start = records_at(data)
    assert start is not None
    found = Sweep(data, start, str(root)).result()
    return folders_of(data) if found is None else CachedFolders(data, found)


def unchanged(data: bytes, root: Path) -> set[str]:
    found = swept(data, root)
    return {path for path in found if isinstance(found, CachedFolders) and found.is_unchanged(path)}


def seen(listing: Listing) -> object:
    """All that a walk found, as plain values."""
    return (
        {
            path: (folder.key, folder.names, list(folder.rows), bytes(folder.contents), folder.folders, folder.skipped)
            for path, folder in listing.folders.items()
        },
        sorted((folder.path, folder.names[place]) for folder, place in listing.pending),
        listing.changed,
        listing.vanished,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path in ("a.txt", "src/one.py", "src/two.py", "src/deep/three.py", "docs/page.md", "odd\udcff\n/name \udc80"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path, errors="surrogateescape")
    (root / "link").symlink_to("a.txt")
    (root / "empty").mkdir()
    return root


def test_native_module_is_built() -> None:
    """Without a compiler it may be missing; then the other tests of this file are about the walk alone."""
    is_off = os.environ.get("HOLDFAST_NATIVE") == "0"
    assert (sweep.native is None) == (is_off or not HAS_COMPILER)


@pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
class TestVerdicts:
    def test_all_unchanged(self, root: Path) -> None:
        data = scan_cache(root)
        assert unchanged(data, root) == {"", "src", "src/deep", "docs", "empty", "odd\udcff\n"}

    def _change(self, root: Path, how: str) -> None:
        file = root / "src/one.py"
        status = file.stat()
        match how:
            case "same size, same mtime":
                file.write_text("SRC/ONE.PY")
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            case "size":
                file.write_text("longer than before")
            case "mode":
                file.chmod(0o600)
            case "removed":
                file.unlink()
            case "added":
                (root / "src/new.py").touch()
            case "replaced":
                (root / "new").write_text("src/one.py")
                os.utime(root / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
                (root / "new").replace(file)
            case "became a link":
                file.unlink()
                file.symlink_to("two.py")
            case "became a folder":
                file.unlink()
                file.mkdir()
            case "folder's mode":
                (root / "src").chmod(0o700)
            case "second name":
                os.link(file, root / "docs/second.py")

    @pytest.mark.parametrize(
        "how",
        [
            "same size, same mtime", "size", "mode", "removed", "added", "replaced", "became a link",
            "became a folder", "folder's mode", "second name",
        ],
    )  # fmt: skip
    def test_change(self, root: Path, how: str) -> None:
        data = scan_cache(root)
        self._change(root, how)
        found = unchanged(data, root)
        assert "src" not in found
        assert {"src/deep", "empty"} <= found

    @pytest.mark.parametrize("column", [cache.MODE, cache.INO, cache.SIZE, cache.MTIME, cache.CTIME])
    def test_each_column_is_compared(self, root: Path, column: int) -> None:
        """Also those that do not change alone: a replaced file has another ctime."""
        folders = folders_of(scan_cache(root))
        folders["src"].rows[column] += 1
        folders["src"].record = b""
        assert "src" not in unchanged(dump(folders.values(), {}), root)

    @pytest.mark.parametrize("part", range(5))
    def test_each_part_of_the_key_is_compared(self, root: Path, part: int) -> None:
        folders = folders_of(scan_cache(root))
        key = list(folders["src"].key)
        key[part] += 1
        folders["src"].key, folders["src"].record = (key[0], key[1], key[2], key[3], key[4]), b""
        assert "src" not in unchanged(dump(folders.values(), {}), root)

    def test_name_added_in_the_tick_of_the_scan(self, root: Path) -> None:
        """The times of a folder that had just changed cannot show another change (P2): it is listed again."""
        folders = folders_of(scan_cache(root))
        (root / "src" / "new.py").touch()
        status = (root / "src").stat()
        folders["src"].key = (
            status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns
        )  # fmt: skip
        folders["src"].trusted, folders["src"].record = False, b""
        data = dump(folders.values(), {})
        assert "src" not in unchanged(data, root)
        assert "new.py" in walk(root, swept(data, root)).folders["src"].names

    def test_file_changed_in_the_tick_of_the_scan(self, root: Path) -> None:
        """The times of a file that had just changed cannot show another change (P2): it is read again."""
        folders = folders_of(scan_cache(root))
        place = folders["src"].place("one.py")
        assert place is not None
        folders["src"].set_status(place, (root / "src/one.py").stat(), YOUNG)
        folders["src"].record = b""
        data = dump(folders.values(), {})
        assert "src" not in unchanged(data, root)
        listing = walk(root, swept(data, root))
        assert [(folder.path, folder.names[at]) for folder, at in listing.pending] == [("src", "one.py")]

    def test_folder_replaced_by_link_to_it(self, root: Path) -> None:
        """The folder is the same one, but the walk does not come to it by this path any more."""
        data = scan_cache(root)
        (root / "src").rename(root / "moved")
        (root / "src").symlink_to("moved")
        assert "" not in unchanged(data, root)
        assert "src" not in walk(root, swept(data, root)).folders

    def test_folder_that_this_user_cannot_read(self, root: Path) -> None:
        """Another user's scan could read it; the walk reports it as unreadable (P4)."""
        (root / "src").chmod(0o300)
        if os.geteuid():
            pytest.skip("only the superuser can make such a cache")
        data = scan_cache(root)
        assert "src" in unchanged(data, root)
        assert "src" not in unprivileged(lambda: unchanged(data, root))

    def test_root_is_gone(self, root: Path) -> None:
        data = scan_cache(root)
        shutil.rmtree(root)
        assert unchanged(data, root) == set()

    def test_many_folders_in_threads(self, tmp_path: Path) -> None:
        root = tmp_path / "many"
        for number in range(300):
            (root / f"f{number}").mkdir(parents=True)
            for name in range(10):
                (root / f"f{number}/{name}").touch()
        data = scan_cache(root)
        changed = {f"f{number}" for number in random.Random(1).sample(range(300), 40)}
        for path in changed:
            (root / path / "3").write_text("changed")
        assert folders_of(data).keys() - unchanged(data, root) == changed


def test_ignored_folder_that_grew(root: Path) -> None:
    """A small ignored folder is saved, a large one is not, although the folder above it did not change."""
    (root / ".gitignore").write_text("scratch/\n")
    (root / "scratch").mkdir()
    (root / "scratch/0").touch()
    data = scan_cache(root)
    assert "scratch" in folders_of(data)
    for number in range(1, 5):
        (root / f"scratch/{number}").touch()
    listing = walk(root, swept(data, root))
    assert "scratch" not in listing.folders and "scratch" in listing.folders[""].skipped


Change = Callable[[Path, str, str], None]


def _write(root: Path, path: str, other: str) -> None:
    (root / path).write_bytes(os.fsencode(other))


def _remove(root: Path, path: str, other: str) -> None:
    target = root / path
    shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()


def _move(root: Path, path: str, other: str) -> None:
    (root / path).rename(root / other)


def _make_folder(root: Path, path: str, other: str) -> None:
    (root / path / "below").mkdir(parents=True)


def _set_mode(root: Path, path: str, other: str) -> None:
    (root / path).chmod(0o755 if len(other) % 2 else 0o700)


def _ignore(root: Path, path: str, other: str) -> None:
    (root / path).parent.joinpath(".gitignore").write_bytes(os.fsencode(f"{Path(other).name}\n"))


def _link(root: Path, path: str, other: str) -> None:
    (root / path).symlink_to(other)


def _link_hard(root: Path, path: str, other: str) -> None:
    os.link(root / path, root / other)


def _lock(root: Path, path: str, other: str) -> None:
    if (root / path).is_dir():
        (root / path).chmod(0o300 if len(other) % 2 else 0)


def _copy_times(root: Path, path: str, other: str) -> None:
    """Replace a file by another one of the same size and modification time."""
    status = (root / path).stat()
    (root / path).write_bytes(b"x" * status.st_size)
    os.utime(root / path, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = [_write, _remove, _move, _make_folder, _set_mode, _ignore, _link, _link_hard, _lock, _copy_times]
PATHS = [
    "a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "d/e/f/g/h", "d/e/f/g/i/j", "x/a", "x", ".gitignore",
    "x/name \udcff", "x/\n/\udc80/k", "p/q/r/s/t", "p/q/r/u", "p/q/v/.gitignore", "p/q/v/w", "p/.git",
]  # fmt: skip
Changes = list[tuple[Change, str, str]]
SOME_CHANGES = st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from(PATHS), st.sampled_from(PATHS)), max_size=6)
SOME_FILES = st.sets(st.sampled_from(PATHS), min_size=1)


def make_tree(root: Path, files: set[str]) -> None:
    for path in sorted(files, reverse=True):
        with suppress(OSError):  # a folder has this name
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path, errors="surrogateescape")


def make(root: Path, changes: Changes) -> None:
    for change, path, other in changes:
        with suppress(OSError):  # not possible now
            change(root, path, other)


def unlock(root: Path) -> None:
    """Make every folder readable again, for whoever removes the tree."""
    for folder, folders, _ in os.walk(root):
        for name in folders:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o700)


def all_of(folders: Mapping[str, Folder]) -> object:
    """What the cache that is written of some folders says of them."""
    found = folders_of(dump(encoded(folders), {}))
    return {
        path: (each.key, each.names, list(each.rows), bytes(each.contents), each.folders, each.rules, each.tree)
        for path, each in found.items()
    }


@given(files=SOME_FILES, rounds=st.lists(SOME_CHANGES, min_size=1, max_size=3))
@settings(max_examples=examples(300))
def test_same_listing_with_and_without(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], rounds: list[Changes]
) -> None:
    """Save after save, a walk with a sweep finds what a walk without it finds, for somebody whom permissions bind."""
    root = tmp_path_factory.mktemp("sweep")
    make_tree(root, files)
    data = scan_cache(root)
    try:
        for changes in rounds:
            make(root, changes)
            try:
                expected = unprivileged(lambda data=data: walk(root, folders_of(data)))
            except Unavailable:  # the workspace itself is locked
                with pytest.raises(Unavailable):
                    unprivileged(lambda data=data: walk(root, swept(data, root)))
                return
            known = unprivileged(lambda data=data: swept(data, root))
            found = unprivileged(lambda known=known: walk(root, known))
            assert set(removed(known, found.folders)) == folders_of(data).keys() - expected.folders.keys()
            assert all_of(found.folders) == all_of(expected.folders)
            assert len(found.folders) == len(expected.folders) == len(list(found.folders))
            assert all(path in found.folders for path in expected.folders)
            assert seen(found) == seen(expected)
            data = saved(found)
    finally:
        unlock(root)


@pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
@given(files=SOME_FILES, changes=SOME_CHANGES)
@example(
    files={"p/q/v/.gitignore"},
    changes=[(_write, ".gitignore", "a"), (_write, "p/q/v/.gitignore", "a")],
)
@settings(max_examples=examples(300))
def test_changes_between_sweep_and_walk(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], changes: Changes
) -> None:
    """What changes after the sweep is found as it was before or as it is now, and is not lost for the next save."""
    root = tmp_path_factory.mktemp("race")
    make_tree(root, files)
    data = scan_cache(root)
    before = seen_folders(walk(root, folders_of(data)))
    known = swept(data, root)
    make(root, changes)
    try:
        found = walk(root, known)
        after = walk(root, folders_of(data))
        for path, (*folder, _) in seen_folders(found).items():  # its rules may be of an older folder above it
            assert folder in [[*each[path][:-1]] for each in (before, seen_folders(after)) if path in each]
        again = saved(found)
        assert seen_folders(walk(root, swept(again, root))) == seen_folders(walk(root, {}))
    finally:
        unlock(root)


def seen_folders(listing: Listing) -> dict[str, tuple[object, ...]]:
    """What a walk found of each folder, without contents and whether its times may be trusted."""
    return {
        path: (each.key, each.names, [*each.rows], each.folders, each.skipped, each.rules)
        for path, each in listing.folders.items()
    }


class TestAdopting:
    """Folders that are plain are taken over without being looked at, and no others."""

    def _walked(self, root: Path, data: bytes) -> set[str]:
        return {path for path, _ in notable(walk(root, swept(data, root)).folders)}

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        for path in ("d/e/f/a", "d/e/b", "d/g/c", "h/i/j/k", "top"):
            (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "root" / path).write_text(path)
        return tmp_path / "root"

    @pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
    def test_nothing_changed(self, root: Path) -> None:
        """Only the workspace itself becomes an object."""
        assert self._walked(root, scan_cache(root)) == {""}

    @pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
    def test_one_file_changed(self, root: Path) -> None:
        data = scan_cache(root)
        (root / "d/e/b").write_text("changed")
        assert self._walked(root, data) == {"", "d", "d/e"}

    @pytest.mark.parametrize("what", ["ignore file", "ignored file", "hard link", "not saved yet", "left out"])
    def test_what_a_walk_asks_about(self, root: Path, what: str) -> None:
        """A folder with something of its own to check is not adopted, even if nothing in it changed."""
        match what:
            case "ignore file":
                (root / "d/g/.gitignore").touch()  # so that the rules are those of the folder above
            case "ignored file":
                (root / ".gitignore").write_text("*.log\n")
                (root / "d/g/some.log").touch()
            case "hard link":
                os.link(root / "d/g/c", root / "d/g/second")
            case "left out":
                (root / ".gitignore").write_text("many/\n")
                (root / "d/g/many").mkdir()
                for number in range(5):
                    (root / f"d/g/many/{number}").touch()
        data = scan_cache(root)
        if what == "not saved yet":
            folders = folders_of(data)
            folders["d/g"].tree = folders["d/g"].record = b""
            data = dump(folders.values(), {})
        assert "d/g" in self._walked(root, data)
        assert self._walked(root, data) >= {"", "d", "d/g"}

    def test_rules_changed_above(self, root: Path) -> None:
        (root / ".gitignore").write_text("nothing\n")
        data = scan_cache(root)
        (root / ".gitignore").write_text("j/\nf/\n")
        listing = walk(root, swept(data, root))
        assert seen(listing) == seen(walk(root, folders_of(data)))
        assert all(folder.rules == listing.folders[""].rules for folder in listing.folders.values())

    @pytest.mark.linux
    def test_mounted_on_itself(self, root: Path) -> None:
        """A folder that became a mount point of itself has the same device, inode and times; only the kernel's table of
        mounts tells."""
        data = scan_cache(root)
        place = root / "d/e/f"
        if subprocess.run(["mount", "--bind", place, place], stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("cannot mount here")
        try:
            listing = walk(root, swept(data, root))
        finally:
            subprocess.run(["umount", "-l", place], check=True)
        assert "d/e/f" not in listing.folders
        assert listing.folders["d/e"].skipped == {"f": (Reason.OTHER_FILESYSTEM, "a mount point")}

    def test_other_file_system(self, root: Path) -> None:
        """Even if the cache says that a folder of another file system is as it was, it is not adopted: the walk may
        have no table of mounts to ask."""
        data = scan_cache(root)
        place = root / "d/g"
        if subprocess.run(["mount", "-t", "tmpfs", "none", place], stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("cannot mount here")
        try:
            folders, status = folders_of(data), place.stat()
            mounted = Folder(
                "d/g", (status.st_dev, *cache.row_of(status, 0)[1::-1], status.st_mtime_ns, status.st_ctime_ns)
            )
            mounted.trusted, mounted.rules = True, folders["d"].rules
            mounted.tree = mounted.attrs = b"\3" * 20
            data = dump([mounted if path == "d/g" else folder for path, folder in folders.items()], {})
            known = swept(data, root)
        finally:
            subprocess.run(["umount", "-l", place], check=True)
        if isinstance(known, CachedFolders):
            assert known.is_unchanged("d/g")
            assert not known.is_plain(known.number("d/g") or 0)

    def test_workspace_replaced_after_the_sweep(self, root: Path, tmp_path: Path) -> None:
        """A sweep of the folder that was there before says nothing of the one that is there now."""
        data = scan_cache(root)
        known = swept(data, root)
        root.rename(tmp_path / "old")
        shutil.copytree(tmp_path / "old", root)
        listing = walk(root, known)
        assert listing.changed == {"", "d", "d/e", "d/e/f", "d/g", "h", "h/i", "h/i/j"}

    def test_cache_with_a_path_twice(self, root: Path) -> None:
        data = scan_cache(root)
        folders = [*folders_of(data).values(), folders_of(data)["d"]]
        data = dump(folders, {})
        assert Sweep(data, records_at(data) or 0, str(root)).result() is None

    def test_cache_lacks_a_folder(self, root: Path) -> None:
        """It is scanned, with all that is below it, although the folder above it did not change."""
        data = scan_cache(root)
        folders = folders_of(data)
        del folders["d/e"]
        data = dump(folders.values(), {})
        listing = walk(root, swept(data, root))
        assert seen(listing) == seen(walk(root, folders_of(data)))
        assert "d/e" in listing.changed and "d/e/f" in listing.folders

    def test_cache_has_other_rules_below(self, root: Path) -> None:
        data = scan_cache(root)
        folders = folders_of(data)
        folders["d/e/f"].rules, folders["d/e/f"].record = b"other rules than", b""
        data = dump(folders.values(), {})
        listing = walk(root, swept(data, root))
        assert seen(listing) == seen(walk(root, folders_of(data)))
        assert listing.changed == {"d/e/f"}

    def test_unreadable_details(self, root: Path) -> None:
        """A folder whose record cannot be read, although all sums are right, is scanned as if it were new."""
        (root / ".gitignore").write_text("*.log\n")
        (root / "d/some.log").touch()
        (root / "d/g/.git").mkdir()
        data = scan_cache(root)
        at = data.index(b'["","",')
        records = data[records_at(data) :]
        damaged = records.replace(b'["","",', b'["","",'.replace(b"[", b"{"))
        assert at and damaged != records
        body = b"\2\0\0\0{}" + damaged
        data = data[: data.index(b"\n") + 1] + zlib.crc32(body).to_bytes(4, "big") + body
        listing = walk(root, swept(data, root)) if sweep.native else walk(root, {})
        assert set(listing.folders) == {"", "d", "d/e", "d/e/f", "d/g", "h", "h/i", "h/i/j"}
        assert ".git" in listing.folders["d/g"].skipped


class TestScannedFolders:
    """The folders of a walk behave as a dict of them, adopted or not."""

    @pytest.fixture
    def both(self, root: Path) -> tuple[dict[str, Folder], MutableMapping[str, Folder]]:
        data = scan_cache(root)
        (root / "docs/page.md").write_text("changed")
        shutil.rmtree(root / "src/deep")
        (root / "src/new").mkdir()
        (root / "src/new/file").touch()
        plain = walk(root, folders_of(data)).folders
        return dict(plain), walk(root, swept(data, root)).folders

    def test_reading(self, both: tuple[dict[str, Folder], MutableMapping[str, Folder]]) -> None:
        plain, folders = both
        assert set(folders) == set(plain) and len(folders) == len(plain)
        assert all(each in folders for each in plain)
        for missing in ("src/deep", "src/deep/more", "nowhere"):
            assert missing not in folders and folders.get(missing) is None
        assert {path: each.key for path, each in folders.items()} == {path: each.key for path, each in plain.items()}
        assert all(folders[path] is folders[path] for path in plain)

    @pytest.mark.parametrize("path", ["", "empty", "docs", "odd\udcff\n", "src/new"])
    def test_writing(self, both: tuple[dict[str, Folder], MutableMapping[str, Folder]], path: str) -> None:
        plain, folders = both
        other = folders[path].copy()
        folders[path] = other
        assert folders[path] is other and set(folders) == set(plain) and len(folders) == len(plain)
        del folders[path]
        assert path not in folders and set(folders) == set(plain) - {path} and len(folders) == len(plain) - 1

    def test_parents_come_first(self, both: tuple[dict[str, Folder], MutableMapping[str, Folder]]) -> None:
        order = list(both[1])
        assert all(path.rpartition("/")[0] in order[:at] for at, path in enumerate(order) if path)


@pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
class TestHostileCache:
    """No bytes make the native module read outside of them; what does not fit together is refused."""

    def _sweep(self, data: bytes, root: Path) -> bytes:
        assert sweep.native is not None
        fd = os.open(root, os.O_RDONLY)
        try:
            verdicts, relations = sweep.native.sweep(data, 0, fd, 2)
            assert len(relations) == 16 * len(verdicts)
            return bytes(verdicts)
        finally:
            os.close(fd)

    def _records(self, root: Path) -> bytes:
        data = scan_cache(root)
        return data[records_at(data) :]

    def test_cut_short(self, root: Path) -> None:
        records = self._records(root)
        ends = {folder.stored.end for folder in folders_of(scan_cache(root)).values() if folder.stored}
        ends = {end - len(scan_cache(root)) + len(records) for end in ends} | {0}
        for size in range(len(records)):
            if size in ends:
                assert set(self._sweep(records[:size], root)) <= set(range(8))
            else:
                with pytest.raises(ValueError, match="damaged"):
                    self._sweep(records[:size], root)

    @pytest.mark.parametrize("at", [105, 109, 113, 117, 121])
    @pytest.mark.parametrize("number", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    def test_wrong_length(self, root: Path, at: int, number: int) -> None:
        records = bytearray(self._records(root))
        if int.from_bytes(records[at : at + 4], "little") == number:
            return
        records[at : at + 4] = number.to_bytes(4, "little")
        with pytest.raises(ValueError, match="damaged"):
            self._sweep(bytes(records), root)

    def test_random_bytes(self, root: Path) -> None:
        records, dice = self._records(root), random.Random(7)
        for _ in range(2000):
            damaged = bytearray(records)
            for _ in range(dice.randrange(1, 6)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            try:
                verdicts = self._sweep(bytes(damaged), root)
            except ValueError:
                continue
            assert set(verdicts) <= set(range(8))

    def test_start_outside(self, root: Path) -> None:
        assert sweep.native is not None
        for start in (-1, 10**9):
            with pytest.raises(ValueError, match="damaged"):
                sweep.native.sweep(self._records(root), start, 0, 1)

    @pytest.mark.parametrize("size", [1023, 1024, 4093, 4094, 4095, 4096, 4097, 70_000])
    def test_long_names(self, root: Path, size: int) -> None:
        """Of a folder, of a folder in it and of a file, as long as a buffer or longer."""
        for path, below, name in (("a" * size, "b", "c"), ("a", "b" * (size - 1), "c"), ("a", "b", "c" * size)):
            folder = Folder(path, (0, 0, 0, 0, 0))
            folder.trusted, folder.folders, folder.names = True, [below], [name]
            folder.rows, folder.contents = cache.columns([0] * 7), bytearray(20)
            child = Folder(f"{path}/{below}", (0, 0, 0, 0, 0))
            data = dump([folder, child], {})
            assert len(self._sweep(data[records_at(data) :], root)) == 2

    def test_absolute_path(self, root: Path) -> None:
        """A path that leads out of the workspace is not looked at."""
        folder = Folder("/", cache.load(scan_cache(root))[1][""].key)  # type: ignore[index]
        status = os.stat("/")
        folder.key = (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
        folder.trusted = True
        data = dump([folder], {})
        assert self._sweep(data[records_at(data) :], root)[0] & 1 == 0


def test_turned_off() -> None:
    code = "from holdfast.scan import sweep; print(sweep.native)"
    environment = {**os.environ, "HOLDFAST_NATIVE": "0"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "None\n"


READING = Path(__file__).parents[1] / "workspace" / "capture" / "test_file_reader.py"
SANITIZED = """
import importlib.machinery, importlib.util, sys
import pytest
loader = importlib.machinery.ExtensionFileLoader("holdfast._native", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("holdfast._native", loader))
loader.exec_module(module)
sys.modules["holdfast._native"] = module
from holdfast.scan import sweep
assert sweep.native is module
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", *sys.argv[2:]]))
"""


def test_module_of_other_sources(tmp_path: Path) -> None:
    """What an earlier version built is not used."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['holdfast._native'] = types.ModuleType('holdfast._native')\n"
    )
    code = "import sitecustomize; from holdfast.scan import sweep; print(sweep.native, sweep.describe())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("HOLDFAST_NATIVE", None)
    found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert found == "None pure Python, because the native module was not built or cannot be loaded\n"


FUZZ = Path(__file__).with_name("native_fuzz.py")


def compiled(built: Path, *options: str) -> str:
    """Compile the native module apart from the installed one; any warning is an error."""
    package = Path(sweep.__file__).parent.parent
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", *options]
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(["gcc", *flags, include, *map(str, package.glob("*.c")), "-o", str(built)], check=True)
    return str(built)


def run_sanitized(built: Path, *words: str) -> None:
    built_there = compiled(built, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    library = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    settings = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "HOLDFAST_NATIVE": "1"}
    run_checked([sys.executable, *(built_there if word == "MODULE" else word for word in words)], settings)


def run_checked(command: list[str], environment: dict[str, str]) -> str:
    """Run a program that must succeed; return what it wrote to stderr."""
    environment = {**os.environ, **environment}
    environment.pop("PYTEST_ADDOPTS", None)  # its folder belongs to this run
    top = Path(__file__).parents[3]
    done = subprocess.run(command, env=environment, cwd=top, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
def test_fuzz() -> None:
    run_checked([sys.executable, str(FUZZ), "1", "300"], {})


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_with_sanitizers(tmp_path: Path) -> None:
    """The tests of the native module find no wrong access and no undefined behaviour; the compiler does not warn."""
    run_sanitized(tmp_path / "_native.so", "-c", SANITIZED, "MODULE", __file__, str(READING))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_fuzz_with_sanitizers(tmp_path: Path) -> None:
    run_sanitized(tmp_path / "_native.so", str(FUZZ), "2", "20000", "MODULE")


@pytest.mark.slow
def test_fuzz_with_valgrind(tmp_path: Path) -> None:
    """No use of memory that was freed or never written, and nothing is lost."""
    if not (shutil.which("valgrind") and shutil.which("gcc")):
        assert os.environ.get("CI") != "1", "valgrind and gcc must be there"
        pytest.skip("there is no valgrind or no gcc")
    program = ["valgrind", "-q", "--leak-check=full"]
    built = compiled(tmp_path / "_native.so")
    found = run_checked([*program, sys.executable, str(FUZZ), "3", "100", built], {"PYTHONMALLOC": "malloc"})
    # the interpreter has findings of its own
    ours = [block for block in re.split(r"(?m)^==\d+== *$", found) if "(_native" in block]
    assert not ours, "".join(ours)
