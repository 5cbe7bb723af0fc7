"""Names that git forbids in a tree, or gives a meaning of its own, under names that it takes as they are.

git refuses a tree entry that is `.git` in any spelling a file system might fold into it (case, trailing dots and
spaces, `git~1`, characters that HFS+ ignores, the part after a backslash), and looks into `.gitmodules` and
`.gitattributes`. Such a name is stored with `.`, `~`, `\\` and `%` written as `%2E`, `%7E`, `%5C` and `%25`. A plain
name that contains one of these four sequences, and the name `%` itself (used in `attrs/`), is escaped as well, so
that reading is unambiguous: a stored name with one of the sequences is unescaped, any other is what it says.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(
    rb"%(?:2E|7E|5C|25)|\A%\Z"
    rb"|(?:\A|\\)(?:\.git[. ]*(?:\Z|[:\\])|git~|\.gitmodules|gitmod~|\.gitattributes|gitatt~|gi[0-9a-f]{4}~)",
    re.IGNORECASE,
)
_SPECIAL_LINK = re.compile(rb"(?:\A|\\)(?:\.gitignore|gitign~|\.mailmap|mailma~|ma[0-9a-f]{4}~)", re.IGNORECASE)
_HFS_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_HFS_END = re.compile("[\udc80-\udcff\ufffe\uffff]")  # where git's check for HFS+ takes a name to end
_FIRST = frozenset(b".gGmM")
_ESCAPE = re.compile(rb"[.~\\%]")
_UNESCAPE = re.compile(rb"%(2E|7E|5C|25)")


def store_name(name: bytes, *, is_link: bool = False) -> bytes:
    """The name under which git keeps `name`."""
    return _ESCAPE.sub(lambda match: b"%%%02X" % match[0][0], name) if _is_special(name, is_link) else name


def real_name(stored: bytes) -> bytes:
    """The name that `stored` stands for."""
    return _UNESCAPE.sub(lambda match: bytes([int(match[1], 16)]), stored) if b"%" in stored else stored


def _is_special(name: bytes, is_link: bool) -> bool:
    if name.isascii():
        if name[0] not in _FIRST and b"\\" not in name and b"%" not in name:
            return False
        spellings = [name]
    else:
        text = _HFS_IGNORED.sub("", name.decode("utf-8", "surrogateescape"))
        shortest = _HFS_END.split(text, maxsplit=1)[0]
        spellings = [spelling.encode("utf-8", "surrogateescape") for spelling in (text, shortest)]
    return any(
        _SPECIAL.search(spelling) is not None or (is_link and _SPECIAL_LINK.search(spelling) is not None)
        for spelling in spellings
    )
