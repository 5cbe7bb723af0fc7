"""Where documents come from: a folder, or anything that can be gone through twice."""

from __future__ import annotations

import fnmatch
import functools
import operator
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from holdfast.errors import HoldfastError, NotFound, Refused, Unavailable
from holdfast.indexing.arguments import texts_of

TEXTS = ("*.md", "*.txt", "*.rst", "*.py")
_AT_ONCE = 500
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_SETTLED_NS = 2_000_000_000
"""A file that changed this lately may change again within one tick of the disk's clock; its stamp proves nothing."""


class Document(NamedTuple):
    """Something to index. What it holds is read when it is needed. A tuple: there may be millions."""

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


_first = operator.itemgetter(0)


@dataclass(frozen=True)
class Folder:
    """The files of a folder whose names match; links are not followed, hidden ones are left out."""

    path: str | os.PathLike[str]
    include: Iterable[str] = TEXTS
    """One pattern, or a list, tuple or set of some: of names, or of paths below the folder."""
    exclude: Iterable[str] = ()
    max_bytes: int = 64 * 1024 * 1024
    without: Iterable[str] = ()
    """Folders below it that are left out with all that is in them, by their paths."""

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise Refused(f"{self.path!r} is no path of a folder", hint="Give a path.")
        if not isinstance(self.max_bytes, int) or self.max_bytes < 0:
            raise Refused(f"max_bytes is {self.max_bytes!r}", hint="Give a whole number, 0 or more.")
        for name in ("include", "exclude", "without"):
            object.__setattr__(self, name, texts_of(getattr(self, name), name))

    def __iter__(self) -> Iterator[Document]:
        return (document for some in self.portions() for document in some)

    def portions(self) -> Iterator[list[Document]]:
        """The same, a folder at a time. NotFound if it is not there."""
        if not os.path.isdir(self.path):
            raise NotFound(
                f"there is no folder {self.path}", hint="An index is not emptied because its folder is away."
            )
        return self._walk(time.time_ns() - _SETTLED_NS)

    def _walk(self, settled_ns: int) -> Iterator[list[Document]]:
        """Give files in the order of their paths' bytes, as a ledger has them: then both are gone through once."""
        opened: list[Iterator[tuple[str, Document | str]]] = [iter([("", "")])]  # folders lie deeper than calls may
        while opened:
            some: list[Document] = []
            below: str | None = None
            for _, found in opened[-1]:
                if isinstance(found, str):
                    below = found
                    break
                some.append(found)
            else:
                opened.pop()
            if some:
                yield some
            if below is not None and below[:-1] not in self.without:
                opened.append(iter(self._entries(below, settled_ns)))

    def _entries(self, under: str, settled_ns: int) -> list[tuple[str, Document | str]]:
        try:
            return self._list(under, settled_ns)
        except OSError as error:
            return [(under, Document(spelt(under) or "/", _never, problem=error.strerror or str(error)))]

    def _list(self, under: str, settled_ns: int) -> list[tuple[str, Document | str]]:
        """The files of a folder as documents, and its folders, by where they come: a folder as if it ended with `/`.

        All in one loop, and few calls in it: it is what a plan of an unchanged corpus takes its time for.
        """
        excluded, included = _pattern(tuple(self.exclude)), _pattern(tuple(self.include))
        place = os.path.join(self.path, under)
        found: list[tuple[str, Document | str]] = []
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # what is in it is looked up from here
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    name = entry.name
                    path = under + name
                    if name[0] == "." or (excluded and (excluded(name) or excluded(path))):
                        continue
                    is_meant = included and (included(name) or included(path))
                    if not is_meant:
                        if entry.is_dir(follow_symlinks=False):
                            found.append((spelt(path + "/"), path + "/"))
                        continue
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # it went while the folder was listed; what else fails is no sign of that
                    kind = stat.S_IFMT(seen.st_mode)
                    if kind == stat.S_IFREG:
                        text = path if path.isascii() else spelt(path)
                        found.append((text, self._document(text, place, name, seen, settled_ns)))
                    elif kind == stat.S_IFDIR:
                        found.append((spelt(path + "/"), path + "/"))
        finally:
            os.close(handle)
        found.sort(key=_first)
        return found

    def _document(self, text: str, place: str, name: str, seen: os.stat_result, settled_ns: int) -> Document:
        size, mtime_ns, ctime_ns = seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
        return Document(
            text,
            functools.partial(_read, place, name),
            f"{seen.st_ino}.{size}.{mtime_ns}.{ctime_ns}",  # no device: its number may be another after a restart
            mtime_ns < settled_ns and ctime_ns < settled_ns,
            f"is larger than {self.max_bytes} bytes" if size > self.max_bytes else None,
        )


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
        if not isinstance(self.items, Iterable) and not callable(self.items):
            raise Refused(
                f"the source is {self.items!r}", hint="Give a Folder, a path, a mapping of names to texts, or a list."
            )

    def __iter__(self) -> Iterator[Document]:
        items = self.items() if callable(self.items) else self.items
        for item in items.items() if isinstance(items, Mapping) else items:
            yield item if isinstance(item, Document) else _document(item)


def as_source(source: object) -> Source:
    """A source from what was given: a path, a source, or documents."""
    if isinstance(source, str | os.PathLike):
        return Folder(source)
    if isinstance(source, Folder | Given):
        return source
    return Given(source)  # type: ignore[arg-type] # it says what is wrong with it itself


def portions(source: Source) -> Iterator[list[Document]]:
    """The documents of a source, some at a time."""
    if isinstance(source, Folder):
        yield from source.portions()
        return
    documents = iter(source)
    while some := list(islice(documents, _AT_ONCE)):
        yield some


def read(document: Document) -> bytes:
    """What a document holds. Unavailable if it cannot be read."""
    if document.problem is not None:
        raise Unavailable(f"{document.name} {document.problem}", hint="Leave it out, or fix it.")
    try:
        found = document.read()
        if isinstance(found, str):
            return found.encode("utf-8", "strict")
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
    except HoldfastError:
        raise
    except OSError as error:
        raise Unavailable(f"{document.name}: {error.strerror or error}", hint="See that it can be read.") from error
    except UnicodeEncodeError as error:
        raise Unavailable(
            f"{document.name} is not text: {error.reason}", hint="Give bytes, or fix the text."
        ) from error
    except Exception as error:  # what reads it is others' code, and may raise anything
        said = f"{document.name}: {type(error).__name__}: {error}"
        raise Unavailable(said, hint="See that it can be read.") from error
    raise Unavailable(f"{document.name} is {type(found).__name__}", hint="A document is text or bytes.")


def _document(item: object) -> Document:
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
        raise Refused(f"the source gave {type(item).__name__}", hint="Give Documents, or pairs of a name and a text.")
    name, content = item
    if not isinstance(content, str | bytes):
        raise Refused(f"{name} is {type(content).__name__}", hint="A document is text or bytes.")
    return Document(name, lambda: content)


@functools.cache
def _pattern(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None] | None:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None


def _read(place: str, name: str) -> bytes:
    """What a file holds. OSError if it has become something else: a link leads elsewhere, a pipe never ends."""
    handle = os.open(os.path.join(place, name), _READING)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is not a file any more")
        return file.read()


def spelt(path: str) -> str:
    """A path as text that every database takes, whatever its bytes are."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _never() -> bytes:
    raise OSError("it cannot be listed")
