"""A folder of checkpoints: what is in it, its lock, its markers, and what becomes of what is no longer wanted."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.durable import Lock, disk, make_folder, remove_tree, sync_folder, write_atomically
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused
from holdfast.training import sweeping
from holdfast.training.metrics import MODES
from holdfast.training.reading import Reader, read_bytes, read_manifest
from holdfast.training.stored import marker
from holdfast.training.stored.layout import (
    BEST,
    LAST,
    MANIFEST,
    PRIVATE,
    SCHEMA_VERSION,
    check_schema,
    step_name,
    step_of,
)
from holdfast.training.stored.manifest import Brief, Manifest
from holdfast.training.telling import system_errors

_log = logging.getLogger("holdfast")

_PINS = "pins.json"
_LOCK = "lock"
_LOOKS = 5
_MARKER_MAX_BYTES = 1 << 20
_NO_EXCHANGE = (errno.EPERM, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What is said where two folders cannot be exchanged (NFS, Lustre), or a folder be linked in place of that."""


_Identity = tuple[int, int, int]


def _identity(path: Path) -> _Identity:
    """What tells that the manifest of a checkpoint is the very file that it was."""
    status = os.stat(path / MANIFEST)
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint in a folder."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


@dataclass(frozen=True, slots=True)
class Broken:
    """What has the name of a checkpoint and cannot be read as one."""

    path: Path
    step: int
    error: HoldfastError


class TrainingFolder:
    """The checkpoints of one run. Reading takes no lock: a checkpoint is there whole or not at all."""

    def __init__(self, path: Path, *, verify: bool = True, briefly: bool = False) -> None:
        """`briefly`: a look keeps what there is to say of each checkpoint, and reads no manifest twice; `full` does."""
        self.path = path
        self._verify = verify
        self._is_brief = briefly
        self._private = path / PRIVATE
        self._known: dict[str, tuple[_Identity, Manifest]] = {}
        self._whole: tuple[_Identity, Manifest] | None = None
        """The manifest that was written last, which the next save compares with."""

    # looking

    def look(self) -> tuple[list[Found], list[Broken]]:
        """All checkpoints in the order in which they were saved, and what is broken.

        A writer may rename one away and another in while we look (P9): where that shows, we look again.
        """
        for _ in range(_LOOKS - 1):
            found, broken, has_changed = self._look()
            if not has_changed:
                return found, broken
        found, broken, _ = self._look()
        return found, broken

    def _look(self) -> tuple[list[Found], list[Broken], bool]:
        """And whether something went while we looked, or all that was there."""
        found, broken, has_changed = [], [], False
        steps = self._steps()
        before = self._known
        self._known = {name: before[name] for name, _ in steps if name in before}
        for name, step in steps:
            try:
                manifest = self._manifest(name)
                if manifest.step != step:
                    raise Damaged(f"{self.path / name} says that it is step {manifest.step}", hint="Rename it back.")
                found.append(Found(self.path / name, manifest))
            except HoldfastError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # nothing can be said of any of them
                if os.path.lexists(self.path / name):
                    broken.append(Broken(self.path / name, step, error))
                else:
                    has_changed = True
        has_changed = has_changed or (not found and not broken and os.path.lexists(self.path / LAST))
        return sorted(found, key=lambda each: (each.manifest.sequence, each.step)), broken, has_changed

    def _steps(self) -> list[tuple[str, int]]:
        steps = {step: name for name in self._folders(self.path) if (step := step_of(name)) is not None}
        for name in self._folders(self._private):  # who was to replace it died in between: it is the step
            if (
                name.startswith(sweeping.REPLACED)
                and (step := step_of(name.removeprefix(sweeping.REPLACED))) is not None
            ):
                steps.setdefault(step, f"{PRIVATE}/{name}")
        return sorted((name, step) for step, name in steps.items())

    def _folders(self, path: Path) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno == errno.ENOENT or (path == self._private and error.errno in (errno.ENOTDIR, errno.EACCES)):
                return []
            if error.errno == errno.ENOTDIR:
                raise Refused(f"{self.path} is a file", hint="Name a folder for the checkpoints.") from None
            with system_errors("reading", path):
                raise

    def _manifest(self, name: str) -> Manifest:
        """Read a manifest, unless it is the very file that was read before."""
        try:
            identity = _identity(self.path / name)
        except OSError:
            return read_manifest(self.path / name, verify=self._verify)
        known = self._known.get(name)
        if known is None or known[0] != identity:
            manifest = read_manifest(self.path / name, verify=self._verify)
            known = self._known[name] = (identity, Brief.of(manifest) if self._is_brief else manifest)
        return known[1]

    def reader(self, found: Found, *, verify: bool) -> Reader:
        """What reads a checkpoint."""
        return Reader(found.path, found.manifest, verify=verify)

    def full(self, found: Found) -> Found:
        """The same with its whole manifest."""
        if not isinstance(found.manifest, Brief):
            return found
        return Found(found.path, read_manifest(found.path, verify=self._verify))

    def written(self, found: Found) -> Found:
        """The same, as this process has written it, if it did; for saves: what is loaded is read from the disk."""
        with contextlib.suppress(OSError):
            if self._whole and self._whole[0] == _identity(found.path):
                return Found(found.path, self._whole[1])
        return self.full(found)

    def remember(self, new: Found) -> None:
        """Keep the manifest of what was just written, so that the next save need not read it (P8)."""
        with contextlib.suppress(OSError):
            identity = _identity(new.path)
            self._known[new.path.name] = (identity, Brief.of(new.manifest) if self._is_brief else new.manifest)
            self._whole = (identity, new.manifest)

    def get(self, step: int | str) -> Found:
        """The checkpoint of a step, or `latest` or `best`; NotFound, or Damaged if it is there and broken."""
        for _ in range(_LOOKS - 1):
            found = self._get(step)
            try:
                return self.full(found)
            except Damaged:
                if os.path.lexists(found.path):
                    raise  # else another process has pruned it: look again (P9)
        return self.full(self._get(step))

    def _get(self, step: int | str) -> Found:
        found, broken = self.look()
        if step == "best":
            return self._best(found)
        if step == "latest":
            if found:
                pass_over(broken)
                return found[-1]
        else:
            for each in found:
                if each.step == step:
                    return each
            for wrong in broken:
                if wrong.step == step:
                    raise wrong.error
        if broken and not found:
            raise broken[-1].error
        steps = ", ".join(str(each.step) for each in found[-5:])
        hint = f"There are: {steps}." if steps else "Save one first."
        raise NotFound(f"{self.path} has no checkpoint {step}", hint=hint)

    def _best(self, found: list[Found]) -> Found:
        decides = deciding(self)
        if decides is None:
            raise NotFound(f"{self.path} has no best checkpoint", hint="Save with metrics and best_key.")
        best = self.best_of(found, *decides)
        if best is None:
            raise NotFound(f"no checkpoint of {self.path} has a {decides[0]}", hint="Save with metrics.")
        return best

    @staticmethod
    def best_of(found: list[Found], metric: str, mode: str) -> Found | None:
        """The checkpoint with the best value; the first of equals, and never one that is no finite number."""
        scored = [(each.manifest.score(metric, mode), -at, each) for at, each in enumerate(found)]
        usable = [(score, at, each) for score, at, each in scored if score is not None]
        return max(usable, key=lambda triple: triple[:2])[2] if usable else None

    # markers: written for people and other programs; what counts is in the manifests

    def best_marker(self) -> dict[str, Any] | None:
        """What `best.json` says; None if there is none."""
        return self._marker(BEST)

    def last_marker(self) -> dict[str, Any] | None:
        """What `last` says; None if there is none."""
        return self._marker(LAST)

    def _marker(self, name: str) -> dict[str, Any] | None:
        return marker.decode(self._marker_bytes(name), str(self.path / name))

    def foreign(self, names: Iterable[str]) -> list[str]:
        """Which of these markers another program has made: a file, a folder or a link that is not ours."""
        there = [name for name in names if os.path.lexists(self.path / name)]
        return [name for name in there if not marker.is_ours(self._marker_bytes(name))]

    def _rename_safely(self, name: str, aside: str) -> None:
        """Rename what is not ours: the new name is on the disk before the old one goes, where links can be made."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            disk().link(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
            disk().fsync(fd)
            disk().unlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno not in (*_NO_EXCHANGE, errno.EMLINK, errno.ENOTSUP):  # a folder, or no links
                raise
            disk().rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
            disk().fsync(fd)
        finally:
            os.close(fd)

    def _marker_bytes(self, name: str) -> bytes:
        return read_bytes(self.path / name, _MARKER_MAX_BYTES)

    def adopt(self, names: Iterable[str]) -> list[str]:
        """Give markers of other programs another name, so that ours can be written (P1); returns what to say of it."""
        notes = []
        for name in self.foreign(names):
            aside = sweeping.aside(self.path / name, "replaced")
            self._rename_safely(name, aside.name)
            notes.append(f"{self.path / name} {marker.FOREIGN}, and is kept as {aside.name}")
        return notes

    def mark_last(self, found: Found) -> None:
        """Let `last` point to a checkpoint; the greatest number that was ever given stays in it (P10)."""
        given = (self.last_marker() or {}).get("sequence", 0)
        sequence = max(found.manifest.sequence, given if isinstance(given, int) else 0)
        self._write_marker(LAST, {"step": found.step, "sequence": sequence, "path": found.path.name})

    def mark_best(self, found: Found, metric: str, mode: str) -> bool:
        """Let `best.json` point to a checkpoint; False if it does already."""
        about = {
            "metric": metric, "mode": mode, "value": found.manifest.metric(metric),
            "step": found.step, "path": found.path.name,
        }  # fmt: skip
        return self._write_marker(BEST, about)

    def mark_rest(self, stay: list[Found]) -> None:
        """Let the markers point to what stays, before what they point to loses its name."""
        if stay and not self.foreign([LAST]):  # one of another program points to none of ours
            self.mark_last(stay[-1])
        with contextlib.suppress(Damaged):  # a `best.json` that nobody understands points nowhere
            decides = deciding(self)
            best = self.best_of(stay, *decides) if decides else None
            if decides and best:
                self.mark_best(best, *decides)

    def _write_marker(self, name: str, about: dict[str, Any]) -> bool:
        text = marker.encode(about)
        if self._marker_bytes(name) == text:
            return False
        if self.foreign([name]):  # P1: it came while we saved
            raise marker.refuse(self.path / name)
        write_atomically(self.path / name, text, via=self._private / f"{sweeping.SAVING}-{name}", mode=0o644)
        return True

    # writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock; what writers that died left behind is swept away first."""
        self._check_is_ours_to_use()
        with system_errors("writing to", self.path):
            make_folder(self._private, mode=0o777)
            lock = Lock(self._private / _LOCK)
            lock.acquire()
        try:
            with system_errors("writing to", self.path):
                self.sweep()
                yield
        finally:
            lock.release()

    def _check_is_ours_to_use(self) -> None:
        """Refuse, before anything is written, what would fail half way."""
        if os.path.lexists(self.path) and not self.path.is_dir():
            what = "a file" if self.path.exists() else "a link that leads nowhere"
            raise Refused(f"{self.path} is {what}", hint="Name a folder for the checkpoints.")
        if os.path.lexists(self._private) and not self._private.is_dir():
            raise Refused(f"{self._private} is not a folder", hint="Move it away, or save elsewhere.")

    def sweep(self) -> None:
        """Remove what is half written or half removed. The lock is held, so nobody is at it."""
        sweeping.sweep(self.path, self._private)

    @property
    def staged(self) -> Path:
        """The folder in which the next checkpoint is put together."""
        return self._private / sweeping.SAVING

    def stage(self) -> Path:
        """Make that folder."""
        disk().mkdir(str(self.staged), mode=0o777)
        return self.staged

    def publish(self, stage: Path, step: int, *, replaces: bool) -> Path:
        """Give a complete stage its name: the commit point. Conflict if something of others has come there (P1)."""
        target = self.path / step_name(step)
        sync_folder(stage)  # P3: all of it is on the disk before anything names it
        if replaces and target.exists():
            self._exchange(stage, target)
        else:
            self._place(stage, target)
        sync_folder(self.path)
        return target

    def _place(self, stage: Path, target: Path) -> None:
        source_fd = os.open(stage.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        target_fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            disk().place(stage.name, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd, private=True)
        except FileExistsError:
            what = f"{target} came there while it was saved, and is not a checkpoint of Holdfast"
            raise Conflict(what, hint="Move it away, and save again.") from None
        finally:
            os.close(source_fd)
            os.close(target_fd)

    def _exchange(self, stage: Path, target: Path) -> None:
        source_fd = os.open(stage.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        target_fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            disk().exchange(stage.name, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        except OSError as error:
            if error.errno not in _NO_EXCHANGE:
                raise
            self._replace(stage, target)
        finally:
            os.close(source_fd)
            os.close(target_fd)

    def _replace(self, stage: Path, target: Path) -> None:
        """In two steps: for a moment the step is not there, and who dies then leaves the old one for `sweep`."""
        aside = self._private / f"{sweeping.REPLACED}{target.name}"
        disk().rename(str(target), str(aside))
        try:
            disk().rename(str(stage), str(target))
        except BaseException:
            disk().rename(str(aside), str(target))
            raise
        disk().rename(str(aside), str(stage))

    def put_aside(self, path: Path) -> Path:
        """Give a broken checkpoint another name, so that its step can be saved again; nothing of it is removed."""
        aside = sweeping.aside(path, "damaged")
        disk().rename(str(path), str(aside))
        sync_folder(self.path)
        return aside

    def remove(self, found: Found) -> None:
        """Remove a checkpoint: in one step from sight, then from the disk."""
        doomed = self._private / f"{sweeping.REMOVING}-{found.path.name}"
        disk().rename(str(found.path), str(doomed))
        sync_folder(self.path)
        remove_tree(str(doomed))

    def strangers(self, found: Found) -> list[str]:
        """What lies in a checkpoint's folder and is not of it."""
        return sweeping.strangers(found.path, self.full(found).manifest)

    # pins

    def pinned(self) -> set[int]:
        """The steps that are pinned."""
        try:
            found = json.loads((self._private / _PINS).read_bytes())
            check_schema(found["schema_version"], str(self._private / _PINS))
            return {int(step) for step in found["steps"]}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError, KeyError):
            raise Damaged(
                f"{self._private / _PINS} is not as it was written", hint="Move it away, and pin again what was pinned."
            ) from None

    def pin(self, steps: set[int]) -> None:
        """Set which steps are pinned. The lock is held."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, "steps": sorted(steps)}).encode() + b"\n"
        write_atomically(self._private / _PINS, text, via=self._private / f"{sweeping.SAVING}-pins", mode=0o644)


def pass_over(broken: list[Broken]) -> None:
    """Tell of what cannot be read, and may have been the newest (P4)."""
    for each in broken:
        _log.warning("passed over: %s", each.error)


def deciding(folder: TrainingFolder) -> tuple[str, str] | None:
    """The metric and the mode that decide which is the best; None if nothing does, Damaged if that cannot be told."""
    found = folder.best_marker()
    if found is None:
        if not folder.foreign([BEST]):
            return None
        what = f"{folder.path / BEST} {marker.FOREIGN}, and does not tell which checkpoint is the best"
        raise Damaged(what, hint="Move it away, and save once with best_key.")
    metric, mode = found.get("metric"), found.get("mode")
    if not isinstance(metric, str) or mode not in MODES:
        what = f"{folder.path / BEST} does not tell which checkpoint is the best"
        raise Damaged(what, hint="Save once with best_key.")
    return metric, str(mode)
