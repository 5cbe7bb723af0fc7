"""CodeWeaver's JSON checkpoint of an indexing run: it becomes the latest checkpoint of the same project."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.digest import digest
from holdfast.errors import Damaged, HoldfastError, Refused
from holdfast.escaping import without_password
from holdfast.importers.model import Imported, ImportPlan, ImportRequest, Losses
from holdfast.indexing import CheckpointManager, IndexingCheckpoint
from holdfast.location import is_url
from holdfast.model import Progress

_MAX_BYTES = 64 << 20
_NAME = re.compile(r"checkpoint_(.+)-[0-9a-f]{8}\.json")
_NEEDED = {"session_id", "start_time", "last_checkpoint", "files_discovered"}
_KNOWN = {each.name for each in fields(IndexingCheckpoint)} | {"schema_version", "checksum"}


def recognize(source: str) -> bool:
    """Whether a file is a checkpoint of CodeWeaver, or a folder contains some."""
    return any(True for _ in _files(Path(source)))


def open_source(request: ImportRequest) -> CodeWeaverImport:
    """Open one file, or all of a folder."""
    files = list(_files(Path(request.source)))
    if not files:
        raise Refused(f"{request.source} is not a checkpoint of CodeWeaver", hint="Name checkpoint_PROJECT-HASH.json.")
    if request.target is None:
        raise Refused(
            "no target for the checkpoint is given",
            hint="Name a folder as the target: the checkpoint_dir of your CheckpointManager.",
        )
    if is_url(request.target):
        raise Refused(
            f"the target {without_password(request.target)} is a URL",
            hint="Name a folder: the checkpoint_dir of your CheckpointManager.",
        )
    if os.path.lexists(request.target) and not os.path.isdir(request.target):
        raise Refused(f"the target {request.target} is a file", hint="Name a folder, which may not exist yet.")
    return CodeWeaverImport(request.source, files, Path(request.target))


class CodeWeaverImport:
    """Imports the checkpoints of one or several projects."""

    def __init__(self, source: str, files: list[Path], target: Path) -> None:
        self._source = os.path.realpath(source)
        self._files = files
        self._target = target

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Read the files, and the checkpoints that are there."""
        losses = Losses()
        found = [self._is_there(manager, checkpoint, losses) for manager, checkpoint in self._checkpoints(losses)]
        carried = [each for each in found if each is not None]
        if not carried:
            why = losses.all()[0].why
            raise Damaged(f"cannot import anything from {self._source}: {why}", hint="Nothing was imported.")
        notes = ["CodeWeaver's hash of the settings cannot be compared: the first run indexes what has changed."]
        target, title = os.fspath(self._target), "a checkpoint of CodeWeaver"
        return ImportPlan("codeweaver", title, self._source, target, len(carried), sum(carried), losses.all(), notes)

    def run(self, progress: Progress | None = None) -> Imported:
        """Save what is newer than the checkpoints that are there."""
        losses = Losses()
        added = present = 0
        for manager, checkpoint in self._checkpoints(losses):
            there = self._is_there(manager, checkpoint, losses)
            if there is None:
                continue
            present += there
            if not there:
                manager.add(checkpoint)
                added += 1
        return Imported(added, present, losses.all())

    def close(self) -> None:
        pass

    def _checkpoints(self, losses: Losses) -> Iterator[tuple[CheckpointManager, IndexingCheckpoint]]:
        for path in self._files:
            try:
                values = _values(path)
                checkpoint = _checkpoint(values)
                if checkpoint.project_path is None:
                    raise Damaged("it names no project")
            except HoldfastError as error:
                losses.add(path.name, error.message)
                continue
            for name in sorted(values.keys() - _KNOWN):
                losses.add(f"{path.name}: {name}", "there is no such field here")
            match = _NAME.fullmatch(path.name)
            name = match[1] if match else checkpoint.project_path.name
            yield CheckpointManager(checkpoint.project_path, name, self._target), replace(checkpoint, project_name=name)

    def _is_there(self, manager: CheckpointManager, checkpoint: IndexingCheckpoint, losses: Losses) -> bool | None:
        """Whether this state of the run is stored; None, and a loss, if a newer one is.

        The newest is what a run continues from: an older one must not take its place.
        """
        stored = manager.stored()
        own = (checkpoint.session_id, checkpoint.last_checkpoint)
        if any((each.session_id, each.last_checkpoint) == own for each in stored):
            return True
        if any(each.last_checkpoint >= checkpoint.last_checkpoint for each in stored):
            losses.add(f"project {checkpoint.project_name}", "the target has a newer checkpoint of it")
            return None
        return False


def _files(source: Path) -> Iterator[Path]:
    if source.is_dir():
        for name in sorted(os.listdir(source)):
            if _NAME.fullmatch(name) and not (source / name).is_symlink():
                yield source / name
    elif source.is_file() and source.suffix == ".json":
        try:
            if _values(source).keys() >= _NEEDED:
                yield source
        except HoldfastError:
            if _NAME.fullmatch(source.name):
                yield source  # it is meant to be one: opening it reports the error


def _values(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(durable.read_file(path, max_bytes=_MAX_BYTES))
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Damaged("it is not a JSON object")
    return found


def _checkpoint(values: Mapping[str, Any]) -> IndexingCheckpoint:
    """Read a checkpoint of CodeWeaver, which has no version, or one of Holdfast in the same form."""
    checksum = values.get("checksum")
    others = {name: value for name, value in values.items() if name != "checksum"}
    try:
        is_whole = checksum is None or checksum == digest("checkpoint", others)
    except (Refused, RecursionError):  # values that have no checksum, such as NaN
        is_whole = False
    if not is_whole:
        raise Damaged("it does not match its checksum")
    given = {name: value for name, value in values.items() if name in _KNOWN - {"settings", "fingerprint"}}
    for name in ("start_time", "last_checkpoint"):
        try:
            when = datetime.fromisoformat(str(given.get(name)))
        except ValueError:
            raise Damaged(f"{name} is not a time") from None
        given[name] = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).isoformat()
    return IndexingCheckpoint.from_dict(given)
