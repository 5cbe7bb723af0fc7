"""The index of the user's git: its content, and a digest of what is staged. Only reads (P6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.scan.sweep import native
from holdfast.scan.user_git import read_varint

_MAX_BYTES = 1 << 30
_HEADER_BYTES = 12
_NATIVE_VERSIONS = (b"\0\0\0\2", b"\0\0\0\3")
_index_identity = getattr(native, "index_identity", None)
_STAT_BYTES = 40  # times, device, inode, mode, owner, size: git rewrites these whenever it looks at files


class Index(NamedTuple):
    """An index, as git wrote it."""

    data: bytes
    shared: bytes
    """The file that a split index builds on."""
    shared_name: str
    digest: str
    """The same for two indexes with the same entries, whatever times they note; empty if there is no index."""


def read_index(git: Path, *, hash_bytes: int = 20) -> Index:
    """Read the index of a git directory. One that cannot be read counts as none."""
    try:
        data = durable.read_file(git / "index", max_bytes=_MAX_BYTES)
    except OSError:
        return Index(b"", b"", "", "")
    try:
        digest, end = _digest(data, hash_bytes)
    except (IndexError, ValueError):
        return Index(data, b"", "", _sha1(data))
    if data[end : end + 4] != b"link":  # always the first of the extensions
        return Index(data, b"", "", digest)
    name = f"sharedindex.{data[end + 8 : end + 8 + hash_bytes].hex()}"
    try:
        shared = durable.read_file(git / name, max_bytes=_MAX_BYTES)
    except OSError:
        shared = b""
    return Index(data, shared, name, _sha1(data + shared))


def staged_objects(data: bytes, *, hash_bytes: int = 20) -> set[tuple[bytes, str]]:
    """Return the paths and contents of the entries of an index, of every stage; of a sparse index also folders.

    git itself would expand a sparse index, and change the times of objects that it borrows (P6). Submodules are left
    out, and what `git add --intent-to-add` noted, which has no content yet. Nothing of a damaged index.
    """
    found = set()
    flags_at = _STAT_BYTES + hash_bytes
    try:
        for at, name, _, _ in _entries(data, hash_bytes):
            is_extended = data[at + flags_at] & 0x40
            is_intended = is_extended and data[at + flags_at + 2] & 0x20
            if not is_intended and data[at + 26] & 0xF0 != 0xE0:  # 0xE000: a submodule
                found.add((name, data[at + _STAT_BYTES : at + flags_at].hex()))
    except (IndexError, ValueError):
        return set()
    return found


def _sha1(data: bytes) -> str:
    import hashlib  # start-up cost: it loads OpenSSL

    return hashlib.sha1(data).hexdigest()


def _digest(data: bytes, hash_bytes: int) -> tuple[str, int]:
    """Return the digest of the entries and where they end. IndexError or ValueError if the index is damaged."""
    if _index_identity is not None and data[4:8] in _NATIVE_VERSIONS and len(data) >= _HEADER_BYTES:
        identity, end = _index_identity(data, hash_bytes)
        return _sha1(identity), end
    parts, last = [data[4:12]], 12
    for at, _, end, after in _entries(data, hash_bytes):
        parts += (data[at + 24 : at + 28], data[at + _STAT_BYTES : end])
        last = after
    return _sha1(b"\0".join(parts)), last


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Where each entry begins, its path, where that ends, and where the next begins.

    The path is empty for an entry that replaces one of the shared file. IndexError or ValueError if damaged.
    """
    version = int.from_bytes(data[4:8])
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    flags_at = _STAT_BYTES + hash_bytes
    at, name = 12, b""
    for _ in range(int.from_bytes(data[8:12])):
        start = at + flags_at + (4 if data[at + flags_at] & 0x40 else 2)
        if version == 4:
            dropped, start = read_varint(data, start)
            end = data.index(0, start)
            name, after = name[: max(0, len(name) - dropped)] + data[start:end], end + 1
        else:
            end = data.index(0, start)
            name, after = data[start:end], at + ((end - at + 8) & ~7)
        yield at, name, end, after
        at = after
