"""One checkpoint in one file, with its digest beside it and an index of the best: what `utils.checkpoint_core` does.

A folder has `ckpt-DATE-TIME-N.pt` and `.pt.sha256`, `index.json` and `best_index.json`; with `metadata=` also
`metadata.json`, `state.pt` (the newest) and `state.sha256`. Only files that the index names are ever removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.compat.codex_ml import files, payload, rng
from holdfast.compat.codex_ml.frameworks import np, torch
from holdfast.training.resume.environment import git_commit

SCHEMA_VERSION = "1.0"
_READABLE = {"1.0", "2"}
_numbers = itertools.count()
_NAME = re.compile(r"[^/\0]+\.pt")


class CheckpointIntegrityError(RuntimeError):
    """A checkpoint is not what was written."""


@dataclass
class CheckpointMeta:
    """What is known of a checkpoint besides its state."""

    schema_version: str
    created_at: int
    git_sha: str | None
    config_hash: str | None
    rng: dict[str, Any]
    env: dict[str, Any]
    metric_key: str | None
    metric_value: float | None
    sha256: str | None
    """Of the file. Not stored in the file itself, but beside it."""
    config_snapshot: dict[str, Any] | None = None
    config_version: str | None = None
    dataset_version: str | None = None


class Loaded(tuple[dict[str, Any], CheckpointMeta]):
    """The state and its metadata. Also answers as the state alone, which earlier versions returned."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, int | slice) else self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values if isinstance(key, str) else super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of the state, or its random states as `_rng`."""
        return self._values.get(key, default)

    @property
    def _values(self) -> dict[str, Any]:
        state, meta = self
        return {"_rng": meta.rng, **state} if meta.rng else state


def save_checkpoint(
    checkpoint_dir: str | os.PathLike[str],
    state: dict[str, Any] | None = None,
    *,
    payload: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    metric_value: float | None = None,
    metric_key: str = "val_loss",
    best_metric: str | None = None,
    mode: str = "min",
    top_k: int = 3,
    best_k: int | None = None,
    config: dict[str, Any] | None = None,
    prefix: str = "ckpt",
    include_rng: bool = True,
    keep_last: int | None = None,
) -> tuple[Path, CheckpointMeta]:
    """Save a state durably; return its file and its metadata.

    Of the files in the folder stay the best `top_k` (or `best_k`) and always the one just saved. `keep_last`: of the
    folders beside this one that are numbered like it and contain checkpoints stay that number of the last, and the best
    `best_k`; nothing else is removed.
    """
    root = Path(checkpoint_dir).expanduser()
    metric_key = best_metric or metric_key
    mode = "max" if mode.lower().startswith("max") else "min"
    if metric_value is None:
        metric_value = _metric_of(metadata, metric_key)
    meta = _describe(config, metric_key, metric_value, include_rng=include_rng)
    body = {"state": payload if payload is not None else (state or {}), "meta": asdict(meta)}
    if metadata:
        body["meta"]["user_metadata"] = metadata
    path = root / f"{prefix}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{next(_numbers):04d}.pt"
    with files.locked(root):
        index = _read_index(root, repair=True)
        meta.sha256 = _write(path, body)
        entry = {"path": path.name, "metric": metric_value, "created_at": meta.created_at, "sha256": meta.sha256}
        chosen: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION, "metric_key": metric_key, "mode": mode, "top_k": int(best_k or top_k),
        }  # fmt: skip
        kept, removed = _choose([*index["entries"], entry], chosen["top_k"], mode)
        _write_index(root, chosen | {"entries": kept})
        if metadata is not None:
            _write_sidecars(root, path, meta, metadata)
        for each in removed:
            files.remove(root / each["path"])
            files.remove(files.digest_file(root / each["path"]))
    if keep_last or best_k is not None:
        _keep_folders(root, entry | {"path": root.name}, chosen, keep_last, best_k)
    return path, meta


def _describe(
    config: dict[str, Any] | None, metric_key: str, metric_value: float | None, *, include_rng: bool
) -> CheckpointMeta:
    """Return what is recorded with a state; its digest is not known yet."""
    return CheckpointMeta(
        schema_version=SCHEMA_VERSION, created_at=int(time.time()), git_sha=git_commit(Path.cwd()),
        config_hash=_config_hash(config), rng=rng.capture() if include_rng else {}, env=capture_environment_summary(),
        metric_key=metric_key, metric_value=metric_value, sha256=None,
        config_snapshot=None if config is None else dict(config),
        config_version=_version(config, "config_version"), dataset_version=_version(config, "dataset_version"),
    )  # fmt: skip


def _write(path: Path, body: dict[str, Any]) -> str:
    return files.write_with_digest(path, lambda out: payload.write(body, out, use_torch=payload.has_torch())).sha256


def _write_sidecars(root: Path, path: Path, meta: CheckpointMeta, metadata: Mapping[str, Any]) -> None:
    """Write what other programs look for: the newest checkpoint as `state.pt`, its digest and its metadata."""
    alias = root / f".state.pt.{os.getpid()}-0.new"
    files.remove(alias)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        durable.disk().link(path.name, alias.name, src_dir_fd=fd, dst_dir_fd=fd)
        files.write_bytes(root / "state.sha256", str(meta.sha256).encode())
        durable.disk().rename(alias.name, "state.pt", src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)
    ours = {"schema_version": SCHEMA_VERSION, "digest_sha256": meta.sha256, "environment": meta.env}
    files.write_json(root / "metadata.json", dict(metadata) | ours)


def recorded_digests(folder: Path) -> set[str]:
    """Return the digests that `state.pt` may have: after a kill, one of the two files that tell it may be older."""
    found = {files.read_json_or(folder / "metadata.json", {}).get("digest_sha256")}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found.add((folder / "state.sha256").read_text().strip())
    return {each for each in found if isinstance(each, str) and each}


# the index


def _read_index(root: Path, *, repair: bool) -> dict[str, Any]:
    """Return the index of a folder, made from the checkpoints if it is damaged; `repair` puts that one aside."""
    path = root / "index.json"
    try:
        found = files.read_json(path)
        entries = [each for each in found["entries"] if _is_own(root, each)]
    except FileNotFoundError:
        return {"entries": []}
    except (ValueError, KeyError, TypeError):
        if not repair:
            return {"entries": _entries_of_files(root)}
        number = next(each for each in itertools.count(1) if not (root / f"index.json.damaged-{each}").exists())
        durable.disk().rename(str(path), str(root / f"index.json.damaged-{number}"))  # P1
        return {"entries": _entries_of_files(root)}
    return dict(found) | {"entries": entries}


def _is_own(root: Path, entry: Any) -> bool:
    """Whether an entry names a file in the folder itself: another program may have written it."""
    name = entry["path"]
    return bool(_NAME.fullmatch(name)) and name != ".." and (root / name).is_file() and not (root / name).is_symlink()


def _entries_of_files(root: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(root.glob("*.pt")):
        if not files.recorded_digests(path):
            continue  # of another program, or an alias
        with contextlib.suppress(*payload.READ_ERRORS):
            meta = load_checkpoint(path)[1]
            told = {"metric": meta.metric_value, "created_at": meta.created_at, "sha256": meta.sha256}
            found.append({"path": path.name, **told})
    return found


def _choose(entries: list[dict[str, Any]], count: int, mode: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the best entries and the last one, the best first; and the others."""
    order = sorted(entries, key=lambda each: files.rank(each["metric"], mode))
    kept = [each for place, each in enumerate(order) if place < max(count, 1) or each is entries[-1]]
    return kept, [each for each in entries if each not in kept]


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    files.write_json(folder / "index.json", index)
    files.write_json(folder / "best_index.json", index["entries"])


# folders beside each other


def _keep_folders(
    root: Path, entry: dict[str, Any], chosen: dict[str, Any], keep_last: int | None, best_k: int | None
) -> None:
    """Keep the last and the best of the folders that are numbered like this one; list the best above them."""
    match = re.fullmatch(r"(.*?)(\d+)", root.name)
    if match is None:
        return
    with files.locked(root.parent):
        folders = _folders_like(root, match[1])
        known = {each["path"]: each for each in files.read_json_or(root.parent / "index.json", {}).get("entries", [])}
        known[root.name] = entry
        entries = [known[folder.name] for folder in folders if folder.name in known]
        order = sorted(entries, key=lambda each: files.rank(each.get("metric"), chosen["mode"]))
        best = [each["path"] for each in order[: best_k or 0]]
        kept = {folder.name for folder in (folders[-keep_last:] if keep_last else folders)} | {*best, root.name}
        listed = [each for each in order if each["path"] in kept][: chosen["top_k"]]
        _write_index(root.parent, chosen | {"entries": listed})
        for folder in folders:
            if folder.name not in kept:
                files.remove(folder)


def _folders_like(root: Path, prefix: str) -> list[Path]:
    """Return the folders with our checkpoints whose names begin alike, in the order of their numbers."""
    found = [
        path
        for path in root.parent.iterdir()
        if files.number_of(path, prefix) is not None and not path.is_symlink() and (path / "best_index.json").is_file()
    ]
    return sorted(found, key=lambda path: files.number_of(path, prefix) or 0)


# loading


def load_checkpoint(
    path: str | os.PathLike[str], *, restore_rng: bool = False, map_location: Any = "cpu"
) -> tuple[dict[str, Any], CheckpointMeta]:
    """Return the state and the metadata of a checkpoint; of a folder, those of the best one in it.

    CheckpointIntegrityError if the file is not what was written. Nothing is unpickled (P7).
    """
    place = Path(path).expanduser()
    if place.is_dir():
        state, meta, _ = load_best(place)
    else:
        state, meta = _read(place, map_location)
    if restore_rng and meta.rng:
        rng.restore(meta.rng)
    return Loaded((state, meta))


def load_best(checkpoint_dir: str | os.PathLike[str]) -> tuple[dict[str, Any], CheckpointMeta, Path]:
    """Return the checkpoint with the best metric: its state, its metadata and its file."""
    root = Path(checkpoint_dir).expanduser()
    index = _read_index(root, repair=False)
    if not index["entries"]:
        raise FileNotFoundError("No checkpoints found in index.")
    best = min(index["entries"], key=lambda each: files.rank(each["metric"], index.get("mode", "min")))
    path = root / best["path"]
    state, meta = _read(path, "cpu")
    return state, meta, path


def verify_checkpoint(path: str | os.PathLike[str]) -> CheckpointMeta:
    """Return the metadata of a checkpoint whose bytes are those that were written; else CheckpointIntegrityError."""
    place = Path(path).expanduser()
    if not _expected(place):
        raise CheckpointIntegrityError(f"Missing sha256 of {place.name}: nothing to verify it with")
    return _read(place, "cpu")[1]


def _read(path: Path, map_location: Any) -> tuple[dict[str, Any], CheckpointMeta]:
    actual, expected = files.sha256_of(path), _expected(path)
    if expected and actual not in expected:
        raise CheckpointIntegrityError(f"Checksum mismatch for {path.name}: expected {expected[0]}, got {actual}")
    try:
        body = payload.read(path, map_location=map_location)
        state, told = body["state"], body["meta"]
        values = {each.name: told.get(each.name) for each in fields(CheckpointMeta)}
    except Exception as error:
        raise CheckpointIntegrityError(f"{path.name} cannot be read: {error}") from error
    version = values["schema_version"]
    if version is None:
        raise CheckpointIntegrityError("Checkpoint metadata missing schema_version")
    if str(version) not in _READABLE:
        raise CheckpointIntegrityError(f"Unsupported checkpoint schema_version={version}; expected {SCHEMA_VERSION}")
    return state, CheckpointMeta(**values | {"sha256": actual, "rng": values["rng"] or {}})


def _expected(path: Path) -> list[str]:
    """Return the digests that were recorded of a file: beside it, or in the index of its folder."""
    if found := files.recorded_digests(path):
        return found
    entries = files.read_json_or(path.parent / "index.json", {}).get("entries", [])
    told = [each.get("sha256") for each in entries if isinstance(each, dict) and each.get("path") == path.name]
    return [each for each in told if isinstance(each, str)]


# what is recorded


def capture_environment_summary() -> dict[str, Any]:
    """Return the versions of Python, NumPy and PyTorch, the machine, and the time."""
    found: dict[str, Any] = {
        "python_version": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "timestamp_utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    if np is not None:
        found["numpy_version"] = str(np.__version__)
    if torch is not None:
        found["torch_version"] = str(torch.__version__)
        found["torch_cuda_available"] = bool(torch.cuda.is_available())
    return found


def _metric_of(metadata: Mapping[str, Any] | None, name: str) -> Any:
    metrics = (metadata or {}).get("metrics")
    found = metrics.get(name) if isinstance(metrics, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def _config_hash(config: Any) -> str | None:
    if not config:
        return None
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _version(config: Any, name: str) -> str | None:
    return str(config[name]) if isinstance(config, Mapping) and name in config else None
