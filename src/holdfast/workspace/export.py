"""Exporting: a checkpoint's files, exactly as they were, in a folder of their own.

Order of writes (P3): a new folder beside the place, that only its owner can enter; everything into it, as a restore
would write it; then, when all of it is durable, one rename. A crash before that leaves the folder beside the place,
under a name that says what it is; nothing needs it, and the next export names it.
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
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Unavailable
from holdfast.model import Checkpoint, Exported, Progress
from holdfast.scan.attrs import Attr
from holdfast.scan.databases import family
from holdfast.scan.handles import Handles, upwards
from holdfast.scan.walk import Listing
from holdfast.workspace.given import a_path
from holdfast.workspace.restore.apply import Application
from holdfast.workspace.scope import Scope, parse_scope
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import Change, Entry, TreeReader

PREFIX = ".holdfast-export-"
_STAGE = ".holdfast-stage"


class Exporter:
    """Exports checkpoints of one workspace. Needs no lock, and changes nothing of workspace or store."""

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
        """Write a checkpoint into a new or empty folder. On an error there is none of it."""
        place = self._place(directory)
        node = self._repository.contents(checkpoint).root
        scope = parse_scope(
            paths,
            self._root,
            lambda path: self._reader.find(node, path) is not None,
            lambda: (path for path, _ in self._reader.walk(node)),
        )
        entries = dict(self._reader.walk(node))
        changes = self._changes(entries, {path for path in entries if self._is_chosen(node, path, scope)})
        uncovered = checkpoint.uncovered  # now: once all of it is in place, nothing may fail
        leftovers = sorted(str(path) for path in place.parent.glob(f"{PREFIX}*"))
        temporary = place.parent / f"{PREFIX}{secrets.token_hex(4)}"
        try:
            disk().mkdir(str(temporary), mode=0o700)
            failed = self._write(temporary, changes, skip_damaged=skip_damaged, progress=progress)
            _put_in_place(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):  # what is left of it is named by the next export
                durable.remove_tree(str(temporary))
            raise
        return Exported(
            checkpoint=checkpoint.id,
            directory=str(place),
            written=[path for path in changes if path and self._is_chosen(node, path, scope) and path not in failed],
            failed=failed,
            missing={item.path: item.reason.value for item in uncovered if item.path in scope and item.path},
            leftovers=leftovers,
        )

    def _place(self, directory: str | os.PathLike[str]) -> Path:
        place = Path(os.path.realpath(a_path(directory, "the folder to write to")))
        for other, what in ((self._root, "workspace"), (self._repository.folder, "store")):
            if place.is_relative_to(other) or other.is_relative_to(place):
                raise Refused(f"{place} and the {what} are inside one another", hint="Name a folder elsewhere.")
        if not place.parent.is_dir():
            raise NotFound(f"{place.parent} is not a folder", hint="Make it first.")
        if os.path.lexists(place) and not place.is_dir():
            raise Refused(f"{place} is not a folder", hint="Name a new or an empty one.")
        if place.is_dir() and any(place.iterdir()):
            raise Refused(f"{place} is not empty", hint="Name a new or an empty folder.")
        return place

    def _is_chosen(self, node: Node, path: str, scope: Scope) -> bool:
        """Whether a path is in the scope, or another file of the same database (P2)."""
        if path in scope:
            return True
        others = [each for each in family(path) if each != path and each in scope]
        return bool(others) and any(self._reader.is_sidecar(node, each) for each in (path, *others))

    def _changes(self, entries: dict[str, Entry], chosen: set[str]) -> dict[str, Change]:
        """What is to be made, folders before what is in them; those above a chosen path come with it."""
        chosen = chosen | {above for path in chosen for above in upwards(path)} | {""}
        empty = Entry(Attr(stat.S_IFDIR | 0o700, 0, b"-"), b"")
        return {path: Change(path, None if path else empty, entries[path]) for path in sorted(chosen)}

    def _write(
        self, folder: Path, changes: dict[str, Change], *, skip_damaged: bool, progress: Progress | None
    ) -> dict[str, str]:
        """Write everything into an empty folder, durably; what could not be, and why."""
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
        failed = {**application.damaged, **application.notes, **application.failed}
        return {path or ".": why for path, why in failed.items()}

    def _owner(self) -> tuple[int, int]:
        """Whose the files are that do not say otherwise: the workspace's owner, where we can give them to that one."""
        status = os.stat(self._root)
        if os.geteuid() in (0, status.st_uid):
            return status.st_uid, status.st_gid
        return os.geteuid(), os.getegid()


def _put_in_place(temporary: Path, place: Path) -> None:
    """Rename, durably: the commit point. On an error there is what was there before."""
    mode = stat.S_IMODE(place.stat().st_mode) if place.is_dir() else None
    if mode is not None:  # it was made with a mode on purpose
        _set_mode(temporary, mode)
    try:
        disk().rename(str(temporary), str(place))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise Conflict(f"something came to {place} meanwhile", hint="Name a new or an empty folder.") from None
        if error.errno == errno.EBUSY:
            raise Refused(f"{place} is in use, perhaps as a mount point", hint="Name a new folder in it.") from None
        raise
    try:
        durable.sync_folder(place.parent)
    except OSError as error:
        disk().rename(str(place), str(temporary))  # what cannot be made durable is not said to be there
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
        hint="Nothing was written. Export the rest with skip_damaged (--skip-damaged), or use another.",
    )
