"""Vectors of one size side by side in blobs of SQLite: a search reads a block at once, a change writes one vector.

A block begins with one bit for each of its places, the lowest first, which says whether a vector is there. The vectors
follow in the order of their places. The first block of a channel grows with what is in it; others are made whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby

SCHEMA = """
CREATE TABLE block (
    number INTEGER PRIMARY KEY, collection INTEGER NOT NULL, channel TEXT NOT NULL, place INTEGER NOT NULL,
    data BLOB NOT NULL, UNIQUE (collection, channel, place)
);
"""
_BLOCK_BYTES = 1 << 20
_LEAST, _MOST = 64, 8192
_FIRST = 16


class Blocks:
    """The vectors of one channel of a collection, by their places from 0 on."""

    def __init__(self, db: sqlite3.Connection, collection: int, channel: str, size_bytes: int) -> None:
        self._db = db
        self._own = (collection, channel)
        self._size = size_bytes
        self._places = min(_MOST, max(_LEAST, _BLOCK_BYTES // size_bytes // 64 * 64))
        self._header = self._places // 8

    def put(self, vectors: Mapping[int, bytes]) -> None:
        """Write vectors into their places."""
        for block, places in self._by_block(vectors):
            with closing(self._room(block, places[-1] % self._places + 1)) as blob:
                for place in places:
                    blob.seek(self._header + place % self._places * self._size)
                    blob.write(vectors[place])
                self._mark(blob, places, is_there=True)

    def clear(self, places: Iterable[int]) -> None:
        """Have nothing in some places; those where nothing is do not matter."""
        for block, some in self._by_block(places):
            number = self._number(block)
            if number is not None:
                with closing(self._open(number)) as blob:
                    self._mark(blob, some, is_there=False)

    def get(self, places: Iterable[int]) -> dict[int, bytes]:
        """The vectors of those places that have one."""
        found: dict[int, bytes] = {}
        for block, some in self._by_block(places):
            number = self._number(block)
            if number is None:
                continue
            with closing(self._open(number, readonly=True)) as blob:
                marks = int.from_bytes(blob.read(self._header), "little")
                for place in some:
                    if marks >> place % self._places & 1:
                        blob.seek(self._header + place % self._places * self._size)
                        found[place] = blob.read(self._size)
        return found

    def there(self) -> Iterator[tuple[int, bytes]]:
        """For each block its first place, and its bits."""
        rows = self._db.execute("SELECT place, number FROM block WHERE collection = ? AND channel = ?", self._own)
        for block, number in rows.fetchall():
            with closing(self._open(number, readonly=True)) as blob:
                yield block * self._places, blob.read(self._header)

    def all(self) -> Iterator[tuple[int, bytes, memoryview]]:
        """Each block: its first place, its bits, and the vectors side by side."""
        rows = self._db.execute(
            "SELECT place, data FROM block WHERE collection = ? AND channel = ? ORDER BY place", self._own
        )
        for block, data in rows:
            yield block * self._places, data[: self._header], memoryview(data)[self._header :]

    # one block

    def _by_block(self, places: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        for block, some in groupby(sorted(places), lambda place: place // self._places):
            yield block, list(some)

    def _number(self, block: int) -> int | None:
        query = "SELECT number FROM block WHERE collection = ? AND channel = ? AND place = ?"
        found = self._db.execute(query, (*self._own, block)).fetchone()
        return int(found[0]) if found else None

    def _open(self, number: int, *, readonly: bool = False) -> sqlite3.Blob:
        """A block; P9: one opened to be written to takes the file's one place for writers, also if it is only read."""
        return self._db.blobopen("block", "data", number, readonly=readonly)

    def _room(self, block: int, least: int) -> sqlite3.Blob:
        """A block with room for as many vectors, made or made longer where it has to be."""
        number = self._number(block)
        if number is None:
            places = self._places if block else self._grown(least)
            made = self._db.execute(
                "INSERT INTO block (collection, channel, place, data) VALUES (?, ?, ?, zeroblob(?))",
                (*self._own, block, self._header + places * self._size),
            )
            return self._open(int(made.lastrowid or 0))
        blob = self._open(number)
        if len(blob) >= self._header + least * self._size:
            return blob
        with closing(blob):
            data = blob.read()
        longer = data + bytes(self._header + self._grown(least) * self._size - len(data))
        self._db.execute("UPDATE block SET data = ? WHERE number = ?", (longer, number))
        return self._open(number)

    def _grown(self, least: int) -> int:
        places = _FIRST
        while places < least:
            places *= 2
        return min(places, self._places)

    def _mark(self, blob: sqlite3.Blob, places: Iterable[int], *, is_there: bool) -> None:
        blob.seek(0)
        marks = bytearray(blob.read(self._header))
        for place in places:
            byte, bit = divmod(place % self._places, 8)
            marks[byte] = marks[byte] | 1 << bit if is_there else marks[byte] & ~(1 << bit)
        blob.seek(0)
        blob.write(marks)


def places_of(first: int, marks: bytes) -> list[int]:
    """The places whose bits are set."""
    bits = bin(int.from_bytes(marks, "little"))[:1:-1]
    return [first + place for place, bit in enumerate(bits) if bit == "1"]
