"""Reading in one thread and deflating in others: everything arrives, errors too, and no thread stays."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.scan import sqlite_files
from holdfast.scan.cache import CTIME, FAILED, WIDTH, Folder
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


def later() -> int:
    """A clock by which the files of a test are not young."""
    return time.time_ns() + 10**9


def read_folder(root: Path, folder: Folder, sink: ObjectSink) -> tuple[bool, list[str]]:
    """Read all entries together; return whether they were steady, and the names of those read one by one."""
    single: list[str] = []
    owner = os.getuid(), os.getgid()
    with Handles(str(root)) as handles, Reading(handles, owner, sink, clock=later) as reader:
        one_by_one = reader.read

        def read(job: file_reader.Job, tell: Callable[[int], None] | None = None) -> bool:
            single.append(folder.names[job[1]])
            return one_by_one(job, tell)

        reader.read = read  # type: ignore[method-assign]
        steady = reader.read_folder(folder, range(len(folder.names)))
        reader.finish()
    return steady, single


native = pytest.mark.skipif(file_reader._read_files is None, reason="the native module is not built")


class TestFolders:
    @pytest.mark.parametrize("threads", [0, 1, 3])
    @pytest.mark.parametrize("is_native", [pytest.param(True, marks=native), False])
    def test_contents(
        self, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, threads: int, is_native: bool
    ) -> None:
        if not is_native:
            monkeypatch.setattr(file_reader, "_read_files", None)
        monkeypatch.setattr(file_reader, "_MOST_THREADS", threads)
        monkeypatch.setattr(file_reader, "_WAITING_BYTES", 50_000)
        contents = [bytes([size % 251]) * size for size in [*SIZES, *range(150)] for _ in range(2)]
        folder, sink = folder_with(tmp_path / "root", contents), PackSink(store)
        steady, single = read_folder(tmp_path / "root", folder, sink)
        sink.writer.commit()
        store.refresh()
        assert steady
        assert len(single) == (2 if is_native else len(contents))  # those of 3 MB
        assert [store.blob(folder.content(place)) for place in range(len(contents))] == contents
        assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-deflate"]

    @native
    def test_what_is_not_ordinary_is_read_one_by_one(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        folder = folder_with(root, [b"%d" % number * 40_000 for number in range(9)])
        (root / "file-0").write_bytes(b"grown" * 50_000)  # since the walk
        (root / "file-1").write_bytes(b"less")
        (root / "file-2").write_bytes(b"x" * 40_000)  # the same size, another time
        (root / "file-3").unlink()
        (root / "file-4").unlink()
        os.mkfifo(root / "file-4")
        os.setxattr(root / "file-5", "user.tag", b"blue")
        folder.rows[WIDTH * 5 + CTIME] = (root / "file-5").stat().st_ctime_ns
        os.truncate(root / "file-6", 0)
        os.truncate(root / "file-6", 40_000)  # a hole
        status = (root / "file-6").stat()
        folder.set_status(6, status, 0)
        (root / "file-7").unlink()
        (root / "file-7").symlink_to("file-8")
        contents = file_reader._read_files(
            (fd := os.open(root, os.O_RDONLY)),
            folder.names,
            [*range(9)],
            folder.rows,
            os.getuid(),
            os.getgid(),
            1 << 20,
        )
        os.close(fd)
        for place in (0, 1, 4):
            os.close(contents[place])  # of another size: may have become a database
        others = [contents[place] for place in (2, 3, 5, 6, 7, 8)]
        assert others == [None] * 5 + [b"8" * 40_000]

    @native
    def test_what_became_a_pipe_is_not_read(self, tmp_path: Path) -> None:
        """What another program has written into it is for a third one (P1)."""
        root = tmp_path / "root"
        folder = folder_with(root, [b"12345"])
        (root / "file-0").unlink()
        os.mkfifo(root / "file-0")
        pipe = os.open(root / "file-0", os.O_RDWR | os.O_NONBLOCK)
        os.write(pipe, b"words")
        with Handles(str(root)) as handles:
            owner = os.getuid(), os.getgid()
            os.close(file_reader._read_files(handles.open(""), folder.names, [0], folder.rows, *owner, 100)[0])
        assert os.read(pipe, 9) == b"words"
        os.close(pipe)

    @native
    def test_file_of_another_owner(self, tmp_path: Path) -> None:
        folder = folder_with(tmp_path / "root", [b"content"])
        with Handles(str(tmp_path / "root")) as handles:
            for owner in ((os.getuid() + 1, os.getgid()), (os.getuid(), os.getgid() + 1)):
                assert file_reader._read_files(handles.open(""), folder.names, [0], folder.rows, *owner, 100) == [None]

    def test_young_files_are_read_one_by_one(
        self, tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their times cannot show whether they changed while they were read (P2)."""
        folder = folder_with(tmp_path / "root", [b"content"])
        monkeypatch.setattr(sys.modules[__name__], "later", lambda: folder.rows[CTIME])
        assert read_folder(tmp_path / "root", folder, ObjectSink(store))[1] == ["file-0"]

    def test_database_keeps_its_lock(self, tmp_path: Path, store: ObjectStore) -> None:
        """Closing a descriptor of a database that this process has locked would drop the lock (P1)."""
        root = tmp_path / "root"
        folder = folder_with(root, [b"", b"plain"])
        connection = sqlite3.connect(root / "file-0", isolation_level=None)
        connection.execute("CREATE TABLE t (x)")
        folder.set_status(0, (root / "file-0").stat(), 0)
        connection.execute("BEGIN EXCLUSIVE")
        assert read_folder(root, folder, ObjectSink(store))[0]
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('INSERT INTO t VALUES (1)')"
        other = subprocess.run([sys.executable, "-c", code, str(root / "file-0")], capture_output=True, text=True)
        connection.close()
        assert "database is locked" in other.stderr

    def test_kept_database_is_not_opened_again(self, tmp_path: Path, store: ObjectStore) -> None:
        """A new database is an empty file: only the kept descriptor tells that it is one (P1)."""
        root = tmp_path / "root"
        folder = folder_with(root, [b""])
        connection = sqlite3.connect(root / "file-0", isolation_level=None)
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("BEGIN IMMEDIATE")
        with Handles(str(root)) as handles, sqlite_files.reading("file-0", os.O_RDONLY, handles.open("")):
            pass
        assert read_folder(root, folder, ObjectSink(store)) == (True, ["file-0"])
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('CREATE TABLE t (x)')"
        other = subprocess.run([sys.executable, "-c", code, str(root / "file-0")], capture_output=True, text=True)
        connection.close()
        assert "database is locked" in other.stderr

    @pytest.mark.parametrize("part", sqlite_files.PARTS)
    def test_sidecars_are_read_one_by_one(self, tmp_path: Path, store: ObjectStore, part: str) -> None:
        """Closing one could lose locks of its database, whatever is in it (P1)."""
        folder = folder_with(tmp_path / "root", [b"content"])
        (tmp_path / "root" / "file-0").rename(tmp_path / "root" / f"file{part}")
        folder.names[0] = f"file{part}"
        folder.set_status(0, (tmp_path / "root" / f"file{part}").stat(), 0)
        assert read_folder(tmp_path / "root", folder, ObjectSink(store)) == (True, [f"file{part}"])

    @native
    @pytest.mark.parametrize("places", [[2], [-1], ["0"], [0]])
    def test_wrong_arguments(self, tmp_path: Path, places: list[int]) -> None:
        folder = folder_with(tmp_path / "root", [b"content", b"content"])
        with pytest.raises((ValueError, TypeError)):
            file_reader._read_files(0, folder.names, places, folder.rows, 0, 0, 3)
