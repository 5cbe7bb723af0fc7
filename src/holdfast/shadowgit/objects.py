"""git's objects: hashes, the encoding of trees, commits and pack entries, and the names that a tree may contain."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import re
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from isal import isal_zlib

from holdfast.errors import Damaged, Remedy

if TYPE_CHECKING:
    import hashlib

DEFLATE_LEVEL = 1  # measured: the size of zlib's level 1 in a third of its time


class ObjectKind(IntEnum):
    """What an object is; the numbers are those of the pack format."""

    COMMIT = 1
    TREE = 2
    BLOB = 3
    TAG = 4


KIND_NAMES = {ObjectKind.COMMIT: b"commit", ObjectKind.TREE: b"tree", ObjectKind.BLOB: b"blob", ObjectKind.TAG: b"tag"}

FOLDER_MODE = 0o040000
FILE_MODE = 0o100644
EXECUTABLE_MODE = 0o100755
LINK_MODE = 0o120000

_RAW_ENTRY = rb"(?s)[0-7]+ [^\0]+\0.{20}"  # not compiled yet, as the patterns below: start-up cost
_HEX = rb"[0-9a-f]{40}"
_left_bytes = [512 << 10]
"""How much is still hashed without OpenSSL (start-up cost): loading that takes as long as a mebibyte without it."""
EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


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


def object_id(kind: ObjectKind, data: bytes) -> bytes:
    """The name of an object: the SHA-1 of its kind, size and content."""
    header = b"%s %d\0" % (KIND_NAMES[kind], len(data))
    digest = new_sha1(len(data))
    digest.update(header)
    digest.update(data)
    return digest.digest()


def new_sha1(size: int) -> "hashlib._Hash":
    """An empty SHA-1 for about `size` bytes: Python's own, as long as a process hashes little, else OpenSSL's."""
    if size <= _left_bytes[0]:
        try:
            from _sha1 import sha1  # type: ignore[import-not-found]  # typeshed has no stub
        except ImportError:  # a Python built without it
            _left_bytes[0] = -1
        else:
            _left_bytes[0] -= size  # several threads may do this at once: then it is about that much
            found: hashlib._Hash = sha1()
            return found
    from hashlib import sha1 as fast_sha1  # start-up cost

    return fast_sha1()


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


def encode_entry(kind: ObjectKind, oid: bytes, data: bytes) -> PackEntry:
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
            raise Damaged("a tree object is cut short", remedy=Remedy("verify"))
        try:
            yield TreeEntry(int(mode, 8), name, oid)
        except ValueError:
            raise Damaged("a tree object is malformed", remedy=Remedy("verify")) from None
        position = end + 21


def raw_entries(data: bytes) -> list[bytes]:
    """Split a tree into its entries, undecoded: much faster than `decode_tree`, for many trees."""
    found: list[bytes] = re.findall(_RAW_ENTRY, data)
    if b"".join(found) != data:
        raise Damaged("a tree object is malformed", remedy=Remedy("verify"))
    return found


def find_entry(data: bytes, names: Iterable[bytes]) -> TreeEntry | None:
    """The first entry of a tree that has one of these names."""
    endings = tuple(b" %s\0" % name for name in names)
    for entry in raw_entries(data):
        if entry[:-20].endswith(endings):  # as a name with a space may
            found = next(decode_tree(entry))
            if b" %s\0" % found.name in endings:
                return found
    return None


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
        if word in (b"parent", b"object") and re.fullmatch(_HEX, name):
            found.append(bytes.fromhex(name.decode("ascii")))
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
        raise Damaged("a commit object is cut short", remedy=Remedy("verify"))
    return tree


# Names that git forbids in a tree, or gives a meaning of its own, are stored under names that it takes as they are.
#
# git refuses a tree entry that is `.git` in any spelling a file system might fold into it (case, trailing dots and
# spaces, `git~1`, characters that HFS+ ignores, the part after a backslash), and looks into `.gitmodules` and
# `.gitattributes`. Such a name is stored with `.`, `~`, `\` and `%` written as `%2E`, `%7E`, `%5C` and `%25`. A plain
# name that contains one of these four sequences, and the name `%` itself (used in `attrs/`), is escaped as well, so
# that reading is unambiguous: a stored name with one of the sequences is unescaped, any other is what it says.

_SPECIAL = (
    rb"(?i)%(?:2E|7E|5C|25)|\A%\Z"
    rb"|(?:\A|\\)(?:\.git[. ]*(?:\Z|[:\\])|git~|\.gitmodules|gitmod~|\.gitattributes|gitatt~|gi[0-9a-f]{4}~)"
)
_SPECIAL_LINK = rb"(?i)(?:\A|\\)(?:\.gitignore|gitign~|\.mailmap|mailma~|ma[0-9a-f]{4}~)"
_HFS_IGNORED = "[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]"
_HFS_END = "[\udc80-\udcff\ufffe\uffff]"  # where git's check for HFS+ takes a name to end
_FIRST = frozenset(b".gGmM")
_ESCAPE = rb"[.~\\%]"
_UNESCAPE = rb"%(2E|7E|5C|25)"


def store_name(name: bytes, *, is_link: bool = False) -> bytes:
    """The name under which git keeps `name`."""
    return re.sub(_ESCAPE, lambda match: b"%%%02X" % match[0][0], name) if _is_special(name, is_link) else name


def real_name(stored: bytes) -> bytes:
    """The name that `stored` stands for."""
    return re.sub(_UNESCAPE, lambda match: bytes([int(match[1], 16)]), stored) if b"%" in stored else stored


def _is_special(name: bytes, is_link: bool) -> bool:
    if name.isascii():
        if name[0] not in _FIRST and b"\\" not in name and b"%" not in name:
            return False
        spellings = [name]
    else:
        text = re.sub(_HFS_IGNORED, "", name.decode("utf-8", "surrogateescape"))
        shortest = re.split(_HFS_END, text, maxsplit=1)[0]
        spellings = [spelling.encode("utf-8", "surrogateescape") for spelling in (text, shortest)]
    return any(
        re.search(_SPECIAL, spelling) is not None or (is_link and re.search(_SPECIAL_LINK, spelling) is not None)
        for spelling in spellings
    )
