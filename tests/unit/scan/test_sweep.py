"""The native sweep: what it calls unchanged is unchanged, and a walk with it finds what a walk without it finds."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.scan import cache, sweep
from holdfast.scan.cache import Folder, dump, load, records_at
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


def walk(root: Path, known: Mapping[str, Folder], unchanged: Set[str] = frozenset()) -> Listing:
    with Handles(str(root)) as handles:
        given: dict[str, Any] = {"rules": Rules.root(), "wanted": Nothing(), "limits": LIMITS, "clock": later}
        return Walk(handles, root, cache=known, unchanged=unchanged, **given).run()


def scan_cache(root: Path) -> bytes:
    """The cache that a scan of a folder leaves, with a made-up content for every file."""
    listing = walk(root, {})
    for folder, place in listing.pending:
        folder.set_content(place, b"\7" * 20)
    return dump(listing.folders.values(), {})


def folders_of(data: bytes) -> dict[str, Folder]:
    found = load(data)
    assert found is not None
    return found[1]


def unchanged(data: bytes, root: Path) -> set[str]:
    start = records_at(data)
    assert start is not None
    return set(Sweep(data, start, str(root)).unchanged(folders_of(data)))


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

    def test_folder_replaced_by_link_to_it(self, root: Path) -> None:
        """The folder is the same one, but the walk does not come to it by this path any more."""
        data = scan_cache(root)
        (root / "src").rename(root / "moved")
        (root / "src").symlink_to("moved")
        found = unchanged(data, root)
        assert "" not in found
        assert "src" not in walk(root, folders_of(data), found).folders

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
    listing = walk(root, folders_of(data), unchanged(data, root))
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


CHANGES = [_write, _remove, _move, _make_folder, _set_mode, _ignore, _link, _link_hard]
PATHS = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x/a", "x", ".gitignore", "x/name \udcff"]


@given(
    files=st.sets(st.sampled_from(PATHS), min_size=1),
    changes=st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from(PATHS), st.sampled_from(PATHS)), max_size=6),
)
@settings(max_examples=examples(300))
def test_same_listing_with_and_without(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], changes: list[tuple[Change, str, str]]
) -> None:
    root = tmp_path_factory.mktemp("sweep")
    for path in sorted(files, reverse=True):
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path, errors="surrogateescape")
        except OSError:
            continue  # a folder has this name
    data = scan_cache(root)
    for change, path, other in changes:
        try:
            change(root, path, other)
        except OSError:
            continue  # not possible now
    with_sweep = walk(root, folders_of(data), unchanged(data, root))
    assert seen(with_sweep) == seen(walk(root, folders_of(data)))


@pytest.mark.skipif(sweep.native is None, reason="the native module is absent or turned off")
class TestHostileCache:
    """No bytes make the native module read outside of them; what does not fit together is refused."""

    def _sweep(self, data: bytes, root: Path) -> bytes:
        assert sweep.native is not None
        fd = os.open(root, os.O_RDONLY)
        try:
            return bytes(sweep.native.sweep(data, 0, fd, 2))
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
                assert set(self._sweep(records[:size], root)) <= {0, 1}
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
            assert set(verdicts) <= {0, 1}

    def test_start_outside(self, root: Path) -> None:
        assert sweep.native is not None
        for start in (-1, 10**9):
            with pytest.raises(ValueError, match="damaged"):
                sweep.native.sweep(self._records(root), start, 0, 1)

    def test_absolute_path(self, root: Path) -> None:
        """A path that leads out of the workspace is not looked at."""
        folder = Folder("/", cache.load(scan_cache(root))[1][""].key)  # type: ignore[index]
        status = os.stat("/")
        folder.key = (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
        folder.trusted = True
        data = dump([folder], {})
        assert self._sweep(data[records_at(data) :], root) == b"\0"


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


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_with_sanitizers(tmp_path: Path) -> None:
    """The tests of the native module find no wrong access and no undefined behaviour; the compiler does not warn."""
    package, built = Path(sweep.__file__).parent.parent, tmp_path / "_native.so"
    sources = [str(package / "_native.c"), str(package / "_native_read.c")]
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(["gcc", *flags, *checks, include, *sources, "-o", str(built)], check=True)
    library = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    environment = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "HOLDFAST_NATIVE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)  # its folder belongs to this run
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(built), __file__, str(READING)],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
