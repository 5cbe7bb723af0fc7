"""The state of a workspace in a few words: the last checkpoint, what changed since, what needs attention.

Reads the folder as a save would, and stores nothing.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Remedy
from holdfast.model import Checkpoint, GitHead, PathChange, Reason
from holdfast.scan.dir_handles import upwards
from holdfast.workspace.capture.snapshot import LARGE_BYTES
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.repository import REVERT, WITHOUT, Repository
from holdfast.workspace.stored.tree import TreeReader, gaps_of
from holdfast.workspace.upkeep.growth import ignore_line, read_growth, read_report

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.workspace.capture.scanner import Scanner
    from holdfast.workspace.capture.snapshot import Snapshot
    from holdfast.workspace.check import CheckStatus
    from holdfast.workspace.stored.catalog import Row
    from holdfast.workspace.upkeep.growth import Thinned

LOW_BYTES = 256 << 20
"""Less free space on the store's disk needs attention."""
SECRETS_MAX_BYTES = 4 << 20
"""What of a pending scan for secrets is done first, at most."""
_SIZED_MOST = 2000
_SECRETS_SHOWN = 5


class Attention(NamedTuple):
    """Something that needs attention."""

    code: str
    """For programs, such as `large-file`."""
    message: str
    paths: tuple[str, ...] = ()
    """Where it is about paths: the first of them."""
    remedy: Remedy | None = None
    """What to do about it."""


class WorkspaceStatus(NamedTuple):
    """The state of a workspace."""

    workspace: Path
    store: Path
    latest: Checkpoint | None
    """The last save; None if there is none."""
    head: Checkpoint | None
    """The checkpoint that the folder was last equal to: the last save, or what was restored since."""
    checkpoints: int
    """How many saves there are."""
    changes: tuple[PathChange, ...]
    """The files that differ from `head`; lines are not counted."""
    git: GitHead | None
    store_bytes: int
    free_bytes: int
    """On the disk of the store."""
    attention: tuple[Attention, ...]
    thinned: "Thinned | None" = None
    """What thinning did; None if it has not run yet."""
    check: "CheckStatus | None" = None
    """What is known about checks; None without a check command."""


def read_status(
    repository: Repository, scanner: "Scanner", now: "datetime", troubles: Sequence[Attention] = ()
) -> WorkspaceStatus:
    """Read the state of a workspace. `troubles`: what its owner knows already to need attention."""
    head = repository.head()
    latest = repository.catalog.nth(0)
    operation = head.operation if head is not None else None
    if head is not None and operation is not None and latest is not None:
        if operation.verb not in (REVERT, WITHOUT):
            head = _save_before(repository, head, latest)
        elif operation.verb == REVERT and operation.target == latest.id:
            head = repository.checkpoint(latest)  # what was not taken back of the changes since then is still unsaved
    sink = ObjectSink(repository.objects)
    snapshot = scanner.look(sink, head=head)
    changes = _changes(repository, head, snapshot, sink)
    room = os.statvfs(repository.folder)
    free = room.f_bavail * room.f_frsize
    thinned = read_report(repository.own)
    found = [*troubles, *_large(scanner.root, changes), *_unreadable(snapshot), *_growth(repository, thinned, now)]
    found += _secrets(repository)
    if free < LOW_BYTES:
        found.append(Attention("disk-full", f"the disk of the store has only {free >> 20:,} MiB left"))
    return WorkspaceStatus(
        workspace=scanner.root,
        store=repository.folder,
        latest=repository.checkpoint(latest) if latest else None,
        head=head,
        checkpoints=repository.catalog.saves(),
        changes=changes,
        git=scanner.git_head(),
        store_bytes=disk_bytes(repository.folder),
        free_bytes=free,
        attention=tuple(found),
        thinned=thinned,
    )


def _save_before(repository: Repository, safety: Checkpoint, latest: "Row") -> Checkpoint:
    """The save that the folder comes from after an undo: what the safety checkpoint has beyond it is not saved yet, as
    far as lists show."""
    row = repository.catalog.by_id(safety.id)
    if row is not None and row.content == latest.content:  # an undo brought back what the last save contains
        return repository.checkpoint(latest)
    found: Checkpoint | None = safety
    while found is not None and found.operation is not None:
        found = repository.shown_parent(found)
    return found or safety


def _changes(
    repository: Repository, head: Checkpoint | None, snapshot: "Snapshot", sink: ObjectSink
) -> tuple[PathChange, ...]:
    before = repository.contents(head).root if head is not None else None
    found = snapshot.files_changed_since(before) if before is not None else None
    if head is not None and found is not None and not (found.added and found.deleted):  # else some may be renamed
        gaps = gaps_of((head.uncovered, snapshot.uncovered)) if found.added or found.deleted else []
        changes = [PathChange("M", path) for path in found.modified]
        changes += [PathChange("A", path) for path in found.added if not _is_in(gaps[0], path)]
        changes += [PathChange("D", path) for path in found.deleted if not _is_in(gaps[1], path)]
        return tuple(sorted(changes, key=lambda change: change.path))
    after = snapshot.built(sink).root
    if before == after:
        return ()
    from holdfast.workspace.stored.diff import make_diff  # start-up cost: most often no file is renamed

    differing = TreeReader(sink).diff(before, after)
    not_held = (head.uncovered if head is not None else (), snapshot.uncovered)
    return tuple(make_diff(head.id if head else "", None, differing, sink, not_held, with_lines=False).paths)


def _is_in(gap: Mapping[str, Reason], path: str) -> bool:
    """Whether a path, or a folder above it, is not covered."""
    return any(above in gap for above in upwards(path))


def _large(root: Path, changes: Sequence[PathChange]) -> list[Attention]:
    """New files that are large."""
    found = []
    for change in changes[:_SIZED_MOST]:
        if change.letter != "A":
            continue
        try:
            size = os.lstat(root / change.path).st_size
        except OSError:
            continue
        if size >= LARGE_BYTES:
            found.append((size, change.path))
    if not found:
        return []
    total = sum(size for size, _ in found)
    paths = tuple(path for _, path in sorted(found, reverse=True))
    what = "1 new file is" if len(found) == 1 else f"{len(found):,} new files are"
    line = f"; to leave it out, add this line to .holdfastignore: {ignore_line(paths[0])}"
    return [Attention("large-file", f"{what} large, {total >> 20:,} MiB in all, and would be saved{line}", paths)]


def _growth(repository: Repository, thinned: "Thinned | None", now: "datetime") -> list[Attention]:
    """A store that grows fast, or that thinning cannot keep small."""
    found, growth = [], read_growth(repository.folder, now.timestamp())
    if growth.is_fast:
        found.append(Attention("growth", str(growth), remedy=Remedy("usage")))
    if thinned is not None and thinned.error:
        found.append(Attention("thinning", f"thinning failed: {thinned.error}"))
    if thinned is not None and thinned.over_bytes:
        message = f"the store is {thinned.over_bytes >> 20:,} MiB above its cap with checkpoints that are never thinned"
        found.append(Attention("cap", f"{message}; prune it, or raise thinning.max_bytes"))
    if thinned is not None and thinned.unfreed_bytes:
        message = f"{thinned.unfreed_bytes >> 20:,} MiB could not be freed: the disk is too full for a copy"
        found.append(Attention("unfreed", message))
    return found


def _unreadable(snapshot: "Snapshot") -> list[Attention]:
    failed = [each for each in snapshot.uncovered if each.reason.is_failure]
    if not failed:
        return []
    what = "1 path" if len(failed) == 1 else f"{len(failed):,} paths"
    return [Attention("unreadable", f"{what} could not be saved now", tuple(each.path or "." for each in failed))]


def _secrets(repository: Repository) -> list[Attention]:
    """Secrets that checkpoints contain."""
    if not repository.knows_secrets():
        return []
    from holdfast.workspace.secrets import SecretScan  # start-up cost: most stores contain none

    report = SecretScan(repository).report()
    found = [
        Attention(
            "secret",
            f"{each.kind} {each.masked} is in checkpoints, from {each.place}",
            remedy=Remedy("purge_secret", id=each.id),
        )
        for each in report.found[:_SECRETS_SHOWN]
    ]
    if len(report.found) > _SECRETS_SHOWN:
        more = f"{len(report.found) - _SECRETS_SHOWN:,} more secrets are in checkpoints"
        found.append(Attention("secret", more, remedy=Remedy("list_secrets")))
    if report.pending:
        what = "1 checkpoint is" if len(report.pending) == 1 else f"{len(report.pending):,} checkpoints are"
        found.append(Attention("secrets-pending", f"{what} not scanned for secrets yet", remedy=Remedy("list_secrets")))
    return found


def disk_bytes(folder: Path) -> int:
    """Return how much disk a store takes. All refs take the same, so one is looked at: there may be thousands."""
    total = 0
    stack = [os.fspath(folder)]
    while stack:
        place = stack.pop()
        are_alike = place.endswith("/refs/tags")
        size_bytes: int | None = None
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if are_alike and size_bytes is not None:
                        total += size_bytes
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                        continue
                    size_bytes = entry.stat(follow_symlinks=False).st_blocks * 512
                    total += size_bytes
        except FileNotFoundError:
            continue
    return total
