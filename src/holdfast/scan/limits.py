"""How much is saved of what git ignores: folders with few entries, and the smallest files that fit into a total."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from holdfast.model import Reason
from holdfast.scan import sqlite_files
from holdfast.scan.cache import FLAGS, IGNORED, LEFT_OUT, SIZE, UNKNOWN, WIDTH
from holdfast.scan.cached_folders import notable
from holdfast.scan.dir_handles import SHORTAGES, join
from holdfast.scan.ignore import BUILD_FOLDERS, DEPENDENCY_FOLDERS

if TYPE_CHECKING:
    from holdfast.scan.walk import Listing, Wanted


class Limits(NamedTuple):
    """Ignored files and folders above these limits are left out."""

    file_max_bytes: int = 1 << 20
    total_max_bytes: int = 64 << 20
    folder_max_entries: int = 5_000


def hold_to_total(listing: Listing, wanted: Wanted, total_max_bytes: int) -> None:
    """Leave out the largest ignored files if all of them together are too large, and include them again if not."""
    left = total_max_bytes
    candidates = _candidates(listing)
    fits = sum(size for size, _, _ in candidates) <= left
    for size, path, places in candidates if fits else sorted(candidates):  # the smallest first: most files fit
        left -= size
        folder = listing.folders[path]
        hold = fits or left >= 0 or wanted.file(join(path, folder.names[places[0]]), hard=False)
        for place in places:
            if hold == bool(folder.flags(place) & LEFT_OUT):
                _flip(listing, path, place, hold, total_max_bytes)


def _candidates(listing: Listing) -> list[tuple[int, str, list[int]]]:
    """What counts towards the total: size, folder and places. A database and its sidecars are saved together or not at
    all (P2)."""
    candidates = []
    for _, folder in notable(listing.folders):
        if not folder.ignored_count:
            continue
        found: dict[str, list[int]] = {}
        rows = folder.rows
        for place, name in enumerate(folder.names):
            if rows[WIDTH * place + FLAGS] & IGNORED:
                main = sqlite_files.database_name(name)
                found.setdefault(main if main in found else name, []).append(place)
        for places in found.values():
            candidates.append((sum(rows[WIDTH * place + SIZE] for place in places), folder.path, places))
    return candidates


def _flip(listing: Listing, path: str, place: int, hold: bool, total_max_bytes: int) -> None:
    if path not in listing.changed:  # it is the cache's own: never change that one
        listing.folders[path] = listing.folders[path].copy()
        listing.changed.add(path)
    folder = listing.folders[path]
    name = folder.names[place]
    folder.rows[WIDTH * place + FLAGS] ^= LEFT_OUT
    if hold:
        folder.skipped.pop(name, None)
        if folder.content(place) == UNKNOWN:
            listing.pending.append((folder, place))
    else:
        limit = f"all ignored files together are above {total_max_bytes} bytes"
        folder.skipped[name] = (Reason.IGNORED_MANY, limit)
        listing.pending = [row for row in listing.pending if row != (folder, place)]


def has_few_entries(fd: int, name: str, most: int) -> bool:
    """Whether a folder has at most `most` entries at any depth; entries of generated folders do not count."""
    left = most
    todo = [name]
    while todo:
        current = todo.pop()
        try:
            inner = os.open(current, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise  # P4: says nothing about this folder
            continue  # unreadable, a link or gone: reported when it is entered
        try:
            with os.scandir(inner) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return False
                    if entry.is_dir(follow_symlinks=False) and entry.name not in DEPENDENCY_FOLDERS | BUILD_FOLDERS:
                        todo.append(join(current, entry.name))
        finally:
            os.close(inner)
    return True
