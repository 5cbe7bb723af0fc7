"""Reading every byte of checkpoints, and naming what is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.model import Problem, VerifyReport
from holdfast.training.folder import Broken, Found
from holdfast.training.reading import read_manifest
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST
from holdfast.training.stored.manifest import FileEntry
from holdfast.training.threads import each

_PIECE_BYTES = 4 << 20


def verify(found: Sequence[Found], broken: Sequence[Broken] = ()) -> VerifyReport:
    """Read every byte. A file that several checkpoints share is read once, and counts against each of them."""
    problems = [Problem(one.path.name, one.error.message, (one.path.name,)) for one in broken]
    jobs: dict[tuple[object, ...], list[tuple[Found, str, FileEntry]]] = {}
    for one in found:
        try:
            one = Found(one.path, read_manifest(one.path))
            there = set(os.listdir(one.path))
        except FileNotFoundError:
            continue  # a save has pruned it meanwhile
        except HoldfastError as error:
            if os.path.lexists(one.path):
                problems.append(Problem(one.path.name, error.message, (one.path.name,)))
            continue
        for name, entry in one.manifest.files.items():
            jobs.setdefault((_identity(one.path / name), entry.digest), []).append((one, name, entry))
        problems += [
            Problem(f"{one.path.name}/{name}", "is not of this checkpoint", (one.path.name,))
            for name in sorted(there - {*one.manifest.files, MANIFEST})
            if name.endswith((".safetensors", ".json")) and name.startswith(("model", "state"))
        ]
    sizes = 0
    checked = each(_check_of, list(jobs.values()))
    for users, (size, wrong) in zip(jobs.values(), checked, strict=True):
        sizes += size
        if wrong:
            touched = tuple(sorted({user.path.name for user, _, _ in users}))
            problems.append(Problem(f"{users[0][0].path.name}/{users[0][1]}", wrong, touched))
    return VerifyReport(problems, checkpoints=len(found) + len(broken), objects=len(jobs), bytes_read=sizes)


def _check_of(users: list[tuple[Found, str, FileEntry]]) -> tuple[int, str]:
    """The same of a file by whichever of its checkpoints is still there: what was pruned meanwhile is no damage."""
    for user in users:
        read, wrong = _check(*user)
        if not wrong or os.path.lexists(user[0].path):
            return read, wrong
    return 0, ""


def _check(found: Found, name: str, entry: FileEntry) -> tuple[int, str]:
    """How many bytes of a file were read, and what is wrong with it."""
    read = 0
    try:
        hasher = digests.new(found.manifest.digest_algorithm)
        for piece in _pieces(found.path / name):
            hasher.update(piece)
            read += len(piece)
    except FileNotFoundError:
        return 0, "is missing"
    except OSError as error:
        return read, f"cannot be read: {error.strerror}"
    except HoldfastError as error:
        return read, error.message
    if read != entry.bytes:
        return read, f"has {read} bytes where {entry.bytes} were written"
    return read, "" if hasher.hexdigest() == entry.digest else "is not as it was written"


def _pieces(path: Path) -> Iterator[memoryview]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    room = bytearray(_PIECE_BYTES)
    try:
        while count := os.readv(fd, [room]):
            yield memoryview(room)[:count]
    finally:
        os.close(fd)


def _identity(path: Path) -> tuple[int, int] | str:
    try:
        status = os.lstat(path)
    except OSError:
        return str(path)
    return status.st_dev, status.st_ino
