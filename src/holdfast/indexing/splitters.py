"""Use splitters of other packages as chunkers: anything with `split_text`, as in LangChain and LlamaIndex."""

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
from holdfast.validation import checked_options


class HasSplitText(Protocol):
    """A splitter of another package."""

    def split_text(self, text: str) -> Iterable[Any]:
        """Return the parts of a text: texts, or objects with `page_content`."""
        ...


@checked_options
class Splitter:
    """A chunker that calls another splitter: `chunk=Splitter(RecursiveCharacterTextSplitter(chunk_size=800))`.

    It is identified by the version of its package and by all of its settings. Settings that cannot be compared, such as
    a tokenizer, are listed in the findings of a plan.
    """

    stage_name = "holdfast.indexing.splitters.Splitter"

    def __init__(self, splitter: HasSplitText) -> None:
        if not callable(getattr(splitter, "split_text", None)):
            raise Refused(f"{type(splitter).__name__} has no split_text", hint="Pass a function of a text instead.")
        self._splitter = splitter
        kind = type(splitter)
        self.settings = {"splitter": f"{kind.__module__}.{kind.__qualname__}"} | _settings(splitter)
        self.version = _version(kind.__module__.partition(".")[0]) or stage_of(kind.split_text).version

    def __call__(self, text: str) -> list[str]:
        parts = [getattr(part, "page_content", part) for part in self._splitter.split_text(text)]
        return [part for part in parts if not isinstance(part, str) or part.strip()]


def _settings(splitter: Any) -> dict[str, Any]:
    dump = getattr(splitter, "model_dump", None)  # pydantic: private attributes are not in `vars`
    found = dict(dump()) | (getattr(splitter, "__pydantic_private__", None) or {}) if dump else vars(splitter)
    return {name.lstrip("_"): _comparable(value) for name, value in found.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, FunctionType | BuiltinFunctionType):
        stage = stage_of(value)
        return value if stage.unseen else stage.fingerprint
    return value


@functools.cache
def _version(package: str) -> str | None:
    """Return name and version of the distribution of a package; None for a module of the user."""
    for distribution in _distributions(package):
        with contextlib.suppress(PackageNotFoundError):
            return f"{distribution} {version(distribution)}"
    return None


def _distributions(package: str) -> Iterator[str]:
    yield package.replace("_", "-")
    yield from packages_distributions().get(package, ())  # slow: searches all installed packages
