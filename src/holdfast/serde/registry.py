"""Classes of the user, each under a stable id with a version, and how their objects become data and come back.

Stored bytes name an id, never a module or a class; an id that is not registered makes nothing (P7).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag
from functools import cached_property
from typing import Any, Protocol, TypeVar

from holdfast.errors import Refused
from holdfast.serde import msgpack, pydantic_models
from holdfast.serde.list_prefix import Shown
from holdfast.serde.types import Unstorable
from holdfast.validation import checked_options

T = TypeVar("T", bound=type)
_BUILT_IN = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, BaseException)
OF_TYPING = frozenset({"__orig_class__"})  # noted by `Cart[int](…)`
_OF_ATTRS = "_attrs_cached_hash"
Defaults = Mapping[str, Callable[[], Any] | None]
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
    kind: ClassKind
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


@checked_options
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
            raise Refused(f"invalid id of a class: {type_id!r}", hint="Give a text such as 'shop.Cart'.")
        if not isinstance(version, int) or version < 1 or any(not 1 <= number < version for number in ways):
            raise Refused(
                f"invalid version {version!r} of {type_id}, with upgrades from {sorted(ways)}",
                hint="Count versions from 1; upgrades are from lower versions.",
            )
        other = self._by_id.get(type_id)
        if other is not None and other.cls is not cls:
            raise Refused(
                f"the id {type_id!r} is already used by {other.cls.__qualname__}",
                hint="Give each class an id of its own.",
            )
        if cls in self._by_class and self._by_class[cls].id != type_id:
            raise Refused(
                f"{cls.__qualname__} is already registered as {self._by_class[cls].id}",
                hint="Register each class once.",
            )
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


class Unset:
    """Stands for a field that has no value."""


UNSET = Unset()


class ClassKind(Protocol):
    """How the objects of one class become data and come back."""

    def take(self, value: Any) -> Any: ...
    def make(self, data: Any, *, fill: bool) -> Any:
        """`fill`: the data was upgraded, and defaults stand in for fields that it lacks."""

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any: ...


def kind_of(cls: type, encode: Callable[[Any], Any] | None, decode: Callable[[Any], Any] | None) -> ClassKind:
    """The kind of a class; Refused if it has none and no functions are given."""
    if (encode is None) != (decode is None):
        raise Refused(f"{cls.__qualname__} has only one of encode and decode", hint="Give both, or neither.")
    if encode is not None and decode is not None:
        return CustomKind(encode, decode)
    if issubclass(cls, Enum):
        return EnumKind(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleKind(cls)
    if msgpack.is_struct(cls):
        return StructKind(cls)
    if pydantic_models.is_model(cls):
        return PydanticKind(cls)
    if (dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")) and _holds_only_attributes(cls):
        return DataclassKind(cls)
    raise Refused(
        f"cannot serialize {cls.__qualname__}: no encoder is known", hint="Register it with encode= and decode=."
    )


def _holds_only_attributes(cls: type) -> bool:
    """Whether its objects have nothing but attributes; a deque or a date also has content, which would be lost (P2)."""
    if issubclass(cls, _BUILT_IN):
        return False
    if getattr(cls, "__abstractmethods__", None):
        return True  # has no objects
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


class CustomKind:
    """Functions of the user."""

    def __init__(self, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self.take = encode
        self._decode = decode

    def make(self, data: Any, *, fill: bool) -> Any:
        return self._decode(data)

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        return way(data)


class EnumKind:
    """Enums by the names of their members; flags by their bits."""

    def __init__(self, cls: type[Enum]) -> None:
        self._cls = cls
        self._flag = issubclass(cls, Flag)

    def take(self, value: Any) -> Any:
        return value._value_ if self._flag else value._name_  # `name` and `value` may be overridden

    def make(self, data: Any, *, fill: bool) -> Any:
        return self._cls(data) if self._flag else self._cls.__members__[data]

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        return way(data)


class _KindWithFields:
    """What classes with named fields have in common: the stored fields must be those that the class has."""

    def __init__(self, cls: Any, defaults: Defaults) -> None:
        self._cls = cls
        self._defaults = defaults
        self._descriptors = {name: each for name in defaults if hasattr(each := static(cls, name), "__set__")}
        self._slots = [slot for slot in slots(cls.__mro__) if slot not in defaults]

    def _refuse_more(self, value: Any, own: Mapping[str, Any]) -> None:
        """Unstorable if an object has more than its fields: that would be lost."""
        for name in own.keys() - self._defaults.keys() - OF_TYPING:
            if not isinstance(static(self._cls, name), cached_property):
                raise Unstorable(f"it has an attribute {name!r} that is not a field")
        for name in self._slots:
            if hasattr(value, name):
                raise Unstorable(f"it has an attribute {name!r} that is not a field")

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        return way(data)

    def _checked(self, data: dict[str, Any], fill: bool) -> dict[str, Any]:
        if fill:
            missing = self._defaults.keys() - data.keys()
            data = data | {name: make() for name in missing if (make := self._defaults[name]) is not None}
        if data.keys() != self._defaults.keys():
            differing = ", ".join(sorted(data.keys() ^ self._defaults.keys()))
            raise Refused(
                f"{self._cls.__qualname__} has other fields than what is stored ({differing})",
                hint="Raise its version and register an upgrade.",
            )
        return data


class DataclassKind(_KindWithFields):
    """dataclasses and attrs classes; also fields that the constructor does not take, and such without a value."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, _dataclass_defaults(cls) if dataclasses.is_dataclass(cls) else _attrs_defaults(cls))

    def take(self, value: Any) -> Any:
        self._refuse_more(value, own(value))
        return {name: self._value(value, name) for name in self._defaults}

    def _value(self, value: Any, name: str) -> Any:
        """The value of a field, without running code of the class (`__getattr__`, properties)."""
        held = own(value)
        if name in held:
            return held[name]
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            return UNSET  # an attribute of the class stands for it, as before
        try:
            return descriptor.__get__(value, type(value))
        except AttributeError:
            return UNSET

    def make(self, data: Any, *, fill: bool) -> Any:
        made = object.__new__(self._cls)
        for name, value in self._checked(data, fill).items():
            if value is not UNSET:
                object.__setattr__(made, name, value)
        if static(self._cls, _OF_ATTRS) is not None:
            object.__setattr__(made, _OF_ATTRS, None)  # as its constructor begins
        return made


class NamedTupleKind(_KindWithFields):
    """Named tuples, by the names."""

    def __init__(self, cls: Any) -> None:
        defaults = cls._field_defaults
        super().__init__(cls, {name: _constant(defaults[name]) if name in defaults else None for name in cls._fields})

    def take(self, value: Any) -> Any:
        if getattr(value, "__dict__", None):
            raise Unstorable("it has attributes that are not fields")
        return dict(zip(self._defaults, tuple.__iter__(value), strict=True))

    def make(self, data: Any, *, fill: bool) -> Any:
        fields = self._checked(data, fill)
        return tuple.__new__(self._cls, [fields[name] for name in self._defaults])


class StructKind(_KindWithFields):
    """msgspec structs."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls, msgpack.struct_defaults(cls))

    def take(self, value: Any) -> Any:
        self._refuse_more(value, own(value))
        try:
            fields = {name: getattr(value, name) for name in self._defaults}
        except AttributeError as error:
            raise Unstorable(f"a field was deleted: {error}") from None
        if hasattr(self._cls, "__post_init__"):
            try:
                self._make(fields)
            except Exception as error:
                raise Unstorable(f"its __post_init__ fails when it is rebuilt: {error!r}") from None
        return {name: UNSET if each is msgpack.UNSET else each for name, each in fields.items()}

    def make(self, data: Any, *, fill: bool) -> Any:
        fields = self._checked(data, fill)
        return self._make({name: msgpack.UNSET if each is UNSET else each for name, each in fields.items()})

    def _make(self, fields: dict[str, Any]) -> Any:
        """A struct is made by its constructor alone; what that does to the values, it does to copies of them."""
        given = copy.deepcopy(fields) if hasattr(self._cls, "__post_init__") else fields
        return msgpack.make_struct(self._cls, given, fields)


class PydanticKind(_KindWithFields):
    """pydantic models."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls, pydantic_models.model_fields(cls))

    def take(self, value: Any) -> Any:
        data = pydantic_models.take_model(value)
        self._refuse_more(value, data["fields"])
        data["fields"] |= dict.fromkeys(self._defaults.keys() - data["fields"].keys(), UNSET)
        return data

    def make(self, data: Any, *, fill: bool) -> Any:
        return pydantic_models.make_model(self._cls, self._whole(data, fill))

    def _whole(self, data: Any, fill: bool) -> Any:
        """The data with every field that the class has; one without a value, as `model_construct` leaves it, goes."""
        if data["fields"].keys() == self._defaults.keys():
            return data | {"fields": {name: each for name, each in data["fields"].items() if each is not UNSET}}
        fields = {name: value for name, value in data["fields"].items() if name in self._defaults}
        others = {name: value for name, value in data["fields"].items() if name not in self._defaults}
        if not all(isinstance(getattr(self._cls, name, None), cached_property) for name in others):
            fields |= others  # reported as unexpected fields below
        whole = self._checked(fields, fill) | others
        return data | {"fields": {name: each for name, each in whole.items() if each is not UNSET}}

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        fields = way(dict(data["fields"]))
        given = (data["set"] & fields.keys()) | (fields.keys() - data["fields"].keys())
        return data | {"fields": fields, "set": given}


def own(value: Any) -> Mapping[str, Any]:
    """The attributes of an object, without running code of its class."""
    try:
        found: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found


def static(cls: type, name: str, default: Any = None) -> Any:
    """The attribute of a class, without running code of a metaclass or a descriptor."""
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), default)


def slots(classes: Iterable[type]) -> Iterator[str]:
    """The slots that were declared by hand; those that attrs makes contain fields or caches."""
    for each in classes:
        if (
            "__attrs_attrs__" not in vars(each)
            and not msgpack.is_struct(each)
            and not pydantic_models.is_model_base(each)
        ):
            said = vars(each).get("__slots__", ())
            names = [said] if isinstance(said, str) else said
            yield from (_mangled(each, name) for name in names if name not in ("__dict__", "__weakref__"))


def _mangled(cls: type, name: str) -> str:
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if is_private else name


def _dataclass_defaults(cls: Any) -> Defaults:
    return {each.name: _dataclass_default(each) for each in dataclasses.fields(cls)}


def _dataclass_default(each: Any) -> Callable[[], Any] | None:
    if each.default_factory is not dataclasses.MISSING:
        factory: Callable[[], Any] = each.default_factory
        return factory
    return None if each.default is dataclasses.MISSING else _constant(each.default)


def _attrs_defaults(cls: Any) -> Defaults:
    return {each.name: None for each in cls.__attrs_attrs__}


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value
