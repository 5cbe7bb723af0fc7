"""`utils.checkpoint`, the legacy saver, and `codex_ml.utils.checkpoint` of the same name: their arguments differ."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import core, files, payload, rng
from holdfast.compat.codex_ml.frameworks import torch as _torch
from holdfast.compat.codex_ml.step_manager import CheckpointManager
from holdfast.compat.deprecation import deprecate

__all__ = ["CheckpointManager", "load_checkpoint", "prune_best_k", "restore_into", "save_checkpoint"]

_PARTS = ("model", "optimizer", "scheduler")
_OF_A_FOLDER = frozenset({
    *(f"{name}.pt{end}" for name in (*_PARTS, "rng") for end in ("", ".sha256")), "rng.json", "metadata.json",
    "checkpoint.sha256", ".lock",
})  # fmt: skip


def save_checkpoint(
    state: Mapping[str, Any] | None = None,
    path: str | os.PathLike[str] | None = None,
    archive_latest: bool = True,
    **options: Any,
) -> Path | None:
    """Save a state in a file, with the options of `checkpoint_core.save_checkpoint`; return None.

    With `model`, `optimizer`, `scheduler` and `out_dir`, save these in files of a folder; return the folder.
    """
    if "out_dir" in options:
        return _save_parts(**options)
    if state is None or path is None:
        raise TypeError("save_checkpoint() takes state and path, or model, optimizer, scheduler and out_dir")
    target = Path(path).expanduser()
    if target.is_dir():
        core.save_checkpoint(target, dict(state), **options)
        return None
    written, _ = core.save_checkpoint(target.parent, dict(state), **options)
    with files.locked(target.parent), written.open("rb") as source:
        files.write_with_digest(target, lambda out: shutil.copyfileobj(source, out))
    return None


def load_checkpoint(
    path: str | os.PathLike[str] | None = None,
    device: Any = "cpu",
    *,
    restore_rng: bool | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the state of a file, and restore its random states unless told not to.

    With `model`, `optimizer`, `scheduler` and `ckpt_dir`, load the files of a folder into these; return its metadata.
    """
    if "ckpt_dir" in options:
        return _load_parts(**options)
    if path is None:
        raise TypeError("load_checkpoint() takes path, or model, optimizer, scheduler and ckpt_dir")
    restores = restore_rng is not False
    try:
        return core.load_checkpoint(path, restore_rng=restores, map_location=options.pop("map_location", device))[0]
    except core.CheckpointIntegrityError:
        found = payload.read(Path(path).expanduser(), map_location=device)
        if not isinstance(found, Mapping) or {"state", "meta"} <= found.keys():
            raise
    state = dict(found)  # of `torch.save`, without metadata
    states = state.pop("_rng", None)
    if restores and states:
        rng.restore(states)
    return state


def _save_parts(
    *,
    model: Any,
    optimizer: Any,
    scheduler: Any,
    out_dir: str | os.PathLike[str],
    metadata: dict[str, Any] | None = None,
    metric_name: str = "eval_loss",
    metric_value: float | None = None,
    metric: float | None = None,
    best_k: int | None = None,
) -> Path:
    folder = Path(out_dir).expanduser()
    value = metric if metric_value is None else metric_value
    told: dict[str, Any] = {"version": 3, "schema_version": core.SCHEMA_VERSION} | (metadata or {})
    if value is not None:
        told["metrics"] = {**told.get("metrics", {}), metric_name: float(value)}
    with files.locked(folder.parent):
        new = folder.with_name(f".{folder.name}.{os.getpid()}-0.new")
        files.remove(new)
        files.make_folder(new)
        for name, each in zip(_PARTS, (model, optimizer, scheduler), strict=True):
            if each is not None:
                _write_part(new / f"{name}.pt", each.state_dict() if hasattr(each, "state_dict") else each)
        files.write_json(new / "rng.json", rng.capture())
        files.write_json(new / "metadata.json", told)
        files.put_in_place(new, folder, _OF_A_FOLDER)  # commit point
    if best_k and value is not None:
        _keep_best(folder, metric_name, float(value), int(best_k))
    return folder


def _write_part(path: Path, state: Any) -> None:
    files.write_with_digest(path, lambda out: payload.write(state, out, use_torch=payload.has_torch()))


def _keep_best(folder: Path, name: str, value: float, count: int) -> None:
    """Remove the folders that this function lists and that are not among the best; this one always stays."""
    with files.locked(folder.parent):
        index = folder.parent / "index.json"
        known = [
            each for each in files.read_json_or(index, []) if isinstance(each, dict) and each.get("path") != folder.name
        ]
        new = {"schema_version": core.SCHEMA_VERSION, "path": folder.name, "metric": value, "metric_name": name}
        order = sorted([*known, new], key=lambda each: files.rank(each.get("metric"), "min"))
        kept = [each for place, each in enumerate(order) if place < count or each is new]
        files.write_json(index, kept)
        for each in order:
            place = folder.parent / Path(str(each.get("path"))).name
            if each not in kept and (place / "model.pt.sha256").is_file():
                files.remove(place)


def _load_parts(
    *,
    model: Any,
    optimizer: Any,
    scheduler: Any,
    ckpt_dir: str | os.PathLike[str],
    map_location: Any = "cpu",
    strict: bool = False,
) -> dict[str, Any]:
    folder = Path(ckpt_dir).expanduser()
    states = {name: folder / f"{name}.pt" for name in _PARTS if (folder / f"{name}.pt").exists()}
    for path in states.values():
        recorded = files.recorded_digests(path)
        if recorded and files.sha256_of(path) not in recorded:
            raise ValueError(f"checkpoint checksum mismatch: {path}")
        if strict and not recorded:
            raise ValueError(f"missing checksum for checkpoint: {path}")
    restore_into(
        model,
        optimizer,
        scheduler,
        {name: payload.read(path, map_location=map_location) for name, path in states.items()},
    )
    if (folder / "rng.json").exists():
        rng.restore(files.read_json(folder / "rng.json"))
    told: dict[str, Any] = files.read_json_or(folder / "metadata.json", {})
    return told


def restore_into(model: Any, optimizer: Any, scheduler: Any, payload: Mapping[str, Any]) -> None:
    """Load the states that a mapping has into these objects."""
    for name, target in zip(_PARTS, (model, optimizer, scheduler), strict=True):
        if target is not None and payload.get(name) is not None and hasattr(target, "load_state_dict"):
            target.load_state_dict(payload[name])


def prune_best_k(checkpoint_dir: str | os.PathLike[str], k: int = 3) -> None:
    """Remove all but the newest `k` folders that `save_checkpoint` has saved."""
    root = Path(checkpoint_dir).expanduser()
    if k <= 0 or not root.is_dir():
        return
    with files.locked(root):
        found = [path for path in root.iterdir() if (path / "model.pt.sha256").is_file()]
        for path in sorted(found, key=lambda path: (path / "model.pt.sha256").stat().st_mtime_ns)[:-k]:
            files.remove(path)


def _ensure_torch_available() -> None:
    if _torch is None:
        raise RuntimeError("torch is required to use src.utils.checkpoint")


def _torch_supports_weights_only() -> bool:
    load = getattr(_torch, "load", None)
    return load is not None and "weights_only" in inspect.signature(load).parameters


deprecate(
    __name__,
    {
        "CheckpointManager": "holdfast.training.CheckpointManager",
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "prune_best_k": "holdfast.training.CheckpointManager with keep_best",
        "restore_into": "holdfast.training.load_checkpoint",
        "save_checkpoint": "holdfast.training.save_checkpoint",
    },
)
