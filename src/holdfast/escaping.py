"""Escaping of text that comes from outside, for terminals and for anything else that reads it."""

from __future__ import annotations

import re

from holdfast.errors import Refused

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONG = {short[1]: char for char, short in _SHORT.items()}
_WIDE_SPACES = "\u00a0\u2009\u202f\u3000"  # not "printable" to Python, and ordinary in prose
_SECRET = r"(://[^\s/?#:@]*:)\S*@"  # up to the last @: what is in a password need not be escaped
_SECRET_OPTION = r"(?i)([?&](?:ssl)?password=)[^&\s]*"
_ESCAPE = r"\\(?:([\\ntr])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|)"


def escape(text: str, *, keep: str = "") -> str:
    """Show every character that could move the cursor, hide, reorder or fake a line as an escape.

    A byte of a file name that is no text is shown as `\\xNN`. The characters in `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep else _escape(char) for char in text)


def escape_path(path: str) -> str:
    """A path as `escape` shows it, with its backslashes doubled, so that `unescape_path` has it back exactly."""
    return escape(path.replace("\\", "\\\\"))


def unescape(text: str) -> str:
    """The text from which `escape_path` made this. Refused if it is not such a text."""
    return re.sub(_ESCAPE, lambda match: _unescape(match, text, is_path=False), text)


def unescape_path(text: str) -> str:
    """The path from which `escape_path` made this. Refused if it is not such a text."""
    path = re.sub(_ESCAPE, lambda match: _unescape(match, text, is_path=True), text)
    if "\0" in path:
        raise Refused(f"{escape(text)} contains a NUL, which no path can", hint="Give the path as it was shown.")
    return path


def shell_word(text: str) -> str:
    """A text as one word for a shell, on one line and without characters that hide: `$'…'` where quotes do not do."""
    import shlex  # start-up cost: only for what is printed beside an answer

    if escape(text) == text:
        return shlex.quote(text)
    parts = [_in_shell(char) for char in text]
    return f"$'{''.join(parts)}'"


def _in_shell(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if escape(char) == char:
        return char
    data = char.encode("utf-8", "surrogateescape" if 0xDC80 <= ord(char) <= 0xDCFF else "replace")
    return _SHORT.get(char) or "".join(f"\\x{byte:02x}" for byte in data)


def without_password(text: str) -> str:
    """A text without the passwords of URLs; in doubt, it hides more."""
    if "://" not in text:
        return text
    return re.sub(_SECRET_OPTION, r"\1…", re.sub(_SECRET, r"\1…@", text))


def _escape(char: str) -> str:
    if char.isprintable() or char in _WIDE_SPACES:
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _SHORT.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _unescape(match: re.Match[str], text: str, *, is_path: bool) -> str:
    short, byte, *longer = match.groups()
    digits = byte or next(filter(None, longer), "")
    code = int(digits, 16) if digits else 0
    if short:
        return _LONG.get(short, short)
    if byte:
        return chr(code if code < 0x80 else 0xDC00 + code)
    if not digits or code > 0x10FFFF or (is_path and 0xD800 <= code <= 0xDFFF):
        raise Refused(
            f"{escape(text)} has a backslash that begins no escape", hint="Write a backslash of a path as two."
        )
    return chr(code)
