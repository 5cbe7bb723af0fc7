"""`codex_ml.utils.checkpointing`: one training state in one file, and epochs with `last` and `best.json`."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast import durable, training
from holdfast.compat.codex_ml import checksums, core, files, payload, rng
from holdfast.compat.codex_ml.events import maybe_emit_checkpoint_saved_event
from holdfast.compat.codex_ml.frameworks import np, torch
from holdfast.compat.codex_ml.step_manager import build_payload_bytes
from holdfast.compat.codex_ml.storages import STATES, StorageProvider
from holdfast.compat.deprecation import deprecate
from holdfast.errors import Refused
from holdfast.training.resume.environment import capture_environment

__all__ = [
    "CheckpointLoadError",
    "CheckpointManager",
    "GradScalerStateDictProvider",
    "ModuleStateDictProvider",
    "OptimizerStateDictProvider",
    "SchedulerStateDictProvider",
    "StateDictProvider",
    "build_payload_bytes",
    "dump_rng_state",
    "load_checkpoint",
    "load_payload",
    "load_rng_state",
    "load_training_checkpoint",
    "save_checkpoint",
    "save_ckpt",
    "set_seed",
    "verify_ckpt_integrity",
]

TORCH_AVAILABLE = payload.has_torch()
NUMPY_AVAILABLE = np is not None
CHECKPOINT_METADATA_SCHEMA_VERSION = core.SCHEMA_VERSION
_SCHEMAS = ("1", "1.0", "2", "2.0")  # all that codex_ml has written for the same files
_log = logging.getLogger("holdfast")
_PARTS = ("model", "optimizer", "scheduler")
_OF_AN_EPOCH = frozenset({
    *STATES, checksums.NAME, "meta.json", "rng.json", "system.json", "config.json", "config.yaml", "tokenizer", ".lock",
})  # fmt: skip


class CheckpointLoadError(RuntimeError):
    """A checkpoint could not be written or read."""


# saving


def save_checkpoint(
    path: str | os.PathLike[str] | None = None,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    epoch: int | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    format: str | None = None,  # noqa: A002 the name is codex_ml's
    dataset_paths: list[str | os.PathLike[str]] | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> dict[str, Any] | None:
    """Save a training state in one file, durably. With `out_dir`, save as `holdfast.training.save_checkpoint` does.

    `format`: "torch", "pickle" (which is lossless JSON here: no pickle is written) or "auto". The file's digest is in
    `checksums.json` beside it.
    """
    if out_dir is not None:
        return training.save_checkpoint(out_dir, **options)
    if path is None or epoch is None or options:
        unknown = f"unknown: {', '.join(options)}" if options else "path and epoch are missing"
        raise TypeError(
            f"save_checkpoint() takes path, model, optimizer, scheduler, epoch, or out_dir, step, state; {unknown}"
        )
    place, environment = Path(path).expanduser(), _environment()
    told = {"system": environment, **({"git_commit": environment["git_commit"]} if "git_commit" in environment else {})}
    if dataset_paths:
        told["dataset_checksums"] = {
            str(each): files.sha256_of(Path(each)) for each in dataset_paths if Path(each).is_file()
        }
    parts = {
        f"{name}_state_dict": _state_of(each) for name, each in zip(_PARTS, (model, optimizer, scheduler), strict=True)
    }
    state = parts | {"epoch": int(epoch), "extra": told | dict(extra or {})}
    if _uses_torch(format):  # both names of the same tensors, which are stored once
        state |= {name: found for name in _PARTS if (found := parts[f"{name}_state_dict"]) is not None}
    new = _save_file(place, state, format)
    sidecar = {"epoch": epoch, "git_commit": environment.get("git_commit"), "system": environment}
    if "dataset_checksums" in told:
        sidecar["dataset_checksums"] = told["dataset_checksums"]
    files.write_json(place.with_suffix(".meta.json"), sidecar)
    maybe_emit_checkpoint_saved_event(place, sha256=new.sha256, num_bytes=new.n_bytes, extra={"epoch": epoch})
    return None


def save_ckpt(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Save a state in one file, with its digest in `checksums.json`."""
    if not TORCH_AVAILABLE:
        raise RuntimeError("torch is required to save checkpoints")
    _save_file(Path(path).expanduser(), state, "torch")


def _save_file(path: Path, state: Any, format_: str | None) -> files.Staged:
    use_torch = _uses_torch(format_)
    try:
        with files.locked(path.parent), files.staged(path, _writer(state, use_torch)) as new:
            checksums.record(path, new.sha256, new.n_bytes)
    except Exception as error:
        raise CheckpointLoadError(f"failed to save checkpoint to {path}: {error}") from error
    return new


def _writer(state: Any, use_torch: bool) -> Any:
    return lambda out: payload.write(state, out, use_torch=use_torch)


def _uses_torch(format_: str | None) -> bool:
    name = (format_ or "auto").lower()
    if name not in ("auto", "torch", "pickle"):
        raise ValueError(f"unsupported checkpoint format: {format_}")
    if name == "torch" and not TORCH_AVAILABLE:
        raise CheckpointLoadError("torch checkpoint format requested but torch is not available")
    return name != "pickle" and TORCH_AVAILABLE


def _state_of(source: Any) -> dict[str, Any] | None:
    """Return the state of a model, an optimizer or a scheduler, or a state that is given as it is."""
    if source is None or isinstance(source, Mapping):
        return None if source is None else dict(source)
    if callable(getattr(source, "state_dict", None)):
        found: Any = source.state_dict()
        state: dict[str, Any] = found if isinstance(found, dict) else dict(found.items())
        return state
    return None


def _environment() -> dict[str, Any]:
    found = capture_environment(Path.cwd())
    packages: dict[str, Any] = found.pop("packages")
    return found | packages


# loading


def load_checkpoint(
    path: str | os.PathLike[str] | Mapping[str, Any],
    map_location: Any = "cpu",
    *,
    format: str | None = None,  # noqa: A002 the name is codex_ml's
    safe: bool = True,
    **options: Any,
) -> Any:
    """Return the state of a checkpoint. Nothing is unpickled, whatever `safe` is (P7).

    Of a folder that `holdfast.training` saved, or with its options, this is `holdfast.training.load_checkpoint`.
    """
    if isinstance(path, Mapping):
        return training.load_checkpoint(path, map_location=map_location, **options)
    place = Path(path).expanduser()
    if place.is_dir() or options.keys() - {"weights_only"}:
        return training.load_checkpoint(place, map_location=map_location, **options)
    use_torch = _uses_torch(format)
    try:
        found = payload.read(place, map_location=map_location, use_torch=use_torch)
    except Exception as error:
        raise CheckpointLoadError(f"safe load failed for {place}: {error}") from error
    if isinstance(found, dict):
        for name in _PARTS:
            if found.get(f"{name}_state_dict") is not None:
                found.setdefault(name, found[f"{name}_state_dict"])
    return found


class TrainingState(dict[str, Any]):
    """The dict of a checkpoint, which can be unpacked into its epoch and its extra values.

    codex_ml returns a dict in some versions and this pair in others. So iterating over it does not give its keys:
    `keys()` does.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter((self["epoch"], self["extra"]))


def load_training_checkpoint(
    path: str | os.PathLike[str],
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    map_location: Any = "cpu",
    *,
    strict: bool = True,
    format: str | None = None,  # noqa: A002 the name is codex_ml's
) -> TrainingState:
    """Verify and return a checkpoint of `save_checkpoint`, and load it into the objects that are given.

    `state = load_training_checkpoint(…)` is a dict; `epoch, extra = load_training_checkpoint(…)` works, too.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise CheckpointLoadError(f"checkpoint does not exist: {place}")
    if checksums.is_intact(place) is False:
        raise CheckpointLoadError(f"checkpoint checksum mismatch: {place}")
    found = load_checkpoint(place, map_location, format=format)
    if not isinstance(found, Mapping):
        raise CheckpointLoadError(f"checkpoint at {place} is not a mapping payload (found {type(found).__name__})")
    state = _with_both_names(found)
    for name, target in zip(_PARTS, (model, optimizer, scheduler), strict=True):
        if target is not None and state.get(name) is not None:
            try:
                _load_into(target, state[name], strict=strict if name == "model" else None)
            except Exception as error:
                raise CheckpointLoadError(f"failed to load {name} state: {error}") from error
    return state


def _with_both_names(found: Mapping[str, Any]) -> TrainingState:
    """Return a state with `model` and `model_state_dict` and so on, `epoch` and `extra`."""
    state = TrainingState(found)
    for name in _PARTS:
        value = state.get(f"{name}_state_dict", state.get(name))
        state[f"{name}_state_dict"] = value
        if value is not None:
            state[name] = value
    state["extra"] = dict(state.get("extra") or {})
    state.setdefault("epoch", state.get("step"))
    return state


def _load_into(target: Any, state: Any, *, strict: bool | None) -> None:
    if strict is None:
        target.load_state_dict(state)
        return
    try:
        target.load_state_dict(state, strict=strict)
    except TypeError:  # a class of the caller that does not know `strict`
        target.load_state_dict(state)


def verify_ckpt_integrity(path: str | os.PathLike[str]) -> None:
    """RuntimeError if a file is not what was recorded of it; no error if nothing was."""
    place = Path(path).expanduser()
    if checksums.is_intact(place) is False:
        raise RuntimeError(f"Checkpoint checksum mismatch for {place.name}")


def load_payload(
    path: str | os.PathLike[str], model: Any, optimizer: Any = None, scheduler: Any = None, scaler: Any = None
) -> dict[str, Any]:
    """Load what `build_payload_bytes` returned from a file into these objects, and restore its random states."""
    if not TORCH_AVAILABLE:
        raise RuntimeError("torch is required to load checkpoints")
    found = load_checkpoint(path)
    meta = found.get("meta", {}) if "state" in found else {}
    state = dict(found["state"]) if "state" in found else dict(found)
    if meta.get("rng") and "rng" not in state:
        state["rng"] = meta["rng"]
    for name, target in zip((*_PARTS, "scaler"), (model, optimizer, scheduler, scaler), strict=True):
        if target is not None and state.get(name):
            target.load_state_dict(state[name])
    if state.get("rng"):
        rng.restore(state["rng"])
    return state


# random states


def dump_rng_state() -> dict[str, Any]:
    """Return the random states of Python, NumPy and PyTorch as they are now."""
    return rng.capture()


def load_rng_state(state: dict[str, Any], *, prefer_resume: bool = True) -> None:
    """Restore random states of `dump_rng_state`."""
    rng.restore(state)


def set_seed(
    seed: int, out_dir: str | os.PathLike[str] | None = None, *, deterministic: bool | None = None
) -> dict[str, int]:
    """Seed Python, NumPy and PyTorch; return the seeds, and write them to `seeds.json` in a folder."""
    seeds = rng.seed_all(seed)
    if deterministic is not None and torch is not None:
        torch.use_deterministic_algorithms(deterministic)
    if out_dir is not None:
        folder = files.make_folder(Path(out_dir).expanduser())
        files.write_json(folder / "seeds.json", seeds)
    return seeds


# wrappers


@runtime_checkable
class StateDictProvider(Protocol):
    """What has a state that can be saved and loaded."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any: ...


class _Provider:
    """The state of one object, which may be missing."""

    @property
    def _object(self) -> Any:
        return next(iter(vars(self).values()))

    def state_dict(self) -> Mapping[str, Any]:
        return _state_of(self._object) or {}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        if callable(getattr(self._object, "load_state_dict", None)):
            return _load_into(self._object, state_dict, strict=strict if hasattr(self, "module") else None)
        return None


@dataclass
class ModuleStateDictProvider(_Provider):
    """The state of a model."""

    module: Any


@dataclass
class OptimizerStateDictProvider(_Provider):
    """The state of an optimizer."""

    optimizer: Any


@dataclass
class SchedulerStateDictProvider(_Provider):
    """The state of a scheduler."""

    scheduler: Any


@dataclass
class GradScalerStateDictProvider(_Provider):
    """The state of a gradient scaler."""

    scaler: Any


# epochs


class CheckpointManager:
    """Epochs in folders `epoch-N`, each complete or not there; `last` names the newest, `best.json` the best.

    The last `keep_last` and the best `keep_best` stay. Best is the least `val_loss`, else the greatest `score`; what is
    not a number is never best.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keep_last: int = 5,
        keep_best: int = 1,
        *,
        storage: StorageProvider | None = None,
        remote_prefix: str | None = None,
        metric: str | None = None,
        mode: str = "min",
        best_k: int | None = None,
    ) -> None:
        """`metric` and `mode` say which metric decides, in place of `val_loss` and `score`; `best_k` is `keep_best`."""
        if mode not in ("min", "max"):
            raise Refused(f"mode is {mode!r}", hint="It is min or max.")
        self.root = files.make_folder(Path(root).expanduser())
        self.keep_last = int(keep_last)
        self.keep_best = int(keep_best if best_k is None else best_k)
        self.metric = metric
        self.mode = mode
        self.storage = storage
        self.remote_prefix = remote_prefix.strip("/") if remote_prefix else None

    def save(
        self,
        epoch: int,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        tokenizer: Any = None,
        *,
        config: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None,
    ) -> Path:
        """Save an epoch, move the markers, and remove what is not kept; return its folder."""
        parts = {name: _state_of(each) for name, each in zip(_PARTS, (model, optimizer, scheduler), strict=True)}
        if parts["model"] is None and model is not None:
            parts["model"] = dict(vars(model))
        if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
            raise Refused("the tokenizer has no save_pretrained", hint="Save it yourself: no pickle is written.")
        folder = self.root / f"epoch-{epoch}"
        with files.locked(self.root):
            new = self.root / f".{folder.name}.{os.getpid()}-0.new"
            files.remove(new)
            files.make_folder(new)
            self._write_epoch(new, epoch, parts, metrics or {}, config)
            if tokenizer is not None:
                tokenizer.save_pretrained(str(new / "tokenizer"))
            files.put_in_place(new, folder, _OF_AN_EPOCH)  # commit point
            self._mark(epoch, folder, metrics or {})
        self._upload(folder)
        return folder

    def _write_epoch(
        self, folder: Path, epoch: int, parts: dict[str, Any], metrics: dict[str, Any], config: dict[str, Any] | None
    ) -> None:
        environment = _environment()
        state = folder / ("state.pt" if TORCH_AVAILABLE else "state.json")
        with files.staged(state, _writer(parts, TORCH_AVAILABLE)) as new:
            checksums.record(state, new.sha256, new.n_bytes)
        told = {"schema_version": CHECKPOINT_METADATA_SCHEMA_VERSION, "epoch": epoch, "metrics": metrics}
        files.write_json(folder / "meta.json", told | {"git_commit": environment.get("git_commit")})
        files.write_json(folder / "rng.json", rng.capture())
        files.write_json(folder / "system.json", environment)
        if config is not None:
            files.write_json(folder / "config.json", config)

    def save_now(
        self,
        step: int,
        payload: Any,
        metrics: dict[str, Any] | None = None,
        prefix: str = "ckpt",
        *,
        rng_state: bool = False,
    ) -> Path:
        """Save a state, or the bytes of one, in `epoch-N`; return its file."""
        state = _decoded(payload)
        metric = next(iter(metrics or {}), "val_loss")
        folder = self.root / f"epoch-{step:04d}"
        told = {"epoch": step, "metrics": metrics or {}}
        path, meta = core.save_checkpoint(
            folder, payload=state, metadata=told, metric_key=metric, top_k=1, prefix=prefix, include_rng=rng_state
        )
        sidecar: dict[str, Any] = {"step": int(step), "metrics": metrics or {}}
        if rng_state:
            sidecar["rng"] = state.get("rng") or meta.rng
        files.write_json(path.with_suffix(".meta.json"), sidecar)
        with files.locked(self.root):
            self._mark(step, folder, metrics or {})
        return path

    def _mark(self, epoch: int, folder: Path, metrics: dict[str, Any]) -> None:
        """Move the markers to a new epoch, then prune."""
        files.write_bytes(self.root / "last", str(folder).encode())
        if metrics:
            others = [each for each in self._best() if each["epoch"] != epoch]
            new = {"epoch": epoch, "metrics": metrics, "path": str(folder)}
            if self.metric is not None:
                new["value"] = metrics.get(self.metric)
            best = sorted([*others, new], key=self._score)[: max(1, self.keep_best)]
            first = best[0]
            name, _ = self._target(first["metrics"])
            told = {
                "schema_version": CHECKPOINT_METADATA_SCHEMA_VERSION, "metric": name,
                "value": first["metrics"].get(name), "epoch": first["epoch"], "path": first["path"], "items": best,
            }  # fmt: skip
            files.write_json(self.root / "best.json", told)
            if self.metric is not None:
                self._link(best)
        self.apply_retention()

    def _target(self, metrics: dict[str, Any]) -> tuple[str | None, str]:
        """Return the metric that epochs are compared by, and its mode: without `metric`, `val_loss`, then `score`."""
        if self.metric is not None:
            return self.metric, self.mode
        return next((each for each in (("val_loss", "min"), ("score", "max")) if each[0] in metrics), (None, ""))

    def _score(self, item: dict[str, Any]) -> tuple[Any, ...]:
        """Return a key that sorts the best epoch first; of equal ones, the earlier."""
        metrics = item["metrics"]
        name, mode = self._target(metrics)
        if name is None:
            return 2, 0, 0.0, -item["epoch"]
        return int(name == "score" and self.metric is None), *files.rank(metrics.get(name), mode), item["epoch"]

    def _link(self, best: list[dict[str, Any]]) -> None:
        """Link the best epochs: `best`, and `best_candidates/best-1` and so on."""
        links = files.make_folder(self.root / "best_candidates")
        for place, each in enumerate(best, start=1):
            files.link(f"../{self._folder(each).name}", links / f"best-{place}")
        files.link(self._folder(best[0]).name, self.root / "best")

    def _best(self) -> list[dict[str, Any]]:
        """Return the best epochs that are still there; a damaged `best.json` names none."""
        found = files.read_json_or(self.root / "best.json", {}).get("items", [])
        return [
            each
            for each in (found if isinstance(found, list) else [])
            if isinstance(each, dict) and {"epoch", "metrics", "path"} <= each.keys() and self._folder(each).is_dir()
        ]

    def _folder(self, item: dict[str, Any]) -> Path:
        return self.root / Path(str(item["path"])).name

    def apply_retention(self) -> None:
        """Remove the epochs that are neither among the last nor the best. Other folders stay."""
        epochs = self._epochs(self.root)
        kept = {path.name for path in epochs[: max(1, self.keep_last)]}
        kept |= {self._folder(each).name for each in self._best()}
        for path in epochs:
            if path.name not in kept:
                files.remove(path)

    def _epochs(self, root: Path) -> list[Path]:
        """Return the folders of epochs that have a state, the newest first."""
        found = [path for path in root.glob("epoch-*") if files.number_of(path) is not None and _has_state(path)]
        return sorted(found, key=lambda path: files.number_of(path) or 0, reverse=True)

    # resuming

    def resume_from(
        self, path: str | os.PathLike[str], model: Any = None, optimizer: Any = None, scheduler: Any = None
    ) -> dict[str, Any]:
        """Load an epoch into these objects and restore its random states; return its metadata.

        Everything is read and compared before anything is changed. FileNotFoundError if there is no such epoch,
        RuntimeError if it is damaged or of an unknown version, ValueError if the model has other names or shapes.
        """
        folder = Path(path).expanduser()
        if not folder.exists():
            raise FileNotFoundError(f"resume path not found: {folder}")
        meta = files.read_json_or(folder / "meta.json", {}) or files.read_json_or(folder / "metadata.json", {})
        version = meta.get("schema_version")
        if version is not None and str(version) not in _SCHEMAS:
            raise RuntimeError(f"{folder} has schema_version {version!r}; known are {', '.join(_SCHEMAS)}")
        state = self._read_state(folder)
        if model is not None and state.get("model") is not None:
            self._verify_state_dict(model.state_dict(), state["model"])
        random_states = files.read_json(folder / "rng.json") if (folder / "rng.json").exists() else None
        for name, target in zip(_PARTS, (model, optimizer, scheduler), strict=True):
            if target is not None and state.get(name) is not None:
                try:
                    target.load_state_dict(state[name])
                except Exception as error:
                    raise ValueError(f"{name} state load failed: {error}") from error
        if random_states:
            rng.restore(random_states)
        return {"meta": meta, "state": bool(state), "epoch": meta.get("epoch")}

    def _read_state(self, folder: Path) -> dict[str, Any]:
        path = next((folder / name for name in STATES if (folder / name).exists()), None)
        if path is None:
            raise RuntimeError(f"no compatible state file found under: {folder}")
        recorded = core.recorded_digests(folder) if path.name == "state.pt" else set()
        if checksums.is_intact(path) is False or (recorded and files.sha256_of(path) not in recorded):
            raise RuntimeError(f"checkpoint checksum mismatch: {path}")
        found = load_checkpoint(path)
        state = found["state"] if isinstance(found, dict) and "meta" in found and "state" in found else found
        if not isinstance(state, dict):
            raise RuntimeError(f"{path} has no state")
        return state

    def load_latest(
        self,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        *,
        search_path: str | os.PathLike[str] | None = None,
        strict: bool = True,
    ) -> dict[str, Any]:
        """Resume from the newest epoch that is intact; return its metadata and its `path`.

        Damaged ones are passed over with a warning. If there is none: FileNotFoundError, or an empty answer if not
        `strict`.
        """
        root = self.root if search_path is None else Path(search_path).expanduser()
        candidates = list(self._candidates(root.parent if root.is_file() else root)) or self._downloaded()
        problems = []
        for folder in candidates:
            try:
                return self.resume_from(folder, model, optimizer, scheduler) | {"path": folder}
            except RuntimeError as error:
                problems.append(str(error))
                warnings.warn(f"{folder} is passed over: {error}", RuntimeWarning, stacklevel=2)
        if problems:
            raise RuntimeError(f"no intact checkpoint under {root}: {'; '.join(problems)}")
        if strict:
            raise FileNotFoundError(f"no checkpoints found under: {root}")
        return {"meta": {}, "state": False, "path": None}

    def _candidates(self, root: Path) -> Iterator[Path]:
        """Return the folders to resume from: this one, the one that `last` names, then the epochs, newest first."""
        found = [root] if _has_state(root) else []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            marker = root / "last"
            named = marker.resolve() if marker.is_symlink() else root / marker.read_text().strip()
            found += [named] if named != root and _has_state(named) else []
        yield from dict.fromkeys([*found, *self._epochs(root)])

    def _upload(self, folder: Path) -> None:
        if self.storage is None or self.remote_prefix is None:
            return
        try:
            self.storage.upload_directory(folder, f"{self.remote_prefix}/{folder.name}")
        except Exception as error:  # whatever another's storage raises: the local copy is complete
            warnings.warn(f"{folder} was saved, but not copied: {error}", RuntimeWarning, stacklevel=3)

    def _downloaded(self) -> list[Path]:
        """Copy the epochs of the other place that are not here; return them, newest first."""
        if self.storage is None or self.remote_prefix is None:
            return []
        for remote in self.storage.iter_checkpoints(self.remote_prefix):
            target = self.root / Path(remote).name
            if files.number_of(target) is not None and not target.exists():
                with files.locked(self.root):
                    new = self.root / f".{target.name}.{os.getpid()}-0.new"
                    files.remove(new)
                    self.storage.download_directory(remote, new)
                    durable.disk().rename(str(new), str(target))  # commit point
        return self._epochs(self.root)

    def _verify_state_dict(self, model_sd: Mapping[str, Any], loaded_sd: Mapping[str, Any]) -> None:
        """ValueError, with the names, if a model and a state have other names or shapes."""
        missing = [name for name in model_sd if name not in loaded_sd]
        unexpected = [name for name in loaded_sd if name not in model_sd]
        mismatched = [
            (name, tuple(value.shape), tuple(loaded_sd[name].shape))
            for name, value in model_sd.items()
            if hasattr(value, "shape")
            and hasattr(loaded_sd.get(name), "shape")
            and value.shape != loaded_sd[name].shape
        ]
        found: dict[str, list[Any]] = {"missing": missing, "unexpected": unexpected, "mismatched": mismatched}
        told = [f"{what}: {names[:10]}{' ...' if len(names) > 10 else ''}" for what, names in found.items() if names]
        if told:
            raise ValueError("state_dict verification failed: " + "; ".join(told))


def _has_state(folder: Path) -> bool:
    return any((folder / name).exists() for name in STATES)


def _decoded(state: Any) -> dict[str, Any]:
    """Return a state that may be given as the bytes of one; other bytes are a state by themselves."""
    if isinstance(state, bytes | bytearray):
        try:
            found = payload.loads(bytes(state))
        except Exception:
            return {"payload": bytes(state)}
        return found if isinstance(found, dict) else {"payload": bytes(state)}
    return state if isinstance(state, dict) else {"payload": state}


deprecate(
    __name__,
    {
        "CheckpointLoadError": "holdfast.Damaged",
        "CheckpointManager": "holdfast.training.CheckpointManager",
        "GradScalerStateDictProvider": "holdfast.training.save_checkpoint with the states in one dict",
        "ModuleStateDictProvider": "holdfast.training.save_checkpoint with the states in one dict",
        "OptimizerStateDictProvider": "holdfast.training.save_checkpoint with the states in one dict",
        "SchedulerStateDictProvider": "holdfast.training.save_checkpoint with the states in one dict",
        "StateDictProvider": "holdfast.training.save_checkpoint with the states in one dict",
        "build_payload_bytes": "holdfast.training.save_checkpoint",
        "dump_rng_state": "holdfast.training.capture_rng",
        "load_checkpoint": "holdfast.training.load_checkpoint",
        "load_payload": "holdfast.training.load_checkpoint",
        "load_rng_state": "holdfast.training.restore_rng",
        "load_training_checkpoint": "holdfast.training.load_checkpoint",
        "save_checkpoint": "holdfast.training.save_checkpoint",
        "save_ckpt": "holdfast.training.save_checkpoint",
        "set_seed": "random.seed",
        "verify_ckpt_integrity": "holdfast.training.load_checkpoint (it verifies every byte)",
    },
)
