"""Applying a restore plan. Every step can be rolled back until the end, and nothing replaced is lost (P1).

New files are written into the stage (`holdfast.workspace.restore.stage`), a folder at the top of the workspace. A file
is replaced by exchanging names with the new one, so the old one is in the stage afterwards, whatever it was. If it is
not the file that was saved, the exchange is rolled back and the path reported. Removed files are moved into the stage
as well. The stage is removed at the very end.

After a kill at any line the journal and the stage exist, and the safety checkpoint contains everything that was
replaced; `holdfast.workspace.restore.recovery` continues from there (P3).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Set
from functools import partial
from itertools import count

from holdfast.durable import ASIDE, disk
from holdfast.model import Progress
from holdfast.scan.attrs import Attr
from holdfast.scan.cache import INO, MTIME, NLINK, SIZE, WIDTH
from holdfast.scan.dir_handles import Handles, join, split
from holdfast.scan.sqlite_files import database_name, family
from holdfast.scan.walk import Listing
from holdfast.shadowgit import ObjectKind, ObjectStore, object_id
from holdfast.workspace.restore.metadata import (
    ABORT,
    COARSEST_TIME_NS,
    MODE_NOT_KEPT,
    TIME_NOT_KEPT,
    Metadata,
    make_writable,
)
from holdfast.workspace.restore.plan import folded
from holdfast.workspace.restore.stage import MANY_FILES, Stage
from holdfast.workspace.stored.tree import Change, Entry

_BAD_NAME = (errno.EINVAL, errno.EILSEQ, errno.ENOENT)
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Application:
    """A plan being applied."""

    def __init__(
        self,
        handles: Handles,
        store: ObjectStore,
        listing: Listing,
        changes: dict[str, Change],
        *,
        stage: str,
        progress: Progress | None = None,
    ) -> None:
        self._handles = handles
        self._listing = listing
        self._changes = changes
        self._metadata = Metadata(listing.owner)
        self._stage = Stage(stage, handles, store, self._metadata)
        self._progress = progress
        self._undo: list[Callable[[], None]] = []
        self._touched: dict[str, None] = {"": None}  # the stage is in the root
        self._in_place: list[str] = []
        self._coming = {folded(path) for path, change in changes.items() if change.after and not change.before}
        self._taken: set[str] = set()  # moved into the stage
        self._numbers = count()
        self._placed: dict[str, tuple[int, int, int]] = {}  # identity of what was put in place, to recognise it
        self.is_torn = False  # interrupted in the middle of a step: `roll_back` may not know of that step
        self.left: set[str] = set()  # not rolled back, because somebody wrote to it meanwhile
        self.failed: dict[str, str] = {}
        self.kept: dict[str, str] = {}

    @property
    def notes(self) -> dict[str, str]:
        """Paths that were restored except for some metadata."""
        return self._metadata.notes

    @property
    def damaged(self) -> dict[str, str]:
        """Paths whose content is damaged in the store."""
        return self._stage.damaged

    def prepare(self) -> None:
        """Write all new files into the stage, durably; the workspace does not change yet."""
        coming = [change for change in self._changes.values() if change.after and not change.after.is_folder]
        self._stage.prepare([change for change in coming if not self._is_in_place(change)], self._progress)
        self.failed |= self._stage.failed

    # swapping

    def swap(self) -> None:
        """Put everything in place. After an OSError or an interruption, call `roll_back`."""
        self._handles.forget("")  # do not write to a folder that was moved away since the plan was made
        self._close_folders()
        going = [path for path, change in sorted(self._changes.items(), reverse=True) if change.after is None]
        in_the_way = {
            path
            for path, change in self._changes.items()
            if change.before and change.after and change.before.is_folder and not change.after.is_folder
        }
        first = {path for path in going if any(_is_below(path, other) for other in in_the_way)}
        first |= {path for path in going if folded(path) in self._coming}  # the same file on a case-insensitive disk
        for path in [path for path in going if path in first]:
            self._attempt(path, self._take_away)
        groups = self._databases(first)
        together = {path for paths in groups for path in paths}
        for path, change in self._changes.items():
            if change.after is not None and path not in together and path not in self.failed:
                self._attempt(path, self._bring)
        for paths in groups:
            self._swap_database(paths)
        for path in going:  # removals last: a kill before them leaves too much rather than too little (P1)
            if path not in first and path not in together:
                self._attempt(path, self._take_away)
        self._finish_folders()

    # databases

    def _databases(self, done: Set[str]) -> list[list[str]]:
        """Return the changed files of each SQLite database that has a sidecar among them (judged by name)."""
        found: dict[str, list[str]] = {}
        for path in self._changes:
            if database_name(path) is not None and path not in done:
                members = [each for each in family(path) if each in self._changes]
                if not any(each and each.is_folder for member in members for each in self._changes[member][1:]):
                    found[family(path)[0]] = members
        return list(found.values())

    def _swap_database(self, paths: list[str]) -> None:
        """Replace all files of a database, or none (P2).

        The database itself is removed first and put in place last: a program that opens it meanwhile, or after a kill,
        finds no database rather than one with the sidecars of another, which SQLite would replay into it.
        """
        mark = len(self._undo)
        lost = [path for path in paths if path in self.failed or path in self.damaged]
        if not lost:
            main = [path for path in paths if path in self._stage.slots and database_name(path) is None]
            replaced = [path for path in main if self._changes[path].before is not None]
            for path in (*replaced, *(path for path in paths if path not in main), *main):
                is_leaving = self._changes[path].after is None or (path in replaced and path not in self._taken)
                if not any(each in self.failed for each in paths):
                    self._attempt(path, self._take_away if is_leaving else self._bring)
            lost = [path for path in paths if path in self.failed]
        if lost:
            while len(self._undo) > mark:
                undo = self._undo.pop()
                self._attempt(lost[0], lambda _, undo=undo: undo())  # type: ignore[misc]  # each undo in its turn
            why = self.failed.get(lost[0], "")
            for path in paths:
                if path not in self.damaged:
                    self.failed.setdefault(path, why or f"{lost[0]}, part of the same database, cannot be restored")

    def _close_folders(self) -> None:
        """Restrict the mode of a folder before files are put into it, so that no secret is readable meanwhile."""
        for path, (_, before, after) in self._changes.items():
            if (
                before
                and after
                and before.is_folder
                and after.is_folder
                and before.attr.mode & ~after.attr.mode & 0o077
            ):
                self._touched.setdefault(path)
                mode = stat.S_IMODE(before.attr.mode & after.attr.mode) | 0o700
                self._attempt(path, partial(self._set_mode, mode=mode))

    def _set_mode(self, path: str, mode: int) -> None:
        self._metadata.set_mode(self._handles.open(path), path, mode)

    def _attempt(self, path: str, step: Callable[[str], None]) -> None:
        self.is_torn = True  # P3: an interruption may come after a rename and before its entry in `_undo`
        try:
            step(path)
        except OSError as error:
            self.is_torn = error.errno is None  # raised by a signal handler, not by the system
            if error.errno in ABORT or self.is_torn:
                raise
            # P4: one path that cannot be restored is reported, and does not undo the others
            is_name = error.errno in _BAD_NAME and not _is_portable(split(path)[1])
            self.failed[path] = "this disk does not allow that name" if is_name else error.strerror or str(error)
        self.is_torn = False

    def _bring(self, path: str) -> None:
        _, before, after = self._changes[path]
        if after is None:
            return
        if after.is_folder:
            if before is None or not before.is_folder:
                if before is not None:
                    self._take_away(path)
                self._make_folder(path)
            return
        if path not in self._stage.slots:
            if self._is_in_place(self._changes[path]):
                self._set_in_place(path, before, after)
            return
        if before is not None and before.is_folder:
            self._take_away(path)
        if path in self._taken:
            before = None  # nothing is left to exchange names with
        slot = self._stage.slots[path]
        with self._writable(path) as (fd, name):
            self._placed[path] = self._stage.identity(slot)
            if before is None:  # P1: `place` never replaces what somebody has put there meanwhile
                disk().place(slot, name, src_dir_fd=self._stage.fd, dst_dir_fd=fd)
                self._undo.append(lambda: self._move_back(path, slot))
                return
            try:
                disk().exchange(slot, name, src_dir_fd=self._stage.fd, dst_dir_fd=fd)
            except FileExistsError:  # without renameat2 an exchange takes several renames, and somebody came between
                self._leave_aside(path, slot + ASIDE)
                return
            self._undo.append(lambda: self._exchange_back(path, slot))
        if not self._is_the_saved_one(path, slot):  # P1: only now is it certain what was replaced
            self._give_back(path, slot)

    def _take_away(self, path: str) -> None:
        before = self._changes[path].before
        if before is None:
            return
        if before.is_folder:
            self._handles.forget(path)  # an open descriptor would lead into the removed folder
            with self._writable(path) as (fd, name):
                try:
                    disk().rmdir(name, dir_fd=fd)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    self.kept[path] = "something in it is kept"
                    return
            attr = before.attr
            self._undo.append(lambda: self._remake_folder(path, attr))
            self._taken.add(path)
            return
        slot = f"old-{next(self._numbers)}"
        with self._writable(path) as (fd, name):
            disk().place(name, slot, src_dir_fd=fd, dst_dir_fd=self._stage.fd, private=True)
            self._undo.append(lambda: self._put_back(slot, path))
        if not self._is_the_saved_one(path, slot):  # P1: it was written to between the snapshot and the move
            self._give_back(path, slot)
            return
        self._taken.add(path)

    def _give_back(self, path: str, slot: str) -> None:
        """Undo the last step, since no checkpoint has the old file (P1); if its path is taken, put it next to it."""
        self.failed[path] = "changed during the restore; left as it is"
        undo = self._undo.pop()
        try:
            undo()
        except OSError:
            self._put_beside(path, slot)

    def _leave_aside(self, path: str, slot: str) -> None:
        """Somebody put a file where another was just removed; keep the removed one too, unless it was saved (P1)."""
        self.failed[path] = "changed during the restore; left as it is"
        if not self._is_the_saved_one(path, slot):
            self._put_beside(path, slot)

    def _put_beside(self, path: str, slot: str) -> None:
        folder, name = split(path)
        for beside in (name, *(f"{name}.holdfast-kept-{number}" for number in range(1, 1000))):
            try:
                self._put_back(slot, join(folder, beside))
            except FileExistsError:
                continue
            self.failed[path] = f"changed during the restore; kept as {join(folder, beside)}"
            return

    def _make_folder(self, path: str) -> None:
        with self._writable(path) as (fd, name):
            disk().mkdir(name, mode=0o700, dir_fd=fd)  # closed to others until everything in it has its own mode
        self._touched.setdefault(path)

        def remove() -> None:
            self._handles.forget(path)
            parent, name = split(path)
            disk().rmdir(name, dir_fd=self._handles.open(parent))

        self._undo.append(remove)

    def _set_in_place(self, path: str, before: Entry | None, after: Entry) -> None:
        parent, name = split(path)
        fd = self._handles.open(parent)
        row, status = self._row(path), os.stat(name, dir_fd=fd, follow_symlinks=False)
        if row is None or [status.st_ino, status.st_size, status.st_mtime_ns] != [row[INO], row[SIZE], row[MTIME]]:
            # P1: not the file that the safety checkpoint has
            self.failed[path] = "changed during the restore; left as it is"
            return
        if before is not None:
            old = before.attr
            self._undo.append(lambda: self._metadata.set_all(name, self._handles.open(parent), path, old))
        self._metadata.set_all(name, fd, path, after.attr)
        self._in_place.append(path)

    def _is_in_place(self, change: Change) -> bool:
        """Whether only metadata differs and can be set on the file itself, because it has no other hard link."""
        before, after = change.before, change.after
        if before is None or after is None or after.is_folder or before.oid != after.oid or before.kind != after.kind:
            return False
        if before.attr.link != after.attr.link or after.attr.link is not None or not after.is_file:
            return False
        row = self._row(change.path)
        return row is not None and row[NLINK] == 1

    def _finish_folders(self) -> None:
        """Set modes and times of folders, innermost first, since a change inside changes the time of a folder."""
        for path, change in self._changes.items():
            if change.after is not None and change.after.is_folder:
                self._touched.setdefault(path)
        for path in sorted(self._touched, key=lambda path: path.count("/") if path else -1, reverse=True):
            own = self._changes.get(path)
            is_folder = own is None or (own.after is not None and own.after.is_folder) or path in self.kept
            if not is_folder:
                continue  # gone, or a file now
            attr = own.after.attr if own and own.after else self._attr_before(path)
            if attr is not None and path not in self.failed:
                self._attempt(path, partial(self._set_folder, attr=attr))

    def _set_folder(self, path: str, attr: Attr) -> None:
        fd = self._handles.open(path)
        if not stat.S_ISDIR(attr.mode):
            return
        self._metadata.set_all(".", fd, path, attr)

    # checking, ending

    def check(self) -> None:
        """Compare the folder with the plan; report differences in `failed` (P4)."""
        for path, change in self._changes.items():
            if path in self.failed or path in self.kept or path in self.damaged:
                continue
            if change.after is None and folded(path) in self._coming:
                continue  # gone; on a case-insensitive disk the name finds the new file
            why = self._difference(path, change.after)
            if why:
                self.failed[path] = why
            elif change.after and change.after.attr.is_sparse and _has_no_holes(self._handles, path):
                self.notes[path] = "restored, but not sparse: this file system has no holes"

    def _difference(self, path: str, after: Entry | None) -> str:
        """Say how a path differs from the plan; empty if it does not. Metadata that the disk cannot keep is noted."""
        try:
            status = _status(self._handles, path)
        except OSError:
            return "" if after is None else "removed again after it was restored"
        if after is None:
            return "created again after it was removed"
        again = "changed again after it was restored"
        is_ours = path in self._stage.slots or path in self._in_place
        if stat.S_IFMT(status.st_mode) != after.kind:
            return again
        if after.is_file and is_ours and not _has_content(self._handles, path, after, status.st_size):
            return again
        if not after.is_link and status.st_mode != after.attr.mode:
            if self._metadata.kept[0]:
                return "its mode could not be restored"
            self.notes.setdefault(path, MODE_NOT_KEPT)
        difference_ns = abs(status.st_mtime_ns - after.attr.mtime_ns)
        if difference_ns and after.is_file and not is_ours:
            return again
        if difference_ns:
            if difference_ns >= COARSEST_TIME_NS or self._metadata.kept[1]:
                return "its time could not be restored"
            self.notes.setdefault(path, TIME_NOT_KEPT)
        return ""

    def sync(self) -> None:
        """Make everything durable."""
        if not self._changes:
            return
        folders = {split(path)[0] for path in self._changes} | set(self._touched)
        if len(folders) + len(self._in_place) > MANY_FILES or not all(map(self._sync_file, self._in_place)):
            disk().syncfs(self._handles.open(""))
            return
        for path in folders:
            try:
                disk().fsync(self._handles.open(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:  # not readable for its owner
                disk().syncfs(self._handles.open(""))
                return

    def _sync_file(self, path: str) -> bool:
        parent, name = split(path)
        try:
            fd = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._handles.open(parent)
            )
        except FileNotFoundError:
            return True
        except OSError:
            return False  # not readable for its owner
        try:
            disk().fsync(fd)
            return True
        finally:
            os.close(fd)

    def discard(self) -> None:
        """Remove the stage and everything in it. From here on nothing can be rolled back."""
        self._undo.clear()  # the steps refer to this object: break the cycle, so that the store's files close at once
        self._stage.remove()

    def roll_back(self) -> None:
        """Undo every step, the last one first."""
        while self._undo:
            self._undo.pop()()
        for path in sorted(self._touched, key=len, reverse=True):
            attr = self._attr_before(path)
            if attr is not None:
                with contextlib.suppress(OSError):  # the content is back; a time must not keep it from being reported
                    self._set_folder(path, attr)

    # one step at a time

    @contextlib.contextmanager
    def _writable(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the open folder of a path, made writable; `_finish_folders` resets its mode at the end."""
        parent, name = split(path)
        fd = self._handles.open(parent)
        self._touched.setdefault(parent)
        make_writable(fd)
        yield fd, name

    def _move_back(self, path: str, slot: str) -> None:
        """Remove a file that was put in place, unless somebody has written to it since (P1)."""
        parent, name = split(path)
        disk().place(name, slot, src_dir_fd=self._handles.open(parent), dst_dir_fd=self._stage.fd, private=True)
        if self._stage.identity(slot) != self._placed[path]:
            self._put_back(slot, path)
            self.left.add(path)

    def _put_back(self, slot: str, path: str) -> None:
        parent, name = split(path)
        disk().place(slot, name, src_dir_fd=self._stage.fd, dst_dir_fd=self._handles.open(parent))

    def _exchange_back(self, path: str, slot: str) -> None:
        """Exchange the new file for the old one again, unless somebody has written to the new one (P1)."""
        parent, name = split(path)
        disk().exchange(slot, name, src_dir_fd=self._stage.fd, dst_dir_fd=self._handles.open(parent))
        if self._stage.identity(slot) != self._placed[path]:
            disk().exchange(slot, name, src_dir_fd=self._stage.fd, dst_dir_fd=self._handles.open(parent))
            self.left.add(path)

    def _remake_folder(self, path: str, attr: Attr) -> None:
        parent, name = split(path)
        disk().mkdir(name, mode=0o700, dir_fd=self._handles.open(parent))
        self._touched.setdefault(path)
        self._set_folder(path, attr)

    def _is_the_saved_one(self, path: str, slot: str) -> bool:
        """Whether the file in a slot of the stage is the one in the safety checkpoint (P1)."""
        row = self._row(path)
        return row is not None and self._stage.identity(slot) == (row[INO], row[SIZE], row[MTIME])

    def _row(self, path: str) -> list[int] | None:
        parent, name = split(path)
        folder = self._listing.folders.get(parent)
        place = folder.place(name) if folder else None
        if folder is None or place is None:
            return None
        return list(folder.rows[WIDTH * place : WIDTH * place + WIDTH])

    def _attr_before(self, path: str) -> Attr | None:
        folder = self._listing.folders.get(path)
        return Attr(folder.key[2], folder.key[3], folder.extra or b"-") if folder else None


def _is_portable(name: str) -> bool:
    """Whether every file system in use allows a name."""
    return name.isprintable() and not set('\\:*?"<>|') & set(name) and name[-1:] not in (".", " ")


def _is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}/")


def _has_no_holes(handles: Handles, path: str) -> bool:
    """Whether a file has no sparse ranges."""
    status = _status(handles, path)
    return status.st_blocks * 512 >= status.st_size


def _status(handles: Handles, path: str) -> os.stat_result:
    parent, name = split(path)
    return os.stat(name or ".", dir_fd=handles.open(parent), follow_symlinks=False)


def _has_content(handles: Handles, path: str, entry: Entry, size: int) -> bool:
    parent, name = split(path)
    if entry.attr.parts_bytes is not None:
        return size == entry.attr.parts_bytes  # its bytes were checked as they were written
    try:
        fd = os.open(name, _FLAGS, dir_fd=handles.open(parent))
    except OSError:
        return True  # its restored mode forbids reading, even to its owner
    try:
        return object_id(ObjectKind.BLOB, os.pread(fd, size + 1, 0)) == entry.oid
    finally:
        os.close(fd)
