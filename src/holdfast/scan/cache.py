"""One folder as a scan saw it, and the cache that keeps all of them for the next scan.

The columns are plain arrays, because a save with nothing changed compares a hundred thousand rows and must not make
an object of each. The cache carries a checksum and is only a memory: without it everything is read again.
"""

from __future__ import annotations

import json
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from sys import byteorder
from typing import Any, NamedTuple, TypeAlias

from isal import isal_zlib

# The columns of an entry.
MODE, INO, SIZE, MTIME, CTIME, NLINK, FLAGS = range(7)
WIDTH = 7

# Flags of an entry.
IGNORED = 1  # saved although git's rules ignore it; counts towards the limit for ignored files
LEFT_OUT = 2  # not saved; its row stays, because that can change with its size
FAILED = 4  # could not be read; tried again each time
YOUNG = 8  # changed so shortly before it was looked at that it may change again unseen; never trusted

# In place of the name of an entry's content.
UNKNOWN = bytes(20)  # not read yet
NO_CONTENT = b"\1" * 20  # a special file

_LEAST = -(1 << 63)
Rows: TypeAlias = "array[int] | list[int]"
_VERSION = 5
# The columns are written as they are in memory: a cache on a shared disk may come from a machine of another byte order.
_MAGIC = b"holdfast scan %d " % _VERSION + byteorder.encode() + b"\n"
OLD_CACHES = tuple(b"holdfast scan %d " % version for version in range(1, _VERSION))
"""How caches of earlier versions begin: not read, and not damaged."""
DAMAGE = (ValueError, TypeError, AttributeError, RecursionError, struct.error)
"""What reading bytes raises that are no record although the checksum fits."""
_SIZE = struct.Struct("<I")
_HEAD = struct.Struct(  # `_native.c` reads the same fields: change both, and the version
    "<QQIqq"  # the key
    "B"  # trusted, is_linked, is_settled, attrs_is_tree, sources, like_git: a bit each
    "16s20s20s"  # rules, tree, attrs
    "QI"  # ignored_bytes, ignored_count
    "IIIII"  # bytes of path, folders, details and names; number of entries
)
_RULES_AT = struct.calcsize("<QQIqqB")
_PATH_SIZE_AT = struct.calcsize("<QQIqqB16s20s20sQI")
_SOURCES = [(bool(bits & 1), bool(bits & 2), bool(bits & 4)) for bits in range(8)]

Key = tuple[int, int, int, int, int]


def columns(numbers: Sequence[int]) -> Rows:
    """The numbers as an array; as they are where one does not fit: a time after 2262, an inode of all 64 bits."""
    try:
        return array("q", numbers)
    except OverflowError:
        return list(numbers)


def row_of(status: os.stat_result, flags: int) -> tuple[int, ...]:
    """The columns of an entry."""
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_mode, status.st_ino, status.st_size, *times, status.st_nlink, flags)


class EncodedFolder(NamedTuple):
    """Where in the bytes of a cache the columns of a folder are."""

    data: bytes
    start: int
    names_at: int
    rows_at: int
    contents_at: int
    end: int
    entries: int
    far: Mapping[str, int]  # by their place, the numbers that do not fit

    def names(self) -> list[str]:
        text = self.data[self.names_at : self.rows_at].decode("utf-8", "surrogateescape")
        return text.split("\0") if text else []

    def rows(self) -> Rows:
        rows = array("q", self.data[self.rows_at : self.contents_at])
        return [self.far.get(str(at), number) for at, number in enumerate(rows)] if self.far else rows


class Folder:
    """A folder's own status and its entries, column by column; never changed once the scan is over.

    Of a folder from the cache only what tells whether it changed is read at once; the rest when it is first used.
    Code that changes such a folder must empty `record`.
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
        "is_linked",
        "is_settled",
        "key",
        "like_git",
        "names",
        "own",
        "path",
        "probes",
        "record",
        "rows",
        "rules",
        "skipped",
        "sources",
        "stored",
        "tree",
        "trusted",
    )

    def __init__(self, path: str, key: Key) -> None:
        self.path = path
        self.key = key  # device, inode, mode, mtime, ctime
        self.trusted = False  # whether the same key will mean the same names
        self.extra = b""
        self.names: list[str] = []
        self.rows: Rows = array("q")
        self.contents = bytearray()  # 20 bytes an entry: the name of its content, or UNKNOWN
        self.extras: dict[str, bytes] = {}
        self.folders: list[str] = []
        self.skipped: dict[str, tuple[str, str]] = {}  # name: (reason, detail)
        self.probes: list[str] = []  # ignored folders, saved while they are small
        self.sources = (False, False, False)  # has .gitignore, .holdfastignore, .git
        self.like_git = False  # has the names of a git directory; each scan checks whether it is one
        self.rules = b""
        self.context = ""  # why everything in it is ignored, if so
        self.ignored_bytes = 0
        self.ignored_count = 0
        self.is_linked = True  # False: no entry has a second name anywhere
        self.is_settled = False  # True: no entry is FAILED or YOUNG
        self.tree = b""  # what the last save made of it
        self.attrs = b""
        self.attrs_is_tree = False
        self.own: Any = None  # for the code that makes trees of folders; not written to the cache file
        self.record: bytes | memoryview = b""  # its bytes in the cache file, while they are valid
        self.stored: EncodedFolder | None = None  # where they are

    def __getattr__(self, slot: str) -> Any:
        """Read the rest of the record: Python calls this for a slot that is not set."""
        stored = self.stored
        if stored is None or slot not in Folder.__slots__:
            raise AttributeError(slot)
        if slot == "record":
            self.record = memoryview(stored.data)[stored.start : stored.end]
        elif slot in ("names", "rows"):
            self.names, self.rows = stored.names(), stored.rows()
        elif slot == "contents":
            self.contents = bytearray(stored.data[stored.contents_at : stored.end])
        return getattr(self, slot)

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.names) if self.stored is None else self.stored.entries

    def looked_at(self) -> tuple[list[str], Rows]:
        """The names and rows; of a folder from the cache for this once, without keeping them."""
        return (self.names, self.rows) if self.stored is None else (self.stored.names(), self.stored.rows())

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
        other.tree = other.attrs = other.record = b""  # P2: the next save makes them of the new entries
        other.is_linked, other.is_settled, other.stored, other.own = True, False, None, None
        return other

    def place(self, name: str) -> int | None:
        """Where an entry is in the columns."""
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None

    def insert(self, name: str, status: os.stat_result, flags: int) -> int:
        """Add an entry that came after the folder was listed; the entries after it move on by one place."""
        place = bisect_left(self.names, name)
        self.names.insert(place, name)
        self.contents[20 * place : 20 * place] = UNKNOWN
        self.rows[WIDTH * place : WIDTH * place] = columns([0] * WIDTH)  # type: ignore[assignment]  # as in set_status
        self.set_status(place, status, flags)
        self.record, self.trusted = b"", False  # P2: `key` is older than this name; it is listed again
        return place

    def content(self, place: int) -> bytes:
        return bytes(self.contents[20 * place : 20 * place + 20])

    def set_content(self, place: int, oid: bytes) -> None:
        self.record = b""
        self.contents[20 * place : 20 * place + 20] = oid

    def set_status(self, place: int, status: os.stat_result, flags: int) -> None:
        """Record the status of an entry in its row."""
        at, row = WIDTH * place, columns(row_of(status, flags))
        if isinstance(row, list) and isinstance(self.rows, array):
            self.rows = self.rows.tolist()
        self.rows[at : at + WIDTH] = row  # type: ignore[assignment]  # a list takes both, an array what fits

    def has_status(self, place: int, status: os.stat_result) -> bool:
        """Whether an entry looks as it did: same file, kind, size and times."""
        rows, at = self.rows, WIDTH * place
        return (
            status.st_ctime_ns == rows[at + CTIME]
            and status.st_mtime_ns == rows[at + MTIME]
            and status.st_ino == rows[at + INO]
            and status.st_size == rows[at + SIZE]
            and status.st_mode == rows[at + MODE]
        )

    def flags(self, place: int) -> int:
        return self.rows[WIDTH * place + FLAGS]

    def holds(self, place: int) -> bool:
        """Whether the entry is part of the checkpoint."""
        return not self.rows[WIDTH * place + FLAGS] & (LEFT_OUT | FAILED)

    def sum_up(self) -> None:
        """Set `is_linked` and `is_settled` by the entries."""
        self.is_linked = max(self.rows[NLINK::WIDTH], default=0) > 1
        self.is_settled = max(self.rows[FLAGS::WIDTH], default=0) <= LEFT_OUT

    def count_ignored(self) -> None:
        """Add up the ignored entries."""
        rows = self.rows
        sizes = [rows[at + SIZE] for at in range(0, len(rows), WIDTH) if rows[at + FLAGS] & IGNORED]
        self.ignored_bytes, self.ignored_count = sum(sizes), len(sizes)


def dump(folders: Iterable[Folder | memoryview], memo: object) -> bytes:
    """The cache as bytes: folders, and records to copy. `memo` is any JSON value that the caller wants back.

    A record is kept as it was read while its folder has not changed, so that writing costs what changed (P8).
    """
    text = json.dumps(memo, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [_MAGIC, bytes(4), _SIZE.pack(len(text)), text]
    parts += [each if isinstance(each, memoryview) else each.record or _record(each) for each in folders]
    checksum = 0
    for part in parts[2:]:
        checksum = isal_zlib.crc32(part, checksum)
    parts[1] = checksum.to_bytes(4, "big")
    return b"".join(parts)


def records_at(data: bytes) -> int | None:
    """Where the records of a cache begin; None if it is no cache of this version."""
    start = len(_MAGIC) + 4
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start + 4:
        return None
    return start + 4 + int(_SIZE.unpack_from(data, start)[0])


def load_memo(data: bytes) -> tuple[object, int] | None:
    """Read the caller's value, and find where the records begin; None if the cache is not what was written."""
    start, at = len(_MAGIC) + 4, records_at(data)
    if at is None:
        return None
    with memoryview(data) as view, view[start:] as body:
        if isal_zlib.crc32(body).to_bytes(4, "big") != data[start - 4 : start]:
            return None  # P2: a flipped bit could name a file unchanged that is not; everything is read again
    try:
        return json.loads(data[start + 4 : at]), at
    except (ValueError, RecursionError):  # as if nothing were known (P2)
        return None


def load(data: bytes) -> tuple[object, dict[str, Folder]] | None:
    """Read a cache; None if it is not, to the last bit, what was written."""
    found = load_memo(data)
    if found is None:
        return None
    memo, at = found
    folders = {}
    while at < len(data):
        try:
            folder = load_folder(data, at)
        except DAMAGE:
            return None  # all of it is read again (P2)
        folders[folder.path] = folder
        at = folder.stored.end if folder.stored else len(data)
    return memo, folders


def _record(folder: Folder) -> bytes | memoryview:
    rows = folder.rows
    folder.sum_up()
    state = (folder.trusted, folder.is_linked, folder.is_settled, folder.attrs_is_tree)
    marks = (*state, *folder.sources, folder.like_git)
    path, folders, names = (
        text.encode("utf-8", "surrogateescape")
        for text in (folder.path, "\0".join(folder.folders), "\0".join(folder.names))
    )
    far = _far(rows) | {f"key {at}": number for at, number in _far(folder.key[3:]).items()}
    details = _details(folder, far)
    head = _HEAD.pack(
        *folder.key[:3],
        *_near(folder.key[3:]),
        sum(mark << place for place, mark in enumerate(marks)),
        folder.rules,
        folder.tree,
        folder.attrs,
        folder.ignored_bytes,
        folder.ignored_count,
        len(path),
        len(folders),
        len(details),
        len(names),
        len(folder.names),
    )
    folder.record = b"".join((head, path, folders, details, names, _near(rows).tobytes(), folder.contents))
    return folder.record


def load_path(data: bytes, start: int) -> str:
    """Read the path of the record that begins at a place."""
    at = start + _HEAD.size
    return data[at : at + _SIZE.unpack_from(data, start + _PATH_SIZE_AT)[0]].decode("utf-8", "surrogateescape")


def load_rules(data: bytes, start: int) -> bytes:
    """Read the digest of the rules in a folder."""
    return data[start + _RULES_AT : start + _RULES_AT + 16]


def load_identity(data: bytes, start: int) -> tuple[int, int]:
    """Read the inode and the modification time of a folder whose numbers all fit."""
    _, inode, _, mtime, *_ = _HEAD.unpack_from(data, start)
    return inode, mtime


def load_folder(data: bytes, start: int) -> Folder:
    """Read the record that begins at a place. One of DAMAGE if there is none."""
    device, inode, mode, mtime, ctime, marks, rules, tree, attrs, ignored_bytes, ignored_count, *sizes = (
        _HEAD.unpack_from(data, start)
    )
    path_size, folders_size, details_size, names_size, count = sizes
    folders_at = start + _HEAD.size + path_size
    details_at = folders_at + folders_size
    names_at = details_at + details_size
    rows_at = names_at + names_size
    contents_at = rows_at + 8 * WIDTH * count
    if contents_at + 20 * count > len(data):
        raise ValueError("a record of the scan cache is cut short")
    folder = Folder.__new__(Folder)  # the slots that are not set here are read when they are first used
    folder.path = data[start + _HEAD.size : folders_at].decode("utf-8", "surrogateescape")
    folder.trusted = bool(marks & 1)
    folder.is_linked = bool(marks & 2)
    folder.is_settled = bool(marks & 4)
    folder.attrs_is_tree = bool(marks & 8)
    folder.own = None
    folder.sources = _SOURCES[marks >> 4 & 7]
    folder.like_git = bool(marks & 128)
    folder.rules = rules
    folder.tree = tree if tree != UNKNOWN else b""
    folder.attrs = attrs if attrs != UNKNOWN else b""
    folder.ignored_bytes = ignored_bytes
    folder.ignored_count = ignored_count
    folder.folders = data[folders_at:details_at].decode("utf-8", "surrogateescape").split("\0") if folders_size else []
    far = _set_details(folder, data[details_at:names_at])
    folder.key = (device, inode, mode, far.get("key 0", mtime), far.get("key 1", ctime))
    folder.stored = EncodedFolder(data, start, names_at, rows_at, contents_at, contents_at + 20 * count, count, far)
    return folder


def _far(numbers: Sequence[int]) -> dict[str, int]:
    """By their place, the numbers that do not fit into 64 bits."""
    if isinstance(numbers, array):
        return {}
    return {str(at): number for at, number in enumerate(numbers) if not _LEAST <= number <= -1 - _LEAST}


def _near(numbers: Sequence[int]) -> array[int]:
    """An array of the others, with 0 for those."""
    if isinstance(numbers, array):
        return numbers
    return array("q", [number if _LEAST <= number <= -1 - _LEAST else 0 for number in numbers])


def _details(folder: Folder, far: Mapping[str, int]) -> bytes:
    """What most folders have none of, as JSON."""
    found = [
        folder.context,
        folder.extra.decode("latin-1"),
        {name: extra.decode("latin-1") for name, extra in folder.extras.items()},
        folder.skipped,
        folder.probes,
        far,
    ]
    return json.dumps(found, separators=(",", ":")).encode() if any(found) else b""


def _set_details(folder: Folder, text: bytes) -> Mapping[str, int]:
    """Read them into a folder, and return the numbers that do not fit."""
    far: dict[str, int] = {}
    if not text:
        folder.context, folder.extra, folder.extras, folder.skipped, folder.probes = "", b"", {}, {}, []
        return far
    folder.context, extra, extras, skipped, folder.probes, far = json.loads(text)
    folder.extra = extra.encode("latin-1")
    folder.extras = {name: extra.encode("latin-1") for name, extra in extras.items()}
    folder.skipped = {name: (reason, detail) for name, (reason, detail) in skipped.items()}
    return far
