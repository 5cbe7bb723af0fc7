"""The kinds of classes that are taken apart and made again without calling their constructors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, Flag
from functools import cached_property
from typing import Any, Protocol

from holdfast.errors import Refused
from holdfast.serde import models, msgpack
from holdfast.serde.cannot import Cannot

_BUILT_IN = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, BaseException)
OF_TYPING = frozenset({"__orig_class__"})  # noted by `Cart[int](…)`
_OF_ATTRS = "_attrs_cached_hash"
Defaults = Mapping[str, Callable[[], Any] | None]


class Unset:
    """Stands for a field that has no value."""


UNSET = Unset()


class Kind(Protocol):
    """How the objects of one class become data and come back."""

    def take(self, value: Any) -> Any: ...
    def make(self, data: Any, *, fill: bool) -> Any:
        """`fill`: the data was upgraded, and defaults stand in for fields that it lacks."""

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any: ...


def kind_of(cls: type, encode: Callable[[Any], Any] | None, decode: Callable[[Any], Any] | None) -> Kind:
    """The kind of a class; Refused if it has none and no functions are given."""
    if (encode is None) != (decode is None):
        raise Refused(f"{cls.__qualname__} has one of encode and decode", hint="Give both, or neither.")
    if encode is not None and decode is not None:
        return Custom(encode, decode)
    if issubclass(cls, Enum):
        return Members(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return Named(cls)
    if msgpack.is_struct(cls):
        return Structs(cls)
    if models.is_model(cls):
        return Models(cls)
    if (dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")) and _holds_only_attributes(cls):
        return Fields(cls)
    raise Refused(f"how a {cls.__qualname__} is taken apart is not known", hint="Register it with encode= and decode=.")


def _holds_only_attributes(cls: type) -> bool:
    """Whether its objects are made by `object` alone; a deque or a date has a content besides, which would be lost."""
    if issubclass(cls, _BUILT_IN):
        return False
    if getattr(cls, "__abstractmethods__", None):
        return True  # has no objects
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


class Custom:
    """Functions of the user."""

    def __init__(self, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self.take = encode
        self._decode = decode

    def make(self, data: Any, *, fill: bool) -> Any:
        return self._decode(data)

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        return way(data)


class Members:
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


class _Fielded:
    """What classes with named fields have in common: the stored fields must be those that the class has."""

    def __init__(self, cls: Any, defaults: Defaults) -> None:
        self._cls = cls
        self._defaults = defaults
        self._descriptors = {name: each for name in defaults if hasattr(each := static(cls, name), "__set__")}
        self._slots = [slot for slot in slots(cls.__mro__) if slot not in defaults]

    def _refuse_more(self, value: Any, own: Mapping[str, Any]) -> None:
        """Cannot if an object has more than its fields: that would be lost."""
        for name in own.keys() - self._defaults.keys() - OF_TYPING:
            if not isinstance(static(self._cls, name), cached_property):
                raise Cannot(f"it has an attribute {name!r} that is no field")
        for name in self._slots:
            if hasattr(value, name):
                raise Cannot(f"it has an attribute {name!r} that is no field")

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


class Fields(_Fielded):
    """dataclasses and attrs classes; also fields that the constructor does not take, and such without a value."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, _dataclass_defaults(cls) if dataclasses.is_dataclass(cls) else _attrs_defaults(cls))

    def take(self, value: Any) -> Any:
        self._refuse_more(value, own(value))
        return {name: self._value(value, name) for name in self._defaults}

    def _value(self, value: Any, name: str) -> Any:
        """What a field holds, whatever the class makes of being asked for it."""
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


class Named(_Fielded):
    """Named tuples, by the names."""

    def __init__(self, cls: Any) -> None:
        defaults = cls._field_defaults
        super().__init__(cls, {name: _constant(defaults[name]) if name in defaults else None for name in cls._fields})

    def take(self, value: Any) -> Any:
        if getattr(value, "__dict__", None):
            raise Cannot("it has attributes besides its fields")
        return dict(zip(self._defaults, tuple.__iter__(value), strict=True))

    def make(self, data: Any, *, fill: bool) -> Any:
        fields = self._checked(data, fill)
        return tuple.__new__(self._cls, [fields[name] for name in self._defaults])


class Structs(_Fielded):
    """msgspec structs."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls, msgpack.struct_defaults(cls))

    def take(self, value: Any) -> Any:
        self._refuse_more(value, own(value))
        try:
            fields = {name: getattr(value, name) for name in self._defaults}
        except AttributeError as error:
            raise Cannot(f"a field was deleted: {error}") from None
        if hasattr(self._cls, "__post_init__"):
            try:
                self._make(fields)
            except Exception as error:
                raise Cannot(f"its __post_init__ would not let it be made again: {error!r}") from None
        return {name: UNSET if each is msgpack.UNSET else each for name, each in fields.items()}

    def make(self, data: Any, *, fill: bool) -> Any:
        fields = self._checked(data, fill)
        return self._make({name: msgpack.UNSET if each is UNSET else each for name, each in fields.items()})

    def _make(self, fields: dict[str, Any]) -> Any:
        """A struct is made by its constructor alone; what that does to the values, it does to copies of them."""
        given = copy.deepcopy(fields) if hasattr(self._cls, "__post_init__") else fields
        return msgpack.make_struct(self._cls, given, fields)


class Models(_Fielded):
    """pydantic models."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls, models.model_fields(cls))

    def take(self, value: Any) -> Any:
        data = models.take_model(value)
        self._refuse_more(value, data["fields"])
        data["fields"] |= dict.fromkeys(self._defaults.keys() - data["fields"].keys(), UNSET)
        return data

    def make(self, data: Any, *, fill: bool) -> Any:
        return models.make_model(self._cls, self._whole(data, fill))

    def _whole(self, data: Any, fill: bool) -> Any:
        """The data with every field that the class has; one without a value, as `model_construct` leaves it, goes."""
        if data["fields"].keys() == self._defaults.keys():
            return data | {"fields": {name: each for name, each in data["fields"].items() if each is not UNSET}}
        fields = {name: value for name, value in data["fields"].items() if name in self._defaults}
        others = {name: value for name, value in data["fields"].items() if name not in self._defaults}
        if not all(isinstance(getattr(self._cls, name, None), cached_property) for name in others):
            fields |= others  # is said to be too many below
        whole = self._checked(fields, fill) | others
        return data | {"fields": {name: each for name, each in whole.items() if each is not UNSET}}

    def upgrade(self, way: Callable[[Any], Any], data: Any) -> Any:
        fields = way(dict(data["fields"]))
        given = (data["set"] & fields.keys()) | (fields.keys() - data["fields"].keys())
        return data | {"fields": fields, "set": given}


def own(value: Any) -> Mapping[str, Any]:
    """The attributes of an object, whatever its class makes of being asked for them."""
    try:
        found: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found


def static(cls: type, name: str, default: Any = None) -> Any:
    """What a class has under a name, without asking it."""
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), default)


def slots(classes: Iterable[type]) -> Iterator[str]:
    """The slots that somebody wrote down; those that attrs makes hold fields, and what can be made again."""
    for each in classes:
        if "__attrs_attrs__" not in vars(each) and not msgpack.is_struct(each) and not models.is_model_base(each):
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
