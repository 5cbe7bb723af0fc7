"""Writing one pack: all objects of a save in two files, instead of a file each.

Order of writes (P3): the pack under a temporary name, synced; its index under a temporary name, synced; the index
renamed into place, then the pack (a reader passes over an index without one), then the folder synced. A crash before
the last step leaves temporary files or a lone index, which the next writer sweeps; after it, a pack that no ref needs,
which goes when packs are merged. A lone pack (a disk may keep the later rename alone) gets an index again: `reindex`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from hashlib import sha1
from itertools import accumulate
from pathlib import Path

from holdfast import durable
from holdfast.shadowgit.objects import Kind, PackEntry, encode_entry, object_id
from holdfast.shadowgit.pack import INDEX_MAGIC

_BUFFER_BYTES = 8 << 20
_HEADER = struct.Struct(">4sII")
_FAR = 0x80000000


class PackWriter:
    """Collects objects; `commit` makes them durable, all or none. Not for several threads at once."""

    def __init__(self, folder: Path, *, has: Callable[[bytes], bool]) -> None:
        self._folder = folder
        self._has = has
        self._added: dict[bytes, tuple[int, int]] = {}  # name: (offset, crc)
        self._buffer = bytearray(_HEADER.size)
        self._written = 0
        self._fd = -1
        self._temporary = ""

    def holds(self, oid: bytes) -> bool:
        """Whether an object need not be added (again)."""
        return oid in self._added or self._has(oid)

    def added(self, oid: bytes) -> bool:
        """Whether an object is in this very pack."""
        return oid in self._added

    def add(self, kind: Kind, data: bytes) -> bytes:
        """Add an object and return its name."""
        oid = object_id(kind, data)
        if not self.holds(oid):
            self.add_entry(encode_entry(kind, oid, data))
        return oid

    def add_entry(self, entry: PackEntry) -> None:
        """Add an object that is deflated already; one that is in this pack is passed over."""
        if entry.oid in self._added:
            return
        self._added[entry.oid] = (self._written + len(self._buffer), entry.crc)
        self._buffer += entry.data
        if len(self._buffer) > _BUFFER_BYTES:
            self._flush()

    def commit(self) -> str | None:
        """Make everything durable and visible; the name of the pack, or None if nothing was added."""
        if not self._added:
            self.abort()
            return None
        checksum = self._finish_pack()
        index = index_file(self._added, checksum)
        name = f"pack-{checksum.hex()}"
        temporary_index = f"{self._temporary}_idx"
        fd = durable.disk().create(temporary_index)
        try:
            durable.disk().write(fd, index)
            durable.disk().fsync(fd)
        finally:
            os.close(fd)
        durable.disk().rename(temporary_index, str(self._folder / f"{name}.idx"))
        durable.disk().rename(self._temporary, str(self._folder / f"{name}.pack"))
        durable.sync_folder(self._folder)  # P3: objects are on the medium before anything names them
        return name

    def withdraw(self, name: str) -> None:
        """Remove a pack that was committed and that nothing came to name."""
        for suffix in (".pack", ".idx"):  # an index alone is swept, if this is interrupted
            durable.disk().unlink(str(self._folder / f"{name}{suffix}"))
        durable.sync_folder(self._folder)

    def abort(self) -> None:
        """Leave nothing behind."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        for leftover in (self._temporary, f"{self._temporary}_idx"):
            if self._temporary and os.path.lexists(leftover):
                durable.disk().unlink(leftover)
        self._added.clear()
        self._buffer = bytearray()

    def _flush(self) -> None:
        if self._fd < 0:
            self._temporary = str(self._folder / f"tmp_pack_{os.urandom(8).hex()}")
            self._fd = durable.disk().create(self._temporary)
        durable.disk().write(self._fd, self._buffer)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def _finish_pack(self) -> bytes:
        header = _HEADER.pack(b"PACK", 2, len(self._added))
        if self._written == 0:
            self._buffer[: _HEADER.size] = header
            checksum = sha1(self._buffer).digest()
        else:
            self._flush()
            durable.disk().pwrite(self._fd, header, 0)
            checksum = _checksum(self._temporary)
        self._buffer += checksum
        self._flush()
        durable.disk().fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        return checksum


def sweep(folder: Path) -> None:
    """Remove what writers that died left behind. Call it only while no other writer can be at work."""
    names = set(os.listdir(folder))
    for name in names:
        is_lone_index = name.endswith(".idx") and f"{name[:-4]}.pack" not in names
        if name.startswith(("tmp_", ".tmp-")) or is_lone_index:  # the second: of somebody's `git repack`
            durable.disk().unlink(str(folder / name))


def index_file(added: dict[bytes, tuple[int, int]], checksum: bytes) -> bytes:
    """The index of a pack: its objects by name, with offset and crc, and the checksum of the pack."""
    oids = sorted(added)
    counts = [0] * 256
    for oid in oids:
        counts[oid[0]] += 1
    rows = [added[oid] for oid in oids]
    near: list[int] = []
    far: list[int] = []
    for offset, _ in rows:
        if offset < _FAR:
            near.append(offset)
        else:
            near.append(_FAR | len(far))
            far.append(offset)
    body = b"".join(
        (
            INDEX_MAGIC,
            struct.pack(">256I", *accumulate(counts)),
            *oids,
            struct.pack(f">{len(rows)}I", *[crc for _, crc in rows]),
            struct.pack(f">{len(near)}I", *near),
            struct.pack(f">{len(far)}Q", *far),
            checksum,
        )
    )
    return body + sha1(body).digest()


def _checksum(path: str) -> bytes:
    digest = sha1()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()
