"""One folder as a scan saw it, and the cache that keeps all of them for the next scan.

The columns are plain arrays, because a save with nothing changed compares a hundred thousand rows and must not make
an object of each. The cache carries a checksum and is only a memory: without it everything is read again.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from sys import byteorder
from typing import Any

# The columns of an entry.
MODE, INO, SIZE, MTIME, CTIME, NLINK, FLAGS = range(7)
WIDTH = 7

# Flags of an entry.
IGNORED = 1  # held although git's rules ignore it; counts towards the limit for ignored files
LEFT_OUT = 2  # not held; watched, because that can change with its size
FAILED = 4  # could not be read; tried again each time
YOUNG = 8  # changed so shortly before it was looked at that it may change again unseen; never trusted

UNKNOWN = bytes(20)
_MAGIC = b"holdfast scan 1 " + byteorder.encode() + b"\n"
_SIZE = struct.Struct("<I")
_HEAD = struct.Struct("<II")  # bytes of text, number of entries
_ENTRY_BYTES = 8 * WIDTH + 20

Key = tuple[int, int, int, int, int]


class Folder:
    """A folder's own status and its entries, column by column; never changed once the scan is over.

    `record` must be emptied by whoever changes a folder that was read from the cache.
    """

    __slots__ = (
        "attrs",
        "attrs_is_tree",
        "contents",
        "context",
        "extra",
        "extras",
        "folders",
        "ignored_bytes",
        "ignored_count",
        "key",
        "names",
        "path",
        "probes",
        "record",
        "rows",
        "rules",
        "skipped",
        "sources",
        "tree",
        "trusted",
    )

    def __init__(self, path: str, key: Key) -> None:
        self.path = path
        self.key = key  # device, inode, mode, mtime, ctime
        self.trusted = False  # whether the same key will mean the same names
        self.extra = b""
        self.names: list[str] = []
        self.rows: array[int] = array("q")
        self.contents = bytearray()  # 20 bytes an entry: the name of its content, or UNKNOWN
        self.extras: dict[str, bytes] = {}
        self.folders: list[str] = []
        self.skipped: dict[str, tuple[str, str]] = {}  # name: (reason, detail)
        self.probes: list[str] = []  # ignored folders, held while they are small
        self.sources = (False, False, False)  # has .gitignore, .holdfastignore, .git
        self.rules = b""
        self.context = ""  # why everything in it is ignored, if so
        self.ignored_bytes = 0
        self.ignored_count = 0
        self.tree = b""  # what the last save made of it
        self.attrs = b""
        self.attrs_is_tree = False
        self.record = b""  # its bytes in the cache, while they hold

    def copy(self) -> Folder:
        """A folder that may be changed, without what the last save made of it."""
        other = Folder(self.path, self.key)
        for slot in Folder.__slots__:
            value = getattr(self, slot)
            if slot in ("rows", "contents", "names", "folders", "probes"):
                value = value[:]
            elif slot in ("extras", "skipped"):
                value = dict(value)
            setattr(other, slot, value)
        other.tree = other.attrs = other.record = b""
        return other

    def place(self, name: str) -> int | None:
        """Where an entry is in the columns."""
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None

    def content(self, place: int) -> bytes:
        return bytes(self.contents[20 * place : 20 * place + 20])

    def set_content(self, place: int, oid: bytes) -> None:
        self.record = b""
        self.contents[20 * place : 20 * place + 20] = oid

    def flags(self, place: int) -> int:
        return self.rows[WIDTH * place + FLAGS]

    def holds(self, place: int) -> bool:
        """Whether the entry is part of the checkpoint."""
        return not self.rows[WIDTH * place + FLAGS] & (LEFT_OUT | FAILED)

    def count_ignored(self) -> None:
        """Add up the ignored entries."""
        rows = self.rows
        sizes = [rows[at + SIZE] for at in range(0, len(rows), WIDTH) if rows[at + FLAGS] & IGNORED]
        self.ignored_bytes, self.ignored_count = sum(sizes), len(sizes)


def dump(folders: Iterable[Folder], memo: object) -> bytes:
    """The cache as bytes. `memo` is any JSON value that the caller wants back.

    A record is kept as it was read while its folder has not changed, so that writing costs what changed (P8).
    """
    text = json.dumps(memo, separators=(",", ":")).encode()
    records = [_SIZE.pack(len(text)), text]
    records += [folder.record or _record(folder) for folder in folders]
    body = b"".join(records)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def load(data: bytes) -> tuple[object, dict[str, Folder]] | None:
    """Read a cache; None if it is not, to the last bit, what was written."""
    start = len(_MAGIC) + 4
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start + 4:
        return None
    with memoryview(data) as view, view[start:] as body:
        if zlib.crc32(body).to_bytes(4, "big") != data[start - 4 : start]:
            return None
    (size,) = _SIZE.unpack_from(data, start)
    at = start + 4
    memo = json.loads(data[at : at + size])
    at += size
    folders = {}
    while at < len(data):
        meta_size, count = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + meta_size + _ENTRY_BYTES * count
        folder = _folder(data[at:end], meta_size, count)
        folders[folder.path] = folder
        at = end
    return memo, folders


def _record(folder: Folder) -> bytes:
    meta = [
        folder.path,
        folder.key,
        folder.trusted,
        folder.extra.decode("latin-1"),
        folder.names,
        {name: extra.decode("latin-1") for name, extra in folder.extras.items()},
        folder.folders,
        folder.skipped,
        folder.probes,
        folder.sources,
        folder.rules.hex(),
        folder.context,
        folder.ignored_bytes,
        folder.ignored_count,
        folder.tree.hex(),
        folder.attrs.hex(),
        folder.attrs_is_tree,
    ]
    text = json.dumps(meta, separators=(",", ":")).encode()
    head = _HEAD.pack(len(text), len(folder.names))
    folder.record = b"".join((head, text, folder.rows.tobytes(), folder.contents))
    return folder.record


def _folder(record: bytes, meta_size: int, count: int) -> Folder:
    at = _HEAD.size + meta_size
    row = _decode(record[_HEAD.size : at])
    folder = Folder(row[0], tuple(row[1]))
    folder.trusted = row[2]
    folder.extra = row[3].encode("latin-1")
    folder.names = row[4]
    if row[5]:
        folder.extras = {name: extra.encode("latin-1") for name, extra in row[5].items()}
    folder.folders = row[6]
    if row[7]:
        folder.skipped = {name: (value[0], value[1]) for name, value in row[7].items()}
    folder.probes = row[8]
    folder.sources = tuple(row[9])
    folder.rules = bytes.fromhex(row[10])
    folder.context = row[11]
    folder.ignored_bytes = row[12]
    folder.ignored_count = row[13]
    folder.tree = bytes.fromhex(row[14])
    folder.attrs = bytes.fromhex(row[15])
    folder.attrs_is_tree = row[16]
    folder.rows.frombytes(record[at : at + 8 * WIDTH * count])
    folder.contents = bytearray(record[at + 8 * WIDTH * count :])
    folder.record = record
    return folder


def _decode(text: bytes) -> Any:
    return json.loads(text.decode())
