"""Holdfast as the `CheckpointIO` of Lightning: atomic, verified, shared between checkpoints, nothing pickled.

    Trainer(plugins=[HoldfastIO()]).fit(model, ckpt_path=HoldfastIO.newest("checkpoints"))

Lightning links, copies and removes the *path* of a checkpoint as a file. So what it gets is a small JSON file at that
path, which names a checkpoint in a folder beside it (`.holdfast-checkpoints`); that goes when the last file that names
it does.
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
from holdfast.errors import Damaged, Extra, NotFound, Refused
from holdfast.training import sweeping
from holdfast.training.checking import verify
from holdfast.training.checkpoints import folder_of, load_checkpoint, save_checkpoint
from holdfast.training.folder import TrainingFolder
from holdfast.training.stored import marker
from holdfast.training.stored.layout import PRIVATE, SCHEMA_VERSION, check_schema, step_name
from holdfast.training.telling import system_errors

with Extra("lightning"):
    from lightning.pytorch.plugins.io import CheckpointIO

    from holdfast.training.frameworks import torch_side

STORE = ".holdfast-checkpoints"
_KIND = "holdfast.lightning"
_log = logging.getLogger("holdfast")


class HoldfastIO(CheckpointIO):  # type: ignore[misc]  # an extra, whose types are not read
    """Saves and loads what Lightning hands over; what cannot be stored exactly is refused by name.

    A file that another plug-in wrote is neither replaced nor removed; with `adopt` a save keeps it as
    `last.ckpt.replaced-1`.
    """

    def __init__(self, *, adopt: bool = False) -> None:
        super().__init__()
        self._adopt = adopt

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint, durably, and then let the file at `path` name it."""
        if storage_options is not None:
            raise Refused("storage_options are given", hint="Leave them out: HoldfastIO has none.")
        target = folder_of(path)
        folder = TrainingFolder(target.parent / STORE)
        with _naming(folder):
            if _is_foreign(target) and not self._adopt:
                raise marker.refuse(target)  # P1: before anything is written
            step = _free_step(folder)
            metadata = {"global_step": checkpoint.get("global_step")}
            save_checkpoint(folder.path, step, checkpoint, metadata=metadata, adopt=self._adopt)
            about = {"schema_version": SCHEMA_VERSION, "kind": _KIND, "store": STORE, "step": step}
            with system_errors("writing to", target):
                self._name(folder, target, json.dumps(about).encode() + b"\n")
            self._sweep(folder)

    def _name(self, folder: TrainingFolder, target: Path, text: bytes) -> None:
        """Let a file name a checkpoint; what another program has put there keeps its content (P1)."""
        if _is_foreign(target):
            if not self._adopt:
                raise marker.refuse(target)
            kept = sweeping.aside(target, "replaced")
            _log.warning("%s %s, and is kept as %s", target, marker.FOREIGN, kept.name)
            disk().rename(str(target), str(kept))
        write_atomically(target, text, via=folder.path / PRIVATE / "naming.new", mode=0o644)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint that a file names, every byte verified. Nothing is unpickled, whatever `weights_only`."""
        store, step = _named(folder_of(path))
        found: dict[str, Any] = load_checkpoint(store, step=step, map_location=torch_side.device_meant(map_location))
        return found

    @staticmethod
    def newest(folder: str | os.PathLike[str]) -> str | None:
        """The file that names the newest checkpoint that is sound, every byte of it read: for `ckpt_path`.

        None if there is none; what is damaged is logged and passed over.
        """
        place = folder_of(folder)
        named, _ = _names(place)
        for found in reversed(TrainingFolder(place / STORE).look()[0]):
            if found.step in named:
                report = verify([found])
                if not found.path.is_dir():
                    continue  # removed meanwhile
                if report.ok:
                    return str(named[found.step])
                _log.warning("passed over: %s, of which %s", named[found.step], report.problems[0].detail)
        return None

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove the file, and what it names if no other file names it. What is not ours stays (P1)."""
        target = folder_of(path)
        with system_errors("removing", target):
            if _is_foreign(target):
                _log.warning("not removed: %s %s", target, marker.FOREIGN)
            elif os.path.lexists(target):
                disk().unlink(str(target))
        folder = TrainingFolder(target.parent / STORE)
        if folder.path.is_dir():
            with _naming(folder):
                self._sweep(folder)

    def _sweep(self, folder: TrainingFolder) -> None:
        """Remove the checkpoints that no file names any more; the newest stays in any case."""
        found, _ = folder.look()
        if len(found) < 2:
            return
        named, unread = _names(folder.path.parent)
        if unread:
            _log.warning("nothing is removed: %s cannot be read, and may name a checkpoint", unread[0])
            return
        with folder.writing():
            for each in found[:-1]:
                if each.step not in named:
                    folder.remove(each)


@contextlib.contextmanager
def _naming(folder: TrainingFolder) -> Iterator[None]:
    """Alone from the save to the name: what another trainer has saved and not yet named must not be swept (P9)."""
    with system_errors("writing to", folder.path):
        make_folder(folder.path / PRIVATE, mode=0o777)
        lock = Lock(folder.path / PRIVATE / "naming")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _free_step(folder: TrainingFolder) -> int:
    """A step that no checkpoint has, and that no file names: one whose checkpoint is broken must not get another's."""
    found, broken = folder.look()
    named, _ = _names(folder.path.parent)
    step = max([-1, *(each.step for each in found), *(each.step for each in broken)]) + 1
    while step in named:
        step += 1
    return step


def _named(path: Path) -> tuple[Path, int]:
    """The store and the step that a file names."""
    if not path.exists():
        raise NotFound(f"there is no {path}", hint="Give the path of a checkpoint that was saved.")
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
    """Whether something is there that this plug-in did not write; a link is what it leads to, as Lightning makes them.

    One that leads nowhere, or to a file that is gone, holds nothing that could be lost.
    """
    try:
        return path.exists() and (not path.is_file() or _read(path) is None)
    except OSError:
        return True  # it cannot be read, so nobody can tell


def _names(folder: Path) -> tuple[dict[int, Path], list[Path]]:
    """By step, the file that names it; and the files of which nobody can tell."""
    with system_errors("reading", folder):
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
