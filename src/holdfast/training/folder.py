"""A run in a folder: scanning, markers, pins, the lock, saving, removing, and cleaning up after writers that died."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.durable import Lock, disk, make_folder, parse_json, remove_tree, sync_folder, write_atomically
from holdfast.durable.os_errors import os_errors
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused
from holdfast.model import Progress, VerifyReport
from holdfast.training import gc_pause
from holdfast.training.retention import prune
from holdfast.training.run_store import (
    BrokenCheckpoint,
    SaveStart,
    StepPage,
    StoredCheckpoint,
    best_metric,
    best_of,
    log_skipped,
    next_sequence,
)
from holdfast.training.save import PendingSave, check_is_free, documents, make_manifest, summarize
from holdfast.training.shard_reader import Reader, read_bytes, read_manifest
from holdfast.training.shard_writer import PreviousCheckpoint, WrittenShard, shards_of, write_shards
from holdfast.training.stored import digests, marker
from holdfast.training.stored.layout import (
    BEST,
    INDEX,
    LAST,
    MANIFEST,
    PRIVATE,
    SCHEMA_VERSION,
    STATE,
    check_schema,
    rank_shard_name,
    shard_name,
    step_name,
    step_of,
)
from holdfast.training.stored.manifest import Brief, FileEntry, Manifest, is_foreign
from holdfast.training.stored.shards import Payload
from holdfast.training.verify import verify_folders

_log = logging.getLogger("holdfast")

_PINS = "pins.json"
_LOCK = "lock"
_SCANS = 5
_MARKER_MAX_BYTES = 1 << 20
_LINKS_MAX = 50_000
"""With more files, it is not counted which of them are shared: it would take seconds."""

# Names in the private folder
_SAVING = "saving"
_REMOVING = "removing"
_REPLACED = "replaced-"
_TEMPORARY = re.compile(rf"{_SAVING}(-({LAST}|{re.escape(BEST)}|pins))?|({_REMOVING}-|{_REPLACED})step-[0-9]+")
_STAGED = re.compile(r"model[-.][\w.-]*safetensors(\.index\.json)?|state\.json|manifest\.json")
"""The files that a save writes into its staging folder."""
_MARKER_STARTS = (b'{\n  "schema_version": ', b'{"schema_version": ')
"""How markers and pins begin."""

_NO_EXCHANGE = (errno.EPERM, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that cannot exchange two folders (NFS, Lustre), or cannot link a folder."""

_Identity = tuple[int, int, int]


def _identity(path: Path) -> _Identity:
    """Identify the manifest file of a checkpoint: equal as long as nobody replaced or changed it."""
    status = os.stat(path / MANIFEST)
    return status.st_ino, status.st_mtime_ns, status.st_size


class FolderRunStore:
    """The checkpoints of one run in a folder: a `RunStore`."""

    def __init__(self, path: Path, *, verify: bool = True, brief: bool = False) -> None:
        """brief: `scan` returns manifests without tensors and reads none twice; `full` reads a whole one."""
        self.path = path
        self._verify = verify
        self._is_brief = brief
        self._private = path / PRIVATE
        self._known: dict[str, tuple[_Identity, Manifest]] = {}
        self._last_written: tuple[_Identity, Manifest, dict[str, WrittenShard]] | None = None
        """The manifest and the shards of this process's last save, which the next save compares with."""

    # reading

    def scan(self) -> tuple[list[StoredCheckpoint], list[BrokenCheckpoint]]:
        """Return all checkpoints in the order in which they were saved, and those that cannot be read.

        A writer may rename checkpoints meanwhile (P9); if that shows, this scans again.
        """
        for _ in range(_SCANS - 1):
            found, broken, has_changed = self._scan()
            if not has_changed:
                return found, broken
        found, broken, _ = self._scan()
        return found, broken

    def page(self, limit: int | None, *, before: int | None = None) -> StepPage:
        """Return the checkpoints with the greatest steps, below `before` if given. Reads no other manifests (P8)."""
        steps = sorted((step for _, step in self._steps() if before is None or step < before), reverse=True)
        chosen = steps[:limit]
        found, broken, _ = self._scan(frozenset(chosen))
        newest_first = sorted(found, key=lambda each: -each.step)
        return StepPage(newest_first, broken, chosen[-1] if len(chosen) < len(steps) else None)

    def _scan(self, only: frozenset[int] | None = None) -> tuple[list[StoredCheckpoint], list[BrokenCheckpoint], bool]:
        """Scan once, all steps or `only` these; also return whether a checkpoint disappeared meanwhile."""
        found, broken, has_changed = [], [], False
        steps = [each for each in self._steps() if only is None or each[1] in only]
        before = self._known
        self._known = {name: before[name] for name, _ in steps if name in before} if only is None else before
        for name, step in steps:
            try:
                manifest = self._manifest(name)
                if manifest.step != step:
                    raise Damaged(f"{self.path / name} contains step {manifest.step}", hint="Rename it back.")
                found.append(StoredCheckpoint(self.path / name, manifest))
            except HoldfastError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # too many open files: this says nothing about the checkpoint
                if os.path.lexists(self.path / name):
                    broken.append(BrokenCheckpoint(self.path / name, step, error))
                else:
                    has_changed = True
        has_changed = has_changed or (not found and not broken and os.path.lexists(self.path / LAST))
        return sorted(found, key=lambda each: (each.manifest.sequence, each.step)), broken, has_changed

    def _steps(self) -> list[tuple[str, int]]:
        steps = {step: name for name in self._folders(self.path) if (step := step_of(name)) is not None}
        for name in self._folders(self._private):  # its writer died while replacing it: this still is the step (P3)
            if name.startswith(_REPLACED) and (step := step_of(name.removeprefix(_REPLACED))) is not None:
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
            with os_errors(path, "reading"):
                raise

    def _manifest(self, name: str) -> Manifest:
        """Read a manifest, unless the file is the one that was read before."""
        try:
            identity = _identity(self.path / name)
        except OSError:
            return read_manifest(self.path / name, verify=self._verify)
        known = self._known.get(name)
        if known is None or known[0] != identity:
            manifest = read_manifest(self.path / name, verify=self._verify)
            known = self._known[name] = (identity, Brief.of(manifest) if self._is_brief else manifest)
        return known[1]

    def get(self, step: int | str) -> StoredCheckpoint:
        """Return the checkpoint of a step, `latest` or `best`. NotFound, or Damaged if it is there but unreadable."""
        for _ in range(_SCANS - 1):
            found = self._get(step)
            try:
                return self.full(found)
            except Damaged:
                if os.path.lexists(found.path):
                    raise  # else another process has pruned it: scan again (P9)
        return self.full(self._get(step))

    def _get(self, step: int | str) -> StoredCheckpoint:
        found, broken = self.scan()
        if step == "best":
            return self._best(found)
        if step == "latest":
            if found:
                log_skipped(broken)
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

    def _best(self, found: list[StoredCheckpoint]) -> StoredCheckpoint:
        metric = best_metric(self)
        if metric is None:
            raise NotFound(f"{self.path} has no best checkpoint", hint="Save with metrics and best_key.")
        best = best_of(found, *metric)
        if best is None:
            raise NotFound(f"no checkpoint of {self.path} has a value of {metric[0]}", hint="Save with metrics.")
        return best

    def full(self, found: StoredCheckpoint) -> StoredCheckpoint:
        """Return the same checkpoint with its whole manifest."""
        if not isinstance(found.manifest, Brief):
            return found
        return StoredCheckpoint(found.path, read_manifest(found.path, verify=self._verify))

    def reader(self, found: StoredCheckpoint, *, verify: bool) -> Reader:
        """Return a reader of its tensors and files."""
        return Reader(found.path, found.manifest, verify=verify)

    def new_bytes(self, found: Sequence[StoredCheckpoint]) -> dict[int, int]:
        """Return, by step, how many bytes are in files that the checkpoint before does not share."""
        sizes: dict[int, int] = {}
        if sum(each.manifest.n_files for each in found) > _LINKS_MAX:
            return sizes
        before: set[tuple[int, int]] = set()
        for each in found:
            try:
                with os.scandir(each.path) as entries:
                    files = [entry.stat(follow_symlinks=False) for entry in entries if entry.name != MANIFEST]
            except OSError:  # removed meanwhile
                continue
            own = {(file.st_dev, file.st_ino): file.st_size for file in files}
            sizes[each.step] = sum(size for key, size in own.items() if key not in before)
            before = set(own)
        return sizes

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of every checkpoint, and name what is damaged."""
        return verify_folders(*self.scan(), progress)

    # markers

    def best_marker(self) -> dict[str, Any] | None:
        """Return the content of `best.json`; None if Holdfast wrote none."""
        return self._marker(BEST)

    def last_marker(self) -> dict[str, Any] | None:
        """Return the content of `last`; None if Holdfast wrote none."""
        return self._marker(LAST)

    def _marker(self, name: str) -> dict[str, Any] | None:
        return marker.decode(self._marker_bytes(name), str(self.path / name))

    def _marker_bytes(self, name: str) -> bytes:
        return read_bytes(self.path / name, _MARKER_MAX_BYTES)

    def foreign_markers(self, names: Iterable[str]) -> list[str]:
        """Return which of these markers another program wrote: a file, a folder or a link that is not ours."""
        there = [name for name in names if os.path.lexists(self.path / name)]
        return [name for name in there if not marker.is_ours(self._marker_bytes(name))]

    def _adopt(self, names: Iterable[str]) -> list[str]:
        """Rename markers of other programs, so that ours can be written (P1). Return notes about it."""
        notes = []
        for name in self.foreign_markers(names):
            kept = free_name(self.path / name, "replaced")
            self._rename_foreign(name, kept.name)
            notes.append(f"{self.path / name} {marker.FOREIGN}, and is kept as {kept.name}")
        return notes

    def _rename_foreign(self, name: str, kept: str) -> None:
        """Rename a file of another program. P1: where links work, the new name is durable before the old one goes."""
        with _folder_fd(self.path) as fd:
            try:
                disk().link(name, kept, src_dir_fd=fd, dst_dir_fd=fd)
                disk().fsync(fd)
                disk().unlink(name, dir_fd=fd)
            except OSError as error:
                if error.errno not in (*_NO_EXCHANGE, errno.EMLINK, errno.ENOTSUP):  # a folder, or no hard links
                    raise
                disk().rename(name, kept, src_dir_fd=fd, dst_dir_fd=fd)
                disk().fsync(fd)

    def mark_last(self, found: StoredCheckpoint) -> None:
        """Point `last` at a checkpoint. It also keeps the greatest sequence number that was ever given (P10)."""
        given = (self.last_marker() or {}).get("sequence", 0)
        sequence = max(found.manifest.sequence, given if isinstance(given, int) else 0)
        self._write_marker(LAST, {"step": found.step, "sequence": sequence, "path": found.path.name})

    def mark_best(self, found: StoredCheckpoint, metric: str, mode: str) -> None:
        """Point `best.json` at a checkpoint."""
        about = {
            "metric": metric, "mode": mode, "value": found.manifest.metric(metric),
            "step": found.step, "path": found.path.name,
        }  # fmt: skip
        self._write_marker(BEST, about)

    def repoint_markers(self, remaining: list[StoredCheckpoint]) -> None:
        """Point the markers at what remains, before the checkpoint that they point at is removed or renamed."""
        if remaining and not self.foreign_markers([LAST]):  # another program's marker does not point at our checkpoints
            self.mark_last(remaining[-1])
        with contextlib.suppress(Damaged):  # an unreadable `best.json` points nowhere
            metric = best_metric(self)
            best = best_of(remaining, *metric) if metric else None
            if metric and best:
                self.mark_best(best, *metric)

    def _write_marker(self, name: str, about: dict[str, Any]) -> None:
        text = marker.encode(about)
        if self._marker_bytes(name) == text:
            return
        if self.foreign_markers([name]):  # P1: another program wrote it during the save
            raise marker.refuse(self.path / name)
        write_atomically(self.path / name, text, via=self._private / f"{_SAVING}-{name}", mode=0o644)

    # pins

    def pinned(self) -> set[int]:
        """Return the steps that are pinned. Damaged if that cannot be read."""
        path = self._private / _PINS
        try:
            found = parse_json(path.read_bytes())
            check_schema(found["schema_version"], str(path))
            return {int(step) for step in found["steps"]}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError, KeyError, OverflowError):
            raise Damaged(f"{path} is corrupt", hint="Move it away, and pin the steps again.") from None

    def pin(self, steps: set[int]) -> None:
        """Replace the set of pinned steps."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, "steps": sorted(steps)}).encode() + b"\n"
        write_atomically(self._private / _PINS, text, via=self._private / f"{_SAVING}-pins", mode=0o644)

    # writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock (P9). First removes what writers that died left behind."""
        self._check_is_usable()
        lock = Lock(self._private / _LOCK)
        try:  # before `acquire`: an interrupt right after it must not leave the lock held
            with os_errors(self.path, "writing to"):
                make_folder(self._private, mode=0o777)
                lock.acquire()
                self._clean_up()
                yield
        finally:
            lock.release()

    def _check_is_usable(self) -> None:
        """Refuse, before anything is written, a path that would fail half-way."""
        if os.path.lexists(self.path) and not self.path.is_dir():
            what = "a file" if self.path.exists() else "a broken link"
            raise Refused(f"{self.path} is {what}", hint="Name a folder for the checkpoints.")
        if os.path.lexists(self._private) and not self._private.is_dir():
            raise Refused(f"{self._private} is not a folder", hint="Move it away, or save elsewhere.")

    def begin_save(self, pending: PendingSave) -> SaveStart:
        """Check that the step is free, and make the staging folder."""
        found, broken = check_is_free(self, pending)
        if pending.request.pin:
            self.pinned()  # Damaged now, not after everything is written
        self._free_step(pending.step, found, broken)
        disk().mkdir(str(self._stage), mode=0o777)
        return SaveStart(found)

    @property
    def _stage(self) -> Path:
        """The folder in which the next checkpoint is put together."""
        return self._private / _SAVING

    def _free_step(self, step: int, found: list[StoredCheckpoint], broken: list[BrokenCheckpoint]) -> None:
        """Rename a broken checkpoint that has the name of the step. Conflict if another program wrote it (P1)."""
        target = self.path / step_name(step)
        if any(each.path == target for each in found) or not os.path.lexists(target):
            return
        is_broken = any(each.path == target and os.path.lexists(target / MANIFEST) for each in broken)
        if is_broken and not is_foreign(read_bytes(target / MANIFEST)):
            self.repoint_markers(found)
            self.set_aside(target)
            return
        raise Conflict(f"{target} exists and is not a Holdfast checkpoint", hint="Move it away, or save elsewhere.")

    def write_shards(
        self,
        step: int,
        payloads: Sequence[Payload],
        found: list[StoredCheckpoint],
        *,
        threads: int | None,
        rank: int | None = None,
    ) -> list[WrittenShard]:
        """Write tensors into the staging folder, or link files of the newest of `found` (P8).

        When this returns their bytes are durable, and their names are not yet.
        """
        name = shard_name if rank is None else functools.partial(rank_shard_name, rank)
        previous = self._previous(found, turn=self._next_sequence(found) if rank is None else None)
        return write_shards(
            self._stage, payloads, previous, algorithm=digests.preferred(), threads=threads, name=name
        )  # fmt: skip

    def _previous(self, found: list[StoredCheckpoint], *, turn: int | None) -> PreviousCheckpoint | None:
        """Return the newest checkpoint, to share its files; None if there is none, or it cannot be read any more."""
        try:
            return PreviousCheckpoint(found[-1].path, *self._as_written(found[-1]), turn=turn) if found else None
        except HoldfastError as error:
            _log.warning("files of earlier checkpoints cannot be reused: %s", error)
            return None

    def _as_written(self, found: StoredCheckpoint) -> tuple[Manifest, dict[str, WrittenShard]]:
        """Return manifest and shards as this process has written them, else as they are stored.

        For saves only: what is loaded is read from the disk.
        """
        with contextlib.suppress(OSError):
            if self._last_written and self._last_written[0] == _identity(found.path):
                return self._last_written[1:]
        manifest = self.full(found).manifest
        return manifest, shards_of(manifest)

    def _next_sequence(self, found: list[StoredCheckpoint]) -> int:
        return next_sequence(self.last_marker(), found)

    def commit_save(self, pending: PendingSave, shards: Sequence[WrittenShard], start: SaveStart) -> dict[str, Any]:
        """Turn the staging folder into a checkpoint, move the markers, prune. Return the summary."""
        request, found = pending.request, start.found
        with gc_pause.paused():
            shards = [shard.encoded() for shard in shards]
            manifest = self._write_documents(pending, shards, found)
        target = self.path / step_name(pending.step)
        self._publish(pending, target, replaces=any(each.path == target for each in found))
        new = StoredCheckpoint(target, manifest)
        self._remember(new, shards)
        found = [each for each in found if each.path != target] + [new]
        adopted = self._adopt(pending.markers) if request.adopt else []
        self.mark_last(new)
        best = best_of(found, request.best_key, request.mode) if request.best_key else None
        if best is not None and request.best_key:
            self.mark_best(best, request.best_key, request.mode)
        self._clean_up()  # what the new checkpoint replaced
        pruned = prune(
            self, found, request.keep, best_key=request.best_key, mode=request.mode, now=manifest.timestamp
        )  # fmt: skip
        summary = summarize(pending, new, shards, is_best=best is new, notes=adopted)
        return summary | {"pruned": pruned.removed, "kept": pruned.kept}

    def _write_documents(
        self, pending: PendingSave, shards: Sequence[WrittenShard], found: list[StoredCheckpoint]
    ) -> Manifest:
        """Write the files that describe the shards, the manifest last."""
        files = {}
        for name, data in zip((INDEX, STATE), documents(pending, shards), strict=True):
            _write_file(self._stage / name, data)
            files[name] = FileEntry(len(data), digests.digest(data, digests.preferred()))
        manifest = make_manifest(pending, shards, files, self._next_sequence(found))
        _write_file(self._stage / MANIFEST, manifest.encode([shard.manifest_text for shard in shards]))
        return manifest

    def _publish(self, pending: PendingSave, target: Path, *, replaces: bool) -> None:
        """Give the staging folder its name. On failure, remove the pin."""
        if not pending.request.pin:
            self._rename_stage(target, replaces=replaces)
            return
        pinned = self.pinned()
        try:
            self.pin(pinned | {pending.step})  # first: a reader that sees the checkpoint sees it pinned
            self._rename_stage(target, replaces=replaces)
        except BaseException as error:
            if isinstance(error, Conflict) or not os.path.lexists(target):
                with contextlib.suppress(OSError):
                    self.pin(pinned)
            raise

    def _rename_stage(self, target: Path, *, replaces: bool) -> None:
        """The commit point. Conflict if another program has taken the name (P1)."""
        sync_folder(self._stage)  # P3: everything reaches the disk before anything names it
        if replaces and target.exists():
            self._exchange(target)
        else:
            self._place(target)
        sync_folder(self.path)

    def _place(self, target: Path) -> None:
        with _folder_fd(self._private) as source_fd, _folder_fd(self.path) as target_fd:
            try:
                disk().place(_SAVING, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd, private=True)
            except FileExistsError:
                what = f"{target} was created by another program during the save"
                raise Conflict(what, hint="Move it away, and save again.") from None

    def _exchange(self, target: Path) -> None:
        with _folder_fd(self._private) as source_fd, _folder_fd(self.path) as target_fd:
            try:
                disk().exchange(_SAVING, target.name, src_dir_fd=source_fd, dst_dir_fd=target_fd)
            except OSError as error:
                if error.errno not in _NO_EXCHANGE:
                    raise
                self._replace(target)

    def _replace(self, target: Path) -> None:
        """Replace a checkpoint in two renames, where the file system cannot exchange folders (NFS, Lustre).

        P3: a process that dies in between leaves the old one in the private folder, where `_steps` finds it.
        """
        old = self._private / f"{_REPLACED}{target.name}"
        disk().rename(str(target), str(old))
        try:
            disk().rename(str(self._stage), str(target))
        except BaseException:
            disk().rename(str(old), str(target))
            raise
        disk().rename(str(old), str(self._stage))

    def _remember(self, new: StoredCheckpoint, shards: Iterable[WrittenShard]) -> None:
        """Keep what was just written, so that the next save need not read it (P8)."""
        with contextlib.suppress(OSError):
            identity = _identity(new.path)
            self._known[new.path.name] = (identity, Brief.of(new.manifest) if self._is_brief else new.manifest)
            self._last_written = (identity, new.manifest, {shard.name: shard for shard in shards if shard.tensors})

    def abort_save(self) -> None:
        """Remove the staging folder."""
        with contextlib.suppress(OSError):
            remove_tree(str(self._stage))

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged checkpoint so that its step can be saved again. Nothing is removed (P1)."""
        kept = free_name(path, "damaged")
        disk().rename(str(path), str(kept))
        sync_folder(self.path)
        return kept

    def remove(self, found: StoredCheckpoint) -> None:
        """Remove a checkpoint: in one step from sight, then from the disk (P3)."""
        doomed = self._private / f"{_REMOVING}-{found.path.name}"
        disk().rename(str(found.path), str(doomed))
        sync_folder(self.path)
        remove_tree(str(doomed))

    def foreign_files(self, found: StoredCheckpoint) -> list[str]:
        """Return what lies in a checkpoint's folder and is not part of it."""
        return _foreign_files(found.path, self.full(found).manifest)

    # cleaning up

    def _clean_up(self) -> None:
        """Remove what is half written, half removed or replaced. The lock is held, so no writer needs it.

        What has such a name but is not ours, or contains something that is not, is renamed instead (P1).
        """
        for name in filter(_TEMPORARY.fullmatch, os.listdir(self._private)):
            path, step = self._private / name, self.path / name.removeprefix(_REPLACED)
            is_folder = path.is_dir() and not path.is_symlink()
            manifest = _manifest_or_none(path) if is_folder else None
            if name.startswith(_REPLACED) and not os.path.lexists(step):  # its writer died between two renames (P3)
                disk().rename(str(path), str(step))
                sync_folder(self.path)
            elif manifest is not None and _foreign_files(path, manifest):
                _keep_foreign(path, free_name(self.path / step_name(manifest.step), "replaced"))
            elif not is_folder and _is_partial_marker(path):
                disk().unlink(str(path))
            elif is_folder and (manifest is not None or _is_partial_checkpoint(path)):
                remove_tree(str(path))
            else:
                _keep_foreign(path, free_name(path, "replaced"))


def free_name(path: Path, word: str) -> Path:
    """Return a name beside `path` that nothing has: `NAME.WORD-1`, `NAME.WORD-2` …"""
    number = 1
    while os.path.lexists(found := path.with_name(f"{path.name}.{word}-{number}")):
        number += 1
    return found


@contextlib.contextmanager
def _folder_fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_file(path: Path, data: bytes) -> None:
    fd = disk().create(str(path), mode=0o444)
    try:
        disk().write(fd, data)
        disk().fsync(fd)
    finally:
        os.close(fd)


def _foreign_files(path: Path, manifest: Manifest) -> list[str]:
    ours = {*manifest.files, MANIFEST}
    return sorted(name for name in os.listdir(path) if name not in ours)


def _manifest_or_none(path: Path) -> Manifest | None:
    """The manifest of a folder, if it was a whole checkpoint."""
    try:
        return read_manifest(path)
    except HoldfastError:
        return None


def _is_partial_checkpoint(path: Path) -> bool:
    with os.scandir(path) as entries:
        return all(_STAGED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False) for entry in entries)


def _is_partial_marker(path: Path) -> bool:
    """Whether a file is a marker or the pins, or the beginning of one. After a power loss the rest may be zeros."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with path.open("rb") as file:
        found = file.read(len(max(_MARKER_STARTS, key=len))).rstrip(b"\0")
    return any(found.startswith(start[: len(found)]) for start in _MARKER_STARTS)


def _keep_foreign(path: Path, kept: Path) -> None:
    _log.warning("kept, because Holdfast did not write all of it: %s", kept)
    disk().rename(str(path), str(kept))
    sync_folder(path.parent)
    sync_folder(kept.parent)
