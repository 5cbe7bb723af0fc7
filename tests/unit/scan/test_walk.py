"""The walk: which entries there are, which have to be read, which are left out; and how little of it is done twice."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.model import Reason
from holdfast.scan import classify
from holdfast.scan.attrs import Attr
from holdfast.scan.cache import UNKNOWN, YOUNG, Folder
from holdfast.scan.dir_handles import Handles, join
from holdfast.scan.ignore import Rules
from holdfast.scan.limits import Limits
from holdfast.scan.scan_start import ScanStart
from holdfast.scan.walk import Listing, Walk, has_our_clock, mounts_below
from waiting import settle


class Chosen:
    """Holds some paths whatever the rules say."""

    def __init__(self, *paths: str, hard: bool = False) -> None:
        self._paths = paths
        self._hard = hard

    def file(self, path: str, *, hard: bool) -> bool:
        return path in self._paths and (self._hard or not hard)

    def folder(self, path: str, *, hard: bool) -> bool:
        return any(other.startswith(f"{path}/") for other in self._paths) and (self._hard or not hard)

    @property
    def may_override(self) -> bool:
        return self._hard


def test_a_mount_with_a_blank_or_a_backslash_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes those in octal."""
    table = b"".join(
        b"36 35 98:0 /part %s rw - ext4 /dev/root rw\n" % where
        for where in (b"/root/a\\040b", b"/root/c\\134d", "/root/ü".encode(), b"/rooted/x", b"/")
    )
    monkeypatch.setattr("holdfast.durable.platform.open", lambda *_: io.BytesIO(table), raising=False)
    assert mounts_below(b"/root") == {"a b", "c\\d", "ü"}


@pytest.mark.parametrize(
    ("device", "root", "is_ours"),
    [
        (os.makedev(8, 1), b"/home", True),
        (os.makedev(0, 40), b"/tmp", True),
        (os.makedev(0, 41), b"/net", False),
        (os.makedev(0, 42), b"/shared", False),
        (os.makedev(0, 77), b"/pool/some/volume", True),  # a subvolume, by the mount above it
        (os.makedev(0, 77), b"/net/somewhere", False),
        (os.makedev(0, 77), b"/unknown", False),
    ],
)
def test_whose_clock_stamps_files(device: int, root: bytes, is_ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another machine may be behind."""
    mounts = ((b"8:1", b"/", b"ext4"), (b"0:40", b"/tmp", b"tmpfs"), (b"0:41", b"/net", b"nfs4"),
              (b"0:42", b"/shared", b"fuse.sshfs"), (b"0:43", b"/pool", b"btrfs"))  # fmt: skip
    table = b"".join(b"36 35 %s / %s rw,noatime master:1 - %s /dev/root rw\n" % each for each in mounts)
    monkeypatch.setattr("holdfast.durable.platform.open", lambda *_: io.BytesIO(table), raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert has_our_clock(root, device) == is_ours


def test_a_clock_of_which_nothing_is_known_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not has_our_clock(b"/home", os.makedev(8, 1))


Look = Callable[..., Listing]


def later() -> int:
    """A clock by which nothing is young."""
    return time.time_ns() + 10_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def look(root: Path) -> Look:
    """Walk over the folder."""

    def walk(
        cache: Mapping[str, Folder] | None = None,
        *,
        rules: Rules | None = None,
        wanted: Chosen | None = None,
        limits: Limits | None = None,
        rehash: bool = False,
    ) -> Listing:
        with Handles(str(root)) as handles:
            return Walk(
                handles,
                root,
                cache=cache or {},
                rules=rules or Rules.root(),
                wanted=wanted or Chosen(),
                limits=limits or Limits(),
                rehash=rehash,
            ).run()

    return walk


def write(root: Path, *paths: str, data: bytes = b"content") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def held(listing: Listing) -> set[str]:
    """The paths of everything held, except folders."""
    return {
        join(folder.path, name)
        for folder in listing.folders.values()
        for place, name in enumerate(folder.names)
        if folder.holds(place)
    }


def left_out(listing: Listing) -> dict[str, str]:
    return {
        join(folder.path, name): reason
        for folder in listing.folders.values()
        for name, (reason, _) in folder.skipped.items()
    }


def pending(listing: Listing) -> set[str]:
    return {join(folder.path, folder.names[place]) for folder, place in listing.pending}


def learnt(listing: Listing) -> dict[str, Folder]:
    """What the next walk remembers, once everything pending was read."""
    for folder, place in listing.pending:
        folder.set_content(place, b"\7" * 20)
    return listing.folders


class TestListing:
    def test_folders_come_before_what_is_in_them(self, root: Path, look: Look) -> None:
        write(root, "b/c/file", "a/file", "file")
        listing = look()
        assert list(listing.folders) == ["", "a", "b", "b/c"]
        assert held(listing) == pending(listing) == {"file", "a/file", "b/c/file"}

    def test_entries_are_sorted_whatever_their_names(self, root: Path, look: Look) -> None:
        write(root, "b", "B", "\udcff", "caf\xe9", "a b", "a\nb", "-")
        assert look().folders[""].names == sorted(["b", "B", "\udcff", "caf\xe9", "a b", "a\nb", "-"])

    def test_links_and_pipes_are_entries_and_links_are_not_followed(self, root: Path, look: Look) -> None:
        (root / "folder").mkdir()
        (root / "link").symlink_to("folder")
        (root / "broken").symlink_to("nowhere")
        os.mkfifo(root / "pipe")
        assert held(look()) == {"link", "broken", "pipe"}

    def test_a_socket_is_left_out(self, root: Path, look: Look) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(root / "socket"))
            assert left_out(look()) == {"socket": Reason.SOCKET}

    def test_a_workspace_that_cannot_be_listed_is_unavailable(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(Unavailable, match="Permission denied"):
            look()


class TestFolderAttributes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [("user.tag", b"value"), ("user.a,b", b""), ("user.sparse", b"value"), ("user.tag", b64decode("sparsely"))],
        ids=["plain", "comma", "a name that says sparse", "a value that says sparse in base64"],
    )
    @pytest.mark.linux
    def test_extended_attributes_of_a_folder_are_told_as_they_are(
        self, root: Path, look: Look, name: str, value: bytes
    ) -> None:
        (root / "folder").mkdir()
        os.setxattr(root / "folder", name, value)
        assert Attr(0, 0, look().folders["folder"].extra).xattrs == {name: value}


class TestSecondLook:
    """Cost follows change (P8), and an entry younger than the scan is never trusted."""

    def test_nothing_is_looked_into_when_nothing_changed(self, root: Path, look: Look) -> None:
        write(root, "a/file", "b/file")
        settle(root)
        cache = learnt(look())
        listing = look(cache)
        assert not listing.pending
        assert not listing.changed
        assert all(listing.folders[path] is cache[path] for path in ("", "a", "b"))

    def test_only_the_file_that_changed_is_read(self, root: Path, look: Look) -> None:
        write(root, "a/file", "a/other", "b/file")
        settle(root)
        cache = learnt(look())
        write(root, "a/file", data=b"changed")
        listing = look(cache)
        assert pending(listing) == {"a/file"}
        assert listing.changed == {"a"}

    @pytest.mark.parametrize("change", ["rename over", "touch", "chmod", "same size", "link", "xattr"])
    def test_every_kind_of_change_is_seen(self, root: Path, look: Look, change: str) -> None:
        write(root, "folder/file")
        write(root.parent, "new", data=b"CONTENT")
        settle(root.parent)
        cache = learnt(look())
        file, times = root / "folder/file", (root / "folder/file").stat()
        if change == "rename over":
            os.utime(root.parent / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
            (root.parent / "new").rename(file)
        elif change == "touch":
            os.utime(file)
        elif change == "chmod":
            file.chmod(0o600)
        elif change == "same size":
            file.write_bytes(b"CONTENT")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        elif change == "link":
            os.link(file, root.parent / "outside")
        else:
            os.setxattr(file, "user.tag", b"blue")
        assert pending(look(cache)) == {"folder/file"}

    def test_what_came_and_went_is_seen_without_reading_the_rest(self, root: Path, look: Look) -> None:
        write(root, "kept", "gone", "folder/inner")
        settle(root)
        cache = learnt(look())
        (root / "gone").unlink()
        (root / "folder/inner").unlink()
        (root / "folder").rmdir()
        write(root, "came")
        listing = look(cache)
        assert held(listing) == {"kept", "came"}
        assert pending(listing) == {"came"}
        assert list(listing.folders) == [""]

    @pytest.mark.parametrize("swap", ["to folder", "to link", "to pipe"])
    def test_a_file_that_became_something_else_is_seen(self, root: Path, look: Look, swap: str) -> None:
        write(root, "folder/thing")
        settle(root)
        cache = learnt(look())
        (root / "folder/thing").unlink()
        if swap == "to folder":
            (root / "folder/thing").mkdir()
        elif swap == "to link":
            (root / "folder/thing").symlink_to("nowhere")
        else:
            os.mkfifo(root / "folder/thing")
        listing = look(cache)
        assert ("folder/thing" in listing.folders) == (swap == "to folder")
        assert ("folder/thing" in pending(listing)) == (swap != "to folder")

    @pytest.fixture
    def all_young(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However slow this machine is."""
        monkeypatch.setattr(classify, "_SLACK_NS", 10**15)

    @pytest.mark.usefixtures("all_young")
    def test_a_young_file_is_read_again(self, root: Path, look: Look) -> None:
        write(root, "file")
        listing = look()
        assert listing.folders[""].flags(0) & YOUNG
        assert pending(look(learnt(listing))) == {"file"}

    @pytest.mark.usefixtures("all_young")
    def test_a_young_folder_is_listed_again(self, root: Path, look: Look) -> None:
        listing = look()
        assert not listing.folders[""].trusted
        assert look(learnt(listing)).changed == {""}

    def test_everything_is_read_when_that_is_asked_for(self, root: Path, look: Look) -> None:
        write(root, "a/file", "b/file")
        settle(root)
        assert pending(look(learnt(look()), rehash=True)) == {"a/file", "b/file"}

    def test_a_rule_that_came_is_applied_where_nothing_else_changed(self, root: Path, look: Look) -> None:
        write(root, "folder/file.log")
        settle(root)
        cache = learnt(look())
        listing = look(cache, rules=Rules.root(exclude_patterns=["*.log"]))
        assert left_out(listing) == {"folder/file.log": Reason.EXCLUDED}

    def test_a_limit_that_changed_is_applied_to_a_file_that_changed(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"*.db\n")
        write(root, "a.db", data=b"small")
        settle(root)
        cache = learnt(look(limits=Limits(file_max_bytes=10)))
        write(root, "a.db", data=b"x" * 11)
        listing = look(cache, limits=Limits(file_max_bytes=10))
        assert left_out(listing) == {"a.db": Reason.IGNORED_LARGE}
        write(root, "a.db", data=b"small again"[:9])
        assert "a.db" in pending(look(learnt(listing), limits=Limits(file_max_bytes=10)))


class TestRules:
    def test_a_small_ignored_file_is_held_and_a_large_one_is_not(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"*.db\n")
        write(root, "small.db", data=b"x" * 10)
        write(root, "large.db", data=b"x" * 11)
        listing = look(limits=Limits(file_max_bytes=10))
        assert held(listing) == {".gitignore", "small.db"}
        assert left_out(listing) == {"large.db": Reason.IGNORED_LARGE}

    def test_a_large_ignored_file_that_is_wanted_is_held(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"*.db\n")
        write(root, "large.db", data=b"x" * 11)
        assert "large.db" in held(look(limits=Limits(file_max_bytes=10), wanted=Chosen("large.db")))

    def test_largest_ignored_files_are_dropped_first(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"*.db\n")
        for size in (30, 40, 50):
            write(root, f"{size}.db", data=b"x" * size)
        listing = look(limits=Limits(total_max_bytes=100))
        assert held(listing) == pending(listing) == {".gitignore", "30.db", "40.db"}
        assert left_out(listing) == {"50.db": Reason.IGNORED_MANY}
        assert "50.db" in held(look(learnt(listing), limits=Limits(total_max_bytes=120)))

    def test_a_dependency_folder_is_left_out_whatever_git_says(self, root: Path, look: Look) -> None:
        write(root, "node_modules/left-pad/index.js", "venv/pyvenv.cfg", "env/settings.py")
        listing = look()
        assert left_out(listing) == {"node_modules": Reason.DEPENDENCIES, "venv": Reason.DEPENDENCIES}
        assert held(listing) == {"env/settings.py"}

    def test_only_what_is_wanted_of_a_dependency_folder_is_held(self, root: Path, look: Look) -> None:
        write(root, "node_modules/ours/index.js", "node_modules/theirs/index.js")
        settle(root)
        wanted = Chosen("node_modules/ours/index.js")
        first = look(wanted=wanted)
        assert held(first) == {"node_modules/ours/index.js"}
        again = look(learnt(first), wanted=wanted)
        assert held(again) == {"node_modules/ours/index.js"}
        assert left_out(again) == {"node_modules": Reason.DEPENDENCIES}

    def test_a_build_folder_is_left_out_only_where_git_ignores_it(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"/build\n")
        write(root, "build/made", "src/build/written")
        listing = look()
        assert left_out(listing) == {"build": Reason.DEPENDENCIES}
        assert "src/build/written" in held(listing)

    def test_an_ignored_folder_is_held_while_it_has_few_entries(self, root: Path, look: Look) -> None:
        write(root, ".gitignore", data=b"/data\n")
        write(root, "data/1", "data/inner/2")
        assert {"data/1", "data/inner/2"} < held(look(limits=Limits(folder_max_entries=3)))
        assert left_out(look(limits=Limits(folder_max_entries=2))) == {"data": Reason.IGNORED_MANY}

    def test_excluded_path_is_held_only_if_a_restore_needs_it(self, root: Path, look: Look) -> None:
        write(root, "secret/key", "public")
        rules = Rules.root(exclude_patterns=["secret"])
        assert held(look(rules=rules, wanted=Chosen("secret/key"))) == {"public"}
        assert held(look(rules=rules, wanted=Chosen("secret/key", hard=True))) == {"public", "secret/key"}

    def test_git_folder_is_left_out_and_marks_a_repository(self, root: Path, look: Look) -> None:
        write(root, "nested/file")
        subprocess.run(["git", "init", "--quiet", root / "nested"], check=True)
        listing = look()
        assert left_out(listing) == {"nested/.git": Reason.GIT_DIRECTORY}
        assert listing.repositories.keys() == {"nested"}

    def test_an_ignore_file_that_is_a_link_has_no_rules(self, root: Path, look: Look) -> None:
        write(root.parent, "elsewhere", data=b"*\n")
        (root / ".gitignore").symlink_to(root.parent / "elsewhere")
        write(root, "file", data=b"x" * 11)
        assert "file" in held(look(limits=Limits(file_max_bytes=10)))

    def test_folder_named_like_an_ignore_file_is_held(self, root: Path, look: Look) -> None:
        write(root, ".gitignore/file", "folder/.holdfastignore/file")
        assert held(look()) == {".gitignore/file", "folder/.holdfastignore/file"}

    def test_an_ignore_file_that_is_too_large_is_named_and_held(self, root: Path, look: Look) -> None:
        write(root, "folder/.gitignore", data=b"*\n" * 600_000)
        write(root, "folder/file", data=b"x" * 11)
        listing = look(limits=Limits(file_max_bytes=10))
        assert listing.oversized_rules == ["folder/.gitignore"]
        assert held(listing) == {"folder/.gitignore", "folder/file"}


class TestMeanwhile:
    def test_a_folder_that_went_during_the_walk_is_absent_and_said(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(root, "kept/file", "gone/file")
        settle(root)  # else the folder is too young to be trusted anyway
        real_open = Handles.open

        def open_late(self: Handles, path: str) -> int:
            if path == "gone":
                (root / "gone/file").unlink()
                (root / "gone").rmdir()
            return real_open(self, path)

        monkeypatch.setattr(Handles, "open", open_late)
        listing = look()
        assert listing.vanished
        assert held(listing) == {"kept/file"}
        assert listing.folders[""].folders == ["kept"]
        assert not listing.folders[""].trusted

    @pytest.mark.parametrize("is_known", [False, True])
    def test_what_moves_past_the_walk_is_noticed(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch, is_known: bool
    ) -> None:
        write(root, "a/file", "b/file", "b/moves")
        settle(root)
        cache = look().folders if is_known else {}
        real_open = Handles.open

        def open_late(self: Handles, path: str) -> int:
            if path == "b" and (root / "b/moves").exists():
                (root / "b/moves").rename(root / "a/moved")
            return real_open(self, path)

        monkeypatch.setattr(Handles, "open", open_late)
        with Handles(str(root)) as handles:
            walk = Walk(handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits())
            assert held(walk.run()) == {"a/file", "b/file"}
            assert walk.moved()

    def test_what_moves_after_the_sweep_is_noticed(self, root: Path, look: Look) -> None:
        """The sweep found `a` as it was, then `moves` went there from `b`, and then the walk began."""
        write(root, "a/file", "b/file", "b/moves")
        settle(root)
        cache = look().folders
        since = ScanStart.now(time.time_ns)
        with Handles(str(root)) as handles:
            walk = Walk(
                handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits(), clock=later,
                since=since,
            )  # fmt: skip
            known, real_visit = cache["a"], walk._visit
            walk._visit = lambda path, *given: (  # type: ignore[method-assign]
                (known, walk._rules, {}) if path == "a" else real_visit(path, *given)
            )
            walk.listing.folders["a"] = known
            (root / "b/moves").rename(root / "a/moved")
            assert held(walk.run()) == {"a/file", "b/file"}
            assert walk.moved()

    def test_what_moves_after_the_clock_was_set_back_is_noticed(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`a` was walked; then the clock was set back, so that the time of the move is before the walk began."""
        write(root, "a/file", "b/file", "b/moves")
        settle(root)
        cache = look().folders
        ahead_ns = [3_600_000_000_000]
        real_open = Handles.open

        def open_late(self: Handles, path: str) -> int:
            if path == "b" and ahead_ns != [0]:
                ahead_ns[:] = [0]
                (root / "b/moves").rename(root / "a/moved")
            return real_open(self, path)

        monkeypatch.setattr(Handles, "open", open_late)
        with Handles(str(root)) as handles:
            walk = Walk(
                handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits(),
                clock=lambda: time.time_ns() + ahead_ns[0],
            )  # fmt: skip
            assert held(walk.run()) == {"a/file", "b/file"}
            assert walk.moved()

    def test_what_moves_on_a_disk_whose_clock_is_behind_is_noticed(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`a` was walked; then a server stamped the move with a time that our clock had before that."""
        write(root, "a/file", "b/file", "b/moves")
        settle(root)
        cache = look().folders
        real_open = Handles.open

        def open_late(self: Handles, path: str) -> int:
            if path == "b" and (root / "b/moves").exists():
                (root / "b/moves").rename(root / "a/moved")
            return real_open(self, path)

        monkeypatch.setattr(Handles, "open", open_late)
        monkeypatch.setattr("holdfast.scan.walk.has_our_clock", lambda *_: False)
        with Handles(str(root)) as handles:
            walk = Walk(handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits(), clock=later)
            assert held(walk.run()) == {"a/file", "b/file"}
            assert walk.moved()

    def test_the_disk_is_asked_for_its_clock_once(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is in a list of all mounts, which may be long."""
        write(root, *(f"{name}/file" for name in "abc"))
        asked: list[int] = []
        monkeypatch.setattr("holdfast.scan.walk.has_our_clock", lambda _, device: asked.append(device) or True)
        settle(root)
        look()
        assert asked == [root.stat().st_dev]

    def test_folder_that_changes_after_an_ordinary_scan_is_no_move(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder was listed, but nothing left it since the scan began: no other folder has to be looked at (P8)."""
        monkeypatch.setattr("holdfast.scan.walk.has_our_clock", lambda *_: True)
        write(root, "a/file", "b/file")
        settle(root)
        cache = look().folders
        write(root, "b/new")
        settle(root)
        with Handles(str(root)) as handles:
            walk = Walk(handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits())
            assert held(walk.run()) == {"a/file", "b/file", "b/new"}
            write(root, "a/later")
            assert not walk.moved()
            write(root, "b/later")  # the listed one: what left it before it was read may be anywhere
            assert walk.moved()

    def test_file_renamed_before_the_read_is_noticed(self, root: Path, look: Look) -> None:
        write(root, "a/file", "b/file")
        settle(root)
        cache = look().folders
        write(root, "a/file", data=b"changed")
        with Handles(str(root)) as handles:
            walk = Walk(handles, root, cache=cache, rules=Rules.root(), wanted=Chosen(), limits=Limits())
            assert [folder.path for folder, _ in walk.run().pending] == ["a"]
            assert not walk.moved()
            (root / "a/file").rename(root / "a/renamed")
            assert walk.moved()

    def test_a_folder_that_may_not_be_entered_is_named(
        self, root: Path, look: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(root, "open/file", "closed/file")
        real_open = Handles.open

        def open_unless_closed(self: Handles, path: str) -> int:
            if path == "closed":
                raise PermissionError(13, "Permission denied")
            return real_open(self, path)

        monkeypatch.setattr(Handles, "open", open_unless_closed)
        listing = look()
        assert left_out(listing) == {"closed": Reason.UNREADABLE}
        assert held(listing) == {"open/file"}
        monkeypatch.undo()
        assert "closed/file" in held(look(learnt(listing)))


def test_content_is_unknown_until_it_was_read(root: Path, look: Look) -> None:
    write(root, "file")
    assert look().folders[""].content(0) == UNKNOWN
