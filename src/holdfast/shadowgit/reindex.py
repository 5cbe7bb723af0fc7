"""Making the index of a pack that has lost it: by a crash that kept one rename and not the other, or by an accident."""

from __future__ import annotations

import mmap
import os
import zlib
from hashlib import sha1
from pathlib import Path

from holdfast import durable
from holdfast.shadowgit.objects import Kind, object_id
from holdfast.shadowgit.writer import index_file

_KINDS = {kind.value for kind in Kind}


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
        size = os.fstat(file.fileno()).st_size
        if size < 32:
            return None
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            checksum = data[-20:]
            with memoryview(data) as view, view[:-20] as body:
                if data[:4] != b"PACK" or sha1(body).digest() != checksum:
                    return None
            added: dict[bytes, tuple[int, int]] = {}
            at = 12
            for _ in range(int.from_bytes(data[8:12], "big")):
                try:
                    found = _object(data, at)
                except (zlib.error, IndexError):
                    found = None
                if found is None:
                    return None
                oid, end = found
                added[oid] = (at, zlib.crc32(data[at:end]))
                at = end
            return added, checksum


def _object(data: mmap.mmap, start: int) -> tuple[bytes, int] | None:
    """The name of the object that begins here, and where it ends; None for a delta."""
    kind, at = (data[start] >> 4) & 7, start + 1
    if kind not in _KINDS:
        return None
    while data[at - 1] & 0x80:
        at += 1
    inflater, content = zlib.decompressobj(), []
    while not inflater.eof:
        piece = data[at : at + (1 << 20)]
        if not piece:
            return None  # it does not end, whatever the checksum says
        content.append(inflater.decompress(piece))
        at += len(piece) - len(inflater.unused_data)
    return object_id(Kind(kind), b"".join(content)), at
