"""What identifies a stage of a pipeline: its implementation, version and settings.

A callable is identified by its name and its `version` or, if it declares none, by its source, closure, defaults, and
the functions and constants of its module that it uses. What cannot be compared is reported (P4).
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
class PipelineStage:
    """A stage of a pipeline, as it is stored and compared."""

    implementation: str
    version: str
    settings: Mapping[str, Any]
    unseen: tuple[str, ...] = ()
    """Values it depends on that have no digest: a change of them is not noticed."""

    @property
    def fingerprint(self) -> str:
        """Equal if the results are equal."""
        return digest("stage", self.implementation, self.version, semantic(self.settings))

    def plain(self) -> dict[str, Any]:
        """Return it as a ledger stores it."""
        return {"implementation": self.implementation, "version": self.version, "settings": _plain(self.settings)}


def stage_of(implementation: Callable[..., Any]) -> PipelineStage:
    """Describe a callable. Refused if it is not callable."""
    if not callable(implementation):
        raise Refused(f"{implementation!r} is not callable", hint="A stage is a function or a callable object.")
    unseen: list[str] = []
    found = without_secrets(_settings(implementation))
    plain = {name: value for name, value in found.items() if _is_digestible(name, value, unseen)}
    version = getattr(implementation, "version", None)
    if version is None:
        version = _source(implementation, unseen)
    return PipelineStage(_name(implementation), str(version), plain, tuple(unseen))


def _settings(implementation: Any) -> dict[str, Any]:
    if isinstance(implementation, functools.partial):
        names = _parameters(implementation.func)
        bound = {names.get(place, f"argument {place}"): value for place, value in enumerate(implementation.args)}
        return _settings(implementation.func) | bound | implementation.keywords
    declared = getattr(implementation, "settings", None)
    if isinstance(declared, Mapping):
        return dict(declared)
    if is_dataclass(implementation) and not isinstance(implementation, type):
        return asdict(implementation)
    if isinstance(implementation, FunctionType | MethodType | type) or not hasattr(implementation, "__dict__"):
        return {}
    return {name: value for name, value in vars(implementation).items() if not name.startswith("_")}


def _parameters(function: Any) -> dict[int, str]:
    """Return the names of a function's arguments: secrets are recognised by name."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in
        return {}
    return {place: each.name for place, each in enumerate(found) if each.kind is not each.VAR_POSITIONAL}


def _name(implementation: Any) -> str:
    """The stored name of an implementation: its `stage_name`, or else its module and qualified name.

    A class that ships with Holdfast declares a `stage_name`, so that moving its module makes no index stale.
    """
    if isinstance(implementation, functools.partial):
        return _name(implementation.func)
    if isinstance(declared := getattr(implementation, "stage_name", None), str):
        return declared
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
            unseen.append(name)  # never hashed; reported, in case it is not a secret
            continue
        if isinstance(value, FunctionType):
            parts += _parts(value, unseen, seen) if value.__module__ == function.__module__ else [_name(value)]
        elif not inspect.ismodule(value) and not isinstance(value, type) and _is_digestible(name, value, unseen):
            parts.append((name, value))
    return parts


def _text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # defined interactively, or generated
        return _code(function.__code__)


def _code(code: CodeType) -> str:
    inner = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return digest_bytes("\0".join([code.co_code.hex(), *code.co_names, *inner]).encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    """Return a value as JSON, equal in every process."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Set):
        return sorted((_plain(each) for each in value), key=str)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _is_digestible(name: str, value: Any, unseen: list[str]) -> bool:
    try:
        digest(value)
    except (Refused, RecursionError):
        unseen.append(name)
        return False
    return True
