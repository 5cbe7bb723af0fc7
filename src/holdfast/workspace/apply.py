"""Carrying out a plan. Every step can be taken back until the end, and nothing that is replaced is lost on the way.

New files are written in a stage: a folder at the top of the workspace that only its owner can enter. A file is
replaced by swapping names with its successor, so that the old one is in the stage afterwards, whatever it was; if it
is not the one that was saved, the swap is taken back and the path reported. What is removed is moved into the stage
as well. The stage is removed at the very end.

After a kill at any line the journal and the stage are there, and the safety checkpoint holds everything that was
replaced; `holdfast.workspace.restore` finishes from there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Damaged
from holdfast.model import Progress
from holdfast.scan.attrs import Attr, is_kept_xattr
from holdfast.scan.folder import INO, MTIME, NLINK, SIZE, WIDTH
from holdfast.scan.handles import Handles, split
from holdfast.scan.walk import Listing
from holdfast.shadowgit import FOLDER_MODE, Kind, ObjectStore, object_id
from holdfast.workspace.parts import list_parts
from holdfast.workspace.tree import Change, Entry

_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ABORT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_MANY_FILES = 64  # above this one sync of the whole file system is cheaper than one for each
_BLOCK = 64 << 10


class Application:
    """One plan being carried out."""

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
        self._store = store
        self._listing = listing
        self._changes = changes
        self._stage = stage
        self._stage_fd = -1
        self._progress = progress
        self._slots: dict[str, str] = {}
        self._links: dict[bytes, str] = {}
        self._undo: list[Callable[[], None]] = []
        self._touched: dict[str, None] = {"": None}  # the stage is in the root
        self._in_place: list[str] = []
        self.failed: dict[str, str] = {}
        self.notes: dict[str, str] = {}  # restored, but for something
        self.kept: dict[str, str] = {}
        self.damaged: dict[str, str] = {}

    # staging: the workspace is not changed yet

    def prepare(self) -> None:
        """Write everything that is to come into the stage, durably. What cannot be read is in `damaged`."""
        root = self._handles.open("")
        _make_writable(root)
        disk().mkdir(self._stage, mode=0o700, dir_fd=root)
        self._stage_fd = os.open(self._stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        coming = [change for change in self._changes.values() if change.after and not change.after.is_folder]
        coming = [change for change in coming if not self._is_in_place(change)]
        each = len(coming) <= _MANY_FILES
        for number, change in enumerate(coming):
            if change.after is not None:
                try:
                    self._prepare_one(f"new-{number}", change.path, change.after, sync=each)
                except Damaged as error:
                    self.damaged[change.path] = error.message
            if self._progress:
                self._progress("writing", number + 1, len(coming))
        if coming:
            if not each:
                disk().syncfs(self._stage_fd)
            disk().fsync(self._stage_fd)

    def _prepare_one(self, slot: str, path: str, entry: Entry, *, sync: bool) -> None:
        link = entry.attr.link
        if link is not None and link in self._links:
            disk().link(self._links[link], slot, src_dir_fd=self._stage_fd, dst_dir_fd=self._stage_fd)
        elif entry.is_file:
            self._write_file(slot, path, entry, sync=sync)
        elif entry.is_link:
            target = self._store.blob(entry.oid)
            disk().symlink(os.fsdecode(target), slot, dir_fd=self._stage_fd)
            self._set_owner(slot, self._stage_fd, path, entry.attr)
            disk().set_mtime(slot, entry.attr.mtime_ns, dir_fd=self._stage_fd)
        elif not self._write_special(slot, path, entry):
            return
        if link is not None:
            self._links.setdefault(link, slot)
        self._slots[path] = slot

    def _write_file(self, slot: str, path: str, entry: Entry, *, sync: bool) -> None:
        fd = disk().create(slot, mode=0o600, dir_fd=self._stage_fd)
        try:
            size = 0
            for piece in self._pieces(entry):
                _write_piece(fd, piece, size, sparse=entry.attr.is_sparse)
                size += len(piece)
            if entry.attr.is_sparse:
                disk().truncate(fd, size)
            self._set_all(slot, self._stage_fd, path, entry.attr)
            if sync:
                disk().fsync(fd)
        finally:
            os.close(fd)

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        if entry.attr.parts_bytes is None:
            yield self._store.blob(entry.oid)
        else:
            last, data = b"", b""
            for part in list_parts(self._store, FOLDER_MODE, entry.oid):
                if part != last:  # a hole is the same part many times
                    last, data = part, self._store.blob(part)
                yield data

    def _write_special(self, slot: str, path: str, entry: Entry) -> bool:
        try:
            disk().mknod(slot, entry.attr.mode, entry.attr.device, dir_fd=self._stage_fd)
        except PermissionError:
            self.failed[path] = "a device can be made by the administrator only"
            return False
        self._set_all(slot, self._stage_fd, path, entry.attr)
        return True

    # swapping

    def swap(self) -> None:
        """Put everything in its place. OSError, or whatever interrupted it: call `take_back`."""
        self._handles.forget("")  # a folder that was moved away since the plan was made is not written to
        going = [path for path, change in sorted(self._changes.items(), reverse=True) if change.after is None]
        in_the_way = {
            path
            for path, change in self._changes.items()
            if change.before and change.after and change.before.is_folder and not change.after.is_folder
        }
        first = [path for path in going if any(_is_below(path, other) for other in in_the_way)]
        for path in first:
            self._attempt(path, self._take_away)
        for path, change in self._changes.items():
            if change.after is not None and path not in self.failed:
                self._attempt(path, self._bring)
        for path in going:
            if path not in first:
                self._attempt(path, self._take_away)
        self._finish_folders()

    def _attempt(self, path: str, step: Callable[[str], None]) -> None:
        try:
            step(path)
        except OSError as error:
            if error.errno in _ABORT:
                raise
            self.failed[path] = error.strerror or str(error)

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
        if path not in self._slots:
            if self._is_in_place(self._changes[path]):
                self._set_in_place(path, before, after)
            return
        if before is not None and before.is_folder:
            self._take_away(path)
            before = None
        slot = self._slots[path]
        with self._writable(path) as (fd, name):
            if before is None:
                disk().place(slot, name, src_dir_fd=self._stage_fd, dst_dir_fd=fd)
                self._undo.append(lambda: self._move(name, path, slot))
                return
            disk().exchange(slot, name, src_dir_fd=self._stage_fd, dst_dir_fd=fd)
            self._undo.append(lambda: self._exchange(slot, path))
        if not self._is_the_saved_one(path, slot):
            self._undo.pop()()
            self.failed[path] = "changed while the restore was under way; left as it is"

    def _take_away(self, path: str) -> None:
        before = self._changes[path].before
        if before is None:
            return
        if before.is_folder:
            self._handles.forget(path)
            with self._writable(path) as (fd, name):
                try:
                    disk().rmdir(name, dir_fd=fd)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    self.kept[path] = "something in it stays"
                    return
            attr = before.attr
            self._undo.append(lambda: self._remake_folder(path, attr))
            return
        slot = f"old-{len(self._undo)}"
        with self._writable(path) as (fd, name):
            disk().place(name, slot, src_dir_fd=fd, dst_dir_fd=self._stage_fd)
            self._undo.append(lambda: self._put_back(slot, path))
        if not self._is_the_saved_one(path, slot):
            self._undo.pop()()
            self.failed[path] = "changed while the restore was under way; left as it is"

    def _make_folder(self, path: str) -> None:
        with self._writable(path) as (fd, name):
            disk().mkdir(name, mode=0o700, dir_fd=fd)
        self._touched.setdefault(path)

        def remove() -> None:
            self._handles.forget(path)
            parent, name = split(path)
            disk().rmdir(name, dir_fd=self._handles.open(parent))

        self._undo.append(remove)

    def _set_in_place(self, path: str, before: Entry | None, after: Entry) -> None:
        parent, name = split(path)
        fd = self._handles.open(parent)
        if before is not None:
            old = before.attr
            self._undo.append(lambda: self._set_all(name, self._handles.open(parent), path, old))
        self._set_all(name, fd, path, after.attr)
        self._in_place.append(path)

    def _is_in_place(self, change: Change) -> bool:
        """Whether only metadata differs and may be set on the file itself: it has no other name anywhere."""
        before, after = change.before, change.after
        if before is None or after is None or after.is_folder or before.oid != after.oid or before.kind != after.kind:
            return False
        if before.attr.link != after.attr.link or after.attr.link is not None or not after.is_file:
            return False
        row = self._row(change.path)
        return row is not None and row[NLINK] == 1

    def _finish_folders(self) -> None:
        """Modes and times of folders, innermost first, since changing what is in one changes its time."""
        for path, change in self._changes.items():
            if change.after is not None and change.after.is_folder:
                self._touched.setdefault(path)
        for path in sorted(self._touched, key=lambda path: path.count("/") if path else -1, reverse=True):
            own = self._changes.get(path)
            is_folder = own is None or (own.after is not None and own.after.is_folder) or path in self.kept
            if not is_folder:
                continue  # it is gone, or a file now
            attr = own.after.attr if own and own.after else self._attr_before(path)
            if attr is not None and path not in self.failed:
                self._attempt(path, lambda path, attr=attr: self._set_folder(path, attr))  # type: ignore[misc]

    def _set_folder(self, path: str, attr: Attr) -> None:
        fd = self._handles.open(path)
        if not stat.S_ISDIR(attr.mode):
            return
        self._set_all(".", fd, path, attr)

    # checking, ending

    def check(self) -> None:
        """Compare what is there with what was to be; differences are in `failed` (P4)."""
        for path, change in self._changes.items():
            if path in self.failed or path in self.kept or path in self.damaged:
                continue
            why = self._difference(path, change)
            if why:
                self.failed[path] = why

    def _difference(self, path: str, change: Change) -> str:
        parent, name = split(path)
        try:
            status = os.stat(name or ".", dir_fd=self._handles.open(parent), follow_symlinks=False)
        except OSError:
            return "" if change.after is None else "gone again after it was restored"
        after = change.after
        if after is None:
            return "there again after it was removed"
        again = "changed again after it was restored"
        if stat.S_IFMT(status.st_mode) != after.kind:
            return again
        if not after.is_link and status.st_mode != after.attr.mode:
            return "its mode could not be restored"
        if status.st_mtime_ns != after.attr.mtime_ns:
            return again if not after.is_folder else "its time could not be restored"
        if after.is_file and path in self._slots and not self._has_content(path, after, status.st_size):
            return again
        if after.attr.is_sparse and os.stat(name, dir_fd=self._handles.open(parent)).st_blocks * 512 >= status.st_size:
            self.notes[path] = "restored, but without its holes, which this file system does not keep"
        return ""

    def _has_content(self, path: str, entry: Entry, size: int) -> bool:
        parent, name = split(path)
        if entry.attr.parts_bytes is not None:
            return size == entry.attr.parts_bytes  # its bytes were checked as they were written
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._handles.open(parent))
        except OSError:
            return True  # not readable for its owner, as it was
        try:
            return object_id(Kind.BLOB, os.pread(fd, size + 1, 0)) == entry.oid
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Make everything durable."""
        if not self._changes:
            return
        folders = {split(path)[0] for path in self._changes} | set(self._touched)
        if len(folders) + len(self._in_place) > _MANY_FILES or not all(map(self._sync_file, self._in_place)):
            disk().syncfs(self._handles.open(""))
            return
        for path in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                disk().fsync(self._handles.open(path))

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
        """Remove the stage: whatever is in it is in the safety checkpoint."""
        if self._stage_fd >= 0:
            os.close(self._stage_fd)
            self._stage_fd = -1
        root = self._handles.open("")
        status = os.fstat(root)  # set already; removing the stage disturbs it
        _make_writable(root)
        durable.remove_tree(self._stage, dir_fd=root)
        if os.fstat(root).st_mode != status.st_mode:
            disk().chmod(root, stat.S_IMODE(status.st_mode))
        disk().set_mtime(".", status.st_mtime_ns, dir_fd=root)
        disk().fsync(root)

    def take_back(self) -> None:
        """Undo every step that was done, last first."""
        while self._undo:
            self._undo.pop()()
        for path in sorted(self._touched, key=len, reverse=True):
            attr = self._attr_before(path)
            if attr is not None:
                with contextlib.suppress(OSError):
                    self._set_folder(path, attr)

    # one step at a time

    @contextlib.contextmanager
    def _writable(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder of a path, open and writable to us; its own mode is set back with all others at the end."""
        parent, name = split(path)
        fd = self._handles.open(parent)
        self._touched.setdefault(parent)
        _make_writable(fd)
        yield fd, name

    def _move(self, name: str, path: str, slot: str) -> None:
        fd = self._handles.open(split(path)[0])
        disk().place(name, slot, src_dir_fd=fd, dst_dir_fd=self._stage_fd)

    def _put_back(self, slot: str, path: str) -> None:
        parent, name = split(path)
        disk().place(slot, name, src_dir_fd=self._stage_fd, dst_dir_fd=self._handles.open(parent))

    def _exchange(self, slot: str, path: str) -> None:
        parent, name = split(path)
        disk().exchange(slot, name, src_dir_fd=self._stage_fd, dst_dir_fd=self._handles.open(parent))

    def _remake_folder(self, path: str, attr: Attr) -> None:
        parent, name = split(path)
        disk().mkdir(name, mode=0o700, dir_fd=self._handles.open(parent))
        self._touched.setdefault(path)
        self._set_folder(path, attr)

    def _is_the_saved_one(self, path: str, slot: str) -> bool:
        """Whether what is in a slot of the stage is the file that the safety checkpoint holds (P1)."""
        row = self._row(path)
        status = os.stat(slot, dir_fd=self._stage_fd, follow_symlinks=False)
        return row is not None and (status.st_ino, status.st_size, status.st_mtime_ns) == (
            row[INO],
            row[SIZE],
            row[MTIME],
        )

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

    # metadata

    def _set_all(self, name: str, dir_fd: int, path: str, attr: Attr) -> None:
        """Owner, extended attributes, mode, time: in this order, because each may disturb the ones before it."""
        fd = os.open(name, _PATH_ONLY, dir_fd=dir_fd)
        try:
            self._set_owner(name, dir_fd, path, attr, fd)
            self._set_xattrs(fd, path, attr.xattrs)
            if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(attr.mode):
                disk().chmod(fd, stat.S_IMODE(attr.mode))
        finally:
            os.close(fd)
        disk().set_mtime(name, attr.mtime_ns, dir_fd=dir_fd)

    def _set_owner(self, name: str, dir_fd: int, path: str, attr: Attr, fd: int | None = None) -> None:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        uid, gid = attr.owner or self._listing.owner
        if (status.st_uid, status.st_gid) == (uid, gid):
            return
        try:
            if fd is None:
                disk().chown_link(name, uid, gid, dir_fd=dir_fd)
            else:
                disk().chown(fd, uid, gid)
        except PermissionError:
            self.notes.setdefault(path, f"restored, but its owner {uid}:{gid} could not be")

    def _set_xattrs(self, fd: int, path: str, wanted: dict[str, bytes]) -> None:
        where = f"/proc/self/fd/{fd}"
        try:
            present = {name for name in os.listxattr(where) if is_kept_xattr(name)}
        except OSError:
            present = set()
        try:
            for name in present - wanted.keys():
                disk().removexattr(fd, name)
            for name, value in wanted.items():
                if name not in present or os.getxattr(where, name) != value:
                    disk().setxattr(fd, name, value)
        except OSError as error:
            if error.errno in _ABORT:
                raise
            self.notes.setdefault(path, f"restored, but an extended attribute could not be ({error.strerror})")


def _make_writable(fd: int) -> None:
    """Let ourselves change what is in a folder; its own mode is set with all others at the end."""
    mode = os.fstat(fd).st_mode
    if mode & 0o300 != 0o300 and os.geteuid() != 0:
        disk().chmod(fd, stat.S_IMODE(mode) | 0o700)


def set_folder(handles: Handles, path: str, attr: Attr) -> None:
    """Give a folder its mode and time back."""
    fd = handles.open(path)
    if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(attr.mode):
        disk().chmod(fd, stat.S_IMODE(attr.mode))
    disk().set_mtime(".", attr.mtime_ns, dir_fd=fd)


def _write_piece(fd: int, piece: bytes, offset: int, *, sparse: bool) -> None:
    if not sparse:
        disk().write(fd, piece)
        return
    if piece == bytes(len(piece)):
        return
    for at in range(0, len(piece), _BLOCK):
        block = piece[at : at + _BLOCK]
        if block != bytes(len(block)):
            disk().pwrite(fd, block, offset + at)


def _is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}/")
