"""Metadata: permission bits, times, owners, attributes come back, and a secret is never open, not for an instant."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from holdfast import Workspace
from servers import missing

from .harness import Case, every_step
from .people import IS_ROOT, UNPRIVILEGED_ID, as_root, by_everyone, by_somebody, needs_root

SECRET = b"TOKEN=" + b"s3cret" * 40 + b"\n"


def mode_of(path: Path) -> int:
    """The permission bits of a path."""
    return path.lstat().st_mode & 0o7777


def exposures(folder: Path) -> list[str]:
    """Files under a folder that hold the secret and that others may read."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                if path.lstat().st_size == len(SECRET) and mode_of(path) & 0o077 and path.read_bytes() == SECRET:
                    found.append(str(path))
            except FileNotFoundError:
                pass
    return found


@by_everyone
@pytest.mark.parametrize("damage", ["deleted", "edited", "opened"])
def test_a_secret_is_never_open_to_others_while_it_is_restored(case: Case, damage: str) -> None:
    """Case 38."""
    os.umask(0)
    case.later(lambda: os.umask(0o022))
    case.write("keys/.env", SECRET, mode=0o600)
    case.path("keys").chmod(0o755)
    checkpoint = case.save()
    if damage == "deleted":
        shutil.rmtree(case.path("keys"))
    elif damage == "edited":
        case.write("keys/.env", b"another value\n")
    else:
        case.path("keys/.env").chmod(0o644)
    seen: list[str] = []
    if damage != "opened":
        with case.watched("restore"), every_step(lambda: seen.extend(exposures(case.root))):
            assert case.ws.restore(checkpoint.id).ok
        assert seen == []
        case.undo()
    assert case.restore(checkpoint).ok
    assert mode_of(case.path("keys/.env")) == 0o600


def test_the_store_is_closed_to_others_from_its_first_instant(case: Case) -> None:
    """Case 38."""
    os.umask(0)
    case.later(lambda: os.umask(0o022))
    case.write(".env", SECRET, mode=0o600)
    open_to_others: set[str] = set()

    def look() -> None:
        for parent, folders, names in os.walk(case.store_area):
            for name in (".", *folders, *names):
                path = os.path.join(parent, name)
                try:
                    if os.lstat(path).st_mode & 0o077:
                        open_to_others.add(path)
                except FileNotFoundError:
                    pass

    with every_step(look):
        workspace = Workspace(case.root, **case.options)
        workspace.save("the first")
    assert open_to_others == set()


@by_everyone
@pytest.mark.parametrize(
    ("then", "now"), [(0o755, 0o644), (0o644, 0o755), (0o444, 0o644), (0o400, 0o600), (0o640, 0o777)]
)
def test_content_and_mode_of_an_edited_file_come_back(case: Case, then: int, now: int) -> None:
    """Case 39."""
    case.write("script", b"original\n", mode=then)
    checkpoint = case.save()
    case.path("script").chmod(0o600)
    case.write("script", b"edited\n", mode=now)
    assert case.restore(checkpoint).ok
    assert (case.read("script"), mode_of(case.path("script"))) == (b"original\n", then)


@by_everyone
def test_a_change_of_mode_alone_is_seen_and_restored(case: Case) -> None:
    """Case 40."""
    case.write("plain", b"same content", mode=0o640)
    case.path("folder").mkdir(mode=0o750)
    checkpoint = case.save()
    case.path("plain").chmod(0o777)
    case.path("folder").chmod(0o777)
    diff = case.diff(checkpoint)
    assert "plain" in diff.modified_files
    later = case.save("with the new modes")
    assert later.id != checkpoint.id
    assert case.restore(checkpoint).ok
    assert (mode_of(case.path("plain")), mode_of(case.path("folder"))) == (0o640, 0o750)
    assert "plain" in case.diff(checkpoint, later).modified_files


@by_everyone
@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6711, 0o1644])
def test_special_bits_are_neither_lost_nor_gained(case: Case, bits: int) -> None:
    """Case 41."""
    case.write("tool", b"#!/bin/sh\n")
    case.path("tool").chmod(bits)
    case.write("plain", b"#!/bin/sh\n", mode=0o755)
    case.path("shared").mkdir()
    case.path("shared").chmod(0o3775)
    checkpoint = case.save()
    case.path("tool").unlink()
    case.path("plain").chmod(0o4755)
    case.path("shared").chmod(0o755)
    assert case.restore(checkpoint).ok
    assert mode_of(case.path("tool")) == bits
    assert mode_of(case.path("plain")) == 0o755
    case.write("tool", b"edited")
    shutil.rmtree(case.path("shared"))
    assert case.restore(checkpoint).ok


@by_everyone
@pytest.mark.parametrize("bits", [0o555, 0o700, 0o500, 0o511])
def test_a_closed_folder_is_restored_inside_and_closed_again(case: Case, bits: int) -> None:
    """Case 42."""
    case.write("closed/file", b"original", mode=0o444)
    case.write("closed/deep/file", b"deep")
    case.path("closed/deep").chmod(bits)
    case.path("closed").chmod(bits)
    case.later(lambda: subprocess.run(["chmod", "-R", "u+rwx", case.root], check=False))
    checkpoint = case.save()
    assert checkpoint.complete
    for folder in ("closed", "closed/deep"):
        case.path(folder).chmod(0o755)
    case.path("closed/file").unlink()
    case.write("closed/deep/file", b"edited")
    case.write("closed/deep/new", b"new")
    for folder in ("closed/deep", "closed"):
        case.path(folder).chmod(0o555)
    assert case.restore(checkpoint).ok
    assert mode_of(case.path("closed")) == mode_of(case.path("closed/deep")) == bits


@by_everyone
def test_a_closed_root_is_restored_inside_and_closed_again(case: Case) -> None:
    """Case 42."""
    case.root.chmod(0o555)
    case.later(lambda: case.root.chmod(0o755))
    checkpoint = case.save()
    case.root.chmod(0o755)
    case.write("new", b"made since")
    case.path("notes.txt").unlink()
    assert case.restore(checkpoint).ok
    assert mode_of(case.root) == 0o555


TIMES_NS = [0, 1, -1, -1_000_000_001, 1_234_567_890_123_456_789, 4_400_000_000_000_000_001, -2_000_000_000_000_000_000]
TIMES_NS.append(13_569_465_600_000_000_001)  # in the year 2400, more than 63 bits


@pytest.mark.parametrize("mtime_ns", TIMES_NS)
def test_times_come_back_to_the_nanosecond(case: Case, mtime_ns: int) -> None:
    """Case 43."""
    case.write("file", b"content")
    case.path("link").symlink_to("file")
    case.path("empty").mkdir()
    os.mkfifo(case.path("pipe"))
    names = ("file", "link", "empty", "pipe")
    for name in names:
        os.utime(case.path(name), ns=(mtime_ns, mtime_ns), follow_symlinks=False)
    if case.path("file").stat().st_mtime_ns != mtime_ns:
        pytest.skip("this file system holds no such time")
    checkpoint = case.save()
    assert case.ws.save().id == checkpoint.id
    case.write("file", b"changed")
    for name in names:
        os.utime(case.path(name), follow_symlinks=False)
    assert case.restore(checkpoint).ok
    assert {name: case.path(name).lstat().st_mtime_ns for name in names} == dict.fromkeys(names, mtime_ns)
    case.path("file").unlink()
    case.path("link").unlink()
    case.path("empty").rmdir()
    case.path("pipe").unlink()
    assert case.restore(checkpoint).ok


def test_a_file_that_was_only_touched_gets_its_time_back(case: Case) -> None:
    """Case 43."""
    os.utime(case.path("README.md"), ns=(5, 5))
    checkpoint = case.save()
    os.utime(case.path("README.md"))
    assert case.diff(checkpoint).touched_files == ["README.md"]
    assert case.restore(checkpoint).ok
    assert case.path("README.md").stat().st_mtime_ns == 5


def test_folder_times_come_back_after_their_children(case: Case) -> None:
    """Case 44."""
    case.write("a/b/c/file", b"1")
    case.write("a/b/other", b"2")
    for number, folder in enumerate(("a/b/c", "a/b", "a", ".")):
        os.utime(case.path(folder), ns=(10**17 + number, 10**17 + number))
    checkpoint = case.save()
    case.path("a/b/c/file").unlink()
    case.write("a/b/new", b"3")
    case.write("a/b/other", b"4")
    assert case.restore(checkpoint).ok
    assert case.path("a/b/c").stat().st_mtime_ns == 10**17
    assert case.root.stat().st_mtime_ns == 10**17 + 3
    shutil.rmtree(case.path("a"))
    assert case.restore(checkpoint).ok


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An access control list as the kernel keeps it: (tag, permissions, id) each."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY_IN_PARTICULAR = 0xFFFFFFFF
ACCESS_LIST = acl(
    (0x01, 6, NOBODY_IN_PARTICULAR),
    (0x02, 4, 4242),
    (0x04, 4, NOBODY_IN_PARTICULAR),
    (0x10, 4, NOBODY_IN_PARTICULAR),
    (0x20, 0, NOBODY_IN_PARTICULAR),
)


@by_everyone
@pytest.mark.linux
def test_extended_attributes_come_back(case: Case) -> None:
    """Case 46."""
    case.write("file", b"content")
    case.path("folder").mkdir()
    for name in ("file", "folder", "."):
        os.setxattr(case.path(name), "user.origin", b"https://example.org/\x00\xff")
        os.setxattr(case.path(name), "user.empty", b"")
    checkpoint = case.save()
    os.removexattr(case.path("file"), "user.origin")
    os.setxattr(case.path("file"), "user.added", b"since")
    os.setxattr(case.path("folder"), "user.origin", b"changed")
    os.removexattr(case.root, "user.empty")
    assert "file" in [*case.diff(checkpoint).touched_files, *case.diff(checkpoint).modified_files]
    assert case.restore(checkpoint).ok
    case.path("file").unlink()
    case.path("folder").rmdir()
    assert case.restore(checkpoint).ok
    assert os.getxattr(case.path("file"), "user.origin") == b"https://example.org/\x00\xff"


@by_everyone
@pytest.mark.linux
def test_access_control_lists_come_back(case: Case) -> None:
    """Case 46."""
    case.write("file", b"content")
    case.path("folder").mkdir()
    case.write("folder/inside", b"made before the default list")
    os.setxattr(case.path("file"), "system.posix_acl_access", ACCESS_LIST)
    os.setxattr(case.path("folder"), "system.posix_acl_default", ACCESS_LIST)
    checkpoint = case.save()
    case.path("file").unlink()
    case.path("folder/inside").unlink()
    os.removexattr(case.path("folder"), "system.posix_acl_default")
    assert case.restore(checkpoint).ok
    shutil.rmtree(case.path("folder"))
    case.path("file").chmod(0o600)
    assert case.restore(checkpoint).ok


@needs_root
def test_the_owner_of_a_file_comes_back_when_root_restores(case: Case) -> None:
    """Case 47."""
    case.write("theirs", b"content", mode=0o640)
    case.path("theirs-too").mkdir()
    case.path("link").symlink_to("theirs")
    for name in ("theirs", "theirs-too", "link"):
        os.chown(case.path(name), UNPRIVILEGED_ID, UNPRIVILEGED_ID + 1, follow_symlinks=False)
    checkpoint = case.save()
    case.path("theirs").unlink()
    case.write("theirs", b"now of root")
    os.chown(case.path("theirs-too"), 0, 0)
    case.path("link").unlink()
    assert case.restore(checkpoint).ok
    info = case.path("theirs").stat()
    assert (info.st_uid, info.st_gid) == (UNPRIVILEGED_ID, UNPRIVILEGED_ID + 1)


@needs_root
@by_somebody
def test_a_file_of_root_that_cannot_be_read_is_reported_and_left(case: Case) -> None:
    """Case 47."""
    case.write("of-root", b"written by a container", mode=0o600)
    with as_root():
        os.chown(case.path("of-root"), 0, 0)
    checkpoint = case.save()
    assert not checkpoint.complete
    assert [(each.path, each.reason) for each in checkpoint.uncovered if each.path == "of-root"] == [
        ("of-root", "unreadable")
    ]
    case.write("README.md", b"edited")
    case.restore(checkpoint)
    assert case.path("of-root").exists()


@needs_root
@by_somebody
def test_lost_file_of_root_returns_and_its_owner_is_reported(case: Case) -> None:
    """Case 47."""
    case.write("of-root", b"readable", mode=0o644)
    with as_root():
        os.chown(case.path("of-root"), 0, 0)
    checkpoint = case.save()
    case.path("of-root").unlink()
    case.restore(checkpoint)
    assert case.read("of-root") == b"readable"


@needs_root
@by_everyone
@pytest.mark.parametrize("flag", ["i", "a"])
def test_immutable_file_is_reported_and_the_rest_restored(case: Case, flag: str) -> None:
    """Case 48."""
    case.write("fixed", b"original")
    case.write("other", b"original")
    checkpoint = case.save()
    case.write("fixed", b"edited, then locked")
    case.write("other", b"edited")
    _chattr(case, f"+{flag}", "fixed")
    result = case.restore(checkpoint)
    assert not result.ok
    assert "fixed" in result.failed
    assert case.read("other") == b"original"


@needs_root
def test_a_locked_file_made_since_is_reported_and_left(case: Case) -> None:
    """Case 48."""
    checkpoint = case.save()
    case.write("folder/fixed", b"made since")
    _chattr(case, "+i", "folder/fixed")
    result = case.restore(checkpoint)
    assert "folder/fixed" in result.failed
    assert case.read("folder/fixed") == b"made since"


def _chattr(case: Case, flag: str, name: str) -> None:
    if shutil.which("chattr") is None:
        missing("chattr (e2fsprogs)")
    with as_root():
        subprocess.run(["chattr", flag, case.path(name)], check=True)

    def unlock() -> None:
        with as_root():
            subprocess.run(["chattr", flag.replace("+", "-"), case.path(name)], check=True)

    case.later(unlock)


@by_somebody
@pytest.mark.parametrize("also_edited", [False, True])
def test_unreadable_file_is_listed_and_never_deleted(case: Case, also_edited: bool) -> None:
    """Case 49."""
    case.write("closed", b"cannot be read", mode=0o000)
    case.write("closed-folder/file", b"nor this")
    case.path("closed-folder").chmod(0o000)
    case.later(lambda: case.path("closed-folder").chmod(0o700))
    checkpoint = case.save()
    assert not checkpoint.complete
    listed = {each.path: each.reason for each in checkpoint.uncovered}
    assert (listed["closed"], listed["closed-folder"]) == ("unreadable", "unreadable")
    if also_edited:
        case.write("README.md", b"edited")
    case.restore(checkpoint)
    case.path("closed").chmod(0o600)
    case.path("closed-folder").chmod(0o700)
    assert case.read("closed") == b"cannot be read"
    assert case.read("closed-folder/file") == b"nor this"
    case.restore(checkpoint)
    assert case.read("closed") == b"cannot be read"
    assert case.read("closed-folder/file") == b"nor this"


@by_somebody
def test_newly_unreadable_file_is_restored_or_reported(case: Case) -> None:
    """Case 49."""
    case.write("data", b"original")
    checkpoint = case.save()
    case.write("data", b"edited, then closed")
    case.path("data").chmod(0o000)
    result = case.restore(checkpoint)
    if result.ok:
        assert case.read("data") == b"original"
    else:
        case.path("data").chmod(0o600)
        assert case.read("data") == b"edited, then closed"


@by_somebody
def test_an_unreadable_file_made_since_is_left_alone(case: Case) -> None:
    """Case 49."""
    checkpoint = case.save()
    case.write("made-since", b"and closed", mode=0o000)
    result = case.restore(checkpoint)
    assert "made-since" in {*result.kept, *result.failed}
    case.path("made-since").chmod(0o600)
    assert case.read("made-since") == b"and closed"


def test_the_privileged_user_is_told_apart(user: str) -> None:
    """The cases above mean what they say only if they run as the user that they name."""
    assert (user == "root") == IS_ROOT
