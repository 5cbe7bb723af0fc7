"""The folders of a scan cache, and of a scan, most of which stay encoded.

A sweep says which folders are plain: as they were, with nothing in them that a scan would ask about. A walk adopts a
plain folder with all that is below it in one step, and no `Folder` is made of it unless somebody asks for that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from holdfast.scan.cache import DAMAGE, Folder, load_folder, load_identity, load_path, load_rules
from holdfast.scan.sweep import PLAIN, PLAIN_BELOW, UNCHANGED

_NO_PARENT = (1 << 32) - 1


class CachedFolders(Mapping[str, Folder]):
    """The folders of a scan cache that a sweep has compared with the disk, by path."""

    def __init__(self, data: bytes, found: tuple[bytes, bytes]) -> None:
        """`found`: what `Sweep.result` returned for this cache. The sweep has checked every length in it."""
        self.data = data
        self._verdicts, relations = found
        view = memoryview(relations)
        self.starts = view.cast("Q")[::2]
        self.parents = view.cast("I")[2::4]
        self._below = view.cast("I")[3::4]
        self._made: dict[int, Folder | None] = {}
        self._index: dict[str, int] = {}

    def number(self, path: str) -> int | None:
        """The number of the record of a folder."""
        if not path and self.starts and not load_path(self.data, self.starts[0]):
            return 0  # most scans ask for no other one
        if not self._index:
            self._index = {load_path(self.data, start): number for number, start in enumerate(self.starts)}
        return self._index.get(path)

    def is_unchanged(self, path: str) -> bool:
        """Whether a folder and all known files in it are as in the cache."""
        number = self.number(path)
        return number is not None and bool(self._verdicts[number] & UNCHANGED)

    def is_plain(self, number: int) -> bool:
        """Whether in a folder and all below it nothing has to be looked at, if the same rules apply in it."""
        return self._verdicts[number] & (PLAIN | PLAIN_BELOW) == PLAIN | PLAIN_BELOW

    def is_plain_below(self, number: int) -> bool:
        """Whether this is so for each folder below a folder, if the rules in that are the same."""
        return bool(self._verdicts[number] & PLAIN_BELOW)

    def rules(self, number: int) -> bytes:
        """The digest of the rules that applied in a folder."""
        return load_rules(self.data, self.starts[number])

    def count_below(self, number: int) -> int:
        """How many folders are below a folder."""
        return self._below[number]

    def folder(self, number: int) -> Folder | None:
        """Make a folder of a record, once; None if it cannot be read."""
        try:
            return self._made[number]
        except KeyError:
            pass
        try:
            found: Folder | None = load_folder(self.data, self.starts[number])
        except DAMAGE:
            found = None  # as if the cache did not have it: it is scanned anew
        self._made[number] = found
        return found

    def __getitem__(self, path: str) -> Folder:
        number = self.number(path)
        folder = None if number is None else self.folder(number)
        if folder is None:
            raise KeyError(path)
        return folder

    def __iter__(self) -> Iterator[str]:
        return (load_path(self.data, start) for start in self.starts)

    def __len__(self) -> int:
        return len(self.starts)


class ScannedFolders(MutableMapping[str, Folder]):
    """The folders of a walk: those that it looked at, and those that it adopted from the cache; parents come first."""

    def __init__(self, cached: CachedFolders) -> None:
        self.cached = cached
        self._own: dict[str, Folder] = {}
        self._adopted: set[int] = set()  # with everything below
        self._adopted_below: set[int] = set()  # what is below, not the folder itself
        self._count = 0  # of the adopted folders

    def adopt(self, number: int) -> None:
        """Take a folder of the cache, and all that are below it."""
        self._adopted.add(number)
        self._count += 1 + self.cached.count_below(number)

    def adopt_below(self, number: int) -> None:
        """Take all folders of the cache that are below one."""
        self._adopted_below.add(number)
        self._count += self.cached.count_below(number)

    def notable(self) -> Iterable[tuple[str, Folder]]:
        """The folders that were not adopted: no other has anything ignored, left out, linked, or not yet saved."""
        return self._own.items()

    def removed(self) -> list[str]:
        """The paths of the cache that are not among these."""
        known = sum(self.cached.number(path) is not None for path in self._own)
        if known + self._count == len(self.cached):
            return []
        is_adopted = self._is_adopted()
        return [path for number, path in enumerate(self.cached) if not is_adopted[number] and path not in self._own]

    def identities(self) -> Iterator[tuple[str, int, int]]:
        """Path, inode and modification time of each."""
        is_adopted = self._is_adopted()
        for number, start in enumerate(self.cached.starts):
            if is_adopted[number]:
                yield load_path(self.cached.data, start), *load_identity(self.cached.data, start)
        for path, folder in self._own.items():
            yield path, folder.key[1], folder.key[3]

    def encoded(self) -> Iterator[Folder | memoryview]:
        """The folders for `cache.dump`: adopted ones as the bytes that they are."""
        cached = self.cached
        own = {cached.number(path): folder for path, folder in self._own.items()}
        is_adopted, data = self._is_adopted(), memoryview(cached.data)
        begin = -1  # of adopted folders that stand together: each ends where the next one begins
        for number, start in enumerate(cached.starts):
            if is_adopted[number]:
                begin = start if begin < 0 else begin
                continue
            if begin >= 0:
                yield data[begin:start]
                begin = -1
            if number in own:
                yield own[number]
        if begin >= 0:
            yield data[begin:]
        yield from (folder for path, folder in self._own.items() if cached.number(path) is None)

    def __getitem__(self, path: str) -> Folder:
        folder = self._own.get(path)
        if folder is None:
            number = self._adopted_number(path)
            folder = None if number is None else self.cached.folder(number)
        if folder is None:
            raise KeyError(path)
        return folder

    def __contains__(self, path: object) -> bool:
        return path in self._own or (isinstance(path, str) and self._adopted_number(path) is not None)

    def __setitem__(self, path: str, folder: Folder) -> None:
        if path not in self._own and self._count and self._adopted_number(path) is not None:
            self._own_all()
        self._own[path] = folder

    def __delitem__(self, path: str) -> None:
        self._own_all()
        del self._own[path]

    def __iter__(self) -> Iterator[str]:
        if not self._count:
            yield from self._own
            return
        is_adopted = self._is_adopted()
        for number, path in enumerate(self.cached):
            if is_adopted[number] or path in self._own:
                yield path
        yield from (path for path in self._own if self.cached.number(path) is None)

    def __len__(self) -> int:
        return len(self._own) + self._count

    def _adopted_number(self, path: str) -> int | None:
        """The number of an adopted folder; None if it was not adopted."""
        found = number = self.cached.number(path) if self._count else None
        if found is None or found in self._adopted:
            return found
        while number is not None and (parent := self.cached.parents[number]) != _NO_PARENT:
            if parent in self._adopted or parent in self._adopted_below:
                return found
            number = parent
        return None

    def _is_adopted(self) -> bytearray:
        """For each record of the cache, whether it was adopted."""
        found = bytearray(len(self.cached))
        below = self._adopted | self._adopted_below
        for number, parent in enumerate(self.cached.parents):
            if parent in below or number in self._adopted or (parent != _NO_PARENT and found[parent]):
                found[number] = 1
        return found

    def _own_all(self) -> None:
        """Make folders of all: one of the adopted is replaced or taken out."""
        self._own = dict(self.items())
        self._adopted, self._adopted_below, self._count = set(), set(), 0


def notable(folders: Mapping[str, Folder]) -> Iterable[tuple[str, Folder]]:
    """The folders that may have something ignored, left out, linked, or not yet saved."""
    return folders.notable() if isinstance(folders, ScannedFolders) else folders.items()


def has_files(folders: Mapping[str, Folder]) -> bool:
    """Whether any folder has an entry."""
    return any(folder.count for _, folder in notable(folders)) or any(folders[path].count for path in folders)


def removed(before: Mapping[str, Folder], folders: Mapping[str, Folder]) -> Iterable[str]:
    """The paths that only the cache has."""
    if isinstance(folders, ScannedFolders) and folders.cached is before:
        return folders.removed()
    return before.keys() - folders.keys()


def encoded(folders: Mapping[str, Folder]) -> Iterable[Folder | memoryview]:
    """The folders for `cache.dump`."""
    return folders.encoded() if isinstance(folders, ScannedFolders) else folders.values()
