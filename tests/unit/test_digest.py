"""Digests: one spelling for each value, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.digest import canonical, digest
from holdfast.errors import Refused

_SCRIPT = """
from holdfast.digest import digest
print(digest({"b": {3, 1, 2}, "a": frozenset(["x", "y", "z", "ä"]), "c": [1.5, None, True], "d": b"q"}))
"""
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_it_is_the_same_in_every_process() -> None:
    found = set()
    for seed in ("0", "1", "2", "77"):
        ran = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        found.add(ran.stdout)
    assert len(found) == 1
    assert next(iter(found)).startswith(b"b3:")


def test_the_order_of_keys_and_the_kind_of_a_list_do_not_count() -> None:
    assert digest({"a": 1, "b": (1, 2)}) == digest({"b": [1, 2], "a": 1})
    assert digest("é") == digest("é")
    assert digest(PurePosixPath("a/b")) == digest("a/b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, "1"),
        (1, 1.0),
        ([], None),
        (["ab"], ["a", "b"]),
        ({"a": {}}, {"a": None}),
        (b"a", "a"),
        ({1}, [1]),
    ],
)
def test_what_differs_has_another(one: object, other: object) -> None:
    assert digest(one) != digest(other)


@given(_values, _values)
def test_two_values_have_one_spelling_only_if_they_are_equal(one: object, other: object) -> None:
    if canonical(one) == canonical(other):
        assert repr(one) == repr(other) or one == other


def test_what_has_no_single_spelling_is_refused_with_its_place() -> None:
    with pytest.raises(Refused, match=r"a\.b\[1\]"):
        digest({"a": {"b": [1, object()]}})
    with pytest.raises(Refused, match="not a number"):
        digest(float("nan"))


def test_a_dataclass_is_spelled_by_its_fields() -> None:
    @dataclass
    class Point:
        x: int
        y: int

    assert digest(Point(1, 2)) == digest({"y": 2, "x": 1})
