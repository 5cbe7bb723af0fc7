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
from holdfast.indexing import Document, FolderSource, planner, sources
from holdfast.indexing.planner import corpus_digest
from holdfast.indexing.sources import portions, read
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


def _odd_folder(docs: Path) -> None:
    """Files and folders with names that sort unlike each other, and what is no file."""
    for path in (
        "a.md",
        "a/in a.md",
        "a.md.d/x.md",
        "a-b/y.md",
        "a0.txt",
        "b.bin",
        ".hidden.md",
        "plain/1.md",
        "plain/2.md",
    ):
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text(path)
    (docs / "empty").mkdir()
    (docs / "folder.md").mkdir()
    (docs / "folder.md" / "in it.md").write_text("in a folder that is named like a file")
    (docs / "large.md").write_bytes(b"x" * 2000)
    (docs / "link.md").symlink_to("a.md")
    (docs / "nowhere.md").symlink_to("no such file")
    os.mkfifo(docs / "pipe.md")
    for name in ("ä.md", "日本.md", "a\udcff.md", "sub\udcfe/z.md", "sub\udcfe/ö.md"):
        place = docs / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("odd")
    for name, seconds in {"old.md": -(1 << 33), "new.md": 1 << 33, "epoch.md": 0}.items():
        (docs / name).write_text(name)
        with contextlib.suppress(OSError):  # the disk may have no such time
            os.utime(docs / name, (seconds, seconds))


def _seen(source: Any) -> Any:
    """All that a source says of its documents, and the digest of all of them."""
    parts = list(portions(source))
    for some in parts:
        for name, stamp, document in zip(some.names, some.stamps, some.documents, strict=True):
            assert name == document.name
            assert stamp == (document.stamp if document.problem is None else None)
    documents = [(each.name, each.stamp, each.problem, read(each) if each.problem is None else b"")
                 for some in parts for each in some.documents]  # fmt: skip
    return [len(some.names) for some in parts], documents, corpus_digest(source)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"include": "*"},
        {"include": ["a/*", "*.txt"]},
        {"include": ["*n/1.md", "*.t?t"]},
        {"include": "*.md", "exclude": "a*"},
        {"include": ()},
        {"max_bytes": 1 << 80},
        {"without": ["a", "plain"]},
    ],
)
def test_native_and_python_find_the_same_documents(
    scene: Scene, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if sources.native is None:
        pytest.skip("the native module was not built")
    _odd_folder(scene.docs)
    source = FolderSource(scene.docs, **{"max_bytes": 1000} | options)
    found = _seen(source)
    names = [name for name, *_ in found[1]]
    assert names == sorted(names, key=os.fsencode) and (len(names) > 1 or options == {"include": ()})
    monkeypatch.setattr(sources, "native", None)
    assert _seen(source) == found


def test_young_files_are_not_settled_for_either(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write("a.md", "dogs bark")
    scene.write("b.md", "cats purr")
    os.utime(scene.docs / "b.md", (1, 1))
    now = (scene.docs / "b.md").stat().st_ctime_ns
    for later_ns, expected in ((0, [False, False]), (sources._SETTLED_NS + 1, [True, True])):
        monkeypatch.setattr(sources.time, "time_ns", lambda later_ns=later_ns: now + later_ns)
        for _ in range(2):
            assert [each.is_settled for each in FolderSource(scene.docs)] == expected
            monkeypatch.setattr(sources, "native", None)
        monkeypatch.undo()


@pytest.mark.parametrize("at_once", [1, 3, 4, 100])
@pytest.mark.parametrize("ahead", [1, 5, 100])
def test_one_changed_document_in_a_folder_is_found(
    scene: Scene, at_once: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its place among those that are compared, and among the rows that are read, at once."""
    monkeypatch.setattr(planner, "_AT_ONCE", at_once)
    monkeypatch.setattr(planner, "_AHEAD", ahead)
    for number in range(9):
        scene.write(f"{number}.md", f"text {number}")
    with scene.done() as run:
        for number in (0, 3, 4, 8):
            scene.write(f"{number}.md", f"changed {number}")
            plan = run.plan()
            assert [each.name for each in plan.documents] == [f"{number}.md"]
            assert (plan.unchanged, plan.deleted) == (8, ())
            run.apply(plan)
        (scene.docs / "5.md").unlink()
        scene.write("4a.md", "a new one")
        plan = run.plan()
        assert [each.name for each in plan.documents] == ["4a.md"]
        assert (plan.unchanged, plan.deleted) == (8, ("5.md",))


def test_documents_with_the_same_stamp_are_not_taken_for_each_other(scene: Scene) -> None:
    texts = {"a": "dogs bark", "b": "cats purr"}
    scene.source = lambda: [Document(name, text.encode, "1") for name, text in texts.items()]
    with scene.done() as run:
        texts["c"] = texts.pop("b")
        plan = run.plan()
        assert ([each.name for each in plan.documents], plan.deleted, plan.unchanged) == (["c"], ("b",), 1)
