"""Text from outside: what is shown does nothing, and a path that was shown can be given back."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Refused
from holdfast.escaping import escape, escape_path, shell_word, unescape_path

_WIDE_SPACES = "\u00a0\u2009\u202f\u3000"


@given(st.binary(max_size=60).filter(lambda name: b"\0" not in name))
def test_any_name_is_shown_harmless_and_can_be_given_back(name: bytes) -> None:
    path = os.fsdecode(name)
    shown = escape_path(path)
    assert all(char.isprintable() or char in _WIDE_SPACES for char in shown)
    shown.encode("utf-8")  # no half characters
    assert unescape_path(shown) == path


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
def test_so_is_any_text(text: str) -> None:
    assert unescape_path(escape_path(text)) == text
    assert all(char.isprintable() or char in _WIDE_SPACES for char in escape(text))


@given(st.text(max_size=30))
def test_what_is_given_is_a_path_or_refused(text: str) -> None:
    try:
        path = unescape_path(text)
    except Refused as error:
        assert "\\" in text or "\0" in text
        assert str(error)
    else:
        assert "\0" not in path


@pytest.mark.parametrize("text", ["\\", "a\\q", "\\x0", "\\XFF", "\\ud800", "\\U00110000", "\\x00", "\\u0000"])
def test_a_backslash_that_begins_no_escape_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        unescape_path(text)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_shell_reads_a_word_back() -> None:
    names = [
        b"a b",
        b"it's",
        b"new\nline",
        b"\xff\xfe1",
        "bidi\u202e\u2066x'\\".encode(),
        b"\x1b[31m",
        b"-$(x)`y`",
        b"\t",
    ]
    words = " ".join(shell_word(os.fsdecode(name)) for name in names)
    assert words.isprintable()
    ran = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True)
    assert ran.stdout.split(b"\0")[:-1] == names
