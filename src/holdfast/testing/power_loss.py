"""What is left on a disk after a power loss, as pessimistic as POSIX allows.

A file has the content and metadata that it had when it was last synced; one that never was is empty. A folder has the
names that it had when it was last synced; a name added or removed since may or may not be there, each independently.
A link or a special file cannot be synced and is there if its name is. What existed when recording began is durable.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Survives = Callable[[Path], bool]
"""Whether a change of a name that was never synced reached the disk all the same."""

_Id = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Meta:
    mode: int
    owner: tuple[int, int]
    mtime_ns: int
    xattrs: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class _Inode:
    """A file, folder or link as the medium has it."""

    meta: _Meta
    content: bytes = b""
    target: str = ""
    device: int = 0
    entries: dict[str, _Inode] = field(default_factory=dict)

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.meta.mode)


_Tree = dict[str, tuple[_Inode, "_Tree"]]


class Medium:
    """Everything below some folders, as it would be found after a power loss.

    `foreign` are names that others write, past this watch (a database's files): they are left as they are.
    """

    def __init__(self, roots: Sequence[Path], *, foreign: frozenset[str] = frozenset()) -> None:
        self._roots = roots
        self._foreign = foreign
        self._inodes: dict[_Id, _Inode] = {}
        self.sync_all()

    # what happens to the disk

    def make(self, path: str) -> None:
        """Something has come into being; nothing of it is durable yet."""
        status = os.lstat(path)
        self._inodes[_id(status)] = _Inode(_meta(path, status))

    def drop(self, status: os.stat_result) -> None:
        """A name has gone (`status` is from before); if it was the last, another may get the inode's number."""
        if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode):
            self._inodes.pop(_id(status), None)

    def sync(self, path: str) -> None:
        """The content of a file, or the names in a folder, have arrived."""
        status = os.stat(path)
        inode = self._inode(path, status)
        inode.meta = _meta(path, status)
        if stat.S_ISDIR(status.st_mode):
            inode.entries = self._entries(path)
        else:
            inode.content = Path(path).read_bytes()

    def sync_all(self) -> None:
        """Everything has arrived."""
        for root in self._roots:
            for folder, _, names in os.walk(root):
                for name in names:
                    path = os.path.join(folder, name)
                    if name not in self._foreign and stat.S_ISREG(os.lstat(path).st_mode):
                        self.sync(path)
                self.sync(folder)

    # after the power loss

    def settle(self, survives: Survives) -> None:
        """Make the folders what the medium has."""
        for root in self._roots:
            inode = self._inode(str(root), os.stat(root))
            tree = self._tree(inode, root, survives, is_live=True)
            _Writer(self._inodes, self._foreign, dict(self._in_place(root, tree))).write(root, inode, tree)
        self._inodes.clear()

    def _tree(self, inode: _Inode, path: Path, survives: Survives, *, is_live: bool) -> _Tree:
        live = self._entries(str(path)) if is_live and stat.S_ISDIR(inode.meta.mode) else inode.entries
        found: _Tree = {}
        for name in sorted(inode.entries.keys() | live.keys()):
            old, new = inode.entries.get(name), live.get(name)
            kept = new if old is not new and survives(path / name) else old
            if kept is not None:
                found[name] = (kept, self._tree(kept, path / name, survives, is_live=is_live and kept is new))
        return found

    def _in_place(self, path: Path, tree: _Tree) -> Iterator[tuple[_Inode, Path]]:
        """What is where it is wanted already, so that its other names can be linked to it."""
        for name, (inode, below) in tree.items():
            place = path / name
            if os.path.lexists(place) and self._inodes.get(_id(os.lstat(place))) is inode:
                yield inode, place
                yield from self._in_place(place, below)

    def _entries(self, folder: str) -> dict[str, _Inode]:
        found = {}
        for name in sorted(os.listdir(folder)):
            if name not in self._foreign:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                inode = found[name] = self._inode(path, status)
                if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                    inode.meta, inode.device = _meta(path, status), status.st_rdev
                    inode.target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
        return found

    def _inode(self, path: str, status: os.stat_result) -> _Inode:
        inode = self._inodes.get(_id(status))
        if inode is None or inode.kind != stat.S_IFMT(status.st_mode):
            inode = self._inodes[_id(status)] = _Inode(_meta(path, status))
        return inode


class _Writer:
    """Writes a tree over what is there."""

    def __init__(self, known: dict[_Id, _Inode], foreign: frozenset[str], placed: dict[_Inode, Path]) -> None:
        self._known = known
        self._foreign = foreign
        self._placed = placed

    def write(self, path: Path, inode: _Inode, tree: _Tree) -> None:
        for name in os.listdir(path):
            if name not in tree and name not in self._foreign:
                _remove(path / name)
        for name, (kept, below) in tree.items():
            place = path / name
            if os.path.lexists(place) and self._known.get(_id(os.lstat(place))) is not kept:
                _remove(place)
            if stat.S_ISDIR(kept.meta.mode):
                place.mkdir(exist_ok=True)
                self.write(place, kept, below)
            else:
                self._write_file(place, kept)
        _set_meta(path, inode.meta)

    def _write_file(self, place: Path, inode: _Inode) -> None:
        first = self._placed.setdefault(inode, place)
        if first != place and not os.path.lexists(place):
            os.link(first, place, follow_symlinks=False)
        elif stat.S_ISLNK(inode.meta.mode):
            if not place.is_symlink():
                place.symlink_to(inode.target)
        elif not stat.S_ISREG(inode.meta.mode):
            if not os.path.lexists(place):
                os.mknod(place, inode.meta.mode, inode.device)
        elif not place.exists() or place.read_bytes() != inode.content:
            place.write_bytes(inode.content)
        _set_meta(place, inode.meta)


def _id(status: os.stat_result) -> _Id:
    return status.st_dev, status.st_ino


def _meta(path: str, status: os.stat_result) -> _Meta:
    is_link = stat.S_ISLNK(status.st_mode)
    xattrs: tuple[tuple[str, bytes], ...] = ()
    if sys.platform == "linux" and not is_link:
        xattrs = tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
    return _Meta(status.st_mode, (status.st_uid, status.st_gid), status.st_mtime_ns, xattrs)


def _set_meta(path: Path, meta: _Meta) -> None:
    now = _meta(str(path), os.lstat(path))
    if now == meta:
        return
    if now.owner != meta.owner:
        os.chown(path, *meta.owner, follow_symlinks=False)
    if sys.platform == "linux" and not stat.S_ISLNK(meta.mode):
        for name in dict(now.xattrs).keys() - dict(meta.xattrs).keys():
            os.removexattr(path, name)
        for name, value in meta.xattrs:
            os.setxattr(path, name, value)
    if not stat.S_ISLNK(meta.mode):
        path.chmod(stat.S_IMODE(meta.mode))
    os.utime(path, ns=(meta.mtime_ns, meta.mtime_ns), follow_symlinks=False)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
