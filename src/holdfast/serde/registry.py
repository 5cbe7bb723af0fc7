"""Classes of the user: registered by hand under a stable id, with a version and the way up from older ones.

Stored bytes name an id, never a module or a class; an id that is not registered makes nothing (P7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.errors import Refused
from holdfast.serde.kinds import Kind, kind_of
from holdfast.serde.unchanged import Shown

T = TypeVar("T", bound=type)
Upgrade = Callable[[Any], Any]
"""Takes the data of one version and returns that of the next."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object whose class is not registered here, or is older here: opaque, and can be saved again unchanged."""

    id: str
    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Registration:
    """A class, the id it is stored under, and how to take it apart and make it again."""

    id: str
    cls: type
    version: int
    kind: Kind
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    shown: Shown | None = None
    """What an object's encoding depends on, where that is known: if it is the same, it need not be encoded again."""
    fill: bool = False
    """Whether a field that was not stored has its default; else that takes a new version."""

    def make(self, version: int, data: Any) -> Any:
        """An object from data that may be of an older version."""
        upgraded = version != self.version
        for number in range(version, self.version):
            data = self.kind.upgrade(self.upgrades[number], data)
        return self.kind.make(data, fill=upgraded or self.fill)


class Registry:
    """The classes that may be stored."""

    def __init__(self) -> None:
        self._by_class: dict[type, Registration] = {}
        self._by_id: dict[str, Registration] = {}

    def register(
        self,
        type_id: str,
        *,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Callable[[T], T]:
        """Register the class below under an id that will never mean another one.

        Enums, named tuples, dataclasses, attrs classes, pydantic models and msgspec structs need no more; of any other
        class `encode` returns storable data, of which `decode` makes the object. `upgrades[n]` turns the data of
        version n into that of n + 1: of classes with fields a dict, of enums the member's name.
        """

        def add(cls: T) -> T:
            self.add(cls, type_id, version=version, upgrades=upgrades, encode=encode, decode=decode)
            return cls

        return add

    def add(
        self,
        cls: type,
        type_id: str,
        *,
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
        shown: Shown | None = None,
        fill: bool = False,
    ) -> None:
        """`register` for a class that is not yours.

        `shown` brings all that `encode` depends on, as a tuple that always has the same length. `fill`: what was stored
        before the class had a field is read with the default of that.
        """
        ways = dict(upgrades or {})
        if not isinstance(type_id, str) or not type_id:
            raise Refused(f"{type_id!r} cannot be the id of a class", hint="Give a text such as 'shop.Cart'.")
        if not isinstance(version, int) or version < 1 or any(not 1 <= number < version for number in ways):
            raise Refused(f"version {version!r} of {type_id} with upgrades from {sorted(ways)}", hint="Count from 1.")
        other = self._by_id.get(type_id)
        if other is not None and other.cls is not cls:
            raise Refused(f"{type_id} is {other.cls.__qualname__} already", hint="Give each class an id of its own.")
        if cls in self._by_class and self._by_class[cls].id != type_id:
            raise Refused(f"{cls.__qualname__} is registered as {self._by_class[cls].id}", hint="One id is enough.")
        entry = Registration(type_id, cls, version, kind_of(cls, encode, decode), ways, shown, fill)
        self._by_class[cls] = self._by_id[type_id] = entry

    def of_class(self, cls: type) -> Registration | None:
        """How a class is stored; None if it is not registered. A subclass is not its base."""
        return self._by_class.get(cls)

    def of_id(self, type_id: str) -> Registration | None:
        """What is stored under an id; None if that is not registered."""
        return self._by_id.get(type_id)


default_registry = Registry()
register = default_registry.register
"""Register a class for every serializer that is not given a registry of its own."""
