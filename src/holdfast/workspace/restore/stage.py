"""The stage: a private folder at the top of the workspace in which new files are prepared."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from holdfast import durable
from holdfast.durable import disk, platform
from holdfast.errors import Damaged, NotFound
from holdfast.model import Progress
from holdfast.model.checkpoint import of_one_file
from holdfast.scan.dir_handles import Handles
from holdfast.shadowgit import FOLDER_MODE, ObjectStore
from holdfast.workspace.restore.metadata import LINK_NOT_KEPT, Metadata, make_writable
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.tree import Change, Entry

MANY_FILES = 64
"""Above this, one sync of the whole file system is cheaper than one for each."""

_BLOCK = 64 << 10
_PROGRESS_BYTES = 1 << 20


class Stage:
    """New files, each in a slot with its metadata; later also the files that they replace."""

    def __init__(self, name: str, handles: Handles, store: ObjectStore, metadata: Metadata) -> None:
        self._name = name
        self._handles = handles
        self._store = store
        self._metadata = metadata
        self._links: dict[bytes, str] = {}
        self.fd = -1
        self._tell: Callable[[int], None] | None = None
        self.slots: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.damaged: dict[str, str] = {}

    def prepare(self, coming: Sequence[Change], progress: Progress | None) -> None:
        """Write all new files, durably. What the store cannot read is in `damaged`."""
        root = self._handles.open("")
        make_writable(root)
        disk().mkdir(self._name, mode=0o700, dir_fd=root)  # files get their own modes in it; nobody else can enter
        self.fd = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        self._metadata.use_stage(self.fd)
        each = len(coming) <= MANY_FILES
        total, done = sum(map(self._size, coming)) if progress else 0, 0
        for number, change in enumerate(coming):
            self._tell = None
            if progress:
                size = self._size(change)
                if size >= _PROGRESS_BYTES:
                    self._tell = of_one_file(progress, f"writing {change.path}", size)
                    self._tell(0)
                progress("writing", done, total)
                done += size
            if change.after is not None:
                try:
                    self._prepare_one(f"new-{number}", change.path, change.after, sync=each)
                except Damaged as error:
                    self.damaged[change.path] = error.message
            if self._tell is not None:
                self._tell(size)
        if progress:
            progress("writing", total, total)
        if coming:
            if not each:
                disk().syncfs(self.fd)
            disk().fsync(self.fd)  # P3: content and names are durable before the first file is replaced

    def _size(self, change: Change) -> int:
        """How many bytes have to be written; 0 if the store cannot say."""
        entry = change.after
        if entry is None or not entry.is_file:
            return 0
        if entry.attr.parts_bytes is not None:
            return entry.attr.parts_bytes
        try:
            return self._store.kind_and_size(entry.oid)[1]
        except (Damaged, NotFound):
            return 0

    def identity(self, slot: str) -> tuple[int, int, int]:
        """Return device-independent identity of a file: equal if it is the same file, unchanged."""
        status = os.stat(slot, dir_fd=self.fd, follow_symlinks=False)
        return status.st_ino, status.st_size, status.st_mtime_ns

    def remove(self) -> None:
        """Remove the stage; its content is in the safety checkpoint (P1)."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        root = self._handles.open("")
        status = os.fstat(root)  # removing the stage changes the time of the workspace, which is set already
        make_writable(root)
        durable.remove_tree(self._name, dir_fd=root)
        with contextlib.suppress(PermissionError):  # another user may own the workspace
            if os.fstat(root).st_mode != status.st_mode:
                disk().chmod(root, stat.S_IMODE(status.st_mode))
            disk().set_mtime(".", status.st_mtime_ns, dir_fd=root)
        disk().fsync(root)

    def _prepare_one(self, slot: str, path: str, entry: Entry, *, sync: bool) -> None:
        link = entry.attr.link
        if link is not None and link in self._links and self._link(slot, path, self._links[link]):
            pass
        elif entry.is_file:
            self._write_file(slot, path, entry, sync=sync)
        elif not (self._write_link if entry.is_link else self._write_special)(slot, path, entry):
            return
        if link is not None:
            self._links.setdefault(link, slot)
        self.slots[path] = slot

    def _write_file(self, slot: str, path: str, entry: Entry, *, sync: bool) -> None:
        fd = disk().create(slot, mode=0o600, dir_fd=self.fd)  # a secret is never readable by others, not even briefly
        try:
            size = 0
            for piece in self._pieces(entry):
                _write_piece(fd, piece, size, sparse=entry.attr.is_sparse)
                size += len(piece)
                if self._tell is not None:
                    self._tell(size)
            if entry.attr.is_sparse:
                disk().truncate(fd, size)  # a hole at the end was not written
            self._metadata.set_all(slot, self.fd, path, entry.attr)
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
                if part != last:  # a hole is the same chunk many times
                    last, data = part, self._store.blob(part)
                yield data

    def _link(self, slot: str, path: str, other: str) -> bool:
        """Make a hard link; False, with a note, if this disk has none."""
        try:
            disk().link(other, slot, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError as error:
            if error.errno not in platform.NOT_KEPT:
                raise
            self._metadata.notes.setdefault(path, LINK_NOT_KEPT)
            return False
        return True

    def _write_link(self, slot: str, path: str, entry: Entry) -> bool:
        target = self._store.blob(entry.oid)
        try:
            disk().symlink(os.fsdecode(target), slot, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in platform.NOT_KEPT:
                raise
            self.failed[path] = "symbolic links cannot be kept on this disk"
            return False
        self._metadata.set_owner(slot, self.fd, path, entry.attr)
        disk().set_mtime(slot, entry.attr.mtime_ns, dir_fd=self.fd)
        return True

    def _write_special(self, slot: str, path: str, entry: Entry) -> bool:
        try:
            disk().mknod(slot, entry.attr.mode, entry.attr.device, dir_fd=self.fd)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EIO, *platform.NOT_KEPT):
                raise
            if error.errno == errno.EIO and not self._is_made(slot):
                raise  # P3: the disk failed. exFAT through FUSE answers so, too, but makes a file first
            is_device = stat.S_ISCHR(entry.kind) or stat.S_ISBLK(entry.kind)
            needs_root = is_device and isinstance(error, PermissionError)
            not_kept = "pipes, sockets and devices cannot be kept on this disk"
            self.failed[path] = "only root can create a device" if needs_root else not_kept
            return False
        self._metadata.set_all(slot, self.fd, path, entry.attr)
        return True

    def _is_made(self, slot: str) -> bool:
        try:
            os.stat(slot, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


def _write_piece(fd: int, piece: bytes, offset: int, *, sparse: bool) -> None:
    if not sparse:
        disk().write(fd, piece)
        return
    if piece == bytes(len(piece)):
        return  # P2: not written, so that it is a hole again
    for at in range(0, len(piece), _BLOCK):
        block = piece[at : at + _BLOCK]
        if block != bytes(len(block)):
            disk().pwrite(fd, block, offset + at)
