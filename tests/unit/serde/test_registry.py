"""Classes are stored by ids that are registered, in versions that can be upgraded, and never by their names."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

import holdfast.serde
from holdfast.errors import Damaged, Refused
from holdfast.serde import Registry, Serde, Unknown


@dataclass
class OldCart:
    items: list[str]


@dataclass
class NewCart:
    things: list[str]
    count: int
    tags: list[str] = field(default_factory=list)


def stored(cls: type, type_id: str, value: Any, version: int = 1) -> bytes:
    registry = Registry()
    registry.add(cls, type_id, version=version)
    return Serde(registry).encode(value)


def rename(data: dict[str, Any]) -> dict[str, Any]:
    return {"things": data["items"]}


def count(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"count": len(data["things"])}


def test_old_data_is_led_up_to_the_version_of_today() -> None:
    registry = Registry()
    registry.add(NewCart, "cart", version=3, upgrades={1: rename, 2: count})
    assert Serde(registry).decode(stored(OldCart, "cart", OldCart(["a"]))) == NewCart(["a"], 1, [])


def test_a_missing_step_up_is_refused() -> None:
    registry = Registry()
    registry.add(NewCart, "cart", version=3, upgrades={1: rename})
    with pytest.raises(Refused, match="version 1"):
        Serde(registry).decode(stored(OldCart, "cart", OldCart(["a"])))


def test_data_of_a_later_version_is_refused_or_kept() -> None:
    data = stored(OldCart, "cart", OldCart(["a"]), version=2)
    registry = Registry()
    registry.add(OldCart, "cart")
    with pytest.raises(Refused, match="version 2"):
        Serde(registry).decode(data)
    keeping = Serde(registry, on_unknown="keep")
    assert keeping.encode(keeping.decode(data)) == data


def test_changed_class_without_new_version_is_refused() -> None:
    registry = Registry()
    registry.add(NewCart, "cart")
    with pytest.raises(Refused, match=re.escape("(count, items, tags, things)")):
        Serde(registry).decode(stored(OldCart, "cart", OldCart(["a"])))


def test_models_and_structs_and_enums_are_led_up_too() -> None:
    class OldModel(pydantic.BaseModel):
        a: int

    class NewModel(pydantic.BaseModel):
        b: int
        c: list[int] = pydantic.Field(default_factory=lambda: [7])

    class OldStruct(msgspec.Struct):
        a: int

    class NewStruct(msgspec.Struct):
        b: int
        c: list[int] = msgspec.field(default_factory=list)

    class OldEnum(Enum):
        A = 1

    class NewEnum(Enum):
        B = 1

    registry = Registry()
    for new, type_id in ((NewModel, "model"), (NewStruct, "struct")):
        registry.add(new, type_id, version=2, upgrades={1: lambda data: {"b": data["a"]}})
    registry.add(NewEnum, "enum", version=2, upgrades={1: {"A": "B"}.__getitem__})
    serde = Serde(registry)
    model = serde.decode(stored(OldModel, "model", OldModel(a=1)))
    assert (model, model.model_fields_set) == (NewModel(b=1, c=[7]), {"b"})
    assert serde.decode(stored(OldStruct, "struct", OldStruct(1))) == NewStruct(1, [])
    assert serde.decode(stored(OldEnum, "enum", OldEnum.A)) is NewEnum.B


def test_an_unknown_id_is_refused_or_stays_opaque() -> None:
    data = stored(OldCart, "cart", OldCart(["a"]))
    with pytest.raises(Refused, match="cart is not registered"):
        Serde(Registry()).decode(data)
    keeping = Serde(Registry(), on_unknown="keep")
    kept = keeping.decode(data)
    assert isinstance(kept, Unknown)
    assert (kept.id, kept.version) == ("cart", 1)
    assert keeping.encode(kept) == data


def test_an_upgrade_that_fails_says_so() -> None:
    registry = Registry()
    registry.add(OldCart, "cart", version=2, upgrades={1: lambda data: data["nothing"]})
    with pytest.raises(Damaged, match="cart"):
        Serde(registry).decode(stored(OldCart, "cart", OldCart([])))


def test_registrations_that_make_no_sense_are_refused() -> None:
    registry = Registry()
    registry.add(OldCart, "cart")
    registry.add(OldCart, "cart")  # the same again: a module that is loaded twice
    for cls, type_id, options in [
        (NewCart, "cart", {}),
        (OldCart, "other", {}),
        (NewCart, "", {}),
        (NewCart, "new", {"version": 0}),
        (NewCart, "new", {"upgrades": {1: rename}}),
        (NewCart, "new", {"encode": repr}),
        (object, "object", {}),
    ]:
        with pytest.raises(Refused):
            registry.add(cls, type_id, **options)  # type: ignore[arg-type]


def test_dataclass_that_is_a_list_is_refused() -> None:
    @dataclass
    class Both(list):  # type: ignore[type-arg]
        a: int = 1

    with pytest.raises(Refused, match="encode="):
        Registry().add(Both, "both")


@pytest.mark.parametrize("base", [deque, timedelta, OrderedDict, Decimal, BytesIO], ids=lambda base: base.__name__)
def test_dataclass_whose_base_has_state_is_refused(base: Any) -> None:
    both = dataclass(type("Both", (base,), {"__annotations__": {"a": int}, "a": 1}))
    with pytest.raises(Refused, match="encode="):
        Registry().add(both, "both")


def test_serializer_never_imports_evaluates_or_unpickles() -> None:
    """P7, read off the source."""
    forbidden = re.compile(r"\b(pickle|marshal|shelve|importlib|__import__|eval|exec|getattr\(sys\.modules)\b")
    for path in Path(holdfast.serde.__file__).parent.glob("*.py"):
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        assert not forbidden.search(code), path


@pytest.mark.parametrize("library", ["msgspec", "numpy", "pydantic", "cryptography", "zstandard", "psycopg", "redis"])
def test_each_library_is_imported_in_one_file(library: str) -> None:
    importing = re.compile(rf"^\s*(import {library}|from {library}[. ])", re.MULTILINE)
    package = Path(holdfast.__file__).parent
    files = [*(package / "serde").rglob("*.py"), *(package / "flow").rglob("*.py")]
    found = [path.name for path in files if importing.search(path.read_text())]
    assert len(found) == 1, found
