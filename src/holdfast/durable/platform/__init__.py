"""Calls that not every system has, each with what is done where it is absent.

| call | Linux | macOS | elsewhere |
|---|---|---|---|
| rename to a free name, exchange of two names | `renameat2` | `renameatx_np` | ENOSYS: `Disk` links or renames |
| sync of one file | `fsync` | `F_FULLFSYNC`, else `fsync` | `fsync` |
| sync of a file system | `syncfs` | `sync`, then `F_FULLFSYNC` | `sync` |
| extended attributes | `os.listxattr` and others | `flistxattr` and others | none: ENOTSUP |
| a handle of what cannot be opened | `O_PATH` | the owner gets the right to read first | as on macOS |
| mode and owner of such a handle | `/proc/self/fd` | `fchmod`, `fchown` | as on macOS |
| reading without a new access time | `O_NOATIME` | not possible | not possible |
| the helper of hooks, which needs `SO_PEERCRED` and `/proc` | yes | no: hooks do the work themselves | as on macOS |
| a lock that a dead owner frees | `flock` | `flock` | Windows: `msvcrt.locking` |
| hints about changed folders (`inotify`) | `inotify` | none: every save looks at all files | as on macOS |
| memory that a long-lived process gives back | `mallopt`, `malloc_trim` | the C library decides | as on macOS |
| which processes live | `/proc/PID/stat` | unknown: a tool call without an end counts for hours | as on macOS |
| who has a lock, or a file open for writing (`processes`) | `/proc` | unknown: only locks count | as on macOS |
| mount points of the same device | `/proc/self/mountinfo` | unknown: those of other devices are seen | as on macOS |
| when the computer was started | `boot_id` | unknown: no note of another process counts | as on macOS |
| writes and reads past the page cache, large pages (`memory`) | yes | no | no |
| reporting a page that the disk cannot read (`memory`) | `MADV_POPULATE_READ` | the process is killed | as on macOS |
| a background process that does not disturb others | `SCHED_BATCH` | an ordinary process | as on macOS |

Linux is tested; the column of macOS is written from its documentation and was never run. `tests/portable.py` takes
every Linux-only call away, so that the last column is tested, too. No other module makes such a call, but for
`adapters.agents.protocol`: the client of the helper, which would start later if it loaded this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import ctypes

T = TypeVar("T")

NO_REPLACE = 1
EXCHANGE = 2
NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP)
NOT_KEPT = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
"""What a file system answers, exFAT for example, that has no links, modes or attributes."""
O_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)  # Windows gives no descriptor to a child
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
READ_ONLY: int = os.O_RDONLY | O_CLOEXEC | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
O_NOATIME: int = getattr(os, "O_NOATIME", 0)
_O_PATH: int = getattr(os, "O_PATH", 0)
_PROC_FDS = "/proc/self/fd" if sys.platform == "linux" and os.path.isdir("/proc/self/fd") else ""
_F_FULLFSYNC = 51  # of macOS
DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
"""Folders that may list the descriptors of this process."""
_loaded: ctypes.CDLL | None = None


# ---- Names ----


def rename_with_flags(src: str, dst: str, src_dir_fd: int, dst_dir_fd: int, flag: int) -> None:
    """Rename with NO_REPLACE or EXCHANGE, in one step. OSError with one of NOT_SUPPORTED where that is impossible."""
    function, flags = _renaming(flag)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(src_dir_fd, os.fsencode(src), dst_dir_fd, os.fsencode(dst), flags):
        raise_errno(dst)


def _renaming(flag: int) -> tuple[Any, int]:
    if sys.platform == "darwin":
        return getattr(_libc(), "renameatx_np", None), 4 if flag == NO_REPLACE else 2  # RENAME_EXCL, RENAME_SWAP
    return getattr(_libc(), "renameat2", None), flag


# ---- Durability ----


def fsync(fd: int) -> None:
    """Make a file, or the names in a folder, durable. On macOS `fsync` alone leaves it in the cache of the disk."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, _F_FULLFSYNC)
            return
        except OSError:  # a network or foreign file system
            pass
    os.fsync(fd)


def sync_file_system(fd: int) -> None:
    """Make everything on the file system of `fd` durable."""
    function = getattr(_libc(), "syncfs", None)
    if function is None:
        if sys.platform != "win32":
            os.sync()
        fsync(fd)
    elif function(fd):
        raise_errno()


# ---- Locks ----

if sys.platform == "win32":
    import msvcrt

    def lock_file(fd: int) -> bool:
        """Take the lock of an open file; False if another has it. It ends with its owner, however that ends."""
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock_file(fd: int) -> None:
        """Free the lock of an open file."""
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def lock_file(fd: int) -> bool:
        """Take the lock of an open file; False if another has it. It ends with its owner, however that ends."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock_file(fd: int) -> None:
        """Free the lock of an open file, also if a forked child has a copy of the descriptor."""
        fcntl.flock(fd, fcntl.LOCK_UN)


# ---- Handles ----


def open_handle(name: str, dir_fd: int | None) -> int:
    """Open what a name stands for, to set its metadata; also if it cannot be read. A link is refused or not followed.

    Without `O_PATH` the owner gets the right to read first: the caller sets the mode after this.
    """
    if _O_PATH:
        return os.open(name, _O_PATH | O_NOFOLLOW | O_CLOEXEC, dir_fd=dir_fd)
    flags = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=dir_fd)
    except PermissionError:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise
        os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRUSR, dir_fd=dir_fd)
        return os.open(name, flags, dir_fd=dir_fd)


def chmod(fd: int, mode: int) -> None:
    """Set the mode of what `fd`, perhaps from `open_handle`, stands for."""
    if _PROC_FDS:
        os.chmod(f"{_PROC_FDS}/{fd}", mode)
    else:
        os.chmod(fd, mode)


def chown(fd: int, uid: int, gid: int) -> None:
    """Set the owner of what `fd`, perhaps from `open_handle`, stands for."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _PROC_FDS:
        os.chown(f"{_PROC_FDS}/{fd}", uid, gid)
    else:
        os.chown(fd, uid, gid)


def chown_link(name: str, uid: int, gid: int, dir_fd: int) -> None:
    """Set the owner of what a name stands for, a link itself included."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    os.chown(name, uid, gid, dir_fd=dir_fd, follow_symlinks=False)


def mknod(name: str, mode: int, device: int, dir_fd: int) -> None:
    """Make a pipe, a socket or a device."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    os.mknod(name, mode, device, dir_fd=dir_fd)


def pwrite(fd: int, data: memoryview, offset: int) -> int:
    """Write at an offset; on Windows that moves the position of the file."""
    if sys.platform == "win32":
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)
    return os.pwrite(fd, data, offset)


# ---- Extended attributes ----

if sys.platform == "linux":

    def _on(fd: int, work: Callable[[str | int], T]) -> T:
        """Do something with a file. The calls refuse an `O_PATH` descriptor, but not its path in /proc."""
        try:
            return work(fd)
        except OSError as error:
            if error.errno != errno.EBADF or not _PROC_FDS:
                raise
            return work(f"{_PROC_FDS}/{fd}")

    def list_xattrs(fd: int) -> list[str]:
        """Return the names of extended attributes. OSError where there are none."""
        return _on(fd, os.listxattr)

    def get_xattr(fd: int, name: str) -> bytes:
        return _on(fd, lambda place: os.getxattr(place, name))

    def set_xattr(fd: int, name: str, value: bytes) -> None:
        _on(fd, lambda place: os.setxattr(place, name, value))

    def remove_xattr(fd: int, name: str) -> None:
        _on(fd, lambda place: os.removexattr(place, name))

elif sys.platform == "darwin":

    def list_xattrs(fd: int) -> list[str]:
        """Return the names of extended attributes. OSError where there are none."""
        import ctypes

        size = _checked(_libc().flistxattr(fd, None, ctypes.c_size_t(0), 0))
        text = ctypes.create_string_buffer(size)
        size = _checked(_libc().flistxattr(fd, text, ctypes.c_size_t(size), 0))
        return [os.fsdecode(name) for name in text.raw[:size].split(b"\0") if name]

    def get_xattr(fd: int, name: str) -> bytes:
        import ctypes

        function, key = _libc().fgetxattr, os.fsencode(name)
        function.restype = ctypes.c_ssize_t
        size = _checked(function(fd, key, None, ctypes.c_size_t(0), ctypes.c_uint32(0), 0))
        value = ctypes.create_string_buffer(size)
        size = _checked(function(fd, key, value, ctypes.c_size_t(size), ctypes.c_uint32(0), 0))
        return value.raw[:size]

    def set_xattr(fd: int, name: str, value: bytes) -> None:
        import ctypes

        size = ctypes.c_size_t(len(value))
        _checked(_libc().fsetxattr(fd, os.fsencode(name), value, size, ctypes.c_uint32(0), 0))

    def remove_xattr(fd: int, name: str) -> None:
        _checked(_libc().fremovexattr(fd, os.fsencode(name), 0))

    def _checked(result: int) -> int:
        if result < 0:
            raise_errno()
        return result

else:

    def list_xattrs(fd: int) -> list[str]:
        """Return the names of extended attributes. OSError where there are none."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def get_xattr(fd: int, name: str) -> bytes:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def set_xattr(fd: int, name: str, value: bytes) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def remove_xattr(fd: int, name: str) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


# ---- Memory ----

_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8  # of glibc's <malloc.h>


def keep_heap_small() -> None:
    """Have memory that is freed go back to the system, for a process that goes on for long and has many threads.

    Left alone, glibc keeps a heap for each thread, and no longer gives back blocks as large as one that was freed.
    """
    function = getattr(_libc(), "mallopt", None)
    if function is not None and sys.platform == "linux":
        function(_M_ARENA_MAX, 2)
        function(_M_TRIM_THRESHOLD, 128 << 10)  # its default; once it is set, no limit grows any more


def give_memory_back() -> None:
    """Give free pages in the middle of the heap back, too."""
    function = getattr(_libc(), "malloc_trim", None)
    if function is not None and sys.platform == "linux":
        import ctypes

        function(ctypes.c_size_t(0))


# ---- What the system tells ----


def process_stat(pid: int) -> tuple[str, int, str, bool] | None:
    """Name, parent and start of a process (another one with its number has another start), and whether it is alive: one
    whose end nobody took note of is not. None if there is none, or if the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    words = rest.split()
    if len(words) < 20:
        return None
    return name.decode("utf-8", "replace"), int(words[1]), words[19].decode(), words[0] not in (b"Z", b"X")


def boot_id() -> str | None:
    """What is another with each start of the computer; None if the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode("ascii", "replace")
    except OSError:
        return None


def mounts() -> Iterator[tuple[bytes, bytes, bytes]]:
    """Where something is mounted, bind mounts included, its device as MAJOR:MINOR, and its type; nothing where the
    system (or a sandbox) does not tell."""
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            for line in table:
                fields = line.split(b" ", 5)  # see proc_pid_mountinfo(5)
                where, kind = fields[4], line.partition(b" - ")[2].partition(b" ")[0]
                # the kernel writes a blank as \\040
                where = where.decode("unicode_escape").encode("latin-1") if b"\\" in where else where
                yield where, fields[2], kind
    except (OSError, IndexError, UnicodeDecodeError):
        pass


def is_in_user_namespace() -> bool:
    """Whether users have other numbers here than outside, as far as the system tells."""
    try:
        with open("/proc/self/uid_map") as file:
            return file.read().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def available_processors() -> int:
    """How many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def give_way() -> None:
    """Have the kernel take this process for one that nobody waits for.

    Its share of the processor stays the same: one of low priority would be interrupted while it has the store's lock,
    and an agent would wait for it. On a busy computer that is many times as long as its work.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


# ---- The C library ----


def _libc() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        import ctypes  # start-up cost: only a restore needs it

        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded


def raise_errno(name: str | None = None) -> None:
    """Raise the error that the last call of the C library left."""
    import ctypes

    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), name)
