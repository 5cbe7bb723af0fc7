"""Verification of checkpoints in folders: reads every byte and names what is damaged."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.model import Problem, Progress, VerifyReport
from holdfast.training.run_store import BrokenCheckpoint, StoredCheckpoint
from holdfast.training.shard_reader import read_manifest
from holdfast.training.stored import digests
from holdfast.training.stored.layout import MANIFEST
from holdfast.training.stored.manifest import FileEntry
from holdfast.training.threads import each

_CHUNK_BYTES = 4 << 20


class ReadCounter:
    """Tells how much several threads have read."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._done += size
                self._progress("reading", min(self._done, self._total), self._total)


_Use = tuple[StoredCheckpoint, str, FileEntry]
"""A checkpoint, and a file of it."""


def verify_folders(
    found: Sequence[StoredCheckpoint], broken: Sequence[BrokenCheckpoint] = (), progress: Progress | None = None
) -> VerifyReport:
    """Read every byte. A file that several checkpoints share is read once, and its damage is that of each of them."""
    problems = [problem_of(one) for one in broken]
    jobs: dict[tuple[object, ...], list[_Use]] = {}
    for one in found:
        try:
            one = StoredCheckpoint(one.path, read_manifest(one.path))
            there = set(os.listdir(one.path))
        except FileNotFoundError:
            continue  # a save has pruned it meanwhile (P9)
        except HoldfastError as error:
            if os.path.lexists(one.path):
                problems.append(Problem(one.path.name, error.message, (one.path.name,)))
            continue
        for name, entry in one.manifest.files.items():
            jobs.setdefault((_identity(one.path / name), entry.digest), []).append((one, name, entry))
        problems += [
            Problem(f"{one.path.name}/{name}", "is not part of this checkpoint", (one.path.name,))
            for name in sorted(there - {*one.manifest.files, MANIFEST})
            if name.endswith((".safetensors", ".json")) and name.startswith(("model", "state"))
        ]
    bytes_read = 0
    counter = ReadCounter(progress, sum(uses[0][2].bytes for uses in jobs.values()))
    checked = each(partial(_check_first, counter), list(jobs.values()))
    for uses, (size, wrong) in zip(jobs.values(), checked, strict=True):
        bytes_read += size
        if wrong:
            affected = tuple(sorted({user.path.name for user, _, _ in uses}))
            problems.append(Problem(f"{uses[0][0].path.name}/{uses[0][1]}", wrong, affected))
    return VerifyReport(problems, checkpoints=len(found) + len(broken), objects=len(jobs), bytes_read=bytes_read)


def problem_of(broken: BrokenCheckpoint) -> Problem:
    return Problem(broken.path.name, broken.error.message, (broken.path.name,))


def _check_first(counter: ReadCounter, uses: list[_Use]) -> tuple[int, str]:
    """Check a file in the first of its checkpoints that is still there: a pruned one is not damaged (P9)."""
    for user in uses:
        read, wrong = _check(*user, counter)
        if not wrong or os.path.lexists(user[0].path):
            return read, wrong
    return 0, ""


def _check(found: StoredCheckpoint, name: str, entry: FileEntry, counter: ReadCounter) -> tuple[int, str]:
    """Return how many bytes of a file were read, and what is wrong with it."""
    read = 0
    try:
        hasher = digests.new(found.manifest.digest_algorithm)
        for chunk in _chunks(found.path / name):
            hasher.update(chunk)
            read += len(chunk)
            counter.add(len(chunk))
    except FileNotFoundError:
        return 0, "is missing"
    except OSError as error:
        return read, f"cannot be read: {error.strerror}"
    except HoldfastError as error:
        return read, error.message
    if read != entry.bytes:
        return read, f"has {read} bytes where {entry.bytes} were written"
    return read, "" if hasher.hexdigest() == entry.digest else "is corrupt: its digest differs"


def _chunks(path: Path) -> Iterator[memoryview]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    buffer = bytearray(_CHUNK_BYTES)
    try:
        while count := os.readv(fd, [buffer]):
            yield memoryview(buffer)[:count]
    finally:
        os.close(fd)


def _identity(path: Path) -> tuple[int, int] | str:
    try:
        status = os.lstat(path)
    except OSError:
        return str(path)
    return status.st_dev, status.st_ino
