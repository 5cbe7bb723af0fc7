"""Folders and documents that are made to be in the way: none of them takes another out of the index."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Unavailable
from holdfast.indexing import Document, FolderSource
from holdfast.indexing.sources import read
from unprivileged import unprivileged

from .scene import Scene


def test_folder_of_unreadable_files_is_not_empty(scene: Scene) -> None:
    scene.write("a.md", "dogs bark")
    scene.write("sub/b.md", "cats purr")
    scene.done().close()

    def look() -> Any:
        with scene.run() as run:
            return run.plan()

    (scene.docs / "sub").chmod(0o444)  # its names may be read, and no more
    try:
        plan = unprivileged(look)
    finally:
        (scene.docs / "sub").chmod(0o755)
    assert plan.deleted == ()
    assert [(each.document, each.reason) for each in plan.failures] == [("sub/", "Permission denied")]


@contextlib.contextmanager
def _nested(folder: Path, name: str, times: int) -> Iterator[int]:
    """Folders in each other; the innermost. They are taken away at the end: not everything that tidies up can."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(times):
        os.mkdir(name, dir_fd=place)
        below = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    try:
        yield place
    finally:
        os.close(place)
        subprocess.run(["rm", "-rf", "--", str(folder / name)], check=True)


def test_folders_may_lie_deeper_in_each_other_than_calls_may(scene: Scene) -> None:
    scene.write("e.md", "cats purr")
    with _nested(scene.docs, "d", 1200) as place:
        os.close(os.open("deep.md", os.O_CREAT | os.O_WRONLY, dir_fd=place))
        assert [each.name for each in FolderSource(scene.docs)] == ["d/" * 1200 + "deep.md", "e.md"]


def test_too_deep_folders_are_reported_and_the_rest_is_read(scene: Scene) -> None:
    scene.write("e.md", "cats purr")
    with _nested(scene.docs, "d" * 200, 30):
        *told, last = FolderSource(scene.docs)
    assert [each.problem for each in told] == ["File name too long"]
    assert last.name == "e.md"


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_file_replaced_after_listing_is_not_read(scene: Scene, what: str, tmp_path: Path) -> None:
    scene.write("a.md", "cats purr")
    (document,) = FolderSource(scene.docs)
    place = scene.docs / "a.md"
    place.unlink()
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    {"link": lambda: place.symlink_to(secret), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[what]()
    with pytest.raises(Unavailable):
        read(document)


def test_document_reader_may_raise_or_return_anything(scene: Scene) -> None:
    def broken() -> str:
        raise ValueError("no page 7")

    said: Any = {"a": lambda: "cats purr", "b": broken, "c": lambda: None, "d": lambda: 5, "e": lambda: bytearray(b"e")}
    scene.source = [Document(name, each) for name, each in said.items()]
    with scene.run() as run:
        applied = run.apply(run.plan())
        assert {each.document: each.reason for each in applied.failures} == {
            "b": "b: ValueError: no page 7", "c": "c is NoneType", "d": "d is int",
        }  # fmt: skip
        assert (applied.published, applied.is_live) == (2, True)


def test_document_name_may_be_a_url_with_a_trailing_slash(scene: Scene) -> None:
    texts = {"https://example.com/": "cats purr", "https://example.com/a": "dogs bark"}
    scene.source = lambda: list(texts.items())
    with scene.done() as run:
        assert scene.found("cats purr") == "https://example.com/"
        del texts["https://example.com/a"]
        assert run.plan().deleted == ("https://example.com/a",)


def test_mtime_set_back_does_not_hide_a_change(scene: Scene) -> None:
    scene.write("a.md", "cats purr")
    (before,) = FolderSource(scene.docs)
    place = scene.docs / "a.md"
    seen = place.stat()
    while place.stat().st_ctime_ns == seen.st_ctime_ns:  # the disk's clock may not have moved yet
        place.write_text("dogs bark")
        os.utime(place, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    (after,) = FolderSource(scene.docs)
    assert (seen.st_mtime_ns, seen.st_size) == (place.stat().st_mtime_ns, place.stat().st_size)
    assert before.stamp != after.stamp
