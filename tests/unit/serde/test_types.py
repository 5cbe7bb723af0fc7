"""Every type of the table comes back equal and the same, or is refused with its path."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import math
import pathlib
import re
import struct
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Refused
from holdfast.serde import Serde, from_json, to_json

from .classes import (
    Cart,
    Colour,
    Frozen,
    FrozenStruct,
    Level,
    Model,
    Outer,
    Plain,
    Point,
    Right,
    Struct,
    SubModel,
    Word,
)
from .classes import registry as REGISTRY  # noqa: N812 (a constant of this file)

SERDE = Serde(REGISTRY)
KEEPING = Serde(on_unknown="keep")


def _told(value: Any) -> str:
    """The same in every process: no address, and no order of a set."""
    return type(value).__name__


VALUES: list[Any] = [
    None, True, False, 0, -1, 1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 64, -(1 << 63) - 1, 10**400, -(10**400),
    0.0, -0.0, 1e308, 5e-324, math.inf, -math.inf, "", "text", "nul \0", "☃", "half \ud800 a character",
    b"", b"\x00\xff",
    bytearray(b"abc"), [], [1, [2.5, [None]]], {}, {"a": {"b": [1]}}, {"": 0, "$set": [1], "__type__": "os.system"},
    (), (1, (2, [3])), [(1,)], {"a": (1,)}, set(), {1, "a", (2, 3)}, frozenset({frozenset({1}), b"x"}), {(1, 2)},
    {1: "a"}, {None: 1, True: 2, 2.5: 3, b"k": 4, (1, "t"): 5, frozenset({1}): 6}, {"a": 1, 2: "b"}, {"\ud800": 1},
    1 + 2j, complex(-0.0, math.inf), Decimal("1.10"), Decimal("-0"), Decimal("sNaN12"), Decimal("1E+999"),
    uuid.UUID(int=5),
    date(2026, 1, 2), time(1, 2, 3, 4), time(1, 2, tzinfo=UTC, fold=1), timedelta(-1, 5, 7), timedelta.max,
    datetime(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime.min, datetime.max,
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, seconds=7, microseconds=3))),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1), UTC, ZoneInfo("Asia/Tokyo"),
    pathlib.Path("/a/b"), pathlib.Path(), pathlib.PurePosixPath("a/../b"), pathlib.PureWindowsPath("C:\\x"),
    pathlib.Path("bad\udcff"), deque([1, (2,)], maxlen=5), deque(), OrderedDict([("b", 1), ("a", 2)]),
    OrderedDict({1: 2}),
    defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}), Counter("hello"), Counter({"a": -1, "b": 0}),
    range(1, 9, 2), re.compile("a+(b)", re.IGNORECASE | re.MULTILINE), re.compile(rb"(?x)\xff  # end"),
    ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("fe80::/10"),
    Colour.RED, Colour.BLUE, Level.LOW, Word.YES, Right.READ, Right.READ | Right.WRITE, Right(0),
    Point(1, (2,)), Point(x=1),
    Cart(("a", "b"), owner=Point(1)), Frozen(1, {2}), Outer.Inner(3), Plain(4), FrozenStruct(5),
    Struct(first_name=" a ", more=[(1,)]), Model(a=(1, {2})), Model(a=1, extra_field=Colour.RED),
    SubModel(a=None, more={1}),
    Model(a=SubModel(a=[Model(a=1)])), pydantic.SecretStr("s"), pydantic.SecretBytes(b"s"), {"deep": [Cart(())]},
]  # fmt: skip

ARRAYS = [
    np.arange(6, dtype="float32").reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array(5),
    np.zeros((0, 4)),
    np.array([1, 2], dtype=">i2"),
    np.array(["2026-01-02", "NaT"], dtype="M8[ns]"),
    np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    np.zeros(2, dtype=[("a", [("b", "i1"), ("c", "f4", (2, 2))])]),
    np.zeros(2, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.array([b"ab", b"c"]),
    np.array([True]),
    np.arange(10)[::2],
]


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, Decimal):
        return one.compare_total(other) == 0
    if isinstance(one, datetime | time):
        zones = one.tzinfo is other.tzinfo or repr(one.tzinfo) == repr(other.tzinfo)
        return zones and one.fold == other.fold and one.isoformat() == other.isoformat()
    if isinstance(one, dict):
        return [*map(repr, one)] == [*map(repr, other)] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple | deque):
        return (
            len(one) == len(other)
            and all(map(same, one, other))
            and getattr(one, "maxlen", 0) == getattr(other, "maxlen", 0)
        )
    if hasattr(one, "__dict__") and not isinstance(one, type):
        fields = {
            key: value for key, value in vars(one).items() if key not in {"_hash", "_str", "_parts_normcase_cached"}
        }
        if isinstance(one, Cart | Outer.Inner | Model):
            return same(fields, {key: vars(other)[key] for key in fields})
    return bool(one == other)


@pytest.mark.parametrize("value", VALUES, ids=_told)
def test_a_value_comes_back_the_same(value: Any) -> None:
    assert same(SERDE.decode(SERDE.encode(value)), value)
    assert same(SERDE.decode(SERDE.encode({"a": [value]})), {"a": [value]})


@pytest.mark.parametrize("value", VALUES + ARRAYS, ids=_told)
def test_a_value_comes_back_from_json_to_the_byte(value: Any) -> None:
    encoded = SERDE.encode(value)
    assert from_json(to_json(encoded)) == encoded


@pytest.mark.parametrize("value", VALUES + ARRAYS, ids=_told)
def test_value_is_byte_identical_without_its_classes(value: Any) -> None:
    encoded = SERDE.encode(value)
    assert KEEPING.encode(KEEPING.decode(encoded)) == encoded


@pytest.mark.parametrize("array", ARRAYS, ids=_told)
def test_an_array_comes_back_writable_and_in_its_order(array: Any) -> None:
    back = SERDE.decode(SERDE.encode(array))
    assert same(back, array)
    assert back.flags.writeable
    if array.flags.f_contiguous or array.flags.c_contiguous:
        assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize(
    "scalar", [np.float32(1.5), np.float64(2), np.bool_(True), np.datetime64("2026-01-02"), np.str_("x")]
)
def test_a_scalar_of_numpy_is_not_one_of_python(scalar: Any) -> None:
    assert same(SERDE.decode(SERDE.encode([scalar])), [scalar])


def test_struct_is_stored_after_its_post_init() -> None:
    made = Struct(first_name="a")
    made.first_name = " b "
    assert SERDE.decode(SERDE.encode(made)).first_name == " b "


def test_what_a_model_hides_is_kept() -> None:
    model = SubModel(a=1, secret=pydantic.SecretStr("hush"))
    model._hidden = {"x": (1,)}
    back = SERDE.decode(SERDE.encode(model))
    assert (back.secret.get_secret_value(), back._hidden) == ("hush", {"x": (1,)})
    assert back.model_fields_set == {"a", "secret"}


def test_a_field_without_a_value_stays_without() -> None:
    back = SERDE.decode(SERDE.encode(Cart(("a",))))
    assert not hasattr(back, "note")
    assert back.total == 1


def test_equal_sets_are_stored_equally() -> None:
    code = "from holdfast.serde import Serde; print(Serde().encode({'a','b','c','d','e'}).hex())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "1234"
    }  # fmt: skip
    assert len(runs) == 1


def _named_counter() -> Counter[str]:
    counter = Counter("a")
    counter.name = "x"  # type: ignore[attr-defined]
    return counter


def _printing_pattern() -> re.Pattern[str]:
    with contextlib.redirect_stdout(io.StringIO()):
        return re.compile("a", re.DEBUG)


def _cart_with_more() -> Cart:
    cart = Cart(())
    cart.more = 1  # type: ignore[attr-defined]
    return cart


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "state"),
        ({"a": [1, {"b": object()}]}, "state['a'][1]['b']"),
        ({"a": Cart((object(),))}, "state['a'].items[0]"),  # type: ignore[arg-type]
        ({"a": Point(1, {"z": object()})}, "state['a'].y['z']"),
        ({"a": Model(a=object())}, "state['a'].fields['a']"),
        ([{object()}], "state[0]{…}"),
        ({1: object()}, "state[1]"),
        (lambda: 1, "state"),
        (ValueError("x"), "state"),
        (int, "state"),
        (math, "state"),
        (np.array([object()]), "state"),
        (np.ma.masked_array([1]), "state"),
        (defaultdict(lambda: 1), "state"),
        (_named_counter(), "state"),
        (_cart_with_more(), "state"),
        (memoryview(b"a"), "state"),
        (_printing_pattern(), "state"),
        (iter([]), "state"),
    ],
    ids=_told,
)
def test_what_is_not_in_the_table_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(Refused) as refused:
        SERDE.encode(value, "state")
    assert refused.value.message.startswith(f"{path} cannot be stored")
    assert refused.value.hint


def test_what_holds_itself_is_refused() -> None:
    for value in ([], {}):
        value.append(value) if isinstance(value, list) else value.update(me=value)
        with pytest.raises(Refused, match=r"nested|itself"):
            SERDE.encode(value)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: Frozen(1, value)])
def test_whatever_is_deep_enough_to_be_saved_can_be_read(wrap: Any) -> None:
    value: Any = None
    depth = 0
    while True:
        value = wrap(value)
        depth += 1
        try:
            encoded = SERDE.encode(value)
        except Refused:
            break
        if depth % 10 == 0:
            SERDE.decode(encoded)
    assert 50 < depth < 400
    SERDE.decode(encoded)


def trees() -> st.SearchStrategy[Any]:
    keys = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
    leaves = (
        keys | st.floats(allow_nan=False) | st.decimals(allow_nan=False) | st.datetimes() | st.dates() | st.timedeltas()
        | st.uuids() | st.complex_numbers(allow_nan=False) | st.datetimes(timezones=st.timezones())
        | st.characters(categories=["Cs"])
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner)
            | st.frozensets(keys) | st.sets(keys)
            | st.dictionaries(st.text(), inner).map(OrderedDict) | st.lists(inner).map(deque)
        ),
        max_leaves=20,
    )  # fmt: skip


@given(trees())
def test_any_tree_comes_back_the_same(value: Any) -> None:
    encoded = SERDE.encode(value)
    assert same(SERDE.decode(encoded), value)
    assert from_json(to_json(encoded)) == encoded


ZONES = [None, UTC, timezone(timedelta(0)), timezone(timedelta(0), "X"), timezone(timedelta(hours=2)), ZoneInfo("UTC")]
PLAIN_OR_NOT = [{}, {"a": {"b": [1, "x", None]}}, {"t": (1,)}, {"k": {1: 2}}, {"n": 1 << 70}, {"\ud800": "\ud800"}]


@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("extra", PLAIN_OR_NOT, ids=ascii)
def test_lists_that_begin_with_a_time(zone: Any, extra: dict[str, Any]) -> None:
    serde = Serde()
    values = [datetime(2026, 3, 1, 12, 30, 0, 7, zone), "node", 3, ["tag"], extra]
    assert serde.encode_parted(values) == serde.encode(values)
    assert serde.decode(serde.encode_parted(values)) == values


def test_lists_that_begin_with_a_time_are_refused_by_path() -> None:
    with pytest.raises(Refused, match=r"metadata\[1\]\['a'\]"):
        Serde().encode_parted([datetime(2026, 3, 1), {"a": object()}], "metadata")
