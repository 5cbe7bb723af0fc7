"""What follows a save: start what is due in a process of its own, and say what makes a store grow, before it hurts.

`after_save` is not in the path of a hook: the helper calls it once the agent has its answer. What it has to say then
waits in a file for the next hook that can show it.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import HoldfastError, Remedy
from holdfast.workspace import background

FAST_BYTES = 1 << 30
"""A store that grows by more than this in a day says so."""
RUN_EVERY_S = 3600.0
RUN_AFTER_BYTES = 512 << 20
_DAY_S = 86400.0
_SAMPLE_S = 3600.0
REPORT = "thinning.json"
_FILE = "growth.json"
_NOTICE = "notice.txt"
_NAMED_MOST = 500
_SHOWN_MOST = 3
_STARTED = b"started\n"


class Thinned(NamedTuple):
    """What thinning did in its last run, and in all runs."""

    at: str
    """When it ran last, in UTC and ISO 8601."""
    removed: int = 0
    """How many checkpoints it deleted then."""
    freed_bytes: int = 0
    unfreed_bytes: int = 0
    """Not needed, and still on the disk, because it is too full for a copy of what is."""
    over_bytes: int = 0
    """By how much checkpoints that are never thinned exceed the cap."""
    total_removed: int = 0
    total_freed_bytes: int = 0
    removed_at: str = ""
    """When it last deleted something."""
    error: str = ""


def read_report(own: Path) -> Thinned | None:
    """Return what thinning did; None if it never ran, or that cannot be read."""
    try:
        found = Thinned(**durable.parse_json((own / REPORT).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    expected = Thinned("")
    return found if all(type(value) is type(each) for value, each in zip(found, expected, strict=True)) else None


class Growth(NamedTuple):
    """How much larger a store became, and in which time."""

    grown_bytes: int
    seconds: float

    @property
    def is_fast(self) -> bool:
        return self.grown_bytes > FAST_BYTES

    def __str__(self) -> str:
        hours = max(1, round(self.seconds / 3600))
        span = "hour" if hours == 1 else f"{hours} hours"
        return f"the store grew by {self.grown_bytes / (1 << 30):.1f} GiB in the last {span}"


class _Known(NamedTuple):
    """What is noted of a store."""

    samples: list[tuple[float, int]]
    """Sizes in bytes, at times in seconds, oldest first; of the last day, and the one before."""
    run_at: float
    run_bytes: int
    """When thinning was last started, and how large the store was then."""
    warned_at: float
    named: list[str]
    """The large files that were named."""


def read_growth(store: Path, now: float) -> Growth:
    """Return how much a store grew within the last day, as far as that was noted."""
    known = _read(store / "holdfast")
    return _growth(known, pack_bytes(store), now) if known else Growth(0, 0.0)


class Saved(NamedTuple):
    """A workspace in which something was saved."""

    path: Path
    store: Path
    now: float
    """In seconds since 1970."""
    large: Mapping[str, int]
    """Sizes of new files above `capture.snapshot.LARGE_BYTES`, by path."""
    reopening: Mapping[str, bool]
    """Arguments for a `Workspace` in another process."""
    environ: Mapping[str, str]


class Notice(NamedTuple):
    """Something to tell the user after a save."""

    message: str
    remedy: Remedy | None = None
    """What to do about it."""


def after_save(saved: Saved) -> list[Notice]:
    """Note the size of the store, and start thinning in a process of its own if it is due.

    Returns what to tell the user: each large new file once, fast growth once a day. Raises nothing: the save is done.
    """
    try:
        return _after_save(saved)
    except (HoldfastError, OSError, ValueError, TypeError):
        return []


def _after_save(saved: Saved) -> list[Notice]:
    own, now, size = saved.store / "holdfast", saved.now, pack_bytes(saved.store)
    before = _read(own)
    if before is None:
        known = _Known([(now, size)], now, size, 0.0, [])
    else:
        known = _sampled(before, now, size)
        if _is_due(known, now, size):
            known = known._replace(run_at=now, run_bytes=size)
            _start("thin", saved)
    new = [path for path in saved.large if path not in known.named]
    notices = [Notice(_large_message(path, saved.large[path])) for path in new]
    known = known._replace(named=[*known.named, *new][-_NAMED_MOST:])
    growth = _growth(known, size, now)
    if growth.is_fast and not 0 <= now - known.warned_at < _DAY_S:
        notices.append(Notice(_capitalized(str(growth)), Remedy("usage")))
        known = known._replace(warned_at=now)
    if known != before:
        _write(own / _FILE, json.dumps(known._asdict()))
    if len(notices) > _SHOWN_MOST + 1:
        more = Notice(f"{len(notices) - _SHOWN_MOST} more are large", Remedy("usage"))
        notices = [*notices[:_SHOWN_MOST], more]
    return notices


def _write(path: Path, text: str) -> None:
    """Write a note without the store's lock, under a name that no other writer sweeps. Losing it does no harm."""
    with contextlib.suppress(OSError):
        via = path.with_suffix(".tmp")
        durable.write_atomically(path, text.encode("utf-8", "surrogateescape"), via=via, sync=False)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _read(own: Path) -> _Known | None:
    try:
        found: dict[str, Any] = durable.parse_json((own / _FILE).read_bytes())
        samples = [(float(at), int(size)) for at, size in found["samples"]]
        named = [str(path) for path in found["named"]]
        return _Known(samples, float(found["run_at"]), int(found["run_bytes"]), float(found["warned_at"]), named)
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None


def _sampled(known: _Known, now: float, size: int) -> _Known:
    """Add a sample if the last is old enough. Those of a clock that was ahead are dropped."""
    samples = [each for each in known.samples if each[0] <= now] or [(now, size)]
    recent = [at for at, each in enumerate(samples) if now - each[0] <= _DAY_S]
    samples = samples[max(0, (recent[0] if recent else len(samples)) - 1) :]
    if now - samples[-1][0] >= _SAMPLE_S:
        samples = [*samples, (now, size)]
    return known._replace(samples=samples)


def _growth(known: _Known, size: int, now: float) -> Growth:
    """Compare with the oldest sample of the last day; after a pause, with the last one before it."""
    recent = [each for each in known.samples if 0 <= now - each[0] <= _DAY_S] or known.samples[-1:]
    at, before = recent[0] if recent else (now, size)
    return Growth(size - before, min(_DAY_S, max(0.0, now - at)))


def _is_due(known: _Known, now: float, size: int) -> bool:
    return not 0 <= now - known.run_at < RUN_EVERY_S or size - known.run_bytes >= RUN_AFTER_BYTES


def _large_message(path: str, size: int) -> str:
    return (
        f"{path} is new and large: {size >> 20:,} MiB. "
        f"To leave it out of checkpoints, add this line to .holdfastignore: {ignore_line(path)}"
    )


def ignore_line(path: str) -> str:
    """Return the line of an ignore file that matches exactly this path."""
    escaped = "".join(f"\\{letter}" if letter in "*?[\\" else letter for letter in path)
    return "/" + (f"{escaped[:-1]}\\ " if escaped.endswith(" ") else escaped)


def free_bytes(folder: Path) -> int:
    """Return the free space of a disk."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def pack_bytes(store: Path) -> int:
    """Return the size of the packs of a store: nearly all of it, and quick to find out."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(store / "objects" / "pack") as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


# what waits for a hook


def leave_notice(store: Path, messages: list[str]) -> None:
    """Leave messages for the next hook that can show them."""
    if messages:
        _write(store / "holdfast" / _NOTICE, "\n".join(messages))


def take_notice(store: Path) -> str:
    """Return what waits to be told, once; empty if there is nothing."""
    path = store / "holdfast" / _NOTICE
    try:
        text = path.read_text("utf-8", "replace")
        durable.disk().unlink(str(path))
    except OSError:
        return ""
    return text.replace("\n", " ")


# in a process of its own


def start_holding(saved: Saved) -> None:
    """Start holding objects of the user's git, unless that was done a short while ago."""
    from holdfast.workspace.capture.git_hold import AGAIN_S, SLOW  # start-up cost: seldom needed

    note = saved.store / "holdfast" / SLOW
    try:
        if note.read_bytes() == _STARTED and 0 <= saved.now - note.stat().st_mtime < AGAIN_S:
            return
        durable.write_atomically(note, _STARTED, via=note.with_suffix(".tmp"), sync=False)
    except OSError:
        return  # nothing was too slow, or the disk refuses
    _start("hold_git", saved)


def _start(job: str, saved: Saved) -> None:
    told = {"path": os.fspath(saved.path), "store": os.fspath(saved.store), **saved.reopening}
    background.start(job, told, saved.environ)
