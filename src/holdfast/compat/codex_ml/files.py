"""Files of checkpoints: staged, hashed while they are written, put in place in one step; folders locked and removed."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import durable

_MOST_BYTES = 64 << 20
_numbers = itertools.count()
_STAGED = re.compile(r"\..+\.\d+-\d+\.(new|removed)")


@dataclass
class Staged:
    """A file that is written and durable, under a name that nobody looks for."""

    sha256: str
    n_bytes: int


class _Writer:
    """What a serializer writes to: a file descriptor and a hash."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.hash = hashlib.sha256()
        self.n_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        durable.disk().write(self._fd, view)
        self.hash.update(view)
        self.n_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


@contextlib.contextmanager
def staged(path: Path, write: Callable[[Any], None]) -> Iterator[Staged]:
    """Write a file beside its place, make it durable, and put it in its place when the block ends (P3).

    After an error, in writing or in the block, the old file is there as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.new")
    fd = durable.disk().create(str(temporary), mode=0o666)
    try:
        try:
            writer = _Writer(fd)
            write(writer)
            durable.disk().fsync(fd)
        finally:
            os.close(fd)
        yield Staged(writer.hash.hexdigest(), writer.n_bytes)
        durable.disk().rename(str(temporary), str(path))  # commit point
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            durable.disk().unlink(str(temporary))
        raise
    durable.sync_folder(path.parent)


def write_bytes(path: Path, data: bytes) -> Staged:
    """Replace a file in one step."""
    with staged(path, lambda out: out.write(data)) as new:
        pass
    return new


def write_with_digest(path: Path, write: Callable[[Any], None]) -> Staged:
    """Replace a file, with its digest beside it. The digest of the old file counts until the new one is there (P3)."""
    before = recorded_digests(path)
    with staged(path, write) as new:
        write_bytes(digest_file(path), "\n".join([new.sha256, *before]).encode())
    if before:
        write_bytes(digest_file(path), new.sha256.encode())
    return new


def digest_file(path: Path) -> Path:
    """Return the file with the digest of a file."""
    return path.with_name(f"{path.name}.sha256")


def recorded_digests(path: Path) -> list[str]:
    """Return the digests that a file may have, as they are recorded beside it; empty if none is."""
    try:
        return digest_file(path).read_text().split()
    except (OSError, UnicodeDecodeError):
        return []


def write_json(path: Path, value: Any) -> None:
    """Replace a file with JSON in one step; NaN and infinity, which JSON does not have, become text."""
    write_bytes(path, json.dumps(_finite(value), indent=2, sort_keys=True, default=str).encode())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def read_json(path: Path) -> Any:
    """Return the JSON in a file. ValueError if it has none; FileNotFoundError if there is no file."""
    return json.loads(durable.read_file(path, max_bytes=_MOST_BYTES))


def read_json_or(path: Path, default: Any) -> Any:
    """Return the JSON in a file, of the type of `default`; the default if there is none, or no such file."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return default
    return found if isinstance(found, type(default)) else default


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, which is read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folder(path: Path) -> Path:
    """Make a folder, and its missing parents, with the usual permissions."""
    durable.make_folder(path, mode=0o777)
    return path


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time change a folder, and remove what a process that was killed left in it (P9)."""
    make_folder(folder)
    with durable.Lock(folder / ".lock"):
        for name in os.listdir(folder):
            if _STAGED.fullmatch(name):
                remove(folder / name)
        yield


def remove(path: Path) -> None:
    """Remove a file, a link or a folder. A folder disappears at once, and is then emptied. Absent is no error."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(FileNotFoundError):
            durable.disk().unlink(str(path))
        return
    gone = path
    if not _STAGED.fullmatch(path.name):
        gone = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.removed")
        durable.disk().rename(str(path), str(gone))  # commit point
    durable.remove_tree(str(gone))


def put_in_place(new: Path, folder: Path, own: Container[str]) -> None:
    """Give a folder the name of another in one step, and remove that one (P3). Both are in the same folder.

    What others put into the old folder, under names that are not `own`, is in the new one, too (P1).
    """
    if folder.is_dir():
        _carry_over(folder, new, own)
    fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if folder.exists():
            durable.disk().exchange(new.name, folder.name, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            durable.disk().rename(new.name, folder.name, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)
    durable.sync_folder(folder.parent)
    remove(new)


def _carry_over(old: Path, new: Path, own: Container[str] = ()) -> None:
    """Link what one folder has into another; the files stay the same files."""
    for path in old.iterdir():
        target = new / path.name
        if path.name in own or target.exists():
            continue
        if path.is_dir() and not path.is_symlink():
            _carry_over(path, make_folder(target))
            continue
        fds = [os.open(each, os.O_RDONLY | os.O_DIRECTORY) for each in (old, new)]
        try:
            durable.disk().link(path.name, path.name, src_dir_fd=fds[0], dst_dir_fd=fds[1])
        finally:
            for fd in fds:
                os.close(fd)


def link(target: str, path: Path) -> None:
    """Make a symbolic link, or replace it in one step."""
    temporary = f".{path.name}.{os.getpid()}-{next(_numbers)}.new"
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        durable.disk().symlink(target, temporary, dir_fd=fd)
        durable.disk().rename(temporary, path.name, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def number_of(path: Path, prefix: str = "epoch-") -> int | None:
    """Return the number of an `epoch-7`; None for any other name, such as `epoch-final`."""
    rest = path.name.removeprefix(prefix)
    return int(rest) if path.name.startswith(prefix) and rest.isascii() and rest.isdigit() else None


def is_number(metric: Any) -> bool:
    """Whether a metric can be compared: NaN and None cannot."""
    return isinstance(metric, int | float) and metric == metric


def rank(metric: Any, mode: str) -> tuple[int, float]:
    """Return a key that sorts the best metric first, and what is not a number last."""
    if not is_number(metric):
        return 1, 0.0
    return 0, float(metric) if mode == "min" else -float(metric)
