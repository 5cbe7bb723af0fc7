"""Snapshots: read what changed in a folder, and build git trees of all of it.

Writes nothing to the workspace. Objects go into a sink: a pack for a save, memory for a diff or a preview.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Unavailable
from holdfast.model import Progress, Reason, Uncovered
from holdfast.model.checkpoint import of_one_file
from holdfast.scan import sqlite_files
from holdfast.scan.attrs import encode_line, is_in_parts
from holdfast.scan.cache import (
    CTIME,
    FAILED,
    FLAGS,
    IGNORED,
    INO,
    LEFT_OUT,
    MODE,
    MTIME,
    NLINK,
    SIZE,
    WIDTH,
    YOUNG,
    Folder,
)
from holdfast.scan.cached_folders import has_files, notable, removed
from holdfast.scan.dir_handles import Handles, join, upwards
from holdfast.scan.walk import Listing
from holdfast.shadowgit import (
    EXECUTABLE_MODE,
    FILE_MODE,
    FOLDER_MODE,
    LINK_MODE,
    ObjectKind,
    TreeEntry,
    encode_tree,
    store_name,
)
from holdfast.workspace.capture.file_reader import Reading
from holdfast.workspace.stored.chunking import LINES, write_parts
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import ATTRS_NAME, link_of

LARGE_BYTES = 100_000_000
"""A new file of this size is named once: it may not be meant to be in every checkpoint."""
_PROGRESS_FILES = 64
_PROGRESS_BYTES = 1 << 20
_DATABASE_TRIES = 3
_TICK_NS = 20_000_000  # more than the resolution of file times

Own = tuple[list[TreeEntry], int, bytes]
"""A folder's own part: its files as tree entries, and the mode and id of its attributes."""

_Held = tuple[str, int, bytes]  # a file: path, mode, content
_Database = tuple[str, str]  # folder and name


NOT_BUILT = Node(b"", b"", False)
"""In place of the root of a snapshot that has no trees yet."""


class FilesChanged(NamedTuple):
    """The paths of files that differ from a stored tree, each group sorted."""

    added: list[str]
    modified: list[str]
    deleted: list[str]


class Snapshot(NamedTuple):
    """The content of a folder as git objects."""

    root: Node
    """`NOT_BUILT` until `built`, where only the files were read."""
    uncovered: list[Uncovered]
    listing: Listing
    quiet: bool
    previous: Mapping[str, Folder]  # the scan cache before, for `changed_since`

    def changed_since(self, before: Node) -> list[str] | None:
        """Return the files that differ from a stored tree, if that is the one in the scan cache; None if it is not.

        The same result as comparing the stored trees, without reading them (P8).
        """
        root = self.previous.get("")
        if root is None or (root.tree, root.attrs) != before[:2]:
            return None
        found = set()
        for path in self.listing.changed:
            old, new = self.previous.get(path), self.listing.folders[path]
            if old is None or (old.tree, old.attrs) != (new.tree, new.attrs):
                before_it, after_it = _held(old), _held(new)
                found |= {*_only_in(before_it, after_it), *_only_in(after_it, before_it)}
        for path in removed(self.previous, self.listing.folders):
            found |= _held(self.previous[path])
        return sorted({path for path, _, _ in found})

    def files_changed_since(self, before: Node) -> FilesChanged | None:
        """Return the files that differ from a stored tree, without the trees of this snapshot; None if that tree is not
        the one in the scan cache, or if a file became a folder or the reverse."""
        root = self.previous.get("")
        if root is None or Node(root.tree, root.attrs, root.attrs_is_tree) != before:
            return None
        was: set[_Held] = set()
        now: set[_Held] = set()
        for path in self.listing.changed:
            old = self.previous.get(path)
            if old is not None and not old.tree:
                return None  # something of it is not in the store any more
            was |= _held(old)
            now |= _held(self.listing.folders[path])
        for path in removed(self.previous, self.listing.folders):
            was |= _held(self.previous[path])
        gone, come = ({path for path, _, _ in _only_in(*pair)} for pair in ((was, now), (now, was)))
        if any(path in self.listing.folders for path in gone) or any(path in self.previous for path in come):
            return None
        return FilesChanged(sorted(come - gone), sorted(come & gone), sorted(gone - come))

    def built(self, sink: ObjectSink, *, rebuild: bool = False) -> Snapshot:
        """Put trees of all of it into a sink; with `rebuild`, also trees of folders that turned out unchanged."""
        return self._replace(root=_build(self.listing, sink, {} if rebuild else self.previous))

    def large_new_files(self) -> dict[str, int]:
        """Return the sizes of large files that were read now and that the scan before did not have."""
        found = {}
        for folder, place in self.listing.pending:
            size = folder.rows[WIDTH * place + SIZE]
            if size >= LARGE_BYTES and folder.holds(place):
                old, name = self.previous.get(folder.path), folder.names[place]
                if old is None or name not in old.names:
                    found[join(folder.path, name)] = size
        return found

    @property
    def complete(self) -> bool:
        return not any(item.reason.is_failure for item in self.uncovered)


def _held(folder: Folder | None) -> set[_Held]:
    """Return the files of a folder: path, mode, content."""
    if folder is None:
        return set()
    return {
        (join(folder.path, name), folder.rows[WIDTH * place + MODE], folder.content(place))
        for place, name in enumerate(folder.names)
        if folder.holds(place)
    }


def _only_in(one: set[_Held], other: set[_Held]) -> Iterator[_Held]:
    """Yield what the other one has not, item by item: one call for a large folder would block all threads (GIL)."""
    return (item for item in one if item not in other)


def take_snapshot(
    listing: Listing,
    root: Path,
    sink: ObjectSink,
    previous: Mapping[str, Folder],
    progress: Progress | None = None,
    *,
    clock: Callable[[], int],
) -> Snapshot:
    """Read the changed files of a listing, and return a snapshot that is not built yet.

    `clock`: nanoseconds, of the clock of file times.
    """
    if "" not in listing.folders:
        raise Unavailable("the workspace vanished while it was read", hint="Is its disk still there?")
    began_ns = clock()
    quiet, found = _read_pending(listing, root, sink, progress, clock)
    quiet = _settle_databases(listing, root, sink, found, began_ns, clock) and quiet and not listing.vanished
    return Snapshot(NOT_BUILT, _uncovered(listing), listing, quiet, previous)


# reading


def _read_pending(
    listing: Listing, root: Path, sink: ObjectSink, progress: Progress | None, clock: Callable[[], int]
) -> tuple[bool, Set[_Database]]:
    """Read the changed files; return whether nothing changed meanwhile, and the databases among them."""
    if not listing.pending:
        return True, set()
    total, done, quiet = sum(folder.rows[WIDTH * place + SIZE] for folder, place in listing.pending), 0, True
    with Handles(os.fspath(root)) as handles, Reading(handles, listing.owner, sink, clock=clock) as reading:
        for folder, places in _by_folder(listing.pending):
            size = sum(folder.rows[WIDTH * place + SIZE] for place in places)
            if progress:
                progress("reading", done, total)
            if progress and len(places) == 1 and size >= _PROGRESS_BYTES:  # one large file may take long
                stage = f"reading {join(folder.path, folder.names[places[0]])}"
                quiet = reading.read((folder, places[0]), of_one_file(progress, stage, size)) and quiet
                progress(stage, size, size)
            else:
                quiet = reading.read_folder(folder, places) and quiet
            done += size
        reading.finish()
    if progress:
        progress("reading", total, total)
    return quiet, reading.databases


def _by_folder(pending: Sequence[tuple[Folder, int]]) -> Iterator[tuple[Folder, list[int]]]:
    """Group entries by their folder, a limited number together, and large files alone, so that progress is shown."""
    places: list[int] = []
    for number, (folder, place) in enumerate(pending):
        places.append(place)
        following, next_place = pending[number + 1] if number + 1 < len(pending) else (None, 0)
        sizes = folder.rows[WIDTH * place + SIZE], following.rows[WIDTH * next_place + SIZE] if following else 0
        if following is not folder or len(places) == _PROGRESS_FILES or max(sizes) >= _PROGRESS_BYTES:
            yield folder, places
            places = []


# databases: a file and its sidecars belong together (P2)


def _settle_databases(
    listing: Listing, root: Path, sink: ObjectSink, found: Set[_Database], began_ns: int, clock: Callable[[], int]
) -> bool:
    """Read each database and its sidecars again until none changed while the others were read (P2); report those that
    change all the time. `began_ns`: when the first file was read."""
    named = {
        (folder.path, main)
        for folder, place in listing.pending
        if (main := sqlite_files.database_name(folder.names[place])) is not None
        and (at := folder.place(main)) is not None
        and folder.holds(at)
    }
    if not (found or named):
        return True
    quiet = True
    with Handles(os.fspath(root)) as handles, Reading(handles, listing.owner, sink, clock=clock) as reading:
        for path, name in sorted(found | named):
            quiet = _settle(listing.folders[path], name, handles, reading, began_ns, clock) and quiet
        reading.finish()
    return quiet


def _settle(
    folder: Folder, name: str, handles: Handles, reading: Reading, began_ns: int, clock: Callable[[], int]
) -> bool:
    """Return whether a database was at rest when it was read; if it was not, read it again, or report it.

    It was at rest if none of its files changed since the first was read. If their times are too young to tell, read
    all of them twice: what is the same both times existed together in between.
    """
    read: list[list[bytes]] = []
    for attempt in range(_DATABASE_TRIES + 1):
        present = _database_files(folder, name, handles)
        if not present:
            return False  # deleted: the remaining files are not a database
        places = [place for each in present if (place := folder.place(each)) is not None and folder.holds(place)]
        read.append([folder.content(place) for place in places])
        newest_ns = max((folder.rows[WIDTH * place + CTIME] for place in places), default=0)
        is_certain = newest_ns < began_ns - _TICK_NS or read[-2:-1] == read[-1:]
        if len(places) == len(present) and is_certain and all(_is_as_read(folder, each, handles) for each in places):
            return read[0] == read[-1]
        if attempt < _DATABASE_TRIES:
            began_ns = clock()
            for each in present:
                _read_part(folder, each, folder.place(name), handles, reading)
    folder.skipped[name] = (Reason.LIVE_DATABASE, "written to while it was read")
    return False


def _database_files(folder: Folder, name: str, handles: Handles) -> list[str]:
    """Return the existing files of a database, without `-shm`: SQLite creates that again."""
    fd = handles.open(folder.path)
    sidecars = [each for each in sqlite_files.family(name)[1:3] if sqlite_files.is_sidecar(each, fd)]
    return [name, *sidecars] if handles.has(join(folder.path, name)) else []


def _read_part(folder: Folder, name: str, main: int | None, handles: Handles, reading: Reading) -> None:
    """Read a file of a database again, even one created after the folder was listed; rules treat it as the database."""
    place = folder.place(name)
    if place is None:
        try:
            status = os.stat(name, dir_fd=handles.open(folder.path), follow_symlinks=False)
        except OSError:
            return  # deleted again
        place = folder.insert(name, status, YOUNG | (0 if main is None else folder.flags(main) & IGNORED))
        folder.count_ignored()
    folder.rows[WIDTH * place + FLAGS] &= ~FAILED
    folder.skipped.pop(name, None)
    reading.read((folder, place))


def _is_as_read(folder: Folder, place: int, handles: Handles) -> bool:
    rows, at = folder.rows, WIDTH * place
    try:
        status = os.stat(folder.names[place], dir_fd=handles.open(folder.path), follow_symlinks=False)
    except OSError:
        return False
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) == (
        rows[at + INO],
        rows[at + SIZE],
        rows[at + MTIME],
        rows[at + CTIME],
    )


# building


def _build(listing: Listing, sink: ObjectSink, previous: Mapping[str, Folder]) -> Node:
    linked = _linked(listing)
    links = _links(listing, linked)
    changed = {path for path in listing.changed if not _is_as_before(listing.folders[path], previous.get(path))}
    rebuild = set(changed)
    for path in changed:
        while path:
            path = path.rpartition("/")[0]
            rebuild.add(path)
    if rebuild:  # a renamed or ignored folder changes the hard links of files in other folders
        for path in linked:
            rebuild |= {"", *upwards(path)}
    rebuild |= {path for path, folder in notable(listing.folders) if not folder.tree}
    for path in sorted(rebuild, reverse=True):  # subfolders first
        folder = listing.folders[path]
        if path in changed:
            own = _own_parts(folder, links, sink)
        else:  # only subfolders changed: reuse its own part, if it is in memory
            own = folder.own if folder.own and path not in linked else _own_parts(folder, links, sink)
            folder = listing.folders[path] = folder.copy()
            folder.own = own
        _build_folder(listing, folder, own, sink)
    root = listing.folders[""]
    return Node(root.tree, root.attrs, root.attrs_is_tree)


def _is_as_before(folder: Folder, old: Folder | None) -> bool:
    """Whether a folder that was scanned again is unchanged; it then takes over the tree of the cache.

    Files that were just saved are too young for the next save to trust their times, and are read again.
    """
    if old is None or not old.tree or (folder.key[:4], folder.extra) != (old.key[:4], old.extra):
        return False
    if (folder.names, folder.folders, folder.extras) != (old.names, old.folders, old.extras):
        return False
    if folder.contents != old.contents or _lasting(folder) != _lasting(old):
        return False
    folder.tree, folder.attrs, folder.attrs_is_tree, folder.own = old.tree, old.attrs, old.attrs_is_tree, old.own
    return True


def _lasting(folder: Folder) -> list[Sequence[int]]:
    """Return the columns that matter to a tree: without ctime, and without whether an entry is young."""
    rows = folder.rows
    columns: list[Sequence[int]] = [rows[column::WIDTH] for column in (MODE, INO, SIZE, MTIME, NLINK)]
    return [*columns, [flags & ~YOUNG for flags in rows[FLAGS::WIDTH]]]


def _own_parts(folder: Folder, links: dict[tuple[str, int], bytes], sink: ObjectSink) -> Own:
    """Build the part of a folder's tree and attributes that is about itself and its files."""
    rows, trees, lines = folder.rows, [], [encode_line(folder.key[2], folder.key[3], folder.extra, ".")]
    for place, name in enumerate(folder.names):
        at = WIDTH * place
        if rows[at + FLAGS] & (LEFT_OUT | FAILED):
            continue
        mode = rows[at + MODE]
        extras = folder.extras.get(name, b"")
        link = links.get((folder.path, place))
        if link:
            extras = extras + b"," + link if extras else link
        lines.append(encode_line(mode, rows[at + MTIME], extras, name))
        if stat.S_ISREG(mode):
            git_mode = EXECUTABLE_MODE if mode & 0o100 else FILE_MODE
            if is_in_parts(extras):
                git_mode = FOLDER_MODE
            trees.append(TreeEntry(git_mode, store_name(os.fsencode(name)), folder.content(place)))
        elif stat.S_ISLNK(mode):
            trees.append(TreeEntry(LINK_MODE, store_name(os.fsencode(name), is_link=True), folder.content(place)))
    return trees, *write_parts(sink, b"".join(lines), LINES)


def _build_folder(listing: Listing, folder: Folder, own: Own, sink: ObjectSink) -> None:
    files, attrs_mode, attrs = own
    trees, below = files[:], []
    for name in folder.folders:
        child = listing.folders[join(folder.path, name)]
        stored = store_name(os.fsencode(name))
        trees.append(TreeEntry(FOLDER_MODE, stored, child.tree))
        below.append(TreeEntry(FOLDER_MODE if child.attrs_is_tree else FILE_MODE, stored, child.attrs))
    folder.attrs, folder.attrs_is_tree = attrs, False
    if below or attrs_mode == FOLDER_MODE:
        below.append(TreeEntry(attrs_mode, ATTRS_NAME, attrs))
        folder.attrs, folder.attrs_is_tree = sink.add(ObjectKind.TREE, encode_tree(below)), True
    folder.tree = sink.add(ObjectKind.TREE, encode_tree(trees))


def _links(listing: Listing, linked: list[str]) -> dict[tuple[str, int], bytes]:
    """Return the hard links: (folder, index) to the attribute that links them."""
    groups: dict[int, list[tuple[str, str, int]]] = {}
    for path in linked:
        folder = listing.folders[path]
        rows = folder.rows
        for place, name in enumerate(folder.names):
            at = WIDTH * place
            if rows[at + NLINK] > 1 and folder.holds(place) and stat.S_ISREG(rows[at + MODE]):
                groups.setdefault(rows[at + INO], []).append((join(path, name), path, place))
    found = {}
    for members in groups.values():
        if len(members) > 1:
            link = b"link=" + link_of(path for path, _, _ in members)
            for _, path, place in members:
                found[path, place] = link
    return found


def _linked(listing: Listing) -> list[str]:
    """Return the folders with a file that has more than one hard link."""
    folders = notable(listing.folders)
    return [path for path, folder in folders if folder.is_linked and max(folder.rows[NLINK::WIDTH], default=0) > 1]


def _uncovered(listing: Listing) -> list[Uncovered]:
    found = [
        Uncovered(join(path, name), Reason(reason), detail)
        for path, folder in notable(listing.folders)
        if folder.skipped
        for name, (reason, detail) in folder.skipped.items()
    ]
    found += [
        Uncovered(path, Reason.RULES_NOT_APPLIED, "an ignore file larger than 1 MiB")
        for path in listing.oversized_rules
    ]
    if any(each.reason != Reason.GIT_DIRECTORY for each in found) and not has_files(listing.folders):
        # else a new, empty repository
        found.append(Uncovered("", Reason.NOTHING_HELD, "the ignore rules exclude every file"))
    return sorted(found, key=lambda item: (item.path, item.reason))
