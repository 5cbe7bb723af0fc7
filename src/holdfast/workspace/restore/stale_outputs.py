"""Stale build outputs: ignored files that are newer than the sources they may have been built from.

A restore resets the times of sources and does not change what git ignores. Build tools that compare times (`make`,
`ninja`) then take an output of the replaced sources for up to date. So such outputs are reported (P4).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from holdfast.model import Reason
from holdfast.scan.cache import IGNORED, LEFT_OUT, MODE, MTIME, WIDTH, Folder
from holdfast.scan.cached_folders import notable
from holdfast.scan.dir_handles import Handles, join, upwards
from holdfast.scan.ignore import BUILD_FOLDERS
from holdfast.scan.walk import Listing
from holdfast.workspace.stored.tree import Change

_MOST_NAMED = 20
_MOST_LOOKED_AT = 2_000
"""How many entries of ignored folders are examined at most: one newer file is enough to report a folder."""


def stale_outputs(listing: Listing, handles: Handles, changes: Mapping[str, Change]) -> list[str]:
    """Return ignored files and folders (with a slash) newer than what was replaced or removed; 20 at most."""
    since_ns = min(map(_time_of, filter(_is_new_content, changes.values())), default=None)
    if since_ns is None:
        return []
    found = _newer(listing, handles, since_ns, changes)
    return sorted(islice(found, _MOST_NAMED))


def touched(changes: Mapping[str, Change], now_ns: int) -> dict[str, Change]:
    """Return the changes with the time `now_ns` for files whose content changes."""
    found = {}
    for path, change in changes.items():
        before, after = change.before, change.after
        if after is not None and after.is_file:
            is_new = before is None or _is_new_content(change)
            time_ns = now_ns if is_new or before is None else before.attr.mtime_ns
            after = after._replace(attr=after.attr._replace(mtime_ns=time_ns))
            if after == before:
                continue
        found[path] = Change(path, before, after)
    return found


def _is_new_content(change: Change) -> bool:
    _, before, after = change
    if before is None or after is None:
        return not any(each is not None and each.is_folder for each in (before, after))
    return (before.oid, before.kind) != (after.oid, after.kind)


def _time_of(change: Change) -> int:
    """Return when the replaced or removed file was written; for a recreated one, its stored time."""
    entry = change.before or change.after
    return entry.attr.mtime_ns if entry is not None else 0


def _newer(listing: Listing, handles: Handles, since_ns: int, changes: Mapping[str, Change]) -> Iterator[str]:
    budget = iter(range(_MOST_LOOKED_AT))
    folders = dict(notable(listing.folders))
    ignored = {path for path, folder in folders.items() if folder.context}
    named: set[str] = set()
    for path, folder in folders.items():
        for name in _newer_files(folder, since_ns):
            full = join(path, name)
            top = [above for above in upwards(path) if above in ignored]
            shown = f"{top[-1]}/" if top else full
            if full not in changes and shown not in named:
                named.add(shown)
                yield shown
        for name, (reason, _) in folder.skipped.items():
            is_output = reason == Reason.IGNORED_MANY or (reason == Reason.DEPENDENCIES and name in BUILD_FOLDERS)
            if is_output and folder.place(name) is None and _has_newer(handles, join(path, name), since_ns, budget):
                yield f"{join(path, name)}/"


def _newer_files(folder: Folder, since_ns: int) -> Iterator[str]:
    if not (folder.ignored_count or folder.skipped):
        return
    rows = folder.rows
    for place, name in enumerate(folder.names):
        at = WIDTH * place
        is_ignored = folder.flags(place) & (IGNORED | LEFT_OUT)
        if is_ignored and rows[at + MTIME] > since_ns and stat.S_ISREG(rows[at + MODE]):
            yield name


def _has_newer(handles: Handles, folder: str, since_ns: int, budget: Iterable[int]) -> bool:
    """Whether an ignored folder has a newer file, as far as the budget goes."""
    todo = [folder]
    while todo:
        path = todo.pop()
        try:
            with os.scandir(handles.open(path)) as entries:
                for entry, _ in zip(entries, budget, strict=False):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(join(path, entry.name))
                    elif entry.stat(follow_symlinks=False).st_mtime_ns > since_ns:
                        return True
        except OSError:
            continue  # gone, or not readable
    return False
