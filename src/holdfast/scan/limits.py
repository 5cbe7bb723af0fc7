"""How much is held of what git ignores: folders with few entries, and of all files the smallest that fit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from holdfast.model import Reason
from holdfast.scan import databases
from holdfast.scan.folder import FLAGS, IGNORED, LEFT_OUT, SIZE, UNKNOWN, WIDTH
from holdfast.scan.generated import BUILD_FOLDERS, DEPENDENCY_FOLDERS
from holdfast.scan.handles import SHORTAGES, join

if TYPE_CHECKING:
    from holdfast.scan.walk import Listing, Wanted


class Limits(NamedTuple):
    """What is ignored and larger than this is left out."""

    file_max_bytes: int = 1 << 20
    total_max_bytes: int = 64 << 20
    folder_max_entries: int = 5_000


def hold_to_total(listing: Listing, wanted: Wanted, total_max_bytes: int) -> None:
    """Leave out the largest ignored files when all of them together are too large, and take them back when not."""
    left = total_max_bytes
    candidates = _candidates(listing)
    fits = sum(size for size, _, _ in candidates) <= left
    for size, path, places in candidates if fits else sorted(candidates):
        left -= size
        folder = listing.folders[path]
        hold = fits or left >= 0 or wanted.file(join(path, folder.names[places[0]]), hard=False)
        for place in places:
            if hold == bool(folder.flags(place) & LEFT_OUT):
                _flip(listing, path, place, hold, total_max_bytes)


def _candidates(listing: Listing) -> list[tuple[int, str, list[int]]]:
    """What counts towards the total: size, folder and places; a database and its sidecars (or what is named so) are
    held together or not at all."""
    candidates = []
    for folder in listing.folders.values():
        if not folder.ignored_count:
            continue
        found: dict[str, list[int]] = {}
        rows = folder.rows
        for place, name in enumerate(folder.names):
            if rows[WIDTH * place + FLAGS] & IGNORED:
                main = databases.database_name(name)
                found.setdefault(main if main in found else name, []).append(place)
        for places in found.values():
            candidates.append((sum(rows[WIDTH * place + SIZE] for place in places), folder.path, places))
    return candidates


def _flip(listing: Listing, path: str, place: int, hold: bool, total_max_bytes: int) -> None:
    if path not in listing.changed:
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
    """Whether a folder, and what is below it, has no more entries than so many; what tools make does not count."""
    left = most
    todo = [name]
    while todo:
        current = todo.pop()
        try:
            inner = os.open(current, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            continue
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
