"""The life of a save: take apart, write, name, mark, prune."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.durable import disk, remove_tree
from holdfast.errors import Conflict, HoldfastError, Refused
from holdfast.training import frameworks, garbage
from holdfast.training.folder import Broken, Found, TrainingFolder
from holdfast.training.reading import read_bytes
from holdfast.training.retaining import Keep, prune
from holdfast.training.stored import digests, marker
from holdfast.training.stored.layout import BEST, INDEX, LAST, MANIFEST, SCHEMA_VERSION, STATE, step_name
from holdfast.training.stored.manifest import FileEntry, Manifest, is_foreign
from holdfast.training.stored.shards import Payload, index
from holdfast.training.writing import Earlier, WrittenShard, write_shards

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be saved, checked and taken apart: nothing of it looks at the caller's state again but `payloads`."""

    step: int
    payloads: Sequence[Payload]
    tree: Any
    resume: Any
    created_at: str
    metrics: dict[str, Any] = field(default_factory=dict)
    best_key: str | None = None
    mode: str = "min"
    keep: Keep = field(default_factory=Keep)
    metadata: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    config_hash: str | None = None
    pin: bool = False
    rewind: bool = False
    adopt: bool = False
    """Whether markers of other programs may be given another name."""
    threads: int | None = None
    notes: list[str] = field(default_factory=list)
    """What the caller is told besides."""
    beside: dict[str, Any] = field(default_factory=dict)
    """What else `state.json` says."""


def check_step(folder: TrainingFolder, wish: Wish) -> tuple[list[Found], list[Broken]]:
    """Look at a folder; Conflict if the step is taken, Refused if it goes back and nobody said that it may.

    Refused, too, if a marker that would be replaced is another program's, unless it is to be adopted.
    """
    found, broken = folder.look()
    if not wish.adopt:
        for name in folder.foreign(markers(wish)):  # P1: told before anything is written
            raise marker.refuse(folder.path / name)
    if wish.rewind:
        return found, broken
    hint = "Pass rewind=True if the run was set back on purpose."
    if frameworks.rank()[1] > 1:
        hint += " Let one rank save, or all of them through holdfast.adapters.dcp.HoldfastWriter."
    if any(each.step == wish.step for each in found):
        raise Conflict(f"step {wish.step} is saved already in {folder.path}", hint=hint)
    if found and wish.step < found[-1].step:
        raise Refused(f"step {wish.step} comes before step {found[-1].step}, which is saved already", hint=hint)
    return found, broken


def markers(wish: Wish) -> tuple[str, ...]:
    """The markers that a save writes."""
    return (LAST,) if wish.best_key is None else (LAST, BEST)


def save(folder: TrainingFolder, wish: Wish) -> dict[str, Any]:
    """Make a checkpoint durable; then move the markers; then prune. Returns what is told to the caller.

    On any error the folder is as it was before (P3), and what was half written is gone or swept by the next save. Who
    is killed, or finds the disk full, may leave a pin of the step that was asked for.
    """
    with folder.writing():
        found = prepare(folder, wish)
        stage = folder.stage()
        try:
            earlier = earlier_of(folder, found, turn=_next_sequence(folder, found))
            shards = write_shards(stage, wish.payloads, earlier, algorithm=digests.preferred(), threads=wish.threads)
            return conclude(folder, stage, wish, shards, found)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_tree(str(stage))
            raise


def earlier_of(folder: TrainingFolder, found: list[Found], *, turn: int | None = None) -> Earlier | None:
    """The newest checkpoint, to share its files; None if there is none, or it cannot be read any more."""
    try:
        return Earlier(found[-1].path, folder.written(found[-1]).manifest, turn=turn) if found else None
    except HoldfastError as error:
        _log.warning("nothing is shared: %s", error)
        return None


def prepare(folder: TrainingFolder, wish: Wish) -> list[Found]:
    """Look at what is there, and see that the step's name is free. The lock is held."""
    found, broken = check_step(folder, wish)
    if wish.pin:
        folder.pinned()  # Damaged now, and not when everything is written
    _make_room(folder, wish.step, found, broken)
    return found


def conclude(
    folder: TrainingFolder, stage: Path, wish: Wish, shards: Sequence[WrittenShard], found: list[Found]
) -> dict[str, Any]:
    """Make a checkpoint of a stage that holds all its shards: the rest of the files, the name, the markers."""
    with garbage.paused():
        manifest = _describe(folder, stage, wish, shards, found)
    target = folder.path / step_name(wish.step)
    path = _publish(folder, stage, wish, replaces=any(each.path == target for each in found))
    new = Found(path, manifest)
    folder.remember(new)
    found = [each for each in found if each.path != path] + [new]
    adopted = folder.adopt(markers(wish)) if wish.adopt else []
    folder.mark_last(new)
    is_best = _mark_best(folder, wish, found, new)
    folder.sweep()  # what the new one replaced
    pruned = prune(folder, found, wish.keep, best_key=wish.best_key, mode=wish.mode, now=manifest.timestamp)
    meta = told(wish, new, shards, is_best) | {"pruned": pruned.removed, "kept": pruned.kept}
    return meta | {"notes": meta["notes"] + adopted}


def _publish(folder: TrainingFolder, stage: Path, wish: Wish, *, replaces: bool) -> Path:
    """Give a stage its name; what fails before that leaves no pin of nothing, which would keep who comes there next."""
    if not wish.pin:
        return folder.publish(stage, wish.step, replaces=replaces)
    pinned = folder.pinned()
    try:
        folder.pin(pinned | {wish.step})  # before it is there: whoever finds the checkpoint finds it pinned
        return folder.publish(stage, wish.step, replaces=replaces)
    except BaseException as error:
        if isinstance(error, Conflict) or not os.path.lexists(folder.path / step_name(wish.step)):
            with contextlib.suppress(OSError):
                folder.pin(pinned)
        raise


def _make_room(folder: TrainingFolder, step: int, found: list[Found], broken: list[Broken]) -> None:
    """Put aside what is broken under the name that is needed; leave what is not ours."""
    target = folder.path / step_name(step)
    if any(each.path == target for each in found) or not os.path.lexists(target):
        return
    is_broken = any(each.path == target and os.path.lexists(target / MANIFEST) for each in broken)
    if is_broken and not is_foreign(read_bytes(target / MANIFEST)):
        folder.mark_rest(found)
        folder.put_aside(target)
        return
    raise Conflict(f"{target} is there, and is not a checkpoint of Holdfast", hint="Move it away, or save elsewhere.")


def _describe(
    folder: TrainingFolder, stage: Path, wish: Wish, shards: Sequence[WrittenShard], found: list[Found]
) -> Manifest:
    """Write the files that say what the shards hold, the manifest last."""
    algorithm = digests.preferred()
    tensors = {name: entry for shard in shards for name, entry in shard.tensors.items()}
    files = {shard.name: shard.entry for shard in shards}
    total = sum(entry.bytes for entry in tensors.values())
    where = {name: entry.file for name, entry in tensors.items()}
    files[INDEX] = _write_json(stage / INDEX, index(where, total), algorithm)
    state = {"schema_version": SCHEMA_VERSION, "state": wish.tree, "resume": wish.resume, **wish.beside}
    files[STATE] = _write_json(stage / STATE, state, algorithm)
    manifest = Manifest(
        step=wish.step, sequence=_next_sequence(folder, found), created_at=wish.created_at,
        digest_algorithm=algorithm, files=files, tensors=tensors, metrics=wish.metrics, metadata=wish.metadata,
        environment=wish.environment, config_hash=wish.config_hash, writer="holdfast",
    )  # fmt: skip
    _write_file(stage / MANIFEST, manifest.encode())
    return manifest


def _next_sequence(folder: TrainingFolder, found: list[Found]) -> int:
    """One more than any that was given before, also to what is gone (P10)."""
    marker = folder.last_marker() or {}
    given = marker.get("sequence", 0)
    return max([given if isinstance(given, int) else 0, *(each.manifest.sequence for each in found)]) + 1


def _write_json(path: Path, document: Any, algorithm: str) -> FileEntry:
    # Nothing that we made holds itself; to look for that takes a third of the time
    data = json.dumps(document, allow_nan=False, separators=(",", ":"), check_circular=False).encode() + b"\n"
    _write_file(path, data)
    return FileEntry(len(data), digests.digest(data, algorithm))


def _write_file(path: Path, data: bytes) -> None:
    fd = disk().create(str(path), mode=0o444)
    try:
        disk().write(fd, data)
        disk().fsync(fd)
    finally:
        os.close(fd)


def _mark_best(folder: TrainingFolder, wish: Wish, found: list[Found], new: Found) -> bool:
    if wish.best_key is None:
        return False
    best = folder.best_of(found, wish.best_key, wish.mode)
    if best is not None:
        folder.mark_best(best, wish.best_key, wish.mode)
    return best is new


def told(wish: Wish, new: Found, shards: Sequence[WrittenShard], is_best: bool) -> dict[str, Any]:
    """What a save says of itself."""
    shared = sum(shard.entry.bytes for shard in shards if shard.is_linked)
    notes = [
        f"{name} is {new.manifest.metric(name)}, so this checkpoint cannot be the best"
        for name in ([wish.best_key] if wish.best_key else [])
        if new.manifest.score(name, wish.mode) is None
    ]
    notes += wish.notes
    notes += [f"{shard.replaces} is not as it was written, and was written again" for shard in shards if shard.replaces]
    return {
        "schema_version": SCHEMA_VERSION, "path": str(new.path), "step": new.step, "sequence": new.manifest.sequence,
        "created_at": new.manifest.created_at, "metrics": {n: new.manifest.metric(n) for n in new.manifest.metrics},
        "is_best": is_best, "bytes": new.manifest.total_bytes, "bytes_written": new.manifest.total_bytes - shared,
        "tensors": len(new.manifest.tensors), "files_shared": sum(shard.is_linked for shard in shards), "notes": notes,
    }  # fmt: skip
