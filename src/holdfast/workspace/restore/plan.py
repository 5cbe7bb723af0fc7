"""Deciding what a restore does. Nothing is touched here; the same folder and target give the same plan and digest.

A database and its sidecars (`holdfast.scan.databases`) are restored together or not at all (P2): sidecars that the
checkpoint does not hold go, although they are ignored, new or not asked for; the safety checkpoint holds them.

What is left alone (P1, P4): paths that the checkpoint says it does not hold; files that git's rules ignored when it
was made or ignore now; repositories cloned since; and, asked to, everything made since.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Mapping, Set
from hashlib import sha256
from typing import NamedTuple

from holdfast.model import Overlap, Plan, Reason, Uncovered
from holdfast.scan.attrs import Attr
from holdfast.scan.databases import Writers, database_name, family, is_in_use, is_sidecar
from holdfast.scan.folder import IGNORED
from holdfast.scan.handles import SHORTAGES, Handles, join, split, upwards
from holdfast.scan.ignore import decide_path
from holdfast.scan.usergit import is_git_dir
from holdfast.scan.walk import Listing
from holdfast.workspace.capture.scanner import Frozen
from holdfast.workspace.scope import Scope
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Change, Entry, TreeReader


class Target(NamedTuple):
    """The checkpoint to go to."""

    id: str
    root: Node
    uncovered: tuple[Uncovered, ...]
    rules: Frozen


class Present(NamedTuple):
    """The folder as it is."""

    root: Node
    uncovered: list[Uncovered]
    listing: Listing


class Merged(NamedTuple):
    """A target that is no checkpoint yet: the folder without what an agent did."""

    target: Target
    overlaps: dict[str, Overlap]
    unknown: dict[str, str]
    rules: bytes
    """What is to be written down as its rules."""
    doubts: dict[str, str]


class Steps(NamedTuple):
    """A plan with what is needed to carry it out."""

    plan: Plan
    changes: dict[str, Change]
    """By path, `before` being what is there now and `after` what is to be there."""
    obstacles: frozenset[str]
    """Paths that must be held by the safety checkpoint, whatever the rules say, before they can be replaced."""
    merged: Merged | None = None
    """Where they lead, if that is no checkpoint yet."""


class Planner:
    """Makes a plan from a target and what is there now."""

    def __init__(
        self,
        target: Target,
        present: Present,
        reader: TreeReader,
        handles: Handles,
        *,
        scope: Scope,
        keep_new: bool,
        made: Set[str],
    ) -> None:
        """`made`: paths that the operation being undone made, and that may go although they are ignored."""
        self._target = target
        self._present = present
        self._reader = reader
        self._handles = handles
        self._scope = scope
        self._keep_new = keep_new
        self._made = made
        self._changes: dict[str, Change] = {}
        self._kept: dict[str, str] = {}
        self._blocked: dict[str, str] = {}
        self._obstacles: set[str] = set()
        self._make_way: dict[str, str] = {}
        self._writers = Writers()
        self._sidecars: dict[str, bool] = {}
        self._twins: dict[str, str] = {}  # paths that stay, because another that cannot come is the same file here
        self._above_kept = {above for item in present.uncovered for above in upwards(split(item.path)[0])}
        self._git = {item.path for item in present.uncovered if item.reason is Reason.GIT_DIRECTORY}
        self._in_git: dict[str, bool] = {}
        self._uncovered_then = {item.path: item for item in target.uncovered if item.path}
        new = present.listing.repositories.keys() - target.rules.repositories.keys() - {""}
        self._new_repositories = dict.fromkeys(new, "a repository made since the checkpoint")

    def make(self) -> Steps:
        """The plan."""
        differing = self._differing()
        self._block_beside_loose_sidecars(differing)
        for change in differing.values():
            if change.after is not None:
                self._bring(change, differing)
        for path, change in sorted(differing.items(), reverse=True):
            if change.after is None and not _nearest(path, self._blocked):
                self._remove(change)
        for item in self._present.uncovered:
            self._leave(item)
        for path in self._scope.paths or ():
            self._ask_for(path)
        self._block_whole_databases()
        for path in [path for path in self._changes if _nearest(path, self._blocked)]:
            del self._changes[path]
        changes = dict(sorted(self._changes.items()))
        return Steps(self._plan(changes), changes, frozenset(self._obstacles))

    def _differing(self) -> dict[str, Change]:
        found: dict[str, Change] = {}
        for change in self._reader.diff(self._present.root, self._target.root):
            if self._is_asked_for(change.path):
                other = found.get(change.path)
                if other is not None:
                    change = Change(change.path, change.before or other.before, change.after or other.after)
                if change.before is None or change.after is None or differs(change.before, change.after):
                    found[change.path] = change
                else:
                    found.pop(change.path, None)
        return found

    # databases

    def _is_asked_for(self, path: str) -> bool:
        """Whether a path is in the scope, or another file of the same database."""
        if path in self._scope:
            return True
        others = [each for each in family(path) if each != path and each in self._scope]
        return bool(others) and (self._is_sidecar(path) or any(map(self._is_sidecar, others)))

    def _is_sidecar(self, path: str) -> bool:
        """Whether a path belongs to a database: in the folder, in the checkpoint, or once the database is back."""
        if path not in self._sidecars:
            self._sidecars[path] = database_name(path) is not None and (
                self._is_sidecar_here(path)
                or self._reader.is_sidecar(self._target.root, path)
                or self._outlived_its_database(path)
            )
        return self._sidecars[path]

    def _outlived_its_database(self, path: str) -> bool:
        """Whether a sidecar is left of a database that is gone and comes back: it would be replayed into it (P2)."""
        status = self._status(path)
        return (
            status is not None
            and stat.S_ISREG(status.st_mode)
            and self._reader.is_database(self._target.root, family(path)[0])
        )

    def _is_sidecar_here(self, path: str) -> bool:
        folder, name = split(path)
        try:
            return is_sidecar(name, self._handles.open(folder))
        except OSError:
            return False

    def _block_beside_loose_sidecars(self, differing: dict[str, Change]) -> None:
        """A database does not come to sidecars that could not be saved: they would be replayed into it (P1, P2)."""
        names: dict[str, set[str]] = {}
        for path, change in differing.items():
            if change.after is None or not change.after.is_file or database_name(path) is not None:
                continue
            folder = split(path)[0]
            if folder not in names:
                names[folder] = self._names(folder)
            for sidecar in family(path)[1:]:
                is_there = split(sidecar)[1] in names[folder]
                is_loose = is_there and self._reader.find(self._present.root, sidecar) is None
                if is_loose and self._is_sidecar(sidecar):
                    self._obstacles.add(sidecar)
                    self._blocked[path] = f"{sidecar} belongs to it and cannot be saved first"

    def _names(self, folder: str) -> set[str]:
        try:
            return set(os.listdir(self._handles.open(folder)))
        except OSError:
            return set()

    def _block_whole_databases(self) -> None:
        """What blocks one file of a database blocks all of them."""
        for path, why in list(self._blocked.items()):
            others = [each for each in family(path) if each in self._changes]
            if any(self._is_sidecar(each) for each in (path, *others)):
                for other in others:
                    self._blocked.setdefault(other, why)

    # what comes

    def _bring(self, change: Change, differing: Mapping[str, Change]) -> None:
        path, before, after = change
        if _nearest(path, self._blocked) or self._is_gits(change):
            return
        if before is None:
            status = self._status(path)
            twin = self._twin(path, status) if status is not None else ""
            if twin:
                if not self._makes_way(differing.get(twin), change):
                    why = "and this file system does not tell the two names apart"
                    self._blocked[path] = f"{twin} is there, {why}"
                    self._twins[twin] = f"{path} cannot come, {why}"
                    return
            elif status is not None and after is not None:
                if stat.S_ISDIR(status.st_mode) and after.is_folder:
                    self._obstacles.add(f"{path}/.")  # there, but not held: the folder itself is to be, not all in it
                    self._blocked[path] = "a folder that is there cannot be saved first"
                    return
                if not self._block_unless_held(path):
                    return
        elif before.is_folder and after is not None and not after.is_folder:
            if self._holds_ignored(path) or not self._block_unless_held(path):
                return
            self._make_way[path] = ""
        if after is not None and after.is_file and self._is_sidecar(path):
            if self._reader.find(self._target.root, family(path)[0]) is None:
                self._blocked[path] = "belongs to a database that the checkpoint does not hold"
                return
            if self._is_used_database(path):
                return
        if before is not None and before.is_file and self._is_used_database(path):
            return
        if before is None and not self._bring_folders_of(path):
            return
        self._changes[path] = Change(path, before, after)

    def _is_gits(self, change: Change) -> bool:
        """Leave alone what is a repository's own now (P6), as it may not have been when the checkpoint was made."""
        path, before, after = change
        if before is not None:
            return False  # held now, so it is not
        git = _nearest(path, self._git) or self._git_dir_above(path)
        if not git:
            return False
        asked = any(each == git or each.startswith(f"{git}/") for each in self._scope.paths or ())
        if path == git and after is not None and not after.is_folder:
            self._blocked[path] = "a git repository is in the way"
        elif asked:
            self._blocked[git] = "a repository's own folder, which is never written"
        else:
            self._kept[git] = "a repository's own folder, which is never written"
        return True

    def _git_dir_above(self, path: str) -> str:
        """The git directory that a path is or is in; also where the rules kept the scan from entering it."""
        for above in reversed(list(upwards(path))):
            if above in self._present.listing.folders:
                continue
            if above not in self._in_git:
                self._in_git[above] = self._is_git_dir(above)
            if self._in_git[above]:
                return above
        return ""

    def _is_git_dir(self, path: str) -> bool:
        try:
            return is_git_dir(self._handles.open(path), named=False)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return False

    def _twin(self, path: str, status: os.stat_result) -> str:
        """The path under which a file is really there; empty if that is the one it was asked for by.

        Where case (or the form of an accent) does not count, `README.md` finds `readme.md`.
        """
        folder, name = split(path)
        try:
            with os.scandir(self._handles.open(folder)) as entries:
                found = {entry.name: entry.inode() for entry in entries}
        except OSError:
            return ""
        if name in found:
            return ""
        return next((join(folder, other) for other, inode in found.items() if inode == status.st_ino), "")

    def _makes_way(self, twin: Change | None, change: Change) -> bool:
        """Whether a file that is there under another spelling goes, so that one can come under the right one (P1)."""
        if twin is None or twin.after is not None or twin.before is None or change.after is None:
            return False
        if twin.before.is_folder or change.after.is_folder:
            return False  # what is in it would have to be told apart as well
        return not self._why_kept(twin.path, twin.before)

    def _bring_folders_of(self, path: str) -> bool:
        """The folders above a path that comes back, where they are gone and not asked for themselves."""
        for above in upwards(split(path)[0]):
            if above in self._changes or above in self._scope:
                continue
            status = self._status(above)
            entry = self._reader.find(self._target.root, above)
            if status is None and entry is not None:
                self._changes[above] = Change(above, None, entry)
            elif status is not None and not stat.S_ISDIR(status.st_mode):
                self._blocked[path] = f"{above} is in the way; restore it too"
                return False
        return True

    def _is_used_database(self, path: str) -> bool:
        folder, name = split(path)
        if not is_in_use(name, self._handles.open(folder), self._writers):
            return False
        self._blocked[path] = "a database that a process has open"
        return True

    def _holds_ignored(self, path: str) -> bool:
        """Block a path where a folder with ignored files stands: those are not removed."""
        below = f"{path}/"
        for folder, listed in self._present.listing.folders.items():
            if not (folder == path or folder.startswith(below)) or not (listed.context or listed.ignored_count):
                continue
            for place, name in enumerate(listed.names):
                is_ignored = bool(listed.context) or bool(listed.flags(place) & IGNORED)
                if is_ignored and join(folder, name) not in self._made:
                    self._blocked[path] = f"{folder} is in the way, and holds files that git's rules ignore"
                    return True
        return False

    def _block_unless_held(self, path: str) -> bool:
        """A thing in the way may be replaced only once everything of it is in the store (P1)."""
        below = f"{path}/"
        loose = [item for item in self._present.uncovered if item.path == path or item.path.startswith(below)]
        if not loose and self._reader.find(self._present.root, path) is not None:
            return True
        self._obstacles.add(path)
        what = loose[0] if loose else None
        if what is not None and what.reason is Reason.GIT_DIRECTORY:
            self._blocked[path] = f"a git repository is in the way ({what.path})"
        elif what is not None:
            self._blocked[path] = f"{what.path} is in the way and cannot be saved first: {what.reason}"
        else:
            self._blocked[path] = "something in the way cannot be saved first"
        return False

    def _status(self, path: str) -> os.stat_result | None:
        folder, name = split(path)
        try:
            return os.stat(name, dir_fd=self._handles.open(folder), follow_symlinks=False)
        except OSError:
            return None

    # what goes

    def _remove(self, change: Change) -> None:
        path, before, _ = change
        if before is None or not path:
            return
        if not _nearest(path, self._make_way):
            why = self._why_kept(path, before) if not self._is_sidecar(path) else self._why_sidecar_kept(path)
            if why:
                self._kept[path] = why
                self._above_kept.update(upwards(split(path)[0]))
                return
        if before.is_file and self._is_used_database(path):
            return
        if before.is_folder and path in self._above_kept:
            return  # something in it stays, so it does
        self._changes[path] = change

    def _leave(self, item: Uncovered) -> None:
        """Name what no checkpoint holds, then or now, and came since: it is left alone."""
        path = item.path
        if not path or path not in self._scope or _nearest(path, self._uncovered_then) or _nearest(path, self._blocked):
            return
        if self._reader.find(self._target.root, path) is None:
            self._kept.setdefault(path, f"not held now either: {item.reason}")

    def _ask_for(self, path: str) -> None:
        """A path that was asked for by name, and that the checkpoint does not hold: that is to be said (P4)."""
        uncovered = self._uncovered_then.get(_nearest(path, self._uncovered_then))
        if uncovered is not None and self._reader.find(self._target.root, path) is None:
            self._blocked.setdefault(path, f"not held by the checkpoint: {uncovered.reason}")

    def _why_sidecar_kept(self, path: str) -> str:
        """A sidecar stays if its database does, and is left alone itself only where nothing happens to that."""
        database = family(path)[0]
        if self._reader.find(self._target.root, database) is not None:
            return ""
        entry = self._reader.find(self._present.root, database)
        return self._why_kept(database, entry) if entry is not None else "its database is not held"

    def _why_kept(self, path: str, entry: Entry) -> str:
        twin = _nearest(path, self._twins)
        if twin:
            return self._twins[twin]
        if path in self._made:
            return ""
        if self._keep_new:
            return "made since the checkpoint"
        if _nearest(path, self._new_repositories):
            return "a repository made since the checkpoint"
        uncovered = self._uncovered_then.get(_nearest(path, self._uncovered_then))
        if uncovered is not None:
            return f"not held by the checkpoint: {uncovered.reason}"
        if self._is_ignored_now(path):
            return "ignored by git's rules"
        verdict = decide_path(
            self._target.rules.rules, path, is_dir=entry.is_folder, sources=self._target.rules.sources
        )
        if verdict is not None and verdict.kind != "included":
            return f"{verdict.kind} when the checkpoint was made ({verdict.rule})"
        return ""

    def _is_ignored_now(self, path: str) -> bool:
        folder, name = split(path)
        listed = self._present.listing.folders.get(path)
        if listed is not None:
            return bool(listed.context)
        holder = self._present.listing.folders.get(folder)
        if holder is None or holder.context:
            return holder is not None
        place = holder.place(name)
        return place is not None and bool(holder.flags(place) & IGNORED)

    # the plan

    def _plan(self, changes: dict[str, Change]) -> Plan:
        shown = {path: change for path, change in changes.items() if is_shown(change)}
        written = [path for path, change in shown.items() if change.before is None]
        replaced = [path or "." for path, change in shown.items() if change.before and change.after]
        removed = [path for path, change in shown.items() if change.after is None]
        digest = sha256(repr((self._target.id, self._scope.paths, self._keep_new)).encode("utf-8", "surrogateescape"))
        for change in changes.values():
            digest.update(repr(change).encode("utf-8", "surrogateescape"))
        for path, why in sorted((*self._kept.items(), *self._blocked.items())):
            digest.update(f"{path}\0{why}\0".encode("utf-8", "surrogateescape"))
        return Plan(
            checkpoint=self._target.id,
            paths=self._scope.given,
            keep_new=self._keep_new,
            written=written,
            replaced=replaced,
            removed=removed,
            retimed=[path or "." for path in changes if path not in shown],
            kept=dict(sorted(self._shown_kept().items())),
            blocked=dict(sorted(self._blocked.items())),
            missing=self._missing(),
            bytes_to_write=0,
            digest=digest.hexdigest(),
        )

    def _shown_kept(self) -> dict[str, str]:
        """A repository made since is named once, not file by file."""
        found = {}
        for path, why in self._kept.items():
            found[_nearest(path, self._new_repositories) or path] = why
        return found

    def _missing(self) -> dict[str, str]:
        return {
            item.path: f"not held by the checkpoint: {item.reason}"
            for item in self._target.uncovered
            if item.path in self._scope
            and item.path
            and (self._status(item.path) is None or _is_removal(self._changes.get(item.path)))
        }


def differs(before: Entry, after: Entry) -> bool:
    """Whether restoring would change anything. Where a file has its holes is not part of its state."""
    return before.oid != after.oid or _comparable(before.attr) != _comparable(after.attr)


def is_shown(change: Change) -> bool:
    """Whether a change is worth a person's eye; the time of a folder, which follows from what is in it, is not."""
    _, before, after = change
    if before is None or after is None or not (before.is_folder and after.is_folder):
        return True
    return before.attr._replace(mtime_ns=0) != after.attr._replace(mtime_ns=0)


def _is_removal(change: Change | None) -> bool:
    return change is not None and change.after is None


def _comparable(attr: Attr) -> Attr:
    kept = [part for part in attr.extras.split(b",") if part != b"sparse"]
    return attr._replace(extras=b",".join(kept) or b"-")


def _nearest(path: str, others: Container[str]) -> str:
    """The path itself or the nearest folder above it that is among others; "" if none is."""
    return next((above for above in upwards(path) if above in others), "")
