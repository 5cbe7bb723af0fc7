"""Types and swaps: a path that became another kind of thing becomes again what it was, and nothing is followed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Conflict, HoldfastError

from . import repository
from .harness import Case, require_same
from .people import by_everyone, needs_root

MOUNTS = ["tmpfs", pytest.param("bind", marks=pytest.mark.linux)]


def test_a_folder_in_the_place_of_a_file_makes_way_for_it(case: Case) -> None:
    """Case 17."""
    case.write("thing", b"a file")
    checkpoint = case.save()
    case.path("thing").unlink()
    case.write("thing/inside.txt", b"unknown to the checkpoint")
    case.write("thing/deep/down", b"too")
    case.path("thing/empty").mkdir()
    assert case.restore(checkpoint).ok
    assert case.read("thing") == b"a file"


def test_folder_with_an_ignored_file_does_not_make_way(case: Case) -> None:
    """Case 17."""
    case.write(".gitignore", b"*.log\n")
    case.write("thing", b"a file")
    checkpoint = case.save()
    case.path("thing").unlink()
    case.write("thing/kept.log", b"ignored, made since")
    result = case.restore(checkpoint)
    assert "thing" in result.failed
    assert case.read("thing/kept.log") == b"ignored, made since"


@by_everyone
def test_a_file_in_the_place_of_a_folder_makes_way_for_the_tree(case: Case) -> None:
    """Case 18."""
    case.write("tree/a/b.txt", b"b", mode=0o600)
    case.write("tree/run.sh", b"#!/bin/sh\n", mode=0o755)
    case.path("tree/a").chmod(0o700)
    case.path("tree").chmod(0o750)
    checkpoint = case.save()
    shutil.rmtree(case.path("tree"))
    case.write("tree", b"now a file")
    assert case.restore(checkpoint).ok
    assert case.path("tree").stat().st_mode & 0o7777 == 0o750


@by_everyone
def test_file_swapped_for_an_outward_link_is_not_followed(case: Case) -> None:
    """Case 19."""
    case.write("config.txt", b"mine")
    checkpoint = case.save()
    case.path("config.txt").unlink()
    case.path("config.txt").symlink_to(case.outside / "file.txt")
    assert case.restore(checkpoint).ok
    assert case.read("config.txt") == b"mine"
    assert (case.outside / "file.txt").read_bytes() == b"outside\n"


@by_everyone
def test_folder_swapped_for_an_outward_link_is_not_followed(case: Case) -> None:
    """Case 20."""
    case.write("folder/inner.txt", b"mine")
    case.write("folder/other.txt", b"mine too")
    checkpoint = case.save()
    shutil.rmtree(case.path("folder"))
    case.path("folder").symlink_to(case.outside / "folder", target_is_directory=True)
    swapped = case.save("with the link")
    assert case.restore(checkpoint).ok
    assert case.read("folder/inner.txt") == b"mine"
    assert case.restore(swapped).ok
    assert case.path("folder").is_symlink()
    case.write("later.txt", b"goes on")
    assert case.restore(case.save("afterwards")).ok


@pytest.mark.parametrize("becomes", ["file", "folder", "nothing"])
def test_a_link_that_became_something_else_is_a_link_again(case: Case, becomes: str) -> None:
    """Case 21."""
    case.path("to-file").symlink_to("README.md")
    case.path("to-folder").symlink_to("src")
    checkpoint = case.save()
    for name in ("to-file", "to-folder"):
        case.path(name).unlink()
        if becomes == "file":
            case.write(name, b"no link")
        elif becomes == "folder":
            case.write(f"{name}/inside", b"no link")
    assert case.restore(checkpoint).ok
    assert os.readlink(case.path("to-file")) == "README.md"


@by_everyone
def test_parent_swapped_for_a_link_after_preview_is_a_conflict(case: Case) -> None:
    """Case 22."""
    case.write("deep/folder/inner.txt", b"mine")
    checkpoint = case.save()
    case.write("deep/folder/inner.txt", b"edited")
    plan = case.preview(checkpoint.id)
    _swap_for_link(case.path("deep/folder"), case.outside / "folder")
    with pytest.raises(Conflict):
        case.restore(checkpoint, plan=plan)


def _swap_for_link(folder: Path, target: Path) -> None:
    folder.rename(folder.with_name(folder.name + "-moved"))
    folder.symlink_to(target)


def test_parent_swapped_for_a_link_in_a_restore_is_not_followed(case: Case) -> None:
    """Case 22."""
    case.write("deep/folder/inner.txt", b"mine")
    case.write("deep/folder/gone.txt", b"to be written")
    checkpoint = case.save()

    def disturb() -> None:
        case.write("deep/folder/inner.txt", b"edited")
        case.path("deep/folder/gone.txt").unlink(missing_ok=True)
        case.write("deep/folder/new.txt", b"to be removed")

    disturb()
    for tick in range(_ticks(case, checkpoint.id)):
        disturb()
        seen = 0

        def swap(_stage: str, _done: int, _total: int, tick: int = tick) -> None:
            nonlocal seen
            if seen == tick:
                _swap_for_link(case.path("deep/folder"), case.outside / "folder")
            seen += 1

        with case.watched(f"a restore disturbed at moment {tick}"):
            try:
                case.ws.restore(checkpoint.id, progress=swap)
            except HoldfastError:
                case.reopen()
        subprocess.run(["rm", "-rf", case.path("deep")], check=True)
        with case.watched("the next restore"):
            assert case.ws.restore(checkpoint.id).ok
        assert case.read("deep/folder/inner.txt") == b"mine"


def _ticks(case: Case, ref: str) -> int:
    """How often a restore of this checkpoint reports progress; it is done and undone to find out."""
    ticks = 0

    def count(_stage: str, _done: int, _total: int) -> None:
        nonlocal ticks
        ticks += 1

    case.ws.restore(ref, progress=count)
    case.undo()
    assert ticks, "a restore that says nothing cannot be disturbed"
    return ticks


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)


def test_parent_flickering_between_folder_and_link_is_safe(case: Case) -> None:
    """Case 22."""
    case.write("folder/inner.txt", b"mine")
    for number in range(40):
        case.write(f"folder/{number}.txt", b"mine")
    checkpoint = case.save()
    folder, link, spare = case.path("folder"), case.path("a-link"), case.path("a-spare")
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            try:
                os.rename(folder, spare)
                os.symlink(case.outside / "folder", folder)
                os.rename(folder, link)
                os.rename(spare, folder)
            except OSError:
                pass  # the restore has put something there meanwhile

    def edit(data: bytes) -> None:
        """Through no link either: the test must not do what it forbids."""
        with opened(folder) as fd:
            file = os.open("inner.txt", os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, dir_fd=fd)
            os.write(file, data)
            os.close(file)

    outside = case.outside_picture()
    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for number in range(12):
            try:
                edit(b"edited %d" % number)
                case.ws.restore(checkpoint.id)
            except (HoldfastError, OSError):
                case.reopen()
    finally:
        stop.set()
        thread.join()
    require_same(outside, case.outside_picture(), "I1", "a restore went through a link")
    assert case.restore(checkpoint).ok


def test_a_link_that_points_elsewhere_points_back_again(case: Case) -> None:
    """Case 23."""
    case.write("one", b"1")
    case.write("two", b"2")
    case.path("link").symlink_to("one")
    checkpoint = case.save()
    case.path("link").unlink()
    case.path("link").symlink_to("two")
    assert case.restore(checkpoint).ok
    assert os.readlink(case.path("link")) == "one"
    assert (case.read("one"), case.read("two")) == (b"1", b"2")


def test_links_that_lead_nowhere_or_in_circles_are_kept_as_links(case: Case) -> None:
    """Case 24."""
    links = {
        "dangling": "nowhere",
        "a": "a",
        "b": "c",
        "c": "b",
        "here": ".",
        "up": "..",
        "root": "/",
        "odd": "x/../y//",
    }
    links["bytes"] = os.fsdecode(b"\xff\n")
    for name, target in links.items():
        case.path(name).symlink_to(target)
    checkpoint = case.save()
    for name in links:
        case.path(name).unlink()
    assert case.restore(checkpoint).ok
    for name in links:
        case.path(name).unlink()
        case.write(name, b"a file")
    assert case.restore(checkpoint).ok


def test_absolute_link_into_the_workspace_is_kept_as_it_is(case: Case) -> None:
    """Case 25."""
    target = str(case.path("src/app.py"))
    case.path("absolute").symlink_to(target)
    checkpoint = case.save()
    case.path("absolute").unlink()
    assert case.restore(checkpoint).ok
    assert os.readlink(case.path("absolute")) == target


def test_workspace_reached_through_a_link_is_the_same(case: Case) -> None:
    """Case 27."""
    case.use_default_store()
    alias = case.area / "alias"
    alias.symlink_to("ws")
    checkpoint = case.save("by its own path")
    for path in (str(alias), str(alias) + "/", f"{case.root}/../alias/.", os.path.relpath(case.root)):
        other = case.open(path)
        assert other.path == case.root
        assert other.store == case.ws.store
        assert other.get("latest").id == checkpoint.id
    case.write("README.md", b"edited")
    case.ws = case.open(alias)
    assert case.restore(checkpoint).ok
    assert alias.is_symlink()


def test_linked_folder_is_stored_as_a_link(case: Case) -> None:
    """Case 28."""
    case.write("packages/lib/index.js", b"lib")
    case.path("apps").mkdir()
    case.path("apps/lib").symlink_to("../packages/lib")
    case.path("elsewhere").symlink_to(case.outside / "folder")
    checkpoint = case.save()
    assert "apps/lib" in checkpoint.files_changed
    assert not [name for name in checkpoint.files_changed if name.startswith(("apps/lib/", "elsewhere/"))]
    case.path("apps/lib").unlink()
    case.path("elsewhere").unlink()
    assert case.restore(checkpoint).ok


@by_everyone
@pytest.mark.parametrize("damage", ["replace one", "remove one", "remove all", "edit both", "third name", "split"])
def test_hard_linked_files_share_an_inode_again(case: Case, damage: str) -> None:
    """Case 29."""
    case.write("one", b"shared")
    case.path("sub").mkdir()
    os.link(case.path("one"), case.path("sub/two"))
    checkpoint = case.save()
    if damage == "replace one":
        case.path("one").unlink()
        case.write("one", b"shared")
    elif damage == "remove one":
        case.path("sub/two").unlink()
    elif damage == "remove all":
        case.path("one").unlink()
        case.path("sub/two").unlink()
    elif damage == "edit both":
        case.write("one", b"changed in place")
    elif damage == "third name":
        os.link(case.path("one"), case.path("three"))
    else:
        case.path("sub/two").unlink()
        case.write("sub/two", b"on its own")
    assert case.restore(checkpoint).ok
    case.write("one", b"through one name")
    assert case.read("sub/two") == b"through one name"


def test_a_file_linked_to_one_that_was_apart_is_apart_again(case: Case) -> None:
    """Case 29."""
    case.write("one", b"same")
    case.write("two", b"same")
    checkpoint = case.save()
    case.path("two").unlink()
    os.link(case.path("one"), case.path("two"))
    assert case.restore(checkpoint).ok
    case.write("one", b"alone")
    assert case.read("two") == b"same"


@by_everyone
def test_outside_hard_link_is_not_written_in_place(case: Case) -> None:
    """Case 30."""
    case.write("package.js", b"original")
    checkpoint = case.save()
    shared = case.outside / "cache.js"
    shared.write_bytes(b"shared with the cache")
    case.path("package.js").unlink()
    os.link(shared, case.path("package.js"))
    assert case.restore(checkpoint).ok
    assert shared.read_bytes() == b"shared with the cache"
    assert case.read("package.js") == b"original"


@by_everyone
def test_outside_hard_link_made_before_the_save_stays_intact(case: Case) -> None:
    """Case 30."""
    shared = case.outside / "cache.js"
    shared.write_bytes(b"shared")
    os.link(shared, case.path("package.js"))
    checkpoint = case.save()
    case.write("package.js", b"written through by the agent")
    assert case.restore(checkpoint).ok
    assert shared.read_bytes() == b"written through by the agent"
    assert case.read("package.js") == b"shared"


@by_everyone
def test_pipes_and_sockets_do_not_block_a_save_and_are_not_lost(case: Case) -> None:
    """Case 31."""
    os.mkfifo(case.path("pipe"), 0o640)
    _make_socket(case.path("socket"))
    checkpoint = case.save()
    assert [(each.path, each.reason) for each in checkpoint.uncovered if each.path == "socket"] == [
        ("socket", "socket")
    ]
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok
    case.path("pipe").unlink()
    assert case.restore(checkpoint).ok
    assert case.path("pipe").is_fifo()
    case.path("socket").unlink()
    assert "socket" in case.restore(checkpoint).missing


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(path.parent)  # the path of a socket may only be short
            listener.bind(path.name)
        finally:
            os.fchdir(here)
            os.close(here)


@needs_root
def test_devices_are_recorded_or_reported_and_never_lost(case: Case) -> None:
    """Case 31."""
    os.mknod(case.path("null"), 0o20666, os.makedev(1, 3))
    os.mknod(case.path("disk"), 0o60600, os.makedev(7, 250))
    checkpoint = case.save()
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok
    case.path("null").unlink()
    case.restore(checkpoint)


@by_everyone
def test_a_pipe_in_the_place_of_a_file_is_replaced(case: Case) -> None:
    """Case 32."""
    case.write("data", b"content")
    checkpoint = case.save()
    case.path("data").unlink()
    os.mkfifo(case.path("data"))
    assert case.restore(checkpoint).ok
    assert case.read("data") == b"content"


@by_everyone
def test_a_socket_in_the_place_of_a_file_is_replaced(case: Case) -> None:
    """Case 32."""
    case.write("data", b"content")
    checkpoint = case.save()
    case.path("data").unlink()
    _make_socket(case.path("data"))
    case.restore(checkpoint, irreversible="a socket has no content, and its listener cannot be brought back")
    assert case.read("data") == b"content"


@pytest.mark.slow
def test_a_sparse_file_is_saved_by_its_data_and_restored_sparse(case: Case) -> None:
    """Case 33."""
    _make_sparse(case.path("disk.img"), size=2 << 30, at=1 << 30, data=os.urandom(4096))
    case.path("hole").touch()
    os.truncate(case.path("hole"), 8 << 20)
    checkpoint = case.save()
    stored = sum(path.stat().st_size for path in case.ws.store.rglob("*") if path.is_file())
    assert stored < 8 << 20
    case.path("disk.img").unlink()
    case.path("hole").unlink()
    assert case.restore(checkpoint).ok
    assert case.path("disk.img").stat().st_blocks * 512 < 1 << 20


def _make_sparse(path: Path, *, size: int, at: int, data: bytes) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(at)
        file.write(data)


def test_empty_folders_are_there_exactly_when_they_were(case: Case) -> None:
    """Case 34."""
    case.path("empty").mkdir(mode=0o700)
    case.path("nested/a/b").mkdir(parents=True)
    case.write("full/file", b"1")
    case.write("emptied/file", b"2")
    checkpoint = case.save()
    case.path("empty").rmdir()
    shutil.rmtree(case.path("nested"))
    case.path("emptied/file").unlink()
    case.path("full/new-empty/deeper").mkdir(parents=True)
    case.path("new-empty").mkdir()
    assert case.restore(checkpoint).ok
    assert case.path("nested/a/b").is_dir()
    assert not case.path("full/new-empty").exists()
    case.write("empty/file", b"no longer empty")
    assert case.restore(checkpoint).ok


@pytest.mark.parametrize("content", ["ignored file", "dependencies", "socket"])
def test_new_folder_with_protected_content_stays(case: Case, content: str) -> None:
    """Case 35."""
    case.write(".gitignore", b"*.log\nnode_modules/\n")
    checkpoint = case.save()
    case.path("made").mkdir()
    if content == "ignored file":
        case.write("made/since.log", b"ignored")
    elif content == "dependencies":
        case.write("made/node_modules/x/index.js", b"module")
    else:
        _make_socket(case.path("made/socket"))
    result = case.restore(checkpoint)
    assert [name for name in result.kept if name == "made" or name.startswith("made/")]
    assert case.path("made").is_dir()


@needs_root
@pytest.mark.parametrize("kind", MOUNTS)
def test_a_mount_is_not_crossed_not_deleted_and_reported(case: Case, kind: str) -> None:
    """Case 36."""
    case.write("mnt/under.txt", b"hidden by the mount")
    if kind == "tmpfs":
        case.mount(case.path("mnt"))
        case.write("mnt/on-it.txt", b"of another file system")
    else:
        case.mount(case.path("mnt"), "--bind", str(case.outside / "folder"))
    checkpoint = case.save()
    assert [each.reason for each in checkpoint.uncovered if each.path == "mnt"] == ["other-filesystem"]
    case.write("README.md", b"edited")
    result = case.restore(checkpoint)
    assert result.ok
    assert not [name for name in [*result.written, *result.removed] if name.startswith("mnt/")]


@needs_root
@pytest.mark.parametrize("kind", MOUNTS)
def test_a_mount_that_appeared_after_the_save_is_left_alone(case: Case, kind: str) -> None:
    """Case 36."""
    checkpoint = case.save()
    if kind == "tmpfs":
        case.mount(case.path("mnt"))
        case.write("mnt/on-it.txt", b"of another file system")
    else:
        case.mount(case.path("mnt"), "--bind", str(case.outside / "folder"))
    result = case.restore(checkpoint)
    assert "mnt" in result.kept
    assert list(case.path("mnt").iterdir())


@needs_root
def test_a_bind_mount_of_one_file_is_not_replaced(case: Case) -> None:
    """Case 36."""
    case.write("config.txt", b"mine")
    checkpoint = case.save()
    subprocess.run(["mount", "--bind", case.outside / "file.txt", case.path("config.txt")], check=True)
    case.mounts.add("config.txt")
    case.later(lambda: subprocess.run(["umount", "-l", case.path("config.txt")], check=True))
    result = case.restore(checkpoint)
    assert "config.txt" in result.failed


@pytest.mark.parametrize("again", ["empty", "clone"])
@pytest.mark.parametrize("engine", ["same", "new"])
def test_a_workspace_that_was_deleted_and_made_again_is_restored(case: Case, again: str, engine: str) -> None:
    """Case 37."""
    checkpoint = case.save()
    repository.git(case.area, case.home, "clone", "-q", "--bare", "--template=", str(case.root), "outside/origin.git")
    shutil.rmtree(case.root)
    if again == "empty":
        case.root.mkdir()
    else:
        repository.git(case.area, case.home, "clone", "-q", "--template=", "outside/origin.git", str(case.root))
    if engine == "new":
        case.reopen()
    result = case.restore(checkpoint)
    assert result.ok
    assert (".git" in result.missing) == (again == "empty")
    assert case.read("notes.txt") == b"not tracked\n"
