"""JSON in pieces is the same JSON, and refuses the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspace.stored import incremental_json
from holdfast.workspace.stored.incremental_json import encode_pieces

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that few values are one."""
    monkeypatch.setattr(incremental_json, "_MAX_COST", 3)
    monkeypatch.setattr(incremental_json, "_CHARS_PER_COST", 1)


def spelled(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@given(VALUES)
def test_together_the_pieces_are_what_one_call_would_spell(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_json, "_MAX_COST", 3)
        patch.setattr(incremental_json, "_CHARS_PER_COST", 1)
        assert b"".join(encode_pieces(value)) == spelled(value)


def test_a_large_value_is_many_pieces_none_of_them_large() -> None:
    conversation = [{"role": "user", "content": "words " * 100, "number": number} for number in range(20_000)]
    deep = {"session": {"messages": conversation, "blob": "x" * 10_000_000}}
    found = list(encode_pieces(deep))
    assert b"".join(found) == spelled(deep)
    assert max(map(len, found)) < 3_000_000


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "wrong",
    [
        [1, 2, 3, (4, 5)],
        {"a": [1, 2, 3, {1: 2}]},
        {1: [1, 2, 3, 4]},
        [1, 2, 3, float("nan")],
        [1, 2, 3, object()],
        "ab\ud83d\ude00",
        "a\ud83d\ude00bcdef",
        {"key": "abc", "ab\ud83d\ude00": 1},
    ],
)
def test_what_would_not_come_back_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        b"".join(encode_pieces(wrong))


@pytest.mark.usefixtures("small")
def test_what_holds_itself_is_refused() -> None:
    value: list[Any] = [1, 2, 3]
    value.append(value)
    with pytest.raises((ValueError, RecursionError)):
        b"".join(encode_pieces(value))


@pytest.mark.usefixtures("small")
def test_half_a_character_comes_back() -> None:
    assert b"".join(encode_pieces("ab\ud83dcdefg\ude00")) == spelled("ab\ud83dcdefg\ude00")
