"""Text from outside: what is shown does nothing, and a path that was shown can be given back."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Refused
from holdfast.escaping import escape, escape_path, unescape_path

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
