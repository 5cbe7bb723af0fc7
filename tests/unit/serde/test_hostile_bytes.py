"""Bytes that somebody forged: a typed error, no code, no bomb."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Damaged, HoldfastError, Refused
from holdfast.serde import Envelope, Keys, Serde, from_json, types

from .classes import registry
from .test_types import SERDE, VALUES

Ext = msgspec.msgpack.Ext
pack = msgspec.msgpack.encode


def forged(code: int, payload: Any) -> bytes:
    return pack(Ext(code, pack(payload)))


@pytest.mark.parametrize(
    "payload", [None, 1, "x", b"x", [], [1, 2, 3], {"a": 1}, [[1], [2]], [-1, "UTC"], [["|O"], [1], "C", b""]]
)
def test_forged_extensions_give_values_or_typed_errors(payload: Any) -> None:
    for code in range(-128, 128):
        try:
            SERDE.decode(forged(code, payload))
        except HoldfastError as error:
            assert error.hint, code


@pytest.mark.parametrize("what", ["os.system", "subprocess.Popen", "builtins.eval", "cart", "plain", "model", "struct"])
def test_a_name_of_code_is_only_a_name(what: str) -> None:
    before = set(sys.modules)
    for data in (None, "rm -rf /", ["x"], {"fields": {}}, {"items": 1}):
        try:
            SERDE.decode(forged(types.OBJECT, [what, 1, pack(data)]))
        except HoldfastError:
            pass
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 100_000 + b"\xc0",
        b"\xc0\xc0",
        forged(types.ARRAY, ["<f8", [10**9, 10**9], "C", b""]),
        forged(types.ARRAY, ["|O", [1], "C", b"\0" * 8]),
        forged(types.ARRAY, ["<f8", [-1], "C", b""]),
        forged(types.SET, [[1]]),
        forged(types.MAP, [1]),
        forged(types.DATETIME, ["2026-01-01T00:00:00", 5, None]),
        forged(types.DEFAULT_DICT, ["os.system", []]),
        forged(types.IP, ["os", "1"]),
        forged(types.PATTERN, ["(", 0]),
        forged(types.PATTERN, ["a", 128]),
        forged(types.PATTERN, ["(" * 5000, 0]),
        forged(types.PATTERN, ["a", True]),
        forged(types.OBJECT, ["cart"]),
        forged(types.OBJECT, [["cart"], 1, b"\xc0"]),
        forged(types.OBJECT, ["cart", 1, pack({"items": 1, "more": 2})]),
        forged(types.OBJECT, ["right", 1, pack("x")]),
        forged(types.OBJECT, ["colour", 1, pack("GREEN")]),
        forged(100, None),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_malformed_bytes_are_damaged_or_refused(data: bytes) -> None:
    with pytest.raises((Damaged, Refused)):
        SERDE.decode(data)


def test_extensions_nested_without_end_are_damaged() -> None:
    data = pack(None)
    for _ in range(5000):
        data = pack(Ext(types.TUPLE, data))
    with pytest.raises(Damaged):
        SERDE.decode(data)


def test_a_zone_is_not_a_path() -> None:
    for name in ("/etc/passwd", "../../etc/passwd", "", "x" * 5000, "Nowhere/At_All"):
        with pytest.raises(HoldfastError):
            SERDE.decode(forged(types.ZONE, name))


@given(st.sampled_from(VALUES), st.data())
def test_a_changed_byte_gives_a_value_or_a_typed_error(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(SERDE.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    try:
        SERDE.decode(bytes(encoded))
    except HoldfastError:
        pass


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_typed_error(data: bytes) -> None:
    for read in (SERDE.decode, Serde(registry, on_unknown="keep").decode, Envelope().open):
        try:
            read(data)
        except HoldfastError:
            pass


@pytest.mark.parametrize(
    "text", ["", "{", '{"$nothing": 1}', '{"$bytes": "?"}', '{"$bytes": 1}', '{"$object": [1]}', "NaN" * 2]
)
def test_malformed_json_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        from_json(text)


KEY, OTHER = bytes(32), bytes([1] * 32)


def test_ciphertext_opens_only_in_its_place_with_its_key() -> None:
    envelope = Envelope(Keys({"a": KEY}))
    sealed = envelope.close(b"data" * 2000, b"row 1")
    assert b"data" not in sealed
    assert envelope.open(sealed, b"row 1") == b"data" * 2000
    for wrong, error in [
        (lambda: envelope.open(sealed, b"row 2"), Damaged),
        (lambda: Envelope(Keys({"a": OTHER})).open(sealed, b"row 1"), Damaged),
        (lambda: Envelope(Keys({"b": KEY})).open(sealed, b"row 1"), Refused),
        (lambda: Envelope().open(sealed, b"row 1"), Refused),
        (lambda: envelope.open(b"", b"row 1"), Refused),
    ]:
        with pytest.raises(error):
            wrong()


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_changed_sealed_byte_is_noticed(at: int) -> None:
    envelope = Envelope(Keys({"a": KEY}))
    sealed = bytearray(envelope.close(b"data" * 10, b"row"))
    sealed[at] ^= 1
    with pytest.raises((Damaged, Refused)):
        envelope.open(bytes(sealed), b"row")


def test_plaintext_is_refused_once_there_is_a_key() -> None:
    for size in (10, 10_000):
        with pytest.raises(Refused, match="not encrypted"):
            Envelope(Keys({"a": KEY})).open(Envelope().close(b"x" * size))


def test_keys_are_rotated() -> None:
    old = Envelope(Keys({"old": KEY})).close(b"x", b"row")
    both = Envelope(Keys({"old": KEY, "new": OTHER}))
    assert both.open(old, b"row") == b"x"
    assert Envelope(Keys({"new": OTHER})).open(both.close(b"x", b"row"), b"row") == b"x"
    assert both.keys
    assert both.keys.naming != Keys({"old": KEY}).naming


@pytest.mark.parametrize("keys", [{}, {"a": b"short"}, {"": KEY}, {"a" * 101: KEY}, {"a": "0" * 32}])
def test_keys_that_are_none_are_refused(keys: Any) -> None:
    with pytest.raises(Refused):
        Keys(keys)


def test_an_active_key_is_one_of_them() -> None:
    with pytest.raises(Refused):
        Keys({"a": KEY}, active="b")


def test_only_compressible_data_is_compressed() -> None:
    envelope = Envelope()
    assert len(envelope.close(b"x" * 100_000)) < 1000
    assert envelope.open(envelope.close(b"x" * 100_000)) == b"x" * 100_000
    import os

    noise = os.urandom(100_000)
    assert envelope.close(noise) == b"\x00" + noise


def test_a_bomb_is_refused_before_it_is_opened() -> None:
    says_so = Envelope().close(bytes(50_000_000))
    small = says_so[5:]
    assert len(small) < 50_000
    lies = b"\x01" + (1000).to_bytes(4, "big") + small
    with pytest.raises(Refused, match="more than"):
        Envelope(max_bytes=1_000_000).open(says_so)
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="size"):
            Envelope(max_bytes=1_000_000).open(lies)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000  # no more is made than they say
    finally:
        tracemalloc.stop()
    with pytest.raises(Refused, match="more than"):
        Envelope(max_bytes=1000).close(b"x" * 1001)
