"""Scope, location, scale: what may be a workspace, whose store is whose, and trees that are large, wide and deep."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast import NotFound, Refused
from holdfast.model import Reason

from . import repository
from .harness import Case
from .people import IS_ROOT, needs_root


@pytest.mark.parametrize("place", ["", "/inside", "/deep/inside/store", "/.git/store", "/link/store"])
def test_a_store_inside_the_workspace_is_refused(case: Case, place: str) -> None:
    """Case 133."""
    case.path("deep").mkdir()
    (case.area / "alias").symlink_to("ws")
    case.path("link").symlink_to(".")
    before = case.capture()
    for root in (case.root, case.area / "alias"):
        with case.watched("open"), pytest.raises(Refused) as refused:
            case.open(root, store=f"{case.root}{place}")
        assert refused.value.hint
    assert case.capture() == before


def test_a_workspace_inside_the_store_is_refused(case: Case) -> None:
    """Case 133."""
    case.save("makes the store")
    inside = case.ws.store / "project"
    inside.mkdir(mode=0o700)
    with pytest.raises(Refused):
        case.open(inside, store=case.ws.store)
    inside.rmdir()


def test_the_default_store_is_never_inside_the_workspace(case: Case) -> None:
    """Case 133."""
    with case.watched("open"), pytest.raises(Refused) as refused:
        case.open(case.home, store=None, allow_home=True, environ={"XDG_STATE_HOME": str(case.home / ".local/state")})
    assert refused.value.hint


@pytest.mark.parametrize("place", ["/", "/tmp", "/usr", "/etc", "/var", "/home", "/root", "/proc", "/dev", "/boot"])
def test_a_place_of_the_system_is_refused(case: Case, place: str) -> None:
    """Case 134."""
    if not os.path.isdir(place):
        place = "/"
    link = case.area / "innocent-name"
    link.symlink_to(place)
    for spelling in (place, f"{place}/.", f"{place}//", str(link), f"{link}/"):
        with case.watched("open"), pytest.raises(Refused) as refused:
            case.open(spelling)
        assert refused.value.hint
    assert not case.store_area.exists()


@pytest.mark.parametrize("place", [".", "Desktop", "Documents", "Downloads", ".."])
def test_home_and_its_large_folders_are_refused_by_real_path(case: Case, place: str) -> None:
    """Case 134."""
    for name in ("Desktop", "Documents", "Downloads"):
        (case.home / name).mkdir()
    link = case.outside / "a-project"
    link.symlink_to(case.home / place)
    for spelling in (case.home / place, link):
        with case.watched("open"), pytest.raises(Refused) as refused:
            case.open(spelling, store=case.outside / "store")
        assert refused.value.hint


def test_the_home_folder_is_taken_when_it_is_meant(case: Case) -> None:
    """Case 134."""
    case.root = case.home
    case.reopen(allow_home=True)
    case.write("notes.txt", b"1")
    checkpoint = case.save()
    case.write("notes.txt", b"2")
    assert case.restore(checkpoint).ok


def test_a_folder_that_is_not_there_is_not_made(case: Case) -> None:
    """Case 134."""
    with case.watched("open"), pytest.raises(NotFound):
        case.open(case.area / "nowhere")
    with case.watched("open"), pytest.raises((NotFound, Refused)):
        case.open(case.outside / "file.txt")


def test_subfolder_is_restored_without_touching_the_rest(case: Case) -> None:
    """Case 135."""
    case.use_default_store()
    whole = case.save("the whole project")
    outer = case.open()
    case.write("src/deep/x.py", b"x")
    case.root = case.root / "src"
    case.reopen()
    checkpoint = case.save("only src")
    assert case.ws.store != outer.store
    (case.root.parent / "README.md").write_bytes(b"edited above")
    case.write("app.py", b"edited")
    case.write("new.py", b"made since")
    assert case.restore(checkpoint).ok
    assert (case.root.parent / "README.md").read_bytes() == b"edited above"
    assert [each.id for each in case.ws.list()] == [checkpoint.id]
    assert [each.id for each in outer.list()] == [whole.id]


def test_rules_of_the_repository_apply_in_a_subfolder(case: Case) -> None:
    """Case 135."""
    case.write(".gitignore", b"*.bin\n!src/kept.bin\n")
    for name in ("src/large.bin", "src/forced.bin", "src/kept.bin"):
        case.write(name, os.urandom((1 << 20) + 1))
    case.git("add", "-f", "src/forced.bin")
    case.root = case.path("src")
    checkpoint = case.save()
    assert {each.path: each.reason for each in checkpoint.uncovered} == {"large.bin": Reason.IGNORED_LARGE}


def test_the_rules_above_a_subfolder_are_frozen_too(case: Case) -> None:
    """Case 135."""
    case.write(".gitignore", b"*.log\n")
    case.write("src/main.py", b"print()")
    above = case.path(".gitignore")
    case.root = case.path("src")
    checkpoint = case.save()
    above.unlink()
    case.write("made-since.log", b"not held then by any rule of now")
    case.write("made-since.py", b"")
    result = case.restore(checkpoint)
    assert list(result.kept) == ["made-since.log"]
    assert not case.path("made-since.py").exists()


def test_ignored_subfolder_is_a_workspace_of_its_own(case: Case) -> None:
    """Case 135."""
    case.write(".gitignore", b"*\n")
    case.write("scratch/large.bin", os.urandom((1 << 20) + 1))
    case.root = case.path("scratch")
    assert case.save().uncovered == ()


def test_moved_workspace_finds_its_checkpoints(case: Case) -> None:
    """Case 138."""
    checkpoint = case.save("before the move")
    moved = case.area / "moved"
    case.root.rename(moved)
    case.root = moved
    case.reopen()
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok
    assert case.read("README.md") == b"# A project\n\nNot committed.\n"


def test_two_checkouts_of_one_repository_do_not_share(case: Case) -> None:
    """Case 138."""
    case.use_default_store()
    checkpoint = case.save("in the first")
    other = case.area / "other" / "ws"
    other.parent.mkdir()
    case.git("clone", "-q", "--template=", str(case.root), str(other))
    second = case.open(other)
    assert second.store != case.ws.store
    assert second.list() == []
    with pytest.raises(NotFound):
        second.restore(checkpoint.id)


def test_checkpoints_are_not_restored_into_another_folder(case: Case) -> None:
    """Case 138."""
    case.save("in the first")
    other = case.area / "other"
    repository.make_nested(other, case.home)
    with case.watched("open"), pytest.raises(Refused) as refused:
        case.open(other).restore("latest")
    assert refused.value.hint
    assert (other / "lib.py").exists()


def test_copied_workspace_does_not_write_to_the_original_store(case: Case) -> None:
    """Case 138."""
    case.save("in the first")
    copy = case.area / "copy"
    shutil.copytree(case.root, copy, symlinks=True)
    with case.watched("open"), pytest.raises(Refused):
        case.open(copy).save("from the copy")


def test_store_of_another_folder_is_not_shared(case: Case) -> None:
    """Case 139."""
    case.use_default_store()
    case.save("in the first")
    first = case.ws.store
    other = case.area / "elsewhere" / "ws"
    other.mkdir(parents=True)
    (other / "file").write_bytes(b"another project")
    place = case.open(other).store
    assert place != first
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(first, place)  # as if the two short names had been the same
    assert case.open(other).store not in (place, first)
    assert case.open(other).list() == []
    with pytest.raises(Refused):
        case.open(other, store=place).list()


def test_folders_of_one_name_have_stores_of_their_own(case: Case) -> None:
    """Case 139."""
    case.use_default_store()
    stores = set()
    for name in (
        "a/project",
        "b/project",
        "c/ project",
        "d/pro\nject",
        os.fsdecode(b"e/pro\xffject"),
        "f/" + "p" * 255,
    ):
        folder = case.area / name
        folder.mkdir(parents=True)
        workspace = case.open(folder)
        (folder / "file").write_text(name, errors="surrogateescape")
        workspace.save()
        stores.add(workspace.store)
    assert len(stores) == 6


@pytest.mark.slow
def test_twenty_thousand_files_are_saved_and_restored(case: Case) -> None:
    """Case 140."""
    if IS_ROOT:  # the speed of this machine's disk is not what is shown
        case.mount(case.area / "memory", "-t", "tmpfs", "-o", "size=512m,mode=0755", "none")
        shutil.copytree(case.root, case.area / "memory" / "ws", symlinks=True)
        case.root = case.area / "memory" / "ws"
    for folder in range(100):
        path = case.path(f"tree/{folder // 10}/{folder % 10}")
        path.mkdir(parents=True)
        for number in range(150):
            (path / f"{number}.txt").write_bytes(b"%d/%d" % (folder, number))
    wide = case.path("wide")
    wide.mkdir()
    for number in range(5000):
        (wide / f"{number}").write_bytes(b"%d" % number)
    checkpoint = case.save()
    assert len(checkpoint.files_changed) >= 20_000
    assert case.save("nothing changed").id == checkpoint.id
    subprocess.run(["rm", "-rf", case.path("tree/3"), case.path("wide")], check=True)
    case.write("tree/1/1/1.txt", b"edited")
    assert case.restore(checkpoint).ok


@pytest.mark.slow
def test_a_thousand_folders_deep_is_not_too_deep(case: Case) -> None:
    """Case 140."""
    handle = os.open(case.root, os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)
    checkpoint = case.save()
    assert checkpoint.complete
    subprocess.run(["rm", "-rf", case.path("d")], check=True)
    assert case.restore(checkpoint).ok


@needs_root
@pytest.mark.linux
def test_what_another_file_system_cannot_hold_is_reported(case: Case) -> None:
    """Case 143."""
    case.write("file", b"content")
    os.setxattr(case.path("file"), "user.origin", b"somewhere")
    with case.path("sparse").open("wb") as file:
        file.truncate(4 << 20)
    checkpoint = case.save()
    kept = case.area / "kept"
    case.root.rename(kept)
    case.mount(case.root, "-t", "ramfs", "-o", "mode=0755", "none")  # knows no extended attributes
    result = case.restore(
        checkpoint, irreversible="the attributes that were lost on the way are not there to come back"
    )
    assert case.read("file") == b"content"
    assert not result.ok
    assert "file" in result.failed


@needs_root
@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_workspace_on_another_kind_of_file_system_works(case: Case, kind: str) -> None:
    """Case 143."""
    place: Path = case.area / "other-disk"
    case.mount(place, "-t", kind, "-o", "mode=0755", "none")
    shutil.copytree(case.root, place / "ws", symlinks=True)
    case.root = place / "ws"
    os.link(case.path("README.md"), case.path("linked"))
    case.path("link").symlink_to("README.md")
    checkpoint = case.save()
    case.write("README.md", b"edited")
    shutil.rmtree(case.path("src"))
    assert case.restore(checkpoint).ok
