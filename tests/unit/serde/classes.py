"""Classes of every kind that can be registered."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import pydantic

from holdfast.serde import Registry

registry = Registry()


@registry.register("colour")
class Colour(Enum):
    RED = "red"
    BLUE = (0, 0, 255)


@registry.register("level")
class Level(IntEnum):
    LOW = 1


@registry.register("word")
class Word(StrEnum):
    YES = "yes"


@registry.register("right")
class Right(Flag):
    READ = 1
    WRITE = 2


@registry.register("point")
class Point(NamedTuple):
    x: int
    y: Any = 0


@registry.register("cart")
@dataclass
class Cart:
    items: tuple[str, ...]
    owner: Any = None
    total: int = field(init=False)
    note: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.total = len(self.items)

    @cached_property
    def shouted(self) -> str:
        return "!".join(self.items)


@registry.register("frozen")
@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: Any


class Outer:
    @registry.register("outer.inner")
    @dataclass
    class Inner:
        a: int


@registry.register("model")
class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: Any
    secret: pydantic.SecretStr = pydantic.SecretStr("")
    _hidden: Any = pydantic.PrivateAttr(default=None)


@registry.register("submodel")
class SubModel(Model):
    more: set[int] = set()


@registry.register("struct")
class Struct(msgspec.Struct, kw_only=True, rename="camel"):
    first_name: str
    more: Any = None

    def __post_init__(self) -> None:
        self.first_name = self.first_name.strip()


@registry.register("frozenstruct")
class FrozenStruct(msgspec.Struct, frozen=True, tag=True):
    a: int


class Plain:
    def __init__(self, a: int) -> None:
        self.a = a

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and other.a == self.a

    __hash__ = None  # type: ignore[assignment]


registry.add(Plain, "plain", encode=lambda value: value.a, decode=Plain)
