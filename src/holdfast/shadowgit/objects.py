"""git's objects: how they are hashed, how a tree and a commit are spelled, how an entry of a pack looks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from hashlib import sha1
from typing import NamedTuple

from isal import isal_zlib

from holdfast.errors import Damaged

DEFLATE_LEVEL = 1  # measured: the size of zlib's level 1 in a third of its time


class Kind(IntEnum):
    """What an object is; the numbers are those of the pack format."""

    COMMIT = 1
    TREE = 2
    BLOB = 3
    TAG = 4


KIND_NAMES = {Kind.COMMIT: b"commit", Kind.TREE: b"tree", Kind.BLOB: b"blob", Kind.TAG: b"tag"}

FOLDER_MODE = 0o040000
FILE_MODE = 0o100644
EXECUTABLE_MODE = 0o100755
LINK_MODE = 0o120000

EMPTY_TREE = sha1(b"tree 0\0").digest()


class TreeEntry(NamedTuple):
    """One name in a tree."""

    mode: int
    name: bytes
    oid: bytes

    @property
    def is_folder(self) -> bool:
        return self.mode == FOLDER_MODE


class PackEntry(NamedTuple):
    """An object as it stands in a pack."""

    oid: bytes
    data: bytes
    crc: int


def object_id(kind: Kind, data: bytes) -> bytes:
    """The name of an object: the SHA-1 of its kind, size and content."""
    digest = sha1(b"%s %d\0" % (KIND_NAMES[kind], len(data)))
    digest.update(data)
    return digest.digest()


def entry_header(kind: int, size: int) -> bytes:
    """The kind and size that stand before an object's deflated content."""
    first = (kind << 4) | (size & 15)
    size >>= 4
    out = bytearray()
    while size:
        out.append(first | 0x80)
        first = size & 0x7F
        size >>= 7
    out.append(first)
    return bytes(out)


def encode_entry(kind: Kind, oid: bytes, data: bytes) -> PackEntry:
    """Deflate an object for a pack."""
    deflater = isal_zlib.compressobj(DEFLATE_LEVEL)  # unlike its `compress`, this lets other threads run meanwhile
    entry = b"".join((entry_header(kind, len(data)), deflater.compress(data), deflater.flush()))
    return PackEntry(oid, entry, zlib.crc32(entry))


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """Spell a tree; git sorts a folder as if its name ended in a slash."""
    ordered = sorted(entries, key=lambda entry: entry.name + b"/" if entry.mode == FOLDER_MODE else entry.name)
    return b"".join([b"%o %s\0%s" % (mode, name, oid) for mode, name, oid in ordered])


def decode_tree(data: bytes) -> Iterator[TreeEntry]:
    """Read a tree's entries, in its order."""
    position, size = 0, len(data)
    while position < size:
        end = data.find(b"\0", position)
        mode, _, name = data[position:end].partition(b" ")
        oid = data[end + 1 : end + 21]
        if end < 0 or len(oid) != 20 or not name:
            raise Damaged("a tree object is cut short", hint="Run `holdfast verify` to see which checkpoints use it.")
        try:
            yield TreeEntry(int(mode, 8), name, oid)
        except ValueError:
            raise Damaged(
                "a tree object is malformed", hint="Run `holdfast verify` to see which checkpoints use it."
            ) from None
        position = end + 21


def encode_commit(tree: bytes, *, seconds: int, message: str) -> bytes:
    """Spell a commit without parents, so that any of them can be deleted."""
    who = b"Holdfast <holdfast@localhost> %d +0000" % max(0, seconds)
    text = message.replace("\0", " ").encode("utf-8", "replace").strip() or b"checkpoint"
    return b"tree %s\nauthor %s\ncommitter %s\n\n%s\n" % (tree.hex().encode(), who, who, text)


def decode_lineage(data: bytes) -> list[bytes]:
    """What a commit builds upon, or what a tag names. Ours build upon nothing; those that others make may."""
    found = []
    for line in data.partition(b"\n\n")[0].split(b"\n"):
        word, _, name = line.partition(b" ")
        if word in (b"parent", b"object") and len(name) == 40:
            found.append(bytes.fromhex(name.decode("ascii", "replace")))
    return found


def decode_commit(data: bytes) -> bytes:
    """The tree that a commit names."""
    first, _, _ = data.partition(b"\n")
    word, _, name = first.partition(b" ")
    try:
        tree = bytes.fromhex(name.decode("ascii"))
    except ValueError:
        tree = b""
    if word != b"tree" or len(tree) != 20:
        raise Damaged("a commit object is cut short", hint="Run `holdfast verify` to see which checkpoints use it.")
    return tree
