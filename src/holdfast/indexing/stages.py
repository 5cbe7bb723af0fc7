"""Who does a stage, and with which settings: what makes its results what they are.

A callable is known by its name, its `version` if it declares one, or else by its source, together with what it closes
over, its defaults, and the functions and constants of its own module that it names. What cannot be seen is named, not
passed over.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from holdfast.digest import digest, digest_bytes
from holdfast.errors import Refused
from holdfast.indexing.settings import SettingKind, kind_of, semantic, without_secrets


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it is stored and compared."""

    implementation: str
    version: str
    settings: Mapping[str, Any]
    unseen: tuple[str, ...] = ()
    """What it depends on that has no single spelling: a change of it is not noticed."""

    @property
    def fingerprint(self) -> str:
        """The same for the same results."""
        return digest("stage", self.implementation, self.version, semantic(self.settings))

    def plain(self) -> dict[str, Any]:
        """As a ledger holds it."""
        return {"implementation": self.implementation, "version": self.version, "settings": _plain(self.settings)}


def stage_of(implementation: Callable[..., Any], settings: Mapping[str, Any] | None = None) -> Stage:
    """Describe a callable. Refused if it is none."""
    if not callable(implementation):
        raise Refused(f"{implementation!r} cannot be called", hint="A stage is a function or an object like one.")
    found = dict(settings or {}) | _settings(implementation)
    unseen: list[str] = []
    plain = {name: value for name, value in without_secrets(found).items() if _can_be_spelt(name, value, unseen)}
    version = getattr(implementation, "version", None)
    if version is None:
        version = _source(implementation, unseen)
    return Stage(_name(implementation), str(version), plain, tuple(unseen))


def _settings(implementation: Any) -> dict[str, Any]:
    if isinstance(implementation, functools.partial):
        names = _parameters(implementation.func)
        given = {names.get(place, f"argument {place}"): value for place, value in enumerate(implementation.args)}
        return _settings(implementation.func) | given | implementation.keywords
    declared = getattr(implementation, "settings", None)
    if isinstance(declared, Mapping):
        return dict(declared)
    if is_dataclass(implementation) and not isinstance(implementation, type):
        return asdict(implementation)
    if isinstance(implementation, FunctionType | MethodType | type) or not hasattr(implementation, "__dict__"):
        return {}
    return {name: value for name, value in vars(implementation).items() if not name.startswith("_")}


def _parameters(function: Any) -> dict[int, str]:
    """What a function calls its arguments: by that a secret is known."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return {}
    return {place: each.name for place, each in enumerate(found) if each.kind is not each.VAR_POSITIONAL}


def _name(implementation: Any) -> str:
    if isinstance(implementation, functools.partial):
        return _name(implementation.func)
    named = implementation if hasattr(implementation, "__qualname__") else type(implementation)
    return f"{named.__module__}.{named.__qualname__}"


def _source(implementation: Any, unseen: list[str]) -> str:
    if isinstance(implementation, functools.partial):
        return _source(implementation.func, unseen)
    if isinstance(implementation, MethodType):
        return _source(implementation.__func__, unseen)
    if isinstance(implementation, FunctionType):
        return digest(*_parts(implementation, unseen, set()))
    if inspect.isbuiltin(implementation):
        return "built in"
    kind = implementation if isinstance(implementation, type) else type(implementation)
    functions = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    seen: set[int] = set()
    return digest(*(part for each in functions for part in _parts(each, unseen, seen)))


def _parts(function: FunctionType, unseen: list[str], seen: set[int]) -> list[Any]:
    """The source of a function and all that it takes from its own module and from around it."""
    if id(function) in seen:
        return []
    seen.add(id(function))
    parts: list[Any] = [_text(function)]
    around = inspect.getclosurevars(function)
    taken = {**around.globals, **around.nonlocals}
    defaults, code = function.__defaults__ or (), function.__code__
    taken |= zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    taken |= function.__kwdefaults__ or {}
    for name, value in sorted(taken.items()):
        if isinstance(value, str | bytes) and kind_of(name)[0] is SettingKind.SECRET:
            unseen.append(name)  # never hashed, and said, lest it is none
            continue
        if isinstance(value, FunctionType):
            parts += _parts(value, unseen, seen) if value.__module__ == function.__module__ else [_name(value)]
        elif not inspect.ismodule(value) and not isinstance(value, type) and _can_be_spelt(name, value, unseen):
            parts.append((name, value))
    return parts


def _text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed in, or made by a program
        return _code(function.__code__)


def _code(code: CodeType) -> str:
    inner = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return digest_bytes("\0".join([code.co_code.hex(), *code.co_names, *inner]).encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    """A value as JSON holds it, the same in every process."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Set):
        return sorted((_plain(each) for each in value), key=str)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _can_be_spelt(name: str, value: Any, unseen: list[str]) -> bool:
    try:
        digest(value)
    except (Refused, RecursionError):
        unseen.append(name)
        return False
    return True
