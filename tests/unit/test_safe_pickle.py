"""Pickled values are read, and never unpickled."""

from __future__ import annotations

import os
import pickle
import pickletools
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Damaged, HoldfastError, Refused
from holdfast.safe_pickle import read_pickle

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.tuples(inner, inner)
        | st.sets(st.integers())
        | st.frozensets(st.text())
    ),
    max_leaves=20,
)


@given(value=_PLAIN, protocol=st.integers(0, 5))
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        read_pickle(b"\x80\x04" + data + b".")
    except HoldfastError:
        pass


@pytest.mark.parametrize("protocol", range(6))
def test_plain_classes_come_back(protocol: int) -> None:
    value = {
        "datetime": datetime(2026, 1, 2, 3, 4, 5, 6),
        "aware": datetime(2026, 1, 2, tzinfo=UTC),
        "fold": datetime(2026, 10, 25, 2, 30, fold=1),
        "date": date(2026, 1, 2),
        "time": time(1, 2, 3, 4),
        "for": timedelta(1, 2, 3),
        "price": Decimal("1.50"),
        "ordered": OrderedDict(a=1, b=[2]),
        "bytes": b"\0\xff",
        "complex": 1 + 2j,
    }
    found = read_pickle(pickle.dumps(value, protocol))
    assert found == value
    assert found["fold"].fold == (1 if protocol > 3 else 0)  # older protocols do not store it
    assert type(found["ordered"]) is OrderedDict


class Evil:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "made"
    data = pickle.dumps([Evil(str(marker))], protocol)
    with pytest.raises(Refused, match="mkdir"):
        read_pickle(data)
    assert not marker.exists()


class Plain:
    pass


@pytest.mark.parametrize("value", [Plain(), Plain, print, {"x": Plain()}, (print,), [Plain]])
@pytest.mark.parametrize("protocol", range(6))
def test_classes_are_refused(value: Any, protocol: int) -> None:
    with pytest.raises(Refused):
        read_pickle(pickle.dumps(value, protocol))


def test_value_that_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Refused, match="contains itself"):
        read_pickle(pickle.dumps(value))


def test_few_bytes_that_stand_for_billions_of_values() -> None:
    value: list[Any] = [0]
    for _ in range(60):
        value = [value, value]
    data = pickle.dumps(value)
    assert len(data) < 1000
    with pytest.raises(Refused, match="more than"):
        read_pickle(data)


@pytest.mark.parametrize("opcode", [b"\x82\x01", b"P1\n", b"Q", b"i", b"o", b"b", b"\x92", b"\x97"])
def test_other_opcodes_are_refused(opcode: bytes) -> None:
    with pytest.raises((Refused, Damaged)):
        read_pickle(b"\x80\x02]" + opcode + b"\n\n.")


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x04", b".", b"\x80\x09N.", b"garbage", pickle.dumps([1])[:-1]])
def test_truncated(data: bytes) -> None:
    with pytest.raises((Damaged, Refused)):
        read_pickle(data)


def test_deep() -> None:
    data = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert sum(1 for _ in pickletools.genops(data)) > 199_000
    found = read_pickle(data)
    assert type(found) is list


def test_bytes_after_the_value_are_damage() -> None:
    """As in old files of PyTorch, whose first value is a number that only marks them."""
    with pytest.raises(Damaged, match="followed by other bytes"):
        read_pickle(pickle.dumps(1) + pickle.dumps(2))
