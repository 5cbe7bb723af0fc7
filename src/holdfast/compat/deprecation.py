"""One `DeprecationWarning` per name of a predecessor, when a program first takes it from a module."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from types import FrameType, ModuleType


def deprecate(module: str, replacements: Mapping[str, str]) -> None:
    """Warn when one of these names is first taken from a module, once a process, at the line that takes it.

    A module calls this at its end: `deprecate(__name__, {"Service": "holdfast.workspace.CheckpointService"})`. The
    values are what to import instead, as dotted names; a remark may follow a space. The names stay ordinary
    globals, so type checkers and `mock.patch` see them.

    Modules of this package import from modules that deprecate nothing, so that a warning is always a program's own.
    """
    found = sys.modules[module]
    missing = [name for name in replacements if not hasattr(found, name)]
    if missing:
        raise AttributeError(f"module {module!r} does not have the names that it deprecates: {', '.join(missing)}")
    found.__dict__["_replacements"] = dict(replacements)
    found.__dict__["_not_warned"] = dict(replacements)
    found.__class__ = _DeprecatedNames


class _DeprecatedNames(ModuleType):
    """A module whose names warn. A module's `__getattr__` would see only names that it does not have."""

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if not name.startswith("__"):
            # `pop` is atomic: of two threads, one warns
            replacement = super().__getattribute__("_not_warned").pop(name, None)
            if replacement is not None:
                _warn(f"{self.__name__}.{name} is deprecated; use {replacement} instead")
        return value


def _warn(message: str) -> None:
    """Warn at the line that took the name; frames of `import` itself do not count.

    Not `warnings.warn`: PraisonAI replaces it with a function of its own, which counts as a frame.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib._bootstrap" in frame.f_code.co_filename:
        frame = frame.f_back
    where = {} if frame is None else frame.f_globals
    warnings.warn_explicit(
        message,
        DeprecationWarning,
        filename="<unknown>" if frame is None else frame.f_code.co_filename,
        lineno=0 if frame is None else frame.f_lineno,
        module=where.get("__name__", "<unknown>"),
        registry=where.setdefault("__warningregistry__", {}),
    )
