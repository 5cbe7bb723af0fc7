"""Every store in the user's state folder: whose it is, how large, when it was last used; removing those of folders
that are gone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.model import JSON
from holdfast.workspace.moved_folder import find_new_place
from holdfast.workspace.status import disk_bytes
from holdfast.workspace.store_paths import owner_of, stores_root
from holdfast.workspace.stored.repository import Repository

KEPT_FOR = timedelta(days=14)
"""How long the store of a folder that is gone is kept after its last use, unless it is named: as git keeps objects."""
_REMOVED = ".removed-"  # a store that is being removed: no longer one, also if the removal is interrupted


class StoreInfo(NamedTuple):
    """One store."""

    name: str
    """The name of its folder."""
    folder: str
    """The workspace; empty if that is not known."""
    is_gone: bool
    """Whether there is nothing at that path now, and it was not renamed to `moved_to`. Its disk may not be mounted."""
    store: Path
    checkpoints: int
    """Saves, without safety checkpoints."""
    last_save: datetime | None
    last_use: datetime
    store_bytes: int
    moved_to: str = ""
    """Where the folder is now, if it was renamed and has not been saved there yet; empty if that is not certain."""

    def is_unused(self, now: datetime) -> bool:
        """Whether it is gone and so long unused that it may be removed without being named."""
        return self.is_gone and now - self.last_use >= KEPT_FOR

    def document(self) -> dict[str, JSON]:
        """As JSON: `holdfast workspaces --json`, and the page in the browser."""
        return {
            "name": self.name,
            "folder": self.folder,
            "gone": self.is_gone,
            "moved_to": self.moved_to or None,
            "store": str(self.store),
            "checkpoints": self.checkpoints,
            "last_save": self.last_save.isoformat() if self.last_save else None,
            "last_use": self.last_use.isoformat(),
            "store_bytes": self.store_bytes,
        }


class RemovedStores(NamedTuple):
    """What a removal did."""

    removed: tuple[StoreInfo, ...]
    bytes_freed: int
    failed: dict[str, str]
    """By folder: why its store was not removed."""


def list_stores(environ: Mapping[str, str]) -> list[StoreInfo]:
    """List the stores of this user in the default place, last used first. Nothing is changed."""
    try:
        names = sorted(os.listdir(root := stores_root(environ)))
    except FileNotFoundError:
        return []
    found = [_info(root / name, environ) for name in names if not name.startswith(_REMOVED)]
    return sorted((each for each in found if each is not None), key=lambda each: each.last_use, reverse=True)


def find_gone(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a deleted workspace by its name; None if there is none. Conflict if there are several."""
    found = sorted(each.folder for each in list_stores(environ) if each.is_gone and each.name == name)
    if len(found) > 1:
        raise Conflict(
            f"{name!r} is the name of {len(found)} deleted folders: {', '.join(found)}", hint="Give the path."
        )
    return found[0] if found else None


def remove_gone(stores: Iterable[StoreInfo], environ: Mapping[str, str]) -> RemovedStores:
    """Remove stores for good, each only if its folder is still gone and nobody uses it. Finishes earlier removals."""
    removed, failed = [], {}
    for each in stores:
        try:
            _remove(each, environ)
            removed.append(each)
        except (HoldfastError, OSError) as error:
            failed[each.folder] = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)
    for rest in stores_root(environ).glob(f"{_REMOVED}*"):
        durable.remove_tree(str(rest))
    return RemovedStores(tuple(removed), sum(each.store_bytes for each in removed), failed)


def _remove(info: StoreInfo, environ: Mapping[str, str]) -> None:
    if owner_of(info.store, environ) != info.folder:
        raise NotFound("the store was replaced meanwhile")
    lock = Repository(info.store).lock
    if not lock.acquire(wait=False):
        raise Conflict("a process uses the store")
    try:
        if not _is_gone(info.folder):
            raise Conflict("the folder is there again")
        if moved_to := find_new_place(info.folder, info.store):
            raise Conflict(f"the folder is {moved_to} now")
        doomed = info.store.with_name(f"{_REMOVED}{info.store.name}-{os.urandom(4).hex()}")
        durable.disk().rename(str(info.store), str(doomed))  # commit point (P3): from here on it is no store
        durable.sync_folder(info.store.parent)
    finally:
        lock.release()
    for link in info.store.parent.iterdir():  # of places where the folder was before
        if link.is_symlink() and os.readlink(link) == info.store.name:
            durable.disk().unlink(str(link))
    durable.remove_tree(str(doomed))


def _info(store: Path, environ: Mapping[str, str]) -> StoreInfo | None:
    own = store / "holdfast"
    if store.is_symlink() or not own.is_dir():
        return None
    folder = owner_of(store, environ)
    if folder is None:
        return None  # damaged, half made, or somebody else's: not for us to judge
    times = [_mtime(own), _mtime(store / "refs" / "tags")]
    try:
        with os.scandir(own) as entries:
            times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    except FileNotFoundError:
        pass  # a file of SQLite that came and went
    saves, last = _checkpoints(store)
    is_gone = _is_gone(folder)
    moved_to = find_new_place(folder, store) if is_gone else ""
    return StoreInfo(
        name=os.path.basename(folder),
        folder=folder,
        is_gone=is_gone and not moved_to,
        store=store,
        checkpoints=saves,
        last_save=last,
        last_use=datetime.fromtimestamp(max(times), UTC),
        store_bytes=disk_bytes(store),
        moved_to=moved_to,
    )


def _is_gone(folder: str) -> bool:
    """Whether nothing is there. Any other error, as of a network disk or of permissions, says nothing about it (P1)."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


def _checkpoints(store: Path) -> tuple[int, datetime | None]:
    """How many saves there are, and the time of the last, by the catalog as it is; without one, count the refs."""
    repository = Repository(store)
    try:
        if (repository.own / "catalog.db").exists():
            rows = repository.catalog.newest(limit=1)
            return repository.catalog.saves(), datetime.fromisoformat(rows[0].timestamp) if rows else None
    except (HoldfastError, OSError, ValueError, sqlite3.Error):
        pass
    return repository.ref_count(), None


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
