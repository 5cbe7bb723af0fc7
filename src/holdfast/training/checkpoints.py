"""`save_checkpoint` and `load_checkpoint`: one state, one step, one run."""

from __future__ import annotations

import functools
import logging
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.training import background, gc_pause
from holdfast.training.folder import FolderRunStore
from holdfast.training.load import LoadRequest, OpenCheckpoint, find_in_folder
from holdfast.training.run_store import RunStore
from holdfast.training.save import PendingSave, SaveOptions, check_is_free, prepare, save
from holdfast.training.stored.layout import LAST, PRIVATE, step_name, step_of

_log = logging.getLogger("holdfast")
_TRIES = 5
Step = int | Literal["latest", "best"]

_LEVELS_BELOW = 4  # `runs/exp1/checkpoints` is three below a project
_FOLDERS_MAX = 5000  # so that a question in a home folder ends
_FILE = "file://"
_URL = re.compile("[a-z][a-z0-9+.-]+:/")


class HasPath(Protocol):
    """A checkpoint of a run, as `CheckpointManager` returns it."""

    @property
    def path(self) -> str: ...


def save_checkpoint(
    out_dir: str | os.PathLike[str],
    step: int,
    state: Any,
    *,
    metrics: Mapping[str, float] | None = None,
    best_key: str | None = None,
    mode: Literal["min", "max"] = "min",
    keep_last_k: int | None = None,
    keep_best_k: int | None = 1,
    keep_every: int | None = None,
    pin: bool = False,
    rewind: bool = False,
    adopt: bool = False,
    rng: bool = True,
    loader: Any = None,
    config: Any = None,
    metadata: Mapping[str, Any] | None = None,
    block: bool = True,
    gate: Any = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Save a state durably as the checkpoint of a step. Return a summary (`meta["path"]` …).

    When this returns, the checkpoint is on the disk, `last` and `best.json` point at the right ones, and checkpoints
    that `keep_last_k`, `keep_best_k` and `keep_every` do not keep are removed; without `keep_last_k` and `keep_every`
    none is. An error leaves the old checkpoints, or these and the new one (P3). Tensors that did not change since the
    last checkpoint are shared with it, not written again (P8).

    Refused, with the path of the value, if something cannot be stored exactly, or if the step is before the last one;
    Conflict if the step is already saved. With `rewind` a step may go back, and replaces a checkpoint of its number.
    Refused if another program wrote `last` or `best.json`; with `adopt` that file is kept as `last.replaced-1`.
    With `block=False` this returns as soon as the state may be changed, and the rest happens in the background: see
    `wait_for_save`. The copy takes as much memory as the state, which is kept for the next save
    (`meta["arena_bytes"]`). gate: the optimizer, or optimizers, whose next step waits until the state is copied from
    its device; without it everything on the device waits.

    rng: also save the random states. loader: also save the position of a data loader that has a `state_dict`. config:
    also save the hash of a configuration.
    """
    request = SaveOptions(
        metrics=metrics, best_key=best_key, mode=mode, keep_last_k=keep_last_k, keep_best_k=keep_best_k,
        keep_every=keep_every, pin=pin, rewind=rewind, adopt=adopt, rng=rng, loader=loader, config=config,
        metadata=metadata, block=block, gate=gate, threads=threads,
    )  # fmt: skip
    return save_requested(out_dir, step, state, request)


def save_requested(
    out_dir: str | os.PathLike[str], step: int, state: Any, request: SaveOptions
) -> dict[str, Any]:  # fmt: skip
    """Save as `save_checkpoint` does."""
    store, optimizers = open_run(out_dir), request.optimizers
    saver = background.saver
    with saver.turn:
        saver.wait()  # one save at a time; an error of the previous one is raised before anything else happens
        if not request.block:
            return _save_in_background(store, prepare(step, state, request), optimizers)
    with gc_pause.paused():  # until the many objects of a save are freed: none of them is cyclic garbage
        return save(store, prepare(step, state, request))


def _save_in_background(store: RunStore, pending: PendingSave, optimizers: list[Any]) -> dict[str, Any]:
    check_is_free(store, pending)  # what can be refused is refused at once
    saver = background.saver
    staged, wait_for_copies = saver.buffer.stage(pending.flat.payloads, optimizers)

    def work() -> dict[str, Any]:
        wait_for_copies()
        return save(store, replace(pending, flat=replace(pending.flat, payloads=staged)))

    saver.start(work)
    path = store.path / step_name(pending.step)
    return {"path": str(path), "step": pending.step, "pending": True, "arena_bytes": saver.buffer.n_bytes}


def load_checkpoint(
    path: str | os.PathLike[str] | HasPath | Mapping[str, Any],
    *,
    step: Step | None = None,
    weights_only: bool = False,
    map_location: Any = None,
    mmap: bool = False,
    only: Sequence[str] | None = None,
    verify: bool = True,
    restore_rng: bool = False,
    loader: Any = None,
    like: Any = None,
) -> Any:
    """Load the state of a checkpoint. Every byte is verified, and nothing is unpickled (P7).

    path: a checkpoint (its path, or what `save_checkpoint` or `history` returned), `OUT_DIR/last`,
    `OUT_DIR/best.json`, or OUT_DIR with a `step`.
    weights_only: load tensors and plain values (numbers, text, bytes, containers), and no object of a class, as
    `torch.load(weights_only=True)` does. only: load what has one of these names or prefixes. mmap: map
    tensors, and verify each when it is first used. restore_rng: restore the random states. loader: restore the
    position of this data loader. like: a state of the same structure, for objects whose classes are not known
    otherwise, such as a `TrainState` of Flax: its classes, and what they do not store, are taken from it.

    Damaged if a byte is not what was written; NotFound if there is no such checkpoint.
    """
    request = LoadRequest(
        weights_only=weights_only, map_location=map_location, mmap=mmap, only=only, verify=verify, like=like
    )
    place = _place_of(path)
    for tries_left in reversed(range(_TRIES)):
        opened = open_checkpoint(place, step, verify=verify)
        try:
            state = opened.state(request)
            break
        except (Damaged, NotFound):
            if not tries_left or not opened.is_gone:
                raise  # else a save has pruned it while it was read, and there is a newer one (P9)
    if restore_rng or loader is not None:
        for note in opened.restore(rng=restore_rng, loader=loader):
            _log.warning("%s: %s", opened.found.path, note)
    return state


def _place_of(checkpoint: str | os.PathLike[str] | HasPath | Mapping[str, Any]) -> str | os.PathLike[str]:
    if isinstance(checkpoint, str | os.PathLike):
        return checkpoint
    place: Any = checkpoint.get("path") if isinstance(checkpoint, Mapping) else getattr(checkpoint, "path", None)
    if not isinstance(place, str | os.PathLike):
        raise Refused(
            f"a {type(checkpoint).__name__} without a path is not a checkpoint",
            hint='Pass meta["path"].',
        )
    return place


def open_run(out_dir: str | os.PathLike[str]) -> RunStore:
    """Return the store of a run: a folder, or the URL of an object store."""
    if not is_url(out_dir):
        return _folder_store(folder_of(out_dir))
    from holdfast.training.objects import ObjectRunStore  # an extra: `holdfast[s3]`

    return ObjectRunStore(str(out_dir))


def find_run(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of the only run in the folders below this one; this one if it is a run, or none is below.

    Refused if there are several. Hidden folders are not searched.
    """
    top = folder_of(folder)
    found: list[Path] = []
    for count, (place, folders, files) in enumerate(os.walk(top)):
        path = Path(place)
        if PRIVATE in folders and (LAST in files or any(step_of(each) is not None for each in folders)):
            found.append(path)
            folders.clear()
        elif len(path.relative_to(top).parts) == _LEVELS_BELOW:
            folders.clear()
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each != "node_modules")
        if count == _FOLDERS_MAX:
            break
    if len(found) > 1:
        names = ", ".join(os.fspath(each.relative_to(top)) for each in found[:5])
        raise Refused(f"{top} contains several runs: {names}{', …' * (len(found) > 5)}", hint="Name one of them.")
    return found[0] if found else top


@functools.lru_cache(maxsize=64)
def _folder_store(path: Path) -> FolderRunStore:
    """One store for all callers, so that a save need not read what the last one has written (P8)."""
    return FolderRunStore(path, brief=True)


def open_checkpoint(path: str | os.PathLike[str], step: Any, *, verify: bool) -> OpenCheckpoint:
    """Find a checkpoint in a folder or an object store."""
    if not is_url(path):
        found, folder = find_in_folder(folder_of(path), step, verify=verify)
        return OpenCheckpoint(found, folder.reader(found, verify=verify))
    from holdfast.training.objects import find_object  # an extra: `holdfast[s3]`

    found, store = find_object(str(path), step, verify=verify)
    return OpenCheckpoint(found, store.reader(found, verify=verify))


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the URL of an object store."""
    return isinstance(path, str) and "://" in path and not path.startswith(_FILE)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """Return the folder that a path or a `file://` URL names. Refused if it names none."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise Refused(f"invalid folder {text!r}", hint="Name a folder for the checkpoints.")
    if text.startswith(_FILE):
        text = urllib.parse.unquote(text.removeprefix(_FILE))
        if not text.startswith("/"):
            raise Refused(f"{_FILE}{text} is not a folder on this machine", hint="Write file:///FOLDER.")
    elif _URL.match(text):  # `Path("s3://…")` has lost a slash
        raise Refused(f"{text} is a URL, not a folder", hint="Pass s3://BUCKET/PREFIX as a str, not as a Path.")
    return Path(os.path.abspath(os.path.expanduser(text)))
