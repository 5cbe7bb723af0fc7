"""Making the index of a pack that has lost it: by a crash that kept one rename and not the other, or by an accident."""

from __future__ import annotations

import os
import zlib
from hashlib import sha1
from pathlib import Path

from holdfast import durable
from holdfast.shadowgit.objects import Kind, object_id
from holdfast.shadowgit.writer import index_file

_KINDS = {kind.value for kind in Kind}
_HEADER_BYTES = 16  # more than that of any object takes
_CHUNK_BYTES = 1 << 20  # nothing is mapped: a pack that is cut short meanwhile is damaged, not the end of the process


def index_lone_packs(folder: Path) -> None:
    """Give every pack without an index one, where that can be told from the pack alone. Needs the store's lock.

    A pack with deltas, or one that is damaged, is left as it is, for `verify` to name. Somebody's git may be about to
    put an index in place itself: it says the same.
    """
    names = set(os.listdir(folder))
    for name in names:
        if name.startswith("pack-") and name.endswith(".pack") and f"{name[:-5]}.idx" not in names:
            found = _entries(folder / name)
            if found is not None:
                added, checksum = found
                via = folder / f"tmp_idx_{name[5:-5]}"
                durable.write_atomically(folder / f"{name[:-5]}.idx", index_file(added, checksum), via=via)


def _entries(path: Path) -> tuple[dict[bytes, tuple[int, int]], bytes] | None:
    """Every object of a pack, with where it is and its checksum, and the checksum of the pack; None if it has deltas
    or is not what was written."""
    with open(path, "rb") as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        if size < 32 or os.pread(fd, 4, 0) != b"PACK":
            return None
        checksum = os.pread(fd, 20, size - 20)
        body = sha1()
        for at in range(0, size - 20, _CHUNK_BYTES):
            body.update(os.pread(fd, min(_CHUNK_BYTES, size - 20 - at), at))
        if body.digest() != checksum:
            return None
        added: dict[bytes, tuple[int, int]] = {}
        at = 12
        for _ in range(int.from_bytes(os.pread(fd, 4, 8), "big")):
            try:
                found = _object(fd, at)
            except (zlib.error, IndexError):
                found = None
            if found is None:
                return None
            oid, end = found
            added[oid] = (at, zlib.crc32(os.pread(fd, end - at, at)))
            at = end
        return added, checksum


def _object(fd: int, start: int) -> tuple[bytes, int] | None:
    """The name of the object that begins here, and where it ends; None for a delta."""
    header = os.pread(fd, _HEADER_BYTES, start)
    kind, length = (header[0] >> 4) & 7, 1
    if kind not in _KINDS:
        return None
    while header[length - 1] & 0x80:
        length += 1
    at, inflater, content = start + length, zlib.decompressobj(), []
    while not inflater.eof:
        piece = os.pread(fd, _CHUNK_BYTES, at)
        if not piece:
            return None  # it does not end, whatever the checksum says
        content.append(inflater.decompress(piece))
        at += len(piece) - len(inflater.unused_data)
    return object_id(Kind(kind), b"".join(content)), at
