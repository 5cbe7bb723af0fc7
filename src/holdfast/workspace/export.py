"""Exporting the files of a checkpoint, exactly as they were, into a new folder.

Order of writes (P3): a private temporary folder next to the destination; everything into it, as a restore would write
it; then, when all of it is durable, one rename. A crash before that leaves the temporary folder, under a name that says
what it is; the next export reports it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Remedy, Unavailable
from holdfast.model import Checkpoint, Exported, Progress
from holdfast.scan.attrs import Attr
from holdfast.scan.dir_handles import Handles, upwards
from holdfast.scan.sqlite_files import family
from holdfast.scan.walk import Listing
from holdfast.validation import check_place
from holdfast.workspace.pathspec import Scope, parse_scope
from holdfast.workspace.restore.apply import Application
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import Change, Entry, TreeReader

PREFIX = ".holdfast-export-"
_STAGE = ".holdfast-stage"


class Exporter:
    """Exports checkpoints of one workspace. Needs no lock, and changes neither workspace nor store."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self._repository = repository
        self._root = root
        self._reader = TreeReader(repository.objects)

    def export(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        paths: Sequence[str] | None,
        *,
        skip_damaged: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write a checkpoint into a new or empty folder. On an error nothing of it is there."""
        place = self._place(directory)
        node = self._repository.contents(checkpoint).root
        scope = parse_scope(
            paths,
            self._root,
            lambda path: self._reader.find(node, path) is not None,
            lambda: (path for path, _ in self._reader.walk(node)),
        )
        entries = dict(self._reader.walk(node))
        changes = self._changes(
            entries, {path for path in entries if self._is_chosen(node, path, entries[path], scope)}
        )
        uncovered = checkpoint.uncovered  # read now: nothing may fail after the rename
        leftovers = sorted(str(path) for path in place.parent.glob(f"{PREFIX}*"))
        temporary = place.parent / f"{PREFIX}{secrets.token_hex(4)}"
        try:
            disk().mkdir(str(temporary), mode=0o700)
            failed, notes = self._write(temporary, changes, skip_damaged=skip_damaged, progress=progress)
            _put_in_place(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):  # the next export reports what remains
                durable.remove_tree(str(temporary))
            raise
        return Exported(
            checkpoint=checkpoint.id,
            directory=str(place),
            written=[
                path
                for path in changes
                if path and self._is_chosen(node, path, entries[path], scope) and path not in failed
            ],
            failed={**notes, **failed},
            missing={item.path: item.reason.value for item in uncovered if item.path in scope and item.path},
            leftovers=leftovers,
        )

    def _place(self, directory: str | os.PathLike[str]) -> Path:
        place = Path(os.path.realpath(check_place(directory, "the folder to write to")))
        for other, what in ((self._root, "workspace"), (self._repository.folder, "store")):
            if place.is_relative_to(other) or other.is_relative_to(place):
                raise Refused(f"{place} and the {what} are inside one another", hint="Choose a folder elsewhere.")
        if not place.parent.is_dir():
            raise NotFound(f"{place.parent} is not a folder", hint="Create it first.")
        if os.path.lexists(place) and not place.is_dir():
            raise Refused(f"{place} is not a folder", hint="Choose a new or an empty one.")
        if place.is_dir() and any(place.iterdir()):
            raise Refused(f"{place} is not empty", hint="Choose a new or an empty folder.")
        return place

    def _is_chosen(self, node: Node, path: str, entry: Entry, scope: Scope) -> bool:
        """Whether a path is in the scope, or another file of the same database (P2)."""
        if scope.selects(path, is_folder=entry.is_folder):
            return True
        others = [each for each in family(path) if each != path and each in scope]
        return bool(others) and any(self._reader.is_sidecar(node, each) for each in (path, *others))

    def _changes(self, entries: dict[str, Entry], chosen: set[str]) -> dict[str, Change]:
        """Return what to write, folders before their content, including folders above chosen paths."""
        chosen = chosen | {above for path in chosen for above in upwards(path)} | {""}
        empty = Entry(Attr(stat.S_IFDIR | 0o700, 0, b"-"), b"")
        return {path: Change(path, None if path else empty, entries[path]) for path in sorted(chosen)}

    def _write(
        self, folder: Path, changes: dict[str, Change], *, skip_damaged: bool, progress: Progress | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Write everything into an empty folder, durably; return what was not written, and what not as it was."""
        with Handles(str(folder)) as handles:
            listing = Listing(self._owner(), os.fstat(handles.open("")).st_dev)
            application = Application(
                handles, self._repository.objects, listing, changes, stage=_STAGE, progress=progress
            )
            application.prepare()
            if application.damaged and not skip_damaged:
                raise _damage(application.damaged)
            application.swap()
            application.check()
            application.discard()
            application.sync()
        failed = {**application.damaged, **application.failed}
        notes = application.notes
        return {path or ".": why for path, why in failed.items()}, {path or ".": why for path, why in notes.items()}

    def _owner(self) -> tuple[int, int]:
        """Return the owner for files that store none: the workspace's owner, if we are allowed to set it."""
        status = os.stat(self._root)
        if os.geteuid() in (0, status.st_uid):
            return status.st_uid, status.st_gid
        return os.geteuid(), os.getegid()


def _put_in_place(temporary: Path, place: Path) -> None:
    """Rename, durably: the commit point (P3). On an error the destination is as before."""
    mode = stat.S_IMODE(place.stat().st_mode) if place.is_dir() else None
    if mode is not None:  # keep the mode of an existing empty folder
        _set_mode(temporary, mode)
    try:
        disk().rename(str(temporary), str(place))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise Conflict(f"{place} was created meanwhile", hint="Choose a new or an empty folder.") from None
        if error.errno == errno.EBUSY:
            raise Refused(f"{place} is in use, perhaps as a mount point", hint="Choose a new folder in it.") from None
        raise
    try:
        durable.sync_folder(place.parent)
    except OSError as error:
        disk().rename(str(place), str(temporary))  # P3: do not report success for what is not durable
        if mode is not None:
            disk().mkdir(str(place))
            _set_mode(place, mode)
        raise Unavailable(
            f"{place} cannot be made durable: {error.strerror}", hint="Check that disk; nothing was exported."
        ) from error


def _set_mode(folder: Path, mode: int) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        disk().chmod(fd, mode)
        disk().fsync(fd)
    finally:
        os.close(fd)


def _damage(paths: dict[str, str]) -> Damaged:
    some = ", ".join(sorted(paths)[:5]) + (", …" if len(paths) > 5 else "")
    return Damaged(
        f"this checkpoint is damaged, and {len(paths)} of its files cannot be exported: {some}",
        hint="Nothing was written.",
        remedy=Remedy("skip_damaged", verb="export"),
    )
