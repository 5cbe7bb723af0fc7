"""Sources of documents: a folder, or anything that can be iterated twice."""

from __future__ import annotations

import fnmatch
import functools
import operator
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from holdfast.durable import platform
from holdfast.errors import HoldfastError, NotFound, Refused, Unavailable
from holdfast.indexing.validation import as_texts
from holdfast.validation import check_count, check_place, checked_options

TEXTS = ("*.md", "*.txt", "*.rst", "*.py")
_PORTION = 500
_READING = platform.READ_ONLY | platform.O_NOFOLLOW | platform.O_NONBLOCK
_SETTLED_NS = 2_000_000_000
"""A file that changed this recently may change again within one tick of the clock; its stamp is not trusted."""


class Document(NamedTuple):
    """Something to index. Its content is read when needed. A tuple, because there may be millions."""

    name: str
    read: Callable[[], bytes | str]
    stamp: str | None = None
    """Changes whenever the content does; None if only reading tells."""
    is_settled: bool = True
    """Whether the stamp can be trusted next time."""
    problem: str | None = None
    """Why it cannot be read; of a folder (its name ends with `/`), why it cannot be listed."""


class DocumentSource(Protocol):
    """Yields the same documents in the same order each time it is iterated, unless they changed."""

    def __iter__(self) -> Iterator[Document]: ...


class _Folder(NamedTuple):
    """A folder among the files of another."""

    name: str
    """As it is sorted: like that of a document."""
    path: str


_first = operator.itemgetter(0)
_KIND = 0o170000


@checked_options
@dataclass(frozen=True)
class FolderSource:
    """The files of a folder whose names match; links are not followed, hidden files are left out."""

    path: str | os.PathLike[str]
    include: Iterable[str] = TEXTS
    """One pattern, or a list, tuple or set: of names, or of paths below the folder."""
    exclude: Iterable[str] = ()
    max_bytes: int = 64 * 1024 * 1024
    without: Iterable[str] = ()
    """Folders below it that are left out, by path."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", check_place(self.path, "the folder"))
        check_count(self.max_bytes, "max_bytes")
        for name in ("include", "exclude", "without"):
            object.__setattr__(self, name, as_texts(getattr(self, name), name))

    def __iter__(self) -> Iterator[Document]:
        return (document for some in self.portions() for document in some)

    def portions(self) -> Iterator[list[Document]]:
        """Yield the documents, a folder at a time. NotFound if the folder does not exist."""
        if not os.path.isdir(self.path):
            raise NotFound(f"there is no folder {self.path}", hint="Check the path. The index is not changed.")
        return self._walk(time.time_ns() - _SETTLED_NS)

    def _walk(self, settled_ns: int) -> Iterator[list[Document]]:
        """Yield files in the byte order of their paths, as the ledger does, so that both are read once (P8)."""
        opened: list[Iterator[Document | _Folder]] = [
            iter([_Folder("", "")])
        ]  # a stack: folders may be nested deeper than calls
        while opened:
            some: list[Document] = []
            below: str | None = None
            for found in opened[-1]:
                if type(found) is _Folder:
                    below = found.path
                    break
                some.append(found)  # type: ignore[arg-type] # there are only these two
            else:
                opened.pop()
            if some:
                yield some
            if below is not None and below[:-1] not in self.without:
                opened.append(iter(self._entries(below, settled_ns)))

    def _entries(self, under: str, settled_ns: int) -> list[Document | _Folder]:
        try:
            return self._list(under, settled_ns)
        except OSError as error:
            return [Document(printable(under) or "/", _never, problem=error.strerror or str(error))]

    def _list(self, under: str, settled_ns: int) -> list[Document | _Folder]:
        """Return the files of a folder as documents, and its folders, sorted as if folders ended with `/`.

        One loop with few calls: a plan of an unchanged corpus spends its time here (P8).
        """
        excluded, included = _pattern(tuple(self.exclude)), _pattern(tuple(self.include))
        place = os.path.join(self.path, under)
        found: list[Document | _Folder] = []
        make, partial, max_bytes = tuple.__new__, functools.partial, self.max_bytes
        is_windows = sys.platform == "win32"  # there a folder has no handle
        handle = -1 if is_windows else os.open(place, platform.READ_ONLY | platform.O_DIRECTORY)
        try:
            with os.scandir(place if is_windows else handle) as entries:  # entries are read relative to the handle
                for entry in entries:
                    name = entry.name
                    path = under + name
                    if name[0] == "." or (excluded and (excluded(name) or excluded(path))):
                        continue
                    is_meant = included and (included(name) or included(path))
                    if not is_meant:
                        if entry.is_dir(follow_symlinks=False):
                            found.append(_Folder(printable(path + "/"), path + "/"))
                        continue
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # deleted while the folder was listed; other errors are not that
                    kind = seen.st_mode & _KIND
                    if kind == stat.S_IFREG:
                        size, mtime_ns, ctime_ns = seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
                        found.append(
                            make(  # its own constructor takes twice as long
                                Document,
                                (
                                    path if path.isascii() else printable(path),
                                    partial(_read, place, name),
                                    # no device number: it may change with a restart
                                    f"{seen.st_ino}.{size}.{mtime_ns}.{ctime_ns}",
                                    mtime_ns < settled_ns and ctime_ns < settled_ns,
                                    f"is larger than {max_bytes} bytes" if size > max_bytes else None,
                                ),
                            )
                        )
                    elif kind == stat.S_IFDIR:
                        found.append(_Folder(printable(path + "/"), path + "/"))
        finally:
            if not is_windows:
                os.close(handle)
        found.sort(key=_first)
        return found


@dataclass(frozen=True)
class ItemSource:
    """Documents of a program: a mapping of names to texts, pairs, `Document`s, or a function that returns them."""

    items: Mapping[str, bytes | str] | Iterable[Document | tuple[str, bytes | str]] | Callable[[], Iterable[object]]

    def __post_init__(self) -> None:
        if isinstance(self.items, Iterator):
            raise Refused(
                "the source can be iterated only once",
                hint="Pass a list, a mapping, or the function that makes it.",
            )
        if not isinstance(self.items, Iterable) and not callable(self.items):
            raise Refused(
                f"the source is {self.items!r}",
                hint="Pass a FolderSource, a path, a mapping of names to texts, or a list.",
            )

    def __iter__(self) -> Iterator[Document]:
        items = self.items() if callable(self.items) else self.items
        for item in items.items() if isinstance(items, Mapping) else items:
            yield item if isinstance(item, Document) else _document(item)


def as_source(source: object) -> DocumentSource:
    """Make a source from a path, a source, or documents."""
    if isinstance(source, str | os.PathLike):
        return FolderSource(source)
    if isinstance(source, FolderSource | ItemSource):
        return source
    return ItemSource(source)  # type: ignore[arg-type] # checked by its own __post_init__


def portions(source: DocumentSource) -> Iterator[list[Document]]:
    """Yield the documents of a source, some at a time."""
    if isinstance(source, FolderSource):
        yield from source.portions()
        return
    documents = iter(source)
    while some := list(islice(documents, _PORTION)):
        yield some


def read(document: Document) -> bytes:
    """Return the content of a document. Unavailable if it cannot be read."""
    if document.problem is not None:
        raise Unavailable(f"{document.name} {document.problem}", hint="Exclude it, or fix it.")
    try:
        found = document.read()
        if isinstance(found, str):
            return found.encode("utf-8", "strict")
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
    except HoldfastError:
        raise
    except OSError as error:
        raise Unavailable(f"{document.name}: {error.strerror or error}", hint="Check that it can be read.") from error
    except UnicodeEncodeError as error:
        raise Unavailable(
            f"{document.name} is not text: {error.reason}", hint="Pass bytes, or fix the text."
        ) from error
    except Exception as error:  # the reader may raise anything
        message = f"{document.name}: {type(error).__name__}: {error}"
        raise Unavailable(message, hint="Check that it can be read.") from error
    raise Unavailable(f"{document.name} is {type(found).__name__}", hint="A document is text or bytes.")


def _document(item: object) -> Document:
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
        raise Refused(
            f"the source yields {type(item).__name__}", hint="Yield Documents, or pairs of a name and a text."
        )
    name, content = item
    if not isinstance(content, str | bytes):
        raise Refused(f"{name} is {type(content).__name__}", hint="A document is text or bytes.")
    return Document(name, lambda: content)


@functools.cache
def _pattern(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None] | None:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None


def _read(place: str, name: str) -> bytes:
    """Read a file. OSError if it became something else: a link leads elsewhere, a pipe never ends."""
    handle = os.open(os.path.join(place, name), _READING)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no longer a file")
        return file.read()


def printable(path: str) -> str:
    """Return a path as text that every database accepts, whatever its bytes are."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _never() -> bytes:
    raise OSError("it cannot be listed")
