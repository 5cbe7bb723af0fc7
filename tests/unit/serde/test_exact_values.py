"""What a close look found that was changed without a word, or saved and never read again. Each stays mended."""

from __future__ import annotations

import io
import struct
import uuid
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import TZPATH, ZoneInfo

import attrs
import msgspec
import numpy as np
import pydantic
import pytest

from holdfast.errors import Damaged, HoldfastError, Refused
from holdfast.serde import Envelope, Keys, Registry, Serde, from_json, from_tagged, to_json, to_tagged, types

Ext = msgspec.msgpack.Ext
pack = msgspec.msgpack.encode


def back(value: Any) -> Any:
    """A value, saved and read, its class registered for it."""
    registry = Registry()
    registry.add(type(value), "it")
    serde = Serde(registry)
    return serde.decode(serde.encode(value))


def plainly(value: Any) -> Any:
    return Serde().decode(Serde().encode(value))


class TestNumpy:
    @pytest.mark.parametrize(
        "scalar", [np.str_(""), np.bytes_(b""), np.str_("abc\0"), np.bytes_(b"a\0\0"), np.str_("a\0b")], ids=repr
    )
    def test_texts_that_are_empty_or_end_in_zeros_come_back(self, scalar: Any) -> None:
        found = plainly(scalar)
        assert (type(found), len(found), found) == (type(scalar), len(scalar), scalar)

    def test_texts_of_older_versions_are_read(self) -> None:
        old = pack(Ext(types.SCALAR, pack(["<U2", np.str_("ab").tobytes()])))
        assert Serde().decode(old) == np.str_("ab")

    @pytest.mark.parametrize(
        "dtype",
        [
            np.dtype([("a", "i1"), ("b", "f8")], align=True),
            np.dtype([("in", np.dtype([("a", "i1"), ("b", "f8")], align=True), (2,))]),
            np.dtype((np.record, [("a", "i4")])),
            np.dtype([("a", np.dtype((np.record, [("b", "i4")])))]),
            np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}),
            np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "titles": ["t"], "itemsize": 20}),
        ],
        ids=repr,
    )
    def test_a_dtype_comes_back_with_all_that_it_says(self, dtype: Any) -> None:
        array = np.frombuffer(bytes(range(dtype.itemsize)) * 2, dtype)
        found = plainly(array)
        assert repr(found.dtype) == repr(dtype)
        assert (found.dtype, found.dtype.type, found.tobytes()) == (dtype, dtype.type, array.tobytes())
        encoded = Serde().encode(array)
        assert from_json(to_json(encoded)) == encoded

    def test_metadata_of_a_field_is_refused_like_that_of_the_whole(self) -> None:
        inner = np.dtype("i4", metadata={"unit": "m"})
        for dtype in ([("a", inner)], [("a", inner, (2,))]):
            with pytest.raises(Refused, match="more than numbers"):
                plainly(np.zeros(1, dtype))


class SlotBase:
    __slots__ = ("__private", "hidden")

    def hide(self) -> None:
        self.__private = 1


@dataclass
class WithHidden(SlotBase):
    a: int = 1


@dataclass
class Base:
    x: int = 1


class WithSlot(Base):
    __slots__ = ("z",)


@dataclass
class Elsewhere:
    a: int = 1

    def __getattribute__(self, name: str) -> Any:
        return 42 if name == "a" else object.__getattribute__(self, name)


@dataclass
class Inventive:
    a: int = field(init=False)

    def __getattr__(self, name: str) -> Any:
        return "made up"


class Odd(NamedTuple("Pair", [("a", int), ("b", int)])):
    def __iter__(self) -> Any:
        return iter((9, 9))


@dataclass
class Wanting:
    a: int

    def __new__(cls, a: int) -> Wanting:
        return super().__new__(cls)


class WantingModel(pydantic.BaseModel):
    a: int

    def __new__(cls, *, a: int) -> WantingModel:
        return super().__new__(cls)


class Translated(Enum):
    TEA = 1

    @property
    def name(self) -> str:  # type: ignore[override]  # as those do that show it to people
        return "the"


class Bits(IntFlag):
    A = 1
    B = 2

    @property
    def value(self) -> int:  # type: ignore[override]
        return 7


class TestClasses:
    def test_a_slot_that_is_no_field_is_refused_not_lost(self) -> None:
        hidden, private, slot = WithHidden(), WithHidden(), WithSlot()
        assert back(hidden) == hidden, "without a value there is nothing to lose"
        hidden.hidden = "important"  # type: ignore[attr-defined]
        private.hide()
        slot.z = 1  # type: ignore[attr-defined]
        for value in (hidden, private, slot):
            with pytest.raises(Refused, match="not a field"):
                back(value)

    def test_fields_are_stored_as_their_raw_values(self) -> None:
        assert vars(back(Elsewhere(7))) == {"a": 7}
        assert vars(back(Inventive())) == {}
        unset = Base()
        del unset.x
        assert vars(back(unset)) == {}
        assert tuple.__iter__(back(Odd(1, 2))).__next__() == 1

    def test_a_constructor_that_wants_more_is_not_called(self) -> None:
        made, model = back(Wanting(3)), back(WantingModel(a=3))
        assert (made, made.a, model, model.a) == (Wanting(3), 3, WantingModel(a=3), 3)

    def test_members_are_told_by_what_they_are_not_by_what_they_say(self) -> None:
        assert back(Translated.TEA) is Translated.TEA
        assert back(Bits.A | Bits.B) is Bits.A | Bits.B

    def test_what_attrs_makes_for_itself_hinders_nothing(self) -> None:
        @attrs.frozen(cache_hash=True)
        class Cached:
            a: int

            @cached_property
            def double(self) -> int:
                return 2 * self.a

        value = Cached(3)
        assert (hash(value), value.double) == (hash(back(value)), 6)


class Root(pydantic.RootModel[list[int]]):
    pass


class Model(pydantic.BaseModel):
    a: int
    b: int = 2


class Slotted(pydantic.BaseModel):
    __slots__ = ("z",)
    a: int = 1


class TestModels:
    def test_a_root_model_is_the_same_and_can_be_saved_again(self) -> None:
        found = back(Root([1]))
        assert (vars(found), found, back(found)) == ({"root": [1]}, Root([1]), Root([1]))

    def test_one_that_lacks_a_field_comes_back_without_it(self) -> None:
        found = back(Model.model_construct(b=3))
        assert (vars(found), found.model_fields_set) == ({"b": 3}, {"b"})

    def test_attribute_that_is_no_field_is_refused(self) -> None:
        stray, slotted = Model(a=1), Slotted()
        stray.__dict__["stray"] = 1
        object.__setattr__(slotted, "z", 1)
        for value in (stray, slotted):
            with pytest.raises(Refused, match="not a field"):
                back(value)


class Strict(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")


class Adding(msgspec.Struct):
    a: list[str]

    def __post_init__(self) -> None:
        self.a.append("added")


class Open(msgspec.Struct, dict=True):
    a: int = 1


class Maybe(msgspec.Struct, kw_only=True, tag="maybe", array_like=True):
    a: int
    b: int | msgspec.UnsetType = msgspec.UNSET


class TestStructs:
    def test_model_that_cannot_be_rebuilt_is_refused(self) -> None:
        value = Strict(1)
        assert back(value) == value
        value.a = -1
        with pytest.raises(Refused, match="negative"):
            back(value)

    def test_what_the_constructor_does_to_a_value_is_not_done_again(self) -> None:
        value = Adding(["a"])
        assert (back(value).a, value.a) == (["a", "added"], ["a", "added"])

    def test_attributes_that_are_no_fields_are_refused_not_lost(self) -> None:
        value = Open()
        assert back(value) == value
        value.more = 1  # type: ignore[attr-defined]
        with pytest.raises(Refused, match="not a field"):
            back(value)

    def test_unset_field_stays_unset_and_deleted_is_refused(self) -> None:
        value = Maybe(a=1)
        assert back(value).b is msgspec.UNSET
        del value.a
        with pytest.raises(Refused, match="deleted"):
            back(value)


def test_a_uuid_comes_back_with_what_is_known_of_its_safety() -> None:
    for safe in uuid.SafeUUID:
        assert plainly(uuid.UUID(int=5, is_safe=safe)).is_safe is safe


@pytest.mark.parametrize("text", ["C:/a/b", "//host/share/a", "c:a", "a/b", "", "./c:a", "//:///"])
def test_windows_path_is_exact_or_refused(text: str) -> None:
    path = PureWindowsPath(text)
    if PureWindowsPath(str(path)).parts == path.parts:
        assert plainly(path).parts == path.parts
    else:
        with pytest.raises(Refused, match="another path"):
            plainly(path)


def test_zone_from_a_file_is_not_the_named_zone() -> None:
    place = next((Path(each, "Asia/Tokyo") for each in TZPATH if Path(each, "Asia/Tokyo").is_file()), None)
    data = place.read_bytes() if place else _tzdata("Tokyo")
    with pytest.raises(Refused, match="zone"):
        plainly(ZoneInfo.from_file(io.BytesIO(data), key="Europe/Berlin"))
    assert plainly(ZoneInfo("Europe/Berlin")) is ZoneInfo("Europe/Berlin")


def _tzdata(name: str) -> bytes:
    from importlib.resources import files

    return files("tzdata.zoneinfo.Asia").joinpath(name).read_bytes()


@pytest.mark.parametrize("bits", ["7ff8000000000001", "fff8000000000000", "7ff8000000000000"])
def test_what_is_no_number_keeps_its_bits_in_json_too(bits: str) -> None:
    encoded = Serde().encode([struct.unpack(">d", bytes.fromhex(bits))[0]])
    assert from_json(to_json(encoded)) == encoded
    assert struct.pack(">d", Serde().decode(encoded)[0]).hex() == bits


@pytest.mark.parametrize("payload", [[float("nan"), 1, b""], [Ext(50, b""), 1, b""], ["x", True, b""], [1], "x"])
def test_a_forged_object_is_shown_as_what_it_is(payload: Any) -> None:
    data = pack(Ext(types.OBJECT, pack(payload)))
    for readable in (False, True):
        assert from_tagged(to_tagged(data, readable=readable)) == data
    to_json(data)


@pytest.mark.parametrize(
    "form",
    [
        {"$utf8": "\ud800"}, {"$utf8": 1}, {"$float": 1}, {"$float": "1.5"}, {"$float": "00"}, {"$ext": [300, ""]},
        {"$ext": ["x", ""]}, {"$dict": [[[1], 2]]}, {"$dict": 5}, {"$": 1}, {"$bytes": ["QQ=="]}, {"$object": [1, 2]},
    ],
    ids=repr,
)  # fmt: skip
def test_forged_tags_are_typed_errors(form: Any) -> None:
    with pytest.raises(HoldfastError):
        from_tagged(form)


@pytest.mark.parametrize("keys", [{"\ud800": bytes(32)}, "text", [("a", bytes(32))], None], ids=repr)
def test_keys_that_are_none_are_refused(keys: Any) -> None:
    with pytest.raises(Refused, match="key"):
        Keys(keys)


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_truncated_ciphertext_is_damage_not_a_missing_key(cut: int) -> None:
    envelope = Envelope(Keys({"2026": bytes(32)}))
    with pytest.raises(Damaged):
        envelope.open(envelope.close(b"data", b"row")[:cut], b"row")
