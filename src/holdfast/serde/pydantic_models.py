"""pydantic models, to the last private attribute, and secrets. The only file that imports pydantic."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Unavailable

_NOTHING = object()
_STATE = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_core_schema__") and hasattr(cls, "model_fields")


def is_model_base(cls: type) -> bool:
    """Whether this is a class of pydantic itself, whose slots are known here."""
    return cls.__module__.startswith("pydantic.")


def is_secret(kind: type) -> bool:
    return kind.__module__.startswith("pydantic") and kind in _secrets()


def take_secret(secret: Any) -> Any:
    return secret.get_secret_value()


def make_secret(data: Any) -> Any:
    text, raw = _secrets()
    return (raw if isinstance(data, bytes) else text)(data)


def take_model(model: Any) -> dict[str, Any]:
    """All values of a model, as its class stores them; nothing is dumped, so nothing is masked or narrowed."""
    fields_set, extra, private = (getattr(model, name) for name in _STATE)
    return {"fields": dict(model.__dict__), "set": fields_set, "extra": extra, "private": private}


def make_model(cls: Any, data: dict[str, Any]) -> Any:
    """Put a model together without validating it: it was valid, or was made not to be, when it was saved."""
    made = object.__new__(cls)
    object.__setattr__(made, "__dict__", data["fields"])
    for name, value in zip(_STATE, (data["set"], data["extra"], data["private"]), strict=True):
        if getattr(made, name, _NOTHING) is not value:  # of a root model, the class says that it has none
            object.__setattr__(made, name, value)
    return made


def model_fields(cls: Any) -> dict[str, Any]:
    """The names of a model's fields, each with what gives its default (None: it has none)."""
    return {name: None if field.is_required() else _default(field) for name, field in cls.__pydantic_fields__.items()}


def _default(field: Any) -> Any:
    return lambda: field.get_default(call_default_factory=True, validated_data={})


def _secrets() -> tuple[type, type]:
    try:
        from pydantic import SecretBytes, SecretStr
    except ImportError:
        raise Unavailable("a secret of pydantic is stored here", hint="Install pydantic.") from None
    return SecretStr, SecretBytes
