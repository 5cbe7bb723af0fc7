"""Sources of documents: a folder, or anything that can be iterated twice."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import operator
import os
import re
import stat
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple, Protocol

from holdfast.durable import platform
from holdfast.errors import HoldfastError, NotFound, Refused, Unavailable
from holdfast.indexing.validation import as_texts, is_text
from holdfast.scan.sweep import native
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


class Portion:
    """Some documents of a source, in its order: their names and stamps, and they themselves when they are needed.

    Nearly all documents of a large corpus are unchanged, which their names and stamps tell: no object is made for each
    of them (P8).
    """

    __slots__ = ("_documents", "_make", "names", "stamps")

    def __init__(
        self, names: Sequence[str], stamps: Sequence[str | None], make: Callable[[], Sequence[Document]]
    ) -> None:
        """stamps: None for a document whose stamp alone does not tell whether it can be read."""
        self.names, self.stamps = names, stamps
        self._make = make
        self._documents: Sequence[Document] | None = None

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Portion:
        """Return documents as a portion."""
        stamps = [each.stamp or None if each.problem is None else None for each in documents]
        return cls([each.name for each in documents], stamps, lambda: documents)

    @property
    def documents(self) -> Sequence[Document]:
        if self._documents is None:
            self._documents = self._make()
        return self._documents


class _Folder(NamedTuple):
    """A folder among the files of another."""

    name: str
    """As it is sorted: like that of a document."""
    path: str


_first = operator.itemgetter(0)
_KIND = 0o170000
_MOST_BYTES = (1 << 63) - 1
"""No file is larger."""
_NOT_STAMPED, _UNSETTLED, _SETTLED = 0, 1, 2
"""What the native module says of a file; see `_native.stamps`."""


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
        return (document for some in self.portions() for document in some.documents)

    def portions(self) -> Iterator[Portion]:
        """Yield the documents, a folder at a time. NotFound if the folder does not exist."""
        if not os.path.isdir(self.path):
            raise NotFound(f"folder {self.path} does not exist", hint="Check the path. The index is not changed.")
        return _Walk(self, time.time_ns() - _SETTLED_NS).run()


class _Walk:
    """One look at all files of a folder."""

    def __init__(self, source: FolderSource, settled_ns: int) -> None:
        self._root = os.path.join(source.path, "")
        self._without = frozenset(source.without)
        self._excluded, self._included = _matcher(tuple(source.exclude)), _matcher(tuple(source.include))
        self._endings = () if source.exclude else _endings(source.include)
        self._max_bytes = min(source.max_bytes, _MOST_BYTES)
        self._settled_ns = settled_ns

    def run(self) -> Iterator[Portion]:
        """Yield files in the byte order of their paths, as the ledger does, so that both are read once (P8)."""
        opened: list[Iterator[Portion | _Folder]] = [
            iter([_Folder("", "")])
        ]  # a stack: folders may be nested deeper than calls
        while opened:
            found = next(opened[-1], None)
            if found is None:
                opened.pop()
            elif isinstance(found, Portion):
                yield found
            elif found.path[:-1] not in self._without:
                opened.append(iter(self._entries(found.path)))

    def _entries(self, under: str) -> list[Portion | _Folder]:
        try:
            return self._list(under)
        except OSError as error:
            return [Portion.of([Document(printable(under) or "/", _never, problem=error.strerror or str(error))])]

    def _list(self, under: str) -> list[Portion | _Folder]:
        """Return the files of a folder, and its folders between them, sorted as if folders ended with `/`."""
        place = self._root + under
        if sys.platform == "win32":  # there a folder has no handle
            with os.scandir(place) as entries:
                return self._looked_at(under, place, *self._wanted(under, entries))
        handle = os.open(place, platform.READ_ONLY | platform.O_DIRECTORY)
        try:
            with os.scandir(handle) as entries:  # entries are read relative to the handle
                wanted, folders = self._wanted(under, entries)
                if native is None or not is_text("".join([each.name for each in wanted])):
                    return self._looked_at(under, place, wanted, folders)
                names = sorted([each.name for each in wanted])
                return self._stamped(under, place, handle, names, folders)
        finally:
            os.close(handle)

    def _wanted(self, under: str, entries: Iterable[os.DirEntry[str]]) -> tuple[list[os.DirEntry[str]], list[_Folder]]:
        """Return the entries whose names match, and the other folders."""
        excluded, included, endings = self._excluded, self._included, self._endings
        wanted: list[os.DirEntry[str]] = []
        folders: list[_Folder] = []
        for entry in entries:
            name = entry.name
            if name.endswith(endings):  # nearly all of a large corpus
                if name[0] != ".":
                    wanted.append(entry)
                continue
            if name[0] == "." or (excluded and (excluded(name) or excluded(under + name))):
                continue
            if included and (included(name) or included(under + name)):
                wanted.append(entry)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(_folder(under, name))
        return wanted, folders

    def _looked_at(
        self, under: str, place: str, wanted: list[os.DirEntry[str]], folders: list[_Folder]
    ) -> list[Portion | _Folder]:
        """Look at each file by itself. This is the reference for `_stamped`."""
        found: list[Document | _Folder] = [*folders]
        for entry in wanted:
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted while the folder was listed; other errors are not that
            if (judged := self._judge(under, place, entry.name, seen)) is not None:
                found.append(judged)
        return _in_order(found)

    def _judge(self, under: str, place: str, name: str, seen: os.stat_result) -> Document | _Folder | None:
        """Return what an entry is, if it is a file or a folder."""
        kind = seen.st_mode & _KIND
        if kind != stat.S_IFREG:
            return _folder(under, name) if kind == stat.S_IFDIR else None
        size, mtime_ns, ctime_ns = seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
        path = under + name
        parts = (
            path if path.isascii() else printable(path),
            functools.partial(_read, place, name),
            # no device number: it may change with a restart. `_native_stamp.c` writes the same
            f"{seen.st_ino}.{size}.{mtime_ns}.{ctime_ns}",
            mtime_ns < self._settled_ns and ctime_ns < self._settled_ns,
            f"is larger than {self._max_bytes} bytes" if size > self._max_bytes else None,
        )
        return tuple.__new__(Document, parts)  # its own constructor takes twice as long

    def _stamped(
        self, under: str, place: str, handle: int, names: list[str], folders: list[_Folder]
    ) -> list[Portion | _Folder]:
        """Look at all files at once, and make no object for each (P8)."""
        stamps, states = _stamps(handle, names, self._settled_ns, self._max_bytes)
        shown = printable(under)
        paths = [shown + name for name in names] if under else names

        def documents(first: int, end: int) -> list[Document]:
            return [
                Document(
                    paths[at], functools.partial(_read, place, names[at]), stamps[at], is_settled=states[at] == _SETTLED
                )
                for at in range(first, end)
            ]

        def portion(first: int, end: int) -> Portion:
            return Portion(paths[first:end], stamps[first:end], functools.partial(documents, first, end))

        if _NOT_STAMPED in states:  # a link, a folder, too large, deleted meanwhile, not to be looked at
            found: list[Document | _Folder] = [*folders]
            for at, state in enumerate(states):
                if state != _NOT_STAMPED:
                    found += documents(at, at + 1)
                    continue
                with contextlib.suppress(FileNotFoundError):  # as in `_looked_at`
                    seen = os.stat(names[at], dir_fd=handle, follow_symlinks=False)
                    if (judged := self._judge(under, place, names[at], seen)) is not None:
                        found.append(judged)
            return _in_order(found)
        if not folders:
            return [portion(0, len(names))] if names else []
        parts: list[Portion | _Folder] = []
        first = 0
        for folder in sorted(folders):
            end = bisect_left(paths, folder.name, first)
            if end > first:
                parts.append(portion(first, end))
            parts.append(folder)
            first = end
        return [*parts, portion(first, len(names))] if first < len(names) else parts


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
                f"invalid source {self.items!r}",
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


def portions(source: DocumentSource) -> Iterator[Portion]:
    """Yield the documents of a source, some at a time."""
    if isinstance(source, FolderSource):
        yield from source.portions()
        return
    documents = iter(source)
    while some := list(islice(documents, _PORTION)):
        yield Portion.of(some)


def read(document: Document) -> bytes:
    """Return the content of a document. Unavailable if it cannot be read."""
    if document.problem is not None:
        raise Unavailable(f"{document.name} {document.problem}", hint="Fix or exclude it.")
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
    raise Unavailable(f"{document.name} is {type(found).__name__}", hint="Pass text or bytes as a document.")


def _document(item: object) -> Document:
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
        raise Refused(
            f"the source yields {type(item).__name__}", hint="Yield Documents, or pairs of a name and a text."
        )
    name, content = item
    if not isinstance(content, str | bytes):
        raise Refused(f"{name} is {type(content).__name__}", hint="Pass text or bytes as a document.")
    return Document(name, lambda: content)


@functools.cache
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None] | None:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match if patterns else None


def _endings(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the ends of names that match, of patterns that say no more: they are quicker to look at."""
    return tuple(each[1:] for each in patterns if each[:1] == "*" and not set(each[1:]) & set("*?["))


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


def _folder(under: str, name: str) -> _Folder:
    path = under + name + "/"
    return _Folder(printable(path), path)


def _in_order(found: list[Document | _Folder]) -> list[Portion | _Folder]:
    """Sort the entries of a folder, as if folders ended with `/`; documents between two folders are one portion."""
    found.sort(key=_first)
    parts: list[Portion | _Folder] = []
    for is_folder, group in groupby(found, lambda each: isinstance(each, _Folder)):
        some = list(group)
        parts += some if is_folder else [Portion.of(some)]  # type: ignore[arg-type] # of one kind each
    return parts


def _stamps(handle: int, names: list[str], settled_ns: int, most_bytes: int) -> tuple[list[str | None], bytes]:
    assert native is not None
    found: tuple[list[str | None], bytes] = native.stamps(handle, names, settled_ns, most_bytes)
    return found


def _never() -> bytes:
    raise OSError("it cannot be listed")
