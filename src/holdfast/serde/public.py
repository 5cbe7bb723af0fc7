"""The names that `holdfast.serde` has for everybody, in one place to be loaded from."""

from holdfast.serde.classes import Registry, Unknown, default_registry, register
from holdfast.serde.envelope import Envelope
from holdfast.serde.jsonform import from_json, from_tagged, to_json, to_tagged
from holdfast.serde.keyfile import read_keys
from holdfast.serde.keys import Keys, NoKey, NotSealed
from holdfast.serde.serde import Serde

__all__ = [
    "Envelope",
    "Keys",
    "NoKey",
    "NotSealed",
    "Registry",
    "Serde",
    "Unknown",
    "default_registry",
    "from_json",
    "from_tagged",
    "read_keys",
    "register",
    "to_json",
    "to_tagged",
]
