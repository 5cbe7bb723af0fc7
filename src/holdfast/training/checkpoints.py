"""`save_checkpoint` and `load_checkpoint`: one state, one step, one folder."""

from __future__ import annotations

import functools
import logging
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.training import background
from holdfast.training.folder import TrainingFolder
from holdfast.training.loading import Opened, find
from holdfast.training.metrics import check_metrics
from holdfast.training.resume import rng as random_states
from holdfast.training.resume.environment import capture_environment, config_hash
from holdfast.training.retaining import Keep
from holdfast.training.saving import Wish, check_step, save
from holdfast.training.stored import leaves
from holdfast.training.stored.layout import check_step as check_number
from holdfast.training.stored.layout import step_name
from holdfast.training.threads import check_threads
from holdfast.training.tree import flatten

_log = logging.getLogger("holdfast")
_TRIES = 5
Step = int | Literal["latest", "best"]

_FILE = "file://"
_URL = re.compile("[a-z][a-z0-9+.-]+:/")


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
    """Save a state as the checkpoint of a step, durably, and return what there is to say of it (`meta["path"]` …).

    When this returns the checkpoint is on the disk, `last` and `best.json` are right, and what `keep_last_k`,
    `keep_best_k` and `keep_every` have no reason to keep is gone; without `keep_last_k` and `keep_every` nothing goes.
    An error leaves what was there, or that and the new one (P3). Tensors that did not change since the last checkpoint
    are shared with it, not written again.

    Refused, with the path of the value, if something cannot be stored exactly, or if the step comes before the last
    one; Conflict if the step is saved already. With `rewind` a step may go back, and replaces one of its number.
    Refused if `last` or `best.json` is another program's; with `adopt` that one is kept as `last.replaced-1`.
    With `block=False` this returns as soon as the state may be changed, and the rest goes on in the background: see
    `wait_for_save`. The copy takes as much memory as the state, which is kept for the next save
    (`meta["arena_bytes"]`). gate: the optimiser, or optimisers, whose next step waits until the state is copied from
    its device; without it everything on the device waits.

    rng: keep the random states too. loader: keep the position of a data loader that has a `state_dict`. config: keep
    its hash.
    """
    return save_state(
        out_dir, step, state, metrics=metrics, best_key=best_key, mode=mode, keep_last_k=keep_last_k,
        keep_best_k=keep_best_k, keep_every=keep_every, pin=pin, rewind=rewind, adopt=adopt, rng=rng, loader=loader,
        config=config, metadata=metadata, block=block, gate=gate, threads=threads,
    )  # fmt: skip


def save_state(
    out_dir: str | os.PathLike[str], step: int, state: Any, *, keep_last_k: int | None = None,
    keep_best_k: int | None = 1, keep_every: int | None = None, block: bool = True, gate: Any = None, **wishes: Any,
) -> dict[str, Any]:  # fmt: skip
    """`save_checkpoint`, for those who may leave out the metric that decides (`needs_best=False`)."""
    folder = run_of(out_dir)
    optimizers = _optimizers(gate)
    with background.lane.turn:
        background.lane.wait()  # at most one in flight; an error of that one is told before anything else is done
        wish = make_wish(step, state, keep=Keep(keep_last_k, keep_best_k, keep_every), **wishes)
        if not block:
            return _save_beside(folder, wish, optimizers)
    return save_into(folder, wish)


def _optimizers(gate: Any) -> list[Any]:
    """The optimisers that are given as a gate; Refused if they are none."""
    found = [] if gate is None else list(gate) if isinstance(gate, list | tuple) else [gate]
    if not all(hasattr(optimizer, "register_step_pre_hook") for optimizer in found):
        raise Refused("gate is not an optimiser of PyTorch", hint="Give the optimiser that changes the state, or none.")
    return found


def _save_beside(folder: TrainingFolder, wish: Wish, optimizers: list[Any]) -> dict[str, Any]:
    check_step(folder, wish)  # what can be refused is refused at once
    lane = background.lane
    staged, copied = lane.arena.stage(wish.payloads, optimizers)

    def work() -> dict[str, Any]:
        copied()
        return save_into(folder, replace(wish, payloads=staged))

    lane.start(work)
    path = folder.path / step_name(wish.step)
    return {"path": str(path), "step": wish.step, "pending": True, "arena_bytes": lane.arena.n_bytes}


def load_checkpoint(
    path: str | os.PathLike[str],
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
    """Load the state of a checkpoint: every byte is verified, and nothing is ever unpickled (P7).

    path: a checkpoint (`meta["path"]`), `OUT_DIR/last`, `OUT_DIR/best.json`, or OUT_DIR with a `step`.
    weights_only: tensors alone, in their places. only: names or beginnings of names of what is wanted. mmap: tensors
    are mapped, and verified when they are first asked for. restore_rng: set the random states back. loader: set a
    data loader's position back. like: a state of the same structure, for objects of classes that are not known
    otherwise, such as a `TrainState` of Flax: its classes, and what they do not store, are taken from it.

    Damaged if a byte is not what was written; NotFound if there is no such checkpoint.
    """
    for tries_left in reversed(range(_TRIES)):
        opened = open_checkpoint(path, step, verify=verify, mmap=mmap)
        try:
            state = opened.state(weights_only=weights_only, only=only, map_location=map_location, like=like)
            break
        except (Damaged, NotFound):
            if not tries_left or not opened.is_gone:
                raise  # else a save has pruned it while it was read, and there is a newer one (P9)
    if restore_rng or loader is not None:
        for note in set_back(opened, rng=restore_rng, loader=loader):
            _log.warning("%s: %s", opened.found.path, note)
    return state


def set_back(opened: Opened, *, rng: bool, loader: Any) -> list[str]:
    """Set random states and a data loader's position back; returns what could not be."""
    resume = opened.resume()
    if loader is not None:
        if "loader" not in resume:
            raise Refused(f"{opened.found.path} holds no position of a data loader", hint="Save it with loader=….")
        loader.load_state_dict(resume["loader"])
    if not rng:
        return []
    if "rng" not in resume:
        raise Refused(f"{opened.found.path} holds no random states", hint="Leave restore_rng out.")
    return random_states.restore_rng(resume["rng"])


def make_wish(
    step: int, state: Any, *, keep: Keep, metrics: Any = None, best_key: str | None = None, mode: str = "min",
    pin: bool = False, rewind: bool = False, adopt: bool = False, rng: bool = True, loader: Any = None,
    config: Any = None, metadata: Mapping[str, Any] | None = None, threads: int | None = None, needs_best: bool = True,
) -> Wish:  # fmt: skip
    """Check everything that is asked for, and take the state apart; nothing is copied or written."""
    resume: dict[str, Any] = {}
    if loader is not None:
        if not hasattr(loader, "state_dict") or not hasattr(loader, "load_state_dict"):
            raise Refused(
                f"the loader is a {type(loader).__name__}, which does not tell its position",
                hint="Give one with state_dict and load_state_dict, such as torchdata's StatefulDataLoader.",
            )
        resume["loader"] = loader.state_dict()
    if rng:
        resume["rng"] = random_states.capture_rng()
    step = check_number(step)
    checked = check_metrics(metrics, best_key if needs_best else None, mode)
    flat = flatten(state, resume or None)
    return Wish(
        step=step, payloads=flat.payloads, tree=flat.tree, resume=flat.resume, created_at=_now(), notes=flat.notes,
        metrics=checked,
        best_key=best_key, mode=mode, keep=keep, pin=pin, rewind=rewind, adopt=adopt, threads=check_threads(threads),
        metadata=_written(metadata),
        environment=capture_environment(Path.cwd()), config_hash=config_hash(config),
    )  # fmt: skip


def _written(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as a manifest has them; Refused if they are none."""
    given = {} if metadata is None else metadata
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Refused(f"metadata is {given!r:.80}", hint='Give a dict with text for keys, such as {"run": 7}.')
    return {name: leaves.encode(value, f"metadata {name}") for name, value in given.items()}


def run_of(out_dir: str | os.PathLike[str]) -> TrainingFolder:
    """The run that a folder, or the URL of an object store, holds the checkpoints of."""
    if not is_url(out_dir):
        return _folder(folder_of(out_dir))
    from holdfast.training.remote import RemoteFolder  # an extra: `holdfast[s3]`

    found: Any = RemoteFolder(str(out_dir))  # the same verbs
    return cast("TrainingFolder", found)


@functools.lru_cache(maxsize=64)
def _folder(path: Path) -> TrainingFolder:
    """One for all who ask: the next save does not read again what the last has read (P8)."""
    return TrainingFolder(path, briefly=True)


def save_into(folder: TrainingFolder, wish: Wish) -> dict[str, Any]:
    """Save to a folder or an object store."""
    if isinstance(folder, TrainingFolder):
        return save(folder, wish)
    from holdfast.training.uploading import save_remote

    return save_remote(folder, wish)


def open_checkpoint(path: str | os.PathLike[str], step: Any, *, verify: bool, mmap: bool) -> Opened:
    """Find a checkpoint in a folder or an object store."""
    if not is_url(path):
        return Opened(find(folder_of(path), step, verify=verify), verify=verify, mmap=mmap)
    from holdfast.training.remote import find_remote

    found, folder = find_remote(str(path), step, verify=verify)
    return Opened(found, mmap=mmap, reader=folder.reader(found, verify=verify))


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an object store."""
    return isinstance(path, str) and "://" in path and not path.startswith(_FILE)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder that was named; Refused if nothing was."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise Refused(f"the folder is {text!r}", hint="Name a folder for the checkpoints.")
    if text.startswith(_FILE):
        text = urllib.parse.unquote(text.removeprefix(_FILE))
        if not text.startswith("/"):
            raise Refused(f"{_FILE}{text} is not a folder of this machine", hint="Write file:///FOLDER.")
    elif _URL.match(text):  # a `Path` has one slash fewer than the URL that it was made of
        raise Refused(f"{text} is a URL, not a folder", hint="Give s3://BUCKET/PREFIX as text, where that is possible.")
    return Path(os.path.abspath(text))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
