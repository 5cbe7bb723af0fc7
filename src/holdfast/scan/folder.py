"""One folder as a scan saw it, and the cache that keeps all of them for the next scan.

The columns are plain arrays, because a save with nothing changed compares a hundred thousand rows and must not make
an object of each. The cache carries a checksum and is only a memory: without it everything is read again.
"""

from __future__ import annotations

import json
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

Key = tuple[int, int, int, int, int]


class Folder:
    """A folder's own status and its entries, column by column; never changed once the scan is over."""

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
        other.tree = other.attrs = b""
        return other

    def place(self, name: str) -> int | None:
        """Where an entry is in the columns."""
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None

    def content(self, place: int) -> bytes:
        return bytes(self.contents[20 * place : 20 * place + 20])

    def set_content(self, place: int, oid: bytes) -> None:
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
    """The cache as bytes. `memo` is any JSON value that the caller wants back."""
    meta = []
    rows: array[int] = array("q")
    contents = bytearray()
    for folder in folders:
        meta.append(
            [
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
        )
        rows += folder.rows
        contents += folder.contents
    text = json.dumps([memo, meta], separators=(",", ":")).encode()
    body = b"%s%d %d\n" % (_MAGIC, len(text), len(rows) // WIDTH) + text + rows.tobytes() + contents
    return body + zlib.crc32(body).to_bytes(4, "big")


def load(data: bytes) -> tuple[object, dict[str, Folder]] | None:
    """Read a cache; None if it is not, to the last bit, what was written."""
    head, _, _ = data[len(_MAGIC) : len(_MAGIC) + 64].partition(b"\n")
    if not data.startswith(_MAGIC) or zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
        return None
    text_size, count = map(int, head.split())
    at = len(_MAGIC) + len(head) + 1
    memo, meta = json.loads(data[at : at + text_size])
    at += text_size
    rows: array[int] = array("q")
    rows.frombytes(data[at : at + 8 * WIDTH * count])
    contents = data[at + 8 * WIDTH * count : -4]
    folders = {}
    place = 0
    for row in meta:
        folder = _folder(row)
        end = place + len(folder.names)
        folder.rows = rows[WIDTH * place : WIDTH * end]
        folder.contents = bytearray(contents[20 * place : 20 * end])
        folders[folder.path] = folder
        place = end
    return memo, folders


def _folder(row: list[Any]) -> Folder:
    folder = Folder(row[0], tuple(row[1]))
    folder.trusted = row[2]
    folder.extra = row[3].encode("latin-1")
    folder.names = row[4]
    folder.extras = {name: extra.encode("latin-1") for name, extra in row[5].items()} if row[5] else {}
    folder.folders = row[6]
    folder.skipped = {name: (value[0], value[1]) for name, value in row[7].items()} if row[7] else {}
    folder.probes = row[8]
    folder.sources = tuple(row[9])
    folder.rules = bytes.fromhex(row[10])
    folder.context = row[11]
    folder.ignored_bytes = row[12]
    folder.ignored_count = row[13]
    folder.tree = bytes.fromhex(row[14])
    folder.attrs = bytes.fromhex(row[15])
    folder.attrs_is_tree = row[16]
    return folder
