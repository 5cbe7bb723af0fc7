"""Attributes that git cannot store (P2), as text: a line for each entry of a folder, the folder itself first as `.`.

    MODE MTIME EXTRAS NAME
    100600 1731700000123456789 - .env
    100644 -1 owner=0:0,xattr.user.tag=Ymx1ZQ== notes.txt

MODE is the whole mode in octal, type included; MTIME nanoseconds since 1970; EXTRAS is `-` or other attributes,
separated by commas; NAME runs to the end of the line, with `%` and newline written as `%25` and `%0A`. Entries that
share a `link=` are one file under several names. `parts=SIZE` is a file of that size whose content is a tree of
parts. Pipes and devices have a line here only, and no content in `files/`.
"""

from __future__ import annotations

import os
import stat
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

from holdfast.durable import platform
from holdfast.errors import Damaged, Remedy

NOTHING = b"-"
SPARSE = b"sparse"
_FIRST_NS, _LAST_NS = -(1 << 63) * 10**9, (1 << 63) * 10**9 - 1  # the range of a system call: seconds of 64 bits
_LAST_MODE = 0o177777
PARTS = b"parts="
_UNKEPT_XATTRS = ("security.selinux", "security.ima", "security.evm", "trusted.", "system.nfs4_acl")


def is_in_parts(extras: bytes) -> bool:
    """Whether a file with these attributes is stored in parts, because it is large."""
    return PARTS in extras and any(each.startswith(PARTS) for each in extras.split(b","))


class Attr(NamedTuple):
    """The attributes of an entry."""

    mode: int
    mtime_ns: int
    extras: bytes

    @property
    def is_sparse(self) -> bool:
        return SPARSE in self.extras.split(b",")

    @property
    def link(self) -> bytes | None:
        """Entries with the same link are the same file."""
        return self._value(b"link=")

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group, if they differ from those of the workspace."""
        value = self._value(b"owner=")
        if value is None:
            return None
        uid, _, gid = value.partition(b":")
        return int(uid), int(gid)

    @property
    def parts_bytes(self) -> int | None:
        """The size of a large file, which is stored in parts; None for any other."""
        value = self._value(PARTS)
        return None if value is None else int(value)

    @property
    def device(self) -> int:
        """The number of a device."""
        return int(self._value(b"device=") or b"0")

    @property
    def xattrs(self) -> dict[str, bytes]:
        """Extended attributes."""
        found = {}
        for part in self.extras.split(b","):
            if part.startswith(b"xattr."):
                name, _, value = part[6:].partition(b"=")
                found[os.fsdecode(_unquote(name))] = a2b_base64(value)
        return found

    def without_link(self) -> Attr:
        """The same, but for hard links."""
        kept = [part for part in self.extras.split(b",") if not part.startswith(b"link=")]
        return self._replace(extras=b",".join(kept) or NOTHING)

    def _value(self, key: bytes) -> bytes | None:
        for part in self.extras.split(b","):
            if part.startswith(key):
                return part[len(key) :]
        return None


def encode_line(mode: int, mtime_ns: int, extras: bytes, name: str) -> bytes:
    """One line of the text."""
    encoded = os.fsencode(name)
    if b"%" in encoded or b"\n" in encoded:
        encoded = encoded.replace(b"%", b"%25").replace(b"\n", b"%0A")
    return b"%o %d %s %s\n" % (mode, mtime_ns, extras or NOTHING, encoded)


def decode(text: bytes) -> dict[str, Attr]:
    """Read a folder's attributes by name; the folder's own are under `.`."""
    found = {}
    try:
        for line in text.split(b"\n")[:-1]:
            mode, mtime_ns, extras, name = line.split(b" ", 3)
            name = unescaped(name)
            attr = Attr(int(mode, 8), int(mtime_ns), extras)
            if not _FIRST_NS <= attr.mtime_ns <= _LAST_NS or not 0 <= attr.mode <= _LAST_MODE:
                raise ValueError
            if extras != NOTHING:
                _ = attr.owner, attr.parts_bytes, attr.device, attr.xattrs  # raises ValueError if one is malformed
            found[os.fsdecode(name)] = attr
    except ValueError:
        raise Damaged("a folder's attributes cannot be read", remedy=Remedy("verify")) from None
    return found


def unescaped(name: bytes) -> bytes:
    """The name that the end of a line stands for."""
    # in this order: `%250A` is no newline
    return name.replace(b"%0A", b"\n").replace(b"%25", b"%") if b"%" in name else name


def extras_of(fd: int | None, status: os.stat_result, owner: tuple[int, int]) -> bytes:
    """The unusual attributes of an open file or folder (or, without `fd`, of an entry that cannot be opened)."""
    parts = []
    if (status.st_uid, status.st_gid) != owner:
        parts.append(b"owner=%d:%d" % (status.st_uid, status.st_gid))
    if fd is None:
        if status.st_rdev:
            parts.append(b"device=%d" % status.st_rdev)
        return b",".join(parts)
    # st_blocks counts 512 bytes whatever the block size. A page less is no hole: the end of a file may be inlined.
    if stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size - 4096:
        parts.append(SPARSE)
    parts.extend(_xattrs(fd))
    return b",".join(parts)


def _xattrs(fd: int) -> list[bytes]:
    try:
        names = platform.list_xattrs(fd)
    except OSError:
        return []  # a file system without them
    found = []
    for name in sorted(names):
        if is_kept_xattr(name):
            value = platform.get_xattr(fd, name)
            found.append(b"xattr.%s=%s" % (_quote(os.fsencode(name)), b2a_base64(value, newline=False)))
    return found


def is_kept_xattr(name: str) -> bool:
    """Whether an extended attribute is saved: not if the system sets it itself, or only root may."""
    return not name.startswith(_UNKEPT_XATTRS)


def _quote(name: bytes) -> bytes:
    for byte, text in ((b"%", b"%25"), (b",", b"%2C"), (b"=", b"%3D"), (b" ", b"%20"), (b"\n", b"%0A")):
        name = name.replace(byte, text)
    return name


def _unquote(name: bytes) -> bytes:
    for byte, text in ((b"\n", b"%0A"), (b" ", b"%20"), (b"=", b"%3D"), (b",", b"%2C"), (b"%", b"%25")):
        name = name.replace(text, byte)
    return name
