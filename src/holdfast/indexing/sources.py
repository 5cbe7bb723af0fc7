"""Where documents come from: a folder, or anything that can be gone through twice."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.errors import NotFound, Refused, Unavailable

TEXTS = ("*.md", "*.txt", "*.rst", "*.py")
_SETTLED_NS = 2_000_000_000
"""A file that changed this lately may change again within one tick of the disk's clock; its stamp proves nothing."""


@dataclass(frozen=True, slots=True)
class Document:
    """Something to index. What it holds is read when it is needed."""

    name: str
    read: Callable[[], bytes | str]
    stamp: str | None = None
    """Changes whenever the content does; None if nothing but reading tells."""
    is_settled: bool = True
    """Whether the stamp can be trusted next time."""
    problem: str | None = None
    """Why it cannot be read; of a folder (its name ends with `/`), why it cannot be listed."""


class Source(Protocol):
    """Gives the same documents, in the same order, each time it is gone through, unless they changed."""

    def __iter__(self) -> Iterator[Document]: ...


@dataclass(frozen=True)
class Folder:
    """The files of a folder whose names match; links are not followed, hidden ones are left out."""

    path: str | Path
    include: tuple[str, ...] = TEXTS
    exclude: tuple[str, ...] = ()
    max_bytes: int = 64 * 1024 * 1024

    def __iter__(self) -> Iterator[Document]:
        if not os.path.isdir(self.path):
            raise NotFound(
                f"there is no folder {self.path}", hint="An index is not emptied because its folder is away."
            )
        return self._walk("", time.time_ns() - _SETTLED_NS)

    def _walk(self, under: str, settled_ns: int) -> Iterator[Document]:
        try:
            with os.scandir(os.path.join(self.path, under)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield Document(_text(under) or "/", _never, problem=error.strerror or str(error))
            return
        for entry in entries:
            path = under + entry.name
            if entry.name.startswith(".") or _matches(path, self.exclude):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path + "/", settled_ns)
            elif _matches(path, self.include):
                yield from self._file(entry, path, settled_ns)

    def _file(self, entry: os.DirEntry[str], path: str, settled_ns: int) -> Iterator[Document]:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return  # it went while the folder was listed
        if not stat.S_ISREG(found.st_mode):
            return
        stamp = f"{found.st_dev}.{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"
        is_settled = max(found.st_mtime_ns, found.st_ctime_ns) < settled_ns
        problem = f"is larger than {self.max_bytes} bytes" if found.st_size > self.max_bytes else None
        yield Document(_text(path), functools.partial(_read, entry.path), stamp, is_settled, problem)


@dataclass(frozen=True)
class Given:
    """Documents that a program gives: names with texts, pairs of both, `Document`s, or a function that gives them."""

    items: Mapping[str, bytes | str] | Iterable[Document | tuple[str, bytes | str]] | Callable[[], Iterable[object]]

    def __post_init__(self) -> None:
        if isinstance(self.items, Iterator):
            raise Refused(
                "the source can be gone through only once",
                hint="Give a list, a mapping, or the function that makes it.",
            )

    def __iter__(self) -> Iterator[Document]:
        items = self.items() if callable(self.items) else self.items
        for item in items.items() if isinstance(items, Mapping) else items:
            yield item if isinstance(item, Document) else _document(item)


def as_source(source: object) -> Source:
    """A source from what was given: a path, a source, or documents."""
    if isinstance(source, str | Path):
        return Folder(source)
    if isinstance(source, Folder | Given):
        return source
    return Given(source)  # type: ignore[arg-type] # it says what is wrong with it itself


def read(document: Document) -> bytes:
    """What a document holds. Unavailable if it cannot be read."""
    if document.problem is not None:
        raise Unavailable(f"{document.name} {document.problem}", hint="Leave it out, or mend it.")
    try:
        found = document.read()
        return found.encode("utf-8", "strict") if isinstance(found, str) else bytes(found)
    except OSError as error:
        raise Unavailable(f"{document.name}: {error.strerror or error}", hint="See that it can be read.") from error
    except UnicodeEncodeError as error:
        raise Unavailable(
            f"{document.name} is not text: {error.reason}", hint="Give bytes, or mend the text."
        ) from error


def _document(item: object) -> Document:
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
        raise Refused(f"the source gave {type(item).__name__}", hint="Give Documents, or pairs of a name and a text.")
    name, content = item
    if not isinstance(content, str | bytes):
        raise Refused(f"{name} is {type(content).__name__}", hint="A document is text or bytes.")
    return Document(name, lambda: content)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path, or its last part, fits one of some patterns."""
    found = _pattern(patterns)
    return found is not None and (found(path.rpartition("/")[2]) or found(path)) is not None


@functools.cache
def _pattern(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None] | None:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _text(path: str) -> str:
    """A path as text that every database takes, whatever its bytes are."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _never() -> bytes:
    raise OSError("it cannot be listed")
