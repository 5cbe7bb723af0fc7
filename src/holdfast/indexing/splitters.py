"""Splitters of others as chunkers: whatever has `split_text`, as LangChain's and many of LlamaIndex's have."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from types import BuiltinFunctionType, FunctionType
from typing import Any, Protocol

from holdfast.errors import Refused
from holdfast.indexing.stages import stage_of


class HasSplitText(Protocol):
    """What such a splitter can do."""

    def split_text(self, text: str) -> Iterable[Any]:
        """The parts of a text: texts, or things that have one."""
        ...


class Splitter:
    """A chunker that asks another's splitter: `chunk=Splitter(RecursiveCharacterTextSplitter(chunk_size=800))`.

    It is known by the version of its package and by all of its settings, whatever they are called. Those that have no
    single spelling, such as a tokenizer, are named in the findings of a plan.
    """

    def __init__(self, splitter: HasSplitText) -> None:
        if not callable(getattr(splitter, "split_text", None)):
            raise Refused(f"{type(splitter).__name__} has no split_text", hint="Give a function of a text instead.")
        self._splitter = splitter
        kind = type(splitter)
        self.settings = {"splitter": f"{kind.__module__}.{kind.__qualname__}"} | _settings(splitter)
        self.version = _version(kind.__module__.partition(".")[0]) or stage_of(kind.split_text).version

    def __call__(self, text: str) -> list[str]:
        parts = [getattr(part, "page_content", part) for part in self._splitter.split_text(text)]
        return [part for part in parts if not isinstance(part, str) or part.strip()]


def _settings(splitter: Any) -> dict[str, Any]:
    dump = getattr(splitter, "model_dump", None)  # pydantic's: its fields are public, the rest is not in `vars`
    found = dict(dump()) | (getattr(splitter, "__pydantic_private__", None) or {}) if dump else vars(splitter)
    return {name.lstrip("_"): _spelt(value) for name, value in found.items()}


def _spelt(value: Any) -> Any:
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, FunctionType | BuiltinFunctionType):
        stage = stage_of(value)
        return value if stage.unseen else stage.fingerprint
    return value


@functools.cache
def _version(package: str) -> str | None:
    """Of the distribution that a package is of; None for a module of one's own."""
    for distribution in _distributions(package):
        with contextlib.suppress(PackageNotFoundError):
            return f"{distribution} {version(distribution)}"
    return None


def _distributions(package: str) -> Iterator[str]:
    yield package.replace("_", "-")
    yield from packages_distributions().get(package, ())  # looks through all that is installed
