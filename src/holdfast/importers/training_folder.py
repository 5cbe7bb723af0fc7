"""Folders of checkpoints that `torch.save` or safetensors wrote, with the marker files of codex_ml.

A checkpoint is a file (`ckpt-100.pt`, `epoch3-metric0.250000.pt`) or a folder with such files (`epoch-3/state.pt`,
`checkpoint-500/model.safetensors`). Tensors are read with `weights_only=True`, which makes no other objects; a value
that needs more is reported (P7).
"""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Conflict, Damaged, Extra, HoldfastError, NotFound, Refused
from holdfast.escaping import escape
from holdfast.importers.model import Imported, ImportPlan, ImportRequest, Losses, check_outside
from holdfast.model import Progress
from holdfast.safe_pickle import read_pickle
from holdfast.training.checkpoints import folder_of, is_url, open_run
from holdfast.training.manager import CheckpointManager
from holdfast.training.save import SaveOptions, prepare, save

IMPORTED = "imported"
"""The key of a checkpoint's metadata under which its origin is stored."""

_TENSORS = (".pt", ".pth", ".safetensors")
_FILES = (*_TENSORS, ".pkl")
_SIDE_MAX_BYTES = 4 << 20
_PLAIN_MAX_BYTES = 1 << 30
_RATIO_MAX = 50
"""A file that unpacks to more than this many times its size is no checkpoint: tensors are stored as they are."""
_NUMBER = re.compile(r"\d+")
_METRIC = re.compile(r"metric(-?\d+(?:\.\d+)?)")
_COPIES = ("best", "best_candidates")
_OLDEST_TORCH = (2, 6)
_YEAR_10000 = 253402300800
_SCHEMAS = ("1", "1.0", "2", "2.0")
"""Versions that the writers of codex_ml stored, as numbers or text."""
_SKIPPED = ("scheduler.pt", "training_args.bin")


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint of the source."""

    name: str
    """Its path below the source."""
    files: Mapping[str, Path]
    """By name: the files with tensors."""
    step: int
    created_at: datetime
    metrics: Mapping[str, float] = field(default_factory=dict)
    sides: Mapping[str, Any] = field(default_factory=dict)
    """What JSON files beside it say, by file name."""

    @property
    def n_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    @property
    def origin(self) -> str:
        return f"{self.name} ({self.n_bytes} bytes)"


@dataclass(frozen=True, slots=True)
class Markers:
    """What the marker files of a run say."""

    best_key: str | None = None
    mode: str = "min"
    last: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """By file name: the value of `best_key`."""


def recognize(source: str) -> bool:
    """Whether a folder contains checkpoints of training."""
    folder = Path(source)
    return folder.is_dir() and not (folder / ".holdfast").exists() and any(True for _ in _candidates(folder))


def open_source(request: ImportRequest) -> TrainingImport:
    """Open a folder. Refused if no other run is named to import into."""
    folder = Path(request.source)
    if not folder.is_dir():
        raise Refused(f"{request.source} is not a folder", hint="Name the folder that contains the checkpoints.")
    if request.target is None:
        raise Refused("no target for the checkpoints is given", hint="Name a folder or s3://… as the target.")
    if not is_url(request.target):
        check_outside(folder_of(request.target), folder)
    return TrainingImport(folder, request.target)


class TrainingImport:
    """Imports all checkpoints of a folder into a run."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._target = target
        self._losses = Losses()
        self._notes: list[str] = []

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Read every checkpoint once, so that what cannot be carried over is known before anything is written."""
        self._losses = Losses()
        found = self._found()
        if not found:
            raise NotFound(f"{self._folder} contains no checkpoints", hint="Nothing was saved there yet.")
        there = self._there()
        carried = present = 0
        for number, each in enumerate(found, 1):
            if progress is not None:
                progress("reading", number, len(found))
            if self._state(each) is None:
                continue
            carried += 1
            present += there.get(each.step) == each.origin
        losses = self._losses.all()
        if not carried:
            why = f": {losses[0].why}" if losses else ""
            raise Damaged(f"no checkpoint of {self._folder} can be read{why}", hint="Nothing was imported.")
        return ImportPlan(
            kind="training",
            title="checkpoints of a training run",
            source=os.fspath(self._folder),
            target=self._target,
            checkpoints=carried,
            present=present,
            not_carried=losses,
            notes=list(self._notes),
            bytes=sum(each.n_bytes for each in found),
        )

    def run(self, progress: Progress | None = None) -> Imported:
        """Save the checkpoints that the run lacks, each with its step, time and metrics."""
        self._losses = Losses()
        found = self._found()
        markers = self._markers
        there = self._there()
        added = present = 0
        for number, each in enumerate(found, 1):
            if progress is not None:
                progress("importing", number, len(found))
            if there.get(each.step) == each.origin:
                present += 1
                continue
            state = self._state(each)
            if state is None:
                continue
            try:
                self._save(each, state, markers)
                added += 1
            except (Refused, Conflict) as error:
                self._losses.add(escape(each.name), error.message)
        return Imported(added, present, self._losses.all(), list(self._notes))

    def close(self) -> None:
        pass

    def _save(self, found: FoundCheckpoint, state: Any, markers: Markers) -> None:
        origin = {"origin": found.origin, "source": os.fspath(self._folder)}
        request = SaveOptions(
            metrics=found.metrics,
            best_key=markers.best_key if markers.best_key in found.metrics else None,
            mode="max" if markers.mode == "max" else "min",
            rng=False,  # the random state of the import says nothing about the run
            metadata={IMPORTED: origin, **found.sides},
            needs_best=False,
        )
        pending = prepare(found.step, state, request)
        created_at = found.created_at.isoformat(timespec="microseconds")
        save(open_run(self._target), replace(pending, created_at=created_at, environment={}))

    def _there(self) -> dict[int, str]:
        """The origins of the checkpoints that the run has, by step. Creates nothing."""
        if not is_url(self._target) and not os.path.isdir(self._target):
            return {}
        found = {}
        for each in CheckpointManager(self._target).history():
            origin = each.metadata.get(IMPORTED)
            found[each.step] = origin.get("origin", "") if isinstance(origin, Mapping) else ""
        return found

    # what is there

    def _found(self) -> list[FoundCheckpoint]:
        """The checkpoints, in the order of their steps."""
        self._notes = []
        self._markers = self._read_markers()
        found = [self._described(name, files) for name, files in _candidates(self._folder)]
        found.sort(key=lambda each: (each.step, each.name))
        if len({each.step for each in found}) < len(found):
            found.sort(key=lambda each: (each.created_at, each.name))
            found = [replace(each, step=number) for number, each in enumerate(found)]
            self._notes.append("Several names have the same number, so the steps are counted from 0, by time.")
        last = self._markers.last
        if last is not None and found and last != found[-1].name.partition("/")[0]:
            self._notes.append(f"The source says that its last checkpoint is {escape(last)}.")
        return found

    def _read_markers(self) -> Markers:
        """Read codex_ml's marker files. Refused if they are of an unknown version."""
        folder = self._folder
        index, best = self._json(folder / "index.json"), self._json(folder / "best.json")
        for name, values in (("index.json", index), ("best.json", best)):
            if why := _unknown_schema(name, values):
                raise Refused(f"{folder / name} cannot be imported: {why}", hint="Nothing was imported.")
        metrics: dict[str, float] = {}
        for each in index.get("entries") or () if isinstance(index.get("entries"), list) else ():
            if isinstance(each, dict) and _is_number(each.get("metric")):
                metrics[Path(str(each.get("path"))).name] = float(each["metric"])
        key = index.get("metric_key") or best.get("metric")
        mode = index.get("mode") or best.get("mode")
        last = None
        try:
            if (folder / "last").is_file():
                text = durable.read_file(folder / "last", max_bytes=4096).decode("utf-8", "replace")
                last = Path(text.strip()).name
        except OSError:
            pass
        return Markers(key if isinstance(key, str) else None, "max" if mode == "max" else "min", last, metrics)

    def _described(self, name: str, files: Mapping[str, Path]) -> FoundCheckpoint:
        first = next(iter(files.values()))
        sides = dict(self._side_files(self._folder / name, first))
        metrics = _metrics_of(sides)
        own = self._markers.metrics.get(Path(name).name)
        key = self._markers.best_key or "metric"
        if own is not None:
            metrics.setdefault(key, own)
        elif (match := _METRIC.search(Path(name).stem)) is not None:
            metrics.setdefault(key, float(match[1]))
        seconds = next((each for each in map(_created_at, sides.values()) if each is not None), None)
        when = first.stat().st_mtime if seconds is None else seconds
        return FoundCheckpoint(name, files, _step_of(name), datetime.fromtimestamp(when, UTC), metrics, sides)

    def _side_files(self, place: Path, first: Path) -> Iterator[tuple[str, Any]]:
        """The JSON objects that belong to a checkpoint, by file name."""
        for path in _side_paths(place, first):
            if found := self._json(path):
                yield path.name, found

    def _json(self, path: Path) -> dict[str, Any]:
        """The object in a JSON file; empty if there is none. One that cannot be read is a loss: tensors matter more."""
        name = escape(os.fspath(path.relative_to(self._folder)))
        try:
            found = json.loads(durable.read_file(path, max_bytes=_SIDE_MAX_BYTES, follow_links=False))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._losses.add(name, f"it cannot be read: {error.strerror}")
            return {}
        except (ValueError, RecursionError):
            self._losses.add(name, "it is not JSON")
            return {}
        return found if isinstance(found, dict) else {}

    def _state(self, found: FoundCheckpoint) -> Any:
        """Read a checkpoint; None, and a loss, if nothing of it can be read or its version is unknown."""
        values = {}
        for name, side in found.sides.items():
            if why := _unknown_schema(name, side):
                self._losses.add(escape(found.name), why)
                return None
        for name, path in found.files.items():
            try:
                value = _read(path)
                meta = value.get("meta") if isinstance(value, dict) else None
                if why := _unknown_schema("meta.json", meta):
                    raise Refused(why)
                values[name] = value
            except (Damaged, Refused) as error:
                self._losses.add(escape(found.name if len(found.files) == 1 else f"{found.name}/{name}"), error.message)
        if len(found.files) == 1:
            return next(iter(values.values()), None)
        return {name.rpartition(".")[0]: value for name, value in values.items()} or None


def _candidates(folder: Path) -> Iterator[tuple[str, dict[str, Path]]]:
    """Yield each checkpoint: its name, and its files with tensors."""
    names = sorted(os.listdir(folder))
    numbered = [name for name in names if _NUMBER.search(name)]
    for name in names:
        path = folder / name
        mode = path.lstat().st_mode  # a link is a second name of a checkpoint, or leads elsewhere
        if stat.S_ISREG(mode) and name.endswith(_FILES) and (name in numbered or not numbered):
            yield name, {name: path}
        elif stat.S_ISDIR(mode) and name not in _COPIES and _NUMBER.search(name):
            files = {
                each: path / each
                for each in sorted(os.listdir(path))
                if each.endswith(_FILES) and each not in _SKIPPED and stat.S_ISREG((path / each).lstat().st_mode)
            }
            if files:
                yield name, files


def _step_of(name: str) -> int:
    """The last number of a name: of `epoch3-metric0.25.pt` the one before the metric."""
    stem = re.sub(r"-?metric.*", "", Path(name).name.rpartition(".")[0] or name)
    numbers = _NUMBER.findall(stem)
    return int(numbers[-1][:15]) if numbers else 0


def _side_paths(place: Path, first: Path) -> list[Path]:
    """The JSON files that may belong to a checkpoint: in its folder, or named after its file."""
    if place.is_dir():
        names = [name for name in sorted(os.listdir(place)) if name.endswith(".json") and "safetensors" not in name]
        return [place / name for name in names]
    return [Path(f"{first}.meta.json"), first.with_suffix(".meta.json"), first.with_suffix(".json")]


def _unknown_schema(name: str, values: Any) -> str:
    """Say that metadata of codex_ml has a version that is unknown; empty if it has none, or a known one."""
    if not isinstance(values, dict) or not name.endswith(("meta.json", "metadata.json", "index.json", "best.json")):
        return ""
    version = values.get("_schema_version", values.get("schema_version"))
    if version is None or str(version) in _SCHEMAS:
        return ""
    return f"its schema_version {escape(str(version)[:40])} is unknown; known are {', '.join(_SCHEMAS)}"


def _metrics_of(sides: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in sides.values():
        metrics = each.get("metrics")
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            if _is_number(value):
                found[str(name)] = value
    return found


def _created_at(side: Mapping[str, Any]) -> float | None:
    for key in ("created_at", "timestamp", "saved_at"):
        value: Any = side.get(key)
        if _is_number(value) and 0 < value < _YEAR_10000:
            return float(value)
        if isinstance(value, str):
            try:
                seconds = datetime.fromisoformat(value).timestamp()
                datetime.fromtimestamp(seconds, UTC)  # ValueError for a year that UTC does not have
                return seconds
            except (ValueError, OverflowError):
                continue
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- Contents ----


def _read(path: Path) -> Any:
    """Read the content of one file. Damaged or Refused if that is not possible without executing it."""
    try:
        if path.suffix == ".pkl":
            return read_pickle(durable.read_file(path, max_bytes=_PLAIN_MAX_BYTES))
        path.open("rb").close()  # the libraries report a missing permission as a malformed file
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    if path.suffix == ".safetensors":
        with Extra("training"):
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as error:
            raise Damaged(f"it is not a safetensors file: {_first_line(error)}") from None
    return _read_torch(path)


def _read_torch(path: Path) -> Any:
    with Extra("training"):
        import torch

    if tuple(int(each) for each in torch.__version__.split(".")[:2]) < _OLDEST_TORCH:
        raise Refused("this version of torch cannot read untrusted files safely", hint="Install torch 2.6 or newer.")
    _check_zip(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except HoldfastError:
        raise
    except Exception as error:  # torch raises whatever a malformed file leads to
        if named := _unsafe_name(error):
            raise Refused(f"it needs {named}, and no class is loaded by a stored name") from None
        raise Damaged(f"torch cannot read it: {_first_line(error)}") from None


def _unsafe_name(error: Exception) -> str:
    match = re.search(r"GLOBAL (\S+)", str(error))
    return match[1] if match else ""


def _check_zip(path: Path) -> None:
    """Refused if an archive unpacks to far more than its size."""
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            total = sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Damaged(f"it is a damaged archive: {error}") from None
    size = path.stat().st_size
    if total > max(size, 1) * _RATIO_MAX:
        raise Refused(f"it has {size:,} bytes and would unpack to {total:,}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
