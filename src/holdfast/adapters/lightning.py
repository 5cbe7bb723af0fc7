"""Holdfast as the `CheckpointIO` of Lightning: atomic, verified, shared between checkpoints, nothing pickled.

    Trainer(plugins=[HoldfastIO()]).fit(model, ckpt_path=HoldfastIO.newest("checkpoints"))

Lightning links, copies and removes the *path* of a checkpoint as a file. So it gets a small JSON file at that path,
which names a checkpoint in a folder beside it (`.holdfast-checkpoints`). A checkpoint is removed with the last file
that names it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.durable import Lock, disk, make_folder, write_atomically
from holdfast.durable.os_errors import os_errors
from holdfast.errors import Damaged, Extra, NotFound, Refused
from holdfast.training.checkpoints import folder_of, load_checkpoint, save_checkpoint
from holdfast.training.folder import FolderRunStore, free_name
from holdfast.training.stored import marker
from holdfast.training.stored.layout import PRIVATE, SCHEMA_VERSION, check_schema, step_name
from holdfast.training.verify import verify_folders

with Extra("lightning"):
    from lightning.pytorch.plugins.io import CheckpointIO

    from holdfast.training.frameworks import torch_tensors

STORE = ".holdfast-checkpoints"
_KIND = "holdfast.lightning"
_log = logging.getLogger("holdfast")


class HoldfastIO(CheckpointIO):  # type: ignore[misc]  # an extra, whose types are not read
    """Saves and loads Lightning's checkpoints. Refused, with its path, if a value cannot be stored exactly (P2).

    A file that another plug-in wrote is neither replaced nor removed (P1); with `adopt` a save keeps it as
    `last.ckpt.replaced-1`.
    """

    def __init__(self, *, adopt: bool = False) -> None:
        super().__init__()
        self._adopt = adopt

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint durably, and then write the file at `path` that names it."""
        if storage_options is not None:
            raise Refused("HoldfastIO has no storage_options", hint="Leave them out.")
        target = folder_of(path)
        folder = FolderRunStore(target.parent / STORE)
        with _naming(folder):
            if _is_foreign(target) and not self._adopt:
                raise marker.refuse(target)  # P1: before anything is written
            step = _free_step(folder)
            metadata = {"global_step": checkpoint.get("global_step")}
            save_checkpoint(folder.path, step, checkpoint, metadata=metadata, adopt=self._adopt)
            about = {"schema_version": SCHEMA_VERSION, "kind": _KIND, "store": STORE, "step": step}
            with os_errors(target, "writing to"):
                self._name(folder, target, json.dumps(about).encode() + b"\n")
            self._remove_unnamed(folder)

    def _name(self, folder: FolderRunStore, target: Path, text: bytes) -> None:
        """Write the file that names a checkpoint. A file of another program is renamed (P1)."""
        if _is_foreign(target):
            if not self._adopt:
                raise marker.refuse(target)
            kept = free_name(target, "replaced")
            _log.warning("%s %s, and is kept as %s", target, marker.FOREIGN, kept.name)
            disk().rename(str(target), str(kept))
        write_atomically(target, text, via=folder.path / PRIVATE / "naming.new", mode=0o644)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint that a file names, verified. Nothing is unpickled, whatever `weights_only` is (P7)."""
        store, step = _named(folder_of(path))
        found: dict[str, Any] = load_checkpoint(store, step=step, map_location=torch_tensors.device_of(map_location))
        return found

    @staticmethod
    def newest(folder: str | os.PathLike[str]) -> str | None:
        """Return the file that names the newest sound checkpoint, for `ckpt_path`. Reads every byte of it.

        None if there is none. Damaged checkpoints are logged and skipped.
        """
        place = folder_of(folder)
        named, _ = _names(place)
        for found in reversed(FolderRunStore(place / STORE).scan()[0]):
            if found.step in named:
                report = verify_folders([found])
                if not found.path.is_dir():
                    continue  # removed meanwhile
                if report.ok:
                    return str(named[found.step])
                _log.warning("skipped: %s, because a file %s", named[found.step], report.problems[0].detail)
        return None

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove the file, and its checkpoint if no other file names that. Other programs' files stay (P1)."""
        target = folder_of(path)
        with os_errors(target, "removing"):
            if _is_foreign(target):
                _log.warning("not removed: %s %s", target, marker.FOREIGN)
            elif os.path.lexists(target):
                disk().unlink(str(target))
        folder = FolderRunStore(target.parent / STORE)
        if folder.path.is_dir():
            with _naming(folder):
                self._remove_unnamed(folder)

    def _remove_unnamed(self, folder: FolderRunStore) -> None:
        """Remove the checkpoints that no file names any more, except the newest."""
        found, _ = folder.scan()
        if len(found) < 2:
            return
        named, unread = _names(folder.path.parent)
        if unread:
            _log.warning("no checkpoint is removed: %s cannot be read, and may name one", unread[0])
            return
        with folder.writing():
            for each in found[:-1]:
                if each.step not in named:
                    folder.remove(each)


@contextlib.contextmanager
def _naming(folder: FolderRunStore) -> Iterator[None]:
    """Hold a lock from the save to the naming: a checkpoint that is not named yet must not be removed (P9)."""
    with os_errors(folder.path, "writing to"):
        make_folder(folder.path / PRIVATE, mode=0o777)
        lock = Lock(folder.path / PRIVATE / "naming")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _free_step(folder: FolderRunStore) -> int:
    """Return a step that no checkpoint has and no file names: a file of a broken checkpoint must not name a new one."""
    found, broken = folder.scan()
    named, _ = _names(folder.path.parent)
    step = max([-1, *(each.step for each in found), *(each.step for each in broken)]) + 1
    while step in named:
        step += 1
    return step


def _named(path: Path) -> tuple[Path, int]:
    """Return the store and the step that a file names."""
    if not path.exists():
        raise NotFound(f"{path} does not exist", hint="Give the path of a checkpoint that was saved.")
    about = _read(path)
    if about is None:
        raise Damaged(f"{path} is not a checkpoint of HoldfastIO", hint="Load it with the plug-in that wrote it.")
    check_schema(about.get("schema_version"), str(path))
    step = about.get("step")
    if about.get("store") != STORE or isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise Damaged(f"{path} does not name a checkpoint", hint="Use another checkpoint.")
    store = path.resolve().parent / STORE
    if not (store / step_name(step)).is_dir():
        raise NotFound(f"{path} names a checkpoint that is not in {store}", hint="Move the folder with the file.")
    return store, step


def _is_foreign(path: Path) -> bool:
    """Whether something exists that this plug-in did not write. Links are followed, because Lightning makes links.

    A broken link contains nothing that could be lost.
    """
    try:
        return path.exists() and (not path.is_file() or _read(path) is None)
    except OSError:
        return True  # unreadable, so it may be foreign


def _names(folder: Path) -> tuple[dict[int, Path], list[Path]]:
    """Return, by step, the file that names it; and the files that cannot be read."""
    with os_errors(folder, "reading"):
        files = sorted(folder.iterdir()) if folder.is_dir() else []
    named, unread = {}, []
    for file in files:
        try:
            step = (_read(file) or {}).get("step") if file.is_file() else None
        except FileNotFoundError:
            continue  # another trainer has removed it
        except OSError:
            unread.append(file)
            continue
        if isinstance(step, int):
            named[step] = file
    return named, unread


def _read(path: Path) -> dict[str, Any] | None:
    if path.stat().st_size > 4096:
        return None
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") == _KIND else None
