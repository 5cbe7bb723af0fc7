"""A walk over only the folders that may have changed since the last one; the rest is taken from that one (P8).

Folders in which a watch (`holdfast.scan.watch`) reports changes are scanned as in any walk. So are, each time, those
whose changes it cannot report: with hard links, which may be written through another name; with the exclude file of a
repository, which is in `.git`; with ignored folders that are saved while they are small; and those with something that
could not be read, or that was too young to be trusted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from holdfast.model import Reason
from holdfast.scan.cache import CTIME, INO, LEFT_OUT, NLINK, WIDTH, Folder
from holdfast.scan.classify import is_partly
from holdfast.scan.dir_handles import join, upwards
from holdfast.scan.ignore import Rules
from holdfast.scan.limits import hold_to_total
from holdfast.scan.walk import RETRY, Listing, Walk
from holdfast.scan.watch import Dirt, Watch

_SLACK_NS = 100_000_000  # longer than a tick of the clock that stamps files
_MAPPED = "-shm"  # SQLite writes these through a memory map, which inotify does not report


class InDoubt(Exception):
    """A partial walk is not enough; every folder has to be scanned."""


class SeenFolders(NamedTuple):
    """What a walk saw, for the next one to build on."""

    folders: Mapping[str, Folder]
    rules: Mapping[str, Rules]
    repositories: Mapping[str, bytes]
    oversized_rules: list[str]
    place: tuple[object, ...]  # the identity and owner of the workspace folder, and what is mounted in it
    restless: Set[str]  # folders in which a watch does not report every change
    is_sure: bool  # False: the next walk must not build on it


def seen(walk: Walk, before: SeenFolders | None) -> SeenFolders:
    """What to remember of a walk whose folders have been read. `before` is what it was built on, if anything."""
    listing = walk.listing
    folders, restless = listing.folders, set(before.restless) if before else set()
    old = before.folders if before else {}
    for path, folder in folders.items():
        if folder is not old.get(path):
            if folder.stored is None:
                folder.sum_up()
            (restless.add if _is_restless(folder) else restless.discard)(path)
    restless &= folders.keys()
    restless |= {path.rpartition("/")[0] for path in listing.oversized_rules}
    is_sure = before is not None or _knows_its_links(walk)
    return SeenFolders(
        folders, listing.rules, listing.repositories, listing.oversized_rules, _place(walk), restless, is_sure
    )


def _is_restless(folder: Folder) -> bool:
    return (
        not folder.trusted
        or folder.is_linked
        or not folder.is_settled
        or bool(folder.probes)
        or folder.sources[2]
        or folder.like_git
        or any(name != ".git" and reason == Reason.GIT_DIRECTORY for name, (reason, _) in folder.skipped.items())
        or is_partly(folder.context)
        or any(reason in RETRY for reason, _ in folder.skipped.values())
        or any(name.endswith(_MAPPED) for name in folder.looked_at()[0])
    )


def _knows_its_links(walk: Walk) -> bool:
    """Whether no file got a second hard link during the walk, which may have seen only one of its names."""
    names: Counter[tuple[int, int]] = Counter()
    for folder in walk.listing.folders.values():
        if folder.is_linked:
            rows, since_ns = folder.rows, walk.began_ns - _SLACK_NS
            for at in range(0, len(rows), WIDTH):
                if rows[at + NLINK] > 1 and rows[at + CTIME] > since_ns:
                    names[rows[at + INO], rows[at + NLINK]] += 1
    return all(count == known for (_, count), known in names.items())


def _place(walk: Walk) -> tuple[object, ...]:
    return (walk.identity, walk.mounts)


class Narrowed(Walk):
    """One walk over what may have changed. `run` raises InDoubt when that is not enough."""

    def __init__(self, *given: Any, seen: SeenFolders, dirt: Dirt, watch: Watch, **named: Any) -> None:
        super().__init__(*given, cache=seen.folders, cover=watch.cover, **named)
        self._seen = seen
        self._dirt = dirt
        self._watch = watch
        self._names: Set[str] | None = None
        self._done: set[str] = set()
        self._dropped: dict[str, Folder] = {}
        self._refused: set[str] = set()

    def run(self) -> Listing:
        seen, listing = self._seen, self.listing
        if _place(self) != seen.place:
            raise InDoubt  # P2: another folder, or another mount in it: nothing that was seen holds
        listing.folders = dict(seen.folders)
        listing.rules = dict(seen.rules)
        listing.repositories = dict(seen.repositories)
        listing.oversized_rules = list(seen.oversized_rules)
        for path in sorted(self._dirt.folders.keys() | seen.restless):  # a folder before those below it
            if path in seen.folders and path in listing.folders and path not in self._done:
                self._look_again(path, seen.folders[path])
        self._check_links()
        if self._watch.doubt or self._met_too_early():  # P2, P6: events may be missing, or a git directory was entered
            raise InDoubt
        hold_to_total(listing, self.wanted, self.limits.total_max_bytes)
        return listing

    def gone(self) -> list[str]:
        """Folders that were seen before and are no longer part of the scan. Until it is remembered, the watch keeps
        them: the next one may build on what was seen before, and find them part of it again (P2)."""
        return [path for path in {*self._dropped, *self._refused} if path not in self.listing.folders]

    def moved(self) -> bool:
        return self._watch.drain()

    def _look_again(self, path: str, old: Folder) -> None:
        names = self._dirt.folders.get(path)
        self._names = None if path in self._seen.restless else names
        found = self._visit(path, self._outer(path), old.context)
        self._names = None
        if found is None:
            self._drop(path)
            return
        folder, inner, contexts = found
        for name in set(old.folders).difference(folder.folders):
            self._drop(join(path, name))
        for name in folder.folders:
            below, context = join(path, name), contexts.get(name, folder.context)
            known = self.listing.folders.get(below)
            if known is None or known.context != context or inner.digest != old.rules or below in self._dirt.below:
                self._drop(below)
                self._descend(below, inner, context)

    def _visit(self, path: str, rules: Rules, context: str) -> tuple[Folder, Rules, dict[str, str]] | None:
        self._forget(path)
        self._done.add(path)
        found = super()._visit(path, rules, context)
        if found is None:
            self._refused.add(path)
        return found

    def _outer(self, path: str) -> Rules:
        """The rules that apply around a folder."""
        for above in (*upwards(path.rpartition("/")[0]), ""):
            if path and above in self.listing.rules:
                return self.listing.rules[above]
        return self._rules

    def _drop(self, path: str) -> None:
        """Take a folder and everything below it out of the listing."""
        todo = [path]
        while todo:
            path = todo.pop()
            folder = self.listing.folders.pop(path, None)
            if folder is not None:
                self._forget(path)
                self.listing.changed.discard(path)
                self._dropped[path] = folder
                todo += [join(path, name) for name in folder.folders]

    def _forget(self, path: str) -> None:
        listing = self.listing
        if listing.rules.pop(path, None) is not None:
            listing.repositories.pop(path, None)
            listing.oversized_rules = [file for file in listing.oversized_rules if file.rpartition("/")[0] != path]

    def _changed(self, fd: int, old: Folder) -> list[tuple[str, os.stat_result]]:
        """The entries that are not as they were, of those in question."""
        if self._names is None:
            return super()._changed(fd, old)
        changed = []
        for name in sorted(self._names):
            place = old.place(name)
            if place is None:
                if name in old.skipped:
                    continue  # not saved, so its changes do not matter
                raise InDoubt  # written to through a name that is gone: it may have another one
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not old.has_status(place, status) or old.flags(place) > LEFT_OUT:
                changed.append((name, status))
        return changed

    def _check_links(self) -> None:
        """A file that gets or loses a second name changes under its first one, of which no watch tells."""
        folders = self.listing.folders
        for path in self.listing.changed | self._dropped.keys():
            if _links(folders.get(path)) != _links(self._seen.folders.get(path)):
                raise InDoubt


def _links(folder: Folder | None) -> list[tuple[int, int]]:
    if folder is None or not folder.is_linked or max(folder.rows[NLINK::WIDTH], default=0) < 2:
        return []
    rows = folder.rows
    return [(rows[at + INO], rows[at + NLINK]) for at in range(0, len(rows), WIDTH) if rows[at + NLINK] > 1]
