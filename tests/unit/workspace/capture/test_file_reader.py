"""Reading in one thread and deflating in others: everything arrives, errors too, and no thread stays."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.scan.cache import FAILED, Folder
from holdfast.scan.dir_handles import Handles
from holdfast.shadowgit import ObjectKind, ObjectStore, PackEntry, object_id
from holdfast.workspace.capture import file_reader
from holdfast.workspace.capture.file_reader import Reading
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink

SIZES = [0, 1, 16383, 16384, 100_000, 3_000_000]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "store")
    store.create()
    return store


def folder_with(root: Path, contents: list[bytes]) -> Folder:
    """A folder with files of these contents, as a walk leaves it: nothing is read yet."""
    root.mkdir()
    folder = Folder("", (0, 0, 0, 0, 0))
    rows: list[int] = []
    for number, content in enumerate(contents):
        name = f"file-{number}"
        (root / name).write_bytes(content)
        status = (root / name).stat()
        folder.names.append(name)
        rows += (status.st_mode, status.st_ino, len(content), status.st_mtime_ns, status.st_ctime_ns, 1, 0)
        folder.contents += bytes(20)
    folder.rows = array("q", rows)
    return folder


def read_all(root: Path, folder: Folder, sink: ObjectSink) -> bool:
    with Handles(str(root)) as handles, Reading(handles, (0, 0), sink) as reader:
        steady = [reader.read((folder, place)) for place in range(len(folder.names))]
        reader.finish()
    return all(steady)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_files_of_every_size_are_stored(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(file_reader, "_MOST_THREADS", threads)
    monkeypatch.setattr(file_reader, "_WAITING_BYTES", 50_000)
    contents = [bytes([size % 251]) * size for size in SIZES for _ in range(2)]
    folder = folder_with(tmp_path / "root", contents)
    sink = PackSink(store)
    assert read_all(tmp_path / "root", folder, sink)
    sink.writer.commit()
    store.refresh()
    assert [store.blob(folder.content(place)) for place in range(len(contents))] == contents
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-deflate"]


def test_thread_error_reaches_the_caller_and_no_thread_stays(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(kind: ObjectKind, oid: bytes, data: bytes) -> PackEntry:
        raise MemoryError

    monkeypatch.setattr(file_reader, "_MOST_THREADS", 1)
    monkeypatch.setattr(file_reader, "encode_entry", fail)
    folder = folder_with(tmp_path / "root", [bytes(20_000)])
    with pytest.raises(MemoryError):
        read_all(tmp_path / "root", folder, PackSink(store))
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-deflate"]


def test_store_write_error_is_not_an_unreadable_file(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(entry: PackEntry) -> None:
        raise OSError(28, "No space left on device")

    for number, size in enumerate((10, 20_000)):
        folder = folder_with(tmp_path / f"root-{number}", [bytes(size)])
        sink = PackSink(store)
        monkeypatch.setattr(sink, "add_entry", full)
        with pytest.raises(Unavailable):
            read_all(tmp_path / f"root-{number}", folder, sink)
        assert not folder.flags(0) & FAILED


def test_the_same_content_is_deflated_once(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = file_reader.encode_entry

    def count(kind: ObjectKind, oid: bytes, data: bytes) -> PackEntry:
        asked.append(oid)
        return real(kind, oid, data)

    monkeypatch.setattr(file_reader, "encode_entry", count)
    folder = folder_with(tmp_path / "root", [bytes(20_000)] * 5)
    read_all(tmp_path / "root", folder, PackSink(store))
    assert asked == [object_id(ObjectKind.BLOB, bytes(20_000))]


def test_ctrl_c_while_a_thread_starts_stays_one(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    folder = folder_with(tmp_path / "root", [bytes(20_000)])
    with pytest.raises(KeyboardInterrupt):
        read_all(tmp_path / "root", folder, PackSink(store))
