"""Planning a restore. Changes nothing; the same folder and target give the same plan and digest.

A database and its sidecars (`holdfast.scan.sqlite_files`) are restored together or not at all (P2): sidecars that the
checkpoint does not contain are removed, even if they are ignored, new or not in the given paths; the safety checkpoint
contains them.

A restore does not change (P1, P4): paths that the checkpoint does not cover; files that git's rules ignored when it was
saved or ignore now; repositories cloned since; and, with `keep_new`, everything created since.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Container, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.model import Plan, Reason, Uncovered
from holdfast.scan.attrs import Attr
from holdfast.scan.cache import IGNORED
from holdfast.scan.dir_handles import SHORTAGES, Handles, join, split, upwards
from holdfast.scan.ignore import decide_path
from holdfast.scan.sqlite_files import Writers, database_name, family, is_in_use, is_sidecar
from holdfast.scan.user_git import is_git_dir
from holdfast.scan.walk import Listing
from holdfast.workspace.capture.scanner import Frozen
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Change, Entry, TreeReader

if TYPE_CHECKING:
    from holdfast.workspace.requests import RestoreRequest
    from holdfast.workspace.undo_agent.undo import UndoneContent


class Target(NamedTuple):
    """The content to restore to."""

    id: str
    root: Node
    uncovered: tuple[Uncovered, ...]
    rules: Frozen


class Present(NamedTuple):
    """The folder as it is now."""

    root: Node
    uncovered: list[Uncovered]
    listing: Listing


class Steps(NamedTuple):
    """A plan with what is needed to apply it."""

    plan: Plan
    changes: dict[str, Change]
    """By path: `before` is what is there now, `after` what will be there."""
    obstacles: frozenset[str]
    """Paths that the safety checkpoint must include, whatever the ignore rules say, before they are replaced (P1)."""
    undone: UndoneContent | None = None
    """The target, if it is not a checkpoint yet but the folder without an agent's changes."""
    reader: TreeReader | None = None
    """It has read the folders that differ, which the safety checkpoint is compared by."""


class Planner:
    """Makes a plan from a target and the present folder."""

    def __init__(
        self,
        target: Target,
        present: Present,
        reader: TreeReader,
        handles: Handles,
        scope: Scope,
        request: RestoreRequest,
    ) -> None:
        self._target = target
        self._present = present
        self._reader = reader
        self._handles = handles
        self._scope = scope
        self._keep_new = request.keep_new
        self._created = request.created
        self._relinks = request.verb in ("undo", "redo")
        """Whether hard links between a path in the scope and one outside it are restored, too."""
        self._changes: dict[str, Change] = {}
        self._kept: dict[str, str] = {}
        self._blocked: dict[str, str] = {}
        self._obstacles: set[str] = set()
        self._make_way: dict[str, str] = {}
        self._writers = Writers()
        self._sidecars: dict[str, bool] = {}
        self._twins: dict[str, str] = {}  # paths kept because a blocked path is the same file on this disk
        self._above_kept = {above for item in present.uncovered for above in upwards(split(item.path)[0])}
        self._git = {item.path for item in present.uncovered if item.reason is Reason.GIT_DIRECTORY}
        self._in_git: dict[str, bool] = {}
        self._uncovered_then = {item.path: item for item in target.uncovered if item.path}
        new = present.listing.repositories.keys() - target.rules.repositories.keys() - {""}
        self._new_repositories = dict.fromkeys(new, "a repository created since the checkpoint")

    def make(self) -> Steps:
        """Make the plan."""
        # The order matters: what is blocked (first databases, then what cannot be saved) decides what is removed, and a
        # path is removed after everything in it was decided, so that a folder stays with what is kept in it (P1).
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
        self._block_whole_databases()  # after everything that blocks: any file of a database blocks the others
        for path in [path for path in self._changes if _nearest(path, self._blocked)]:
            del self._changes[path]
        changes = dict(sorted(self._changes.items()))
        return Steps(self._plan(changes), changes, frozenset(self._obstacles), reader=self._reader)

    def _differing(self) -> dict[str, Change]:
        found: dict[str, Change] = {}
        unlinked: list[Change] = []
        for change in self._reader.diff(self._present.root, self._target.root):
            if self._is_asked_for(change.path, is_folder=change.is_folder):
                other = found.get(change.path)
                if other is not None:  # a file that becomes a folder, or the reverse, comes as two changes
                    change = Change(change.path, change.before or other.before, change.after or other.after)
                if change.before is None or change.after is None or differs(change.before, change.after):
                    found[change.path] = change
                else:
                    found.pop(change.path, None)
            elif self._relinks and _is_only_unlinked(change):
                unlinked.append(change)
        links = {change.after.attr.link for change in found.values() if change.after is not None}
        found |= {change.path: change for change in unlinked if change.after and change.after.attr.link in links}
        return found

    # databases

    def _is_asked_for(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether a path is in the scope, or another file of the same database."""
        if self._scope.selects(path, is_folder=is_folder):
            return True
        others = [each for each in family(path) if each != path and each in self._scope]
        return bool(others) and (self._is_sidecar(path) or any(map(self._is_sidecar, others)))

    def _is_sidecar(self, path: str) -> bool:
        """Whether a path is a sidecar: in the folder, in the checkpoint, or once the database is restored."""
        if path not in self._sidecars:
            self._sidecars[path] = database_name(path) is not None and (
                self._is_sidecar_here(path)
                or self._reader.is_sidecar(self._target.root, path)
                or self._outlived_its_database(path)
            )
        return self._sidecars[path]

    def _outlived_its_database(self, path: str) -> bool:
        """Whether a sidecar remains of a deleted database that is restored: SQLite would replay it into that (P2)."""
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
        """Block databases next to sidecars that cannot be saved: SQLite would replay these into them (P1, P2)."""
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
        """Block all files of a database if one is blocked (P2)."""
        for path, why in list(self._blocked.items()):
            others = [each for each in family(path) if each in self._changes]
            if any(self._is_sidecar(each) for each in (path, *others)):
                for other in others:
                    self._blocked.setdefault(other, why)

    # files to write

    def _bring(self, change: Change, differing: Mapping[str, Change]) -> None:
        path, before, after = change
        if _nearest(path, self._blocked) or self._is_gits(change):
            return
        if before is None:
            status = self._status(path)
            twin = self._twin(path, status) if status is not None else ""
            if twin:
                if not self._makes_way(differing.get(twin), change):
                    why = "and this file system treats the two names as one"
                    self._blocked[path] = f"{twin} is there, {why}"
                    self._twins[twin] = f"{path} cannot be restored, {why}"
                    return
            elif status is not None and after is not None:
                if stat.S_ISDIR(status.st_mode) and after.is_folder:
                    self._obstacles.add(f"{path}/.")  # not in the snapshot: include the folder itself, not all in it
                    self._blocked[path] = "there is a folder, which cannot be saved first"
                    return
                if not self._block_unless_held(path):
                    return
        elif before.is_folder and after is not None and not after.is_folder:
            if self._holds_ignored(path) or not self._block_unless_held(path):
                return
            self._make_way[path] = ""
        if after is not None and after.is_file and self._is_sidecar(path):
            if self._reader.find(self._target.root, family(path)[0]) is None:
                self._blocked[path] = "belongs to a database that the checkpoint does not cover"
                return
            if self._is_used_database(path):
                return
        if before is not None and before.is_file and self._is_used_database(path):
            return
        if before is None and not self._bring_folders_of(path):
            return
        self._changes[path] = Change(path, before, after)

    def _is_gits(self, change: Change) -> bool:
        """Block paths inside a git directory (P6); they may not have been one when the checkpoint was saved."""
        path, before, after = change
        if before is not None:
            return False  # in the snapshot, so it is not
        git = _nearest(path, self._git) or self._git_dir_above(path)
        if not git:
            return False
        asked = any(each == git or each.startswith(f"{git}/") for each in self._scope.paths or ())
        if path == git and after is not None and not after.is_folder:
            self._blocked[path] = "a git repository is in the way"
        elif asked:
            self._blocked[git] = "a git directory, which is never changed"
        else:
            self._kept[git] = "a git directory, which is never changed"
        return True

    def _git_dir_above(self, path: str) -> str:
        """Return the git directory that a path is or is in, even if ignore rules kept the scan out of it."""
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
                raise  # P6: unknown is not "no"
            return False

    def _twin(self, path: str, status: os.stat_result) -> str:
        """Return the real spelling of a path on a case-insensitive disk; empty if it is the given one.

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
        same = [other for other, inode in found.items() if inode == status.st_ino]
        # FUSE gives each spelling an inode of its own: then the folded name decides
        same = same or [other for other in found if folded(other) == folded(name)]
        return join(folder, same[0]) if same else ""

    def _makes_way(self, twin: Change | None, change: Change) -> bool:
        """Whether a file under another spelling is removed, which makes room for the right spelling (P1)."""
        if twin is None or twin.after is not None or twin.before is None or change.after is None:
            return False
        if twin.before.is_folder or change.after.is_folder:
            return False  # its content would need the same check
        return not self._why_kept(twin.path, twin.before)

    def _bring_folders_of(self, path: str) -> bool:
        """Add the missing folders above a restored path that are not in the scope themselves."""
        for above in upwards(split(path)[0]):
            if above in self._changes or self._scope.has_folder(above):
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
        # P1, P2: the process would go on writing into the old file, or mix old and new pages
        self._blocked[path] = "a database that a process has open"
        return True

    def _holds_ignored(self, path: str) -> bool:
        """Block a path where there is a folder with ignored files: those are not removed (P1)."""
        below = f"{path}/"
        for folder, listed in self._present.listing.folders.items():
            if not (folder == path or folder.startswith(below)) or not (listed.context or listed.ignored_count):
                continue
            for place, name in enumerate(listed.names):
                is_ignored = bool(listed.context) or bool(listed.flags(place) & IGNORED)
                if is_ignored and join(folder, name) not in self._created:
                    self._blocked[path] = f"{folder} is in the way, and contains files that git's rules ignore"
                    return True
        return False

    def _block_unless_held(self, path: str) -> bool:
        """Allow replacing what is in the way only once all of it is in the store (P1)."""
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

    # files to remove

    def _remove(self, change: Change) -> None:
        path, before, _ = change
        if before is None or not path:
            return
        if not _nearest(path, self._make_way):  # what makes way for a file was checked with that file
            # P1: what the checkpoint may have missed, or never covered, is not removed for being absent from it
            why = self._why_kept(path, before) if not self._is_sidecar(path) else self._why_sidecar_kept(path)
            if why:
                self._kept[path] = why
                self._above_kept.update(upwards(split(path)[0]))
                return
        if before.is_file and self._is_used_database(path):
            return
        if before.is_folder and path in self._above_kept:
            return  # something in it stays, so the folder stays
        self._changes[path] = change

    def _leave(self, item: Uncovered) -> None:
        """Report a path that is covered neither by the checkpoint nor now: it is kept."""
        path = item.path
        if not path or path not in self._scope or _nearest(path, self._uncovered_then) or _nearest(path, self._blocked):
            return
        if self._reader.find(self._target.root, path) is None:
            self._kept.setdefault(path, f"not covered now either: {item.reason}")

    def _ask_for(self, path: str) -> None:
        """Report a given path that the checkpoint does not cover (P4)."""
        uncovered = self._uncovered_then.get(_nearest(path, self._uncovered_then))
        if uncovered is not None and self._reader.find(self._target.root, path) is None:
            self._blocked.setdefault(path, f"not covered by the checkpoint: {uncovered.reason}")

    def _why_sidecar_kept(self, path: str) -> str:
        """Return why a sidecar stays: for the same reason as its database."""
        database = family(path)[0]
        if self._reader.find(self._target.root, database) is not None:
            return ""
        entry = self._reader.find(self._present.root, database)
        return self._why_kept(database, entry) if entry is not None else "its database is not covered"

    def _why_kept(self, path: str, entry: Entry) -> str:
        twin = _nearest(path, self._twins)
        if twin:
            return self._twins[twin]
        if path in self._created:
            return ""
        if self._keep_new:
            return "created since the checkpoint"
        if _nearest(path, self._new_repositories):
            return "a repository created since the checkpoint"
        uncovered = self._uncovered_then.get(_nearest(path, self._uncovered_then))
        if uncovered is not None:
            return f"not covered by the checkpoint: {uncovered.reason}"
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
        # A plan that is shown and then applied must be this one: the digest covers everything that it would do or leave
        digest = sha256(repr((self._target.id, self._scope.given, self._keep_new)).encode("utf-8", "surrogateescape"))
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
            bytes_to_write=0,  # `Restorer` counts them; not part of the digest
            digest=digest.hexdigest(),
            conflicts={},
            doubts={},
        )

    def _shown_kept(self) -> dict[str, str]:
        """Return what is kept; a new repository once, not file by file."""
        found = {}
        for path, why in self._kept.items():
            found[_nearest(path, self._new_repositories) or path] = why
        return found

    def _missing(self) -> dict[str, str]:
        return {
            item.path: f"not covered by the checkpoint: {item.reason}"
            for item in self._target.uncovered
            if item.path in self._scope
            and item.path
            and (self._status(item.path) is None or _is_removal(self._changes.get(item.path)))
        }


def differs(before: Entry, after: Entry) -> bool:
    """Whether restoring would change anything. The layout of a sparse file does not count."""
    return before.oid != after.oid or _comparable(before.attr) != _comparable(after.attr)


def is_shown(change: Change) -> bool:
    """Whether to show a change; the time of a folder follows from its content and is not shown."""
    _, before, after = change
    if before is None or after is None or not (before.is_folder and after.is_folder):
        return True
    return before.attr._replace(mtime_ns=0) != after.attr._replace(mtime_ns=0)


def folded(path: str) -> str:
    """Return the form under which case- and normalisation-insensitive file systems treat names as equal."""
    return path.casefold() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def _is_only_unlinked(change: Change) -> bool:
    """Whether a file is as it should be, but for its hard links."""
    _, before, after = change
    if before is None or after is None or after.attr.link is None or not before.is_file or before.oid != after.oid:
        return False
    return _comparable(before.attr.without_link()) == _comparable(after.attr.without_link())


def _is_removal(change: Change | None) -> bool:
    return change is not None and change.after is None


def _comparable(attr: Attr) -> Attr:
    kept = [part for part in attr.extras.split(b",") if part != b"sparse"]
    return attr._replace(extras=b",".join(kept) or b"-")


def _nearest(path: str, others: Container[str]) -> str:
    """Return the path itself or the nearest folder above it that is in `others`; "" if none is."""
    return next((above for above in upwards(path) if above in others), "")
