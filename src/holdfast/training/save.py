"""Saving: the options of a save, the state prepared for it, and its steps on any store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import Conflict, Refused
from holdfast.training import frameworks
from holdfast.training.metrics import check_metrics
from holdfast.training.resume import rng as random_states
from holdfast.training.resume.environment import capture_environment, config_hash
from holdfast.training.retention import Keep
from holdfast.training.run_store import BrokenCheckpoint, RunStore, StoredCheckpoint
from holdfast.training.shard_writer import WrittenShard
from holdfast.training.state_tree import FlatState, encode_document, flatten
from holdfast.training.stored import digests, leaves, marker
from holdfast.training.stored.layout import BEST, LAST, SCHEMA_VERSION, check_step
from holdfast.training.stored.manifest import FileEntry, Manifest, TensorEntry
from holdfast.training.stored.shards import encode_index
from holdfast.training.threads import check_threads
from holdfast.validation import check_mapping


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """The options of `save_checkpoint`."""

    metrics: Mapping[str, float] | None = None
    best_key: str | None = None
    mode: str = "min"
    keep_last_k: int | None = None
    keep_best_k: int | None = 1
    keep_every: int | None = None
    pin: bool = False
    rewind: bool = False
    adopt: bool = False
    rng: bool = True
    loader: Any = None
    config: Any = None
    metadata: Mapping[str, Any] | None = None
    block: bool = True
    gate: Any = None
    threads: int | None = None
    needs_best: bool = True
    """Whether to refuse a save whose metrics lack `best_key`."""

    @property
    def keep(self) -> Keep:
        return Keep(self.keep_last_k, self.keep_best_k, self.keep_every)

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers given as `gate`; Refused if something else was given."""
        gate = self.gate
        found = [] if gate is None else list(gate) if isinstance(gate, list | tuple) else [gate]
        if not all(hasattr(optimizer, "register_step_pre_hook") for optimizer in found):
            raise Refused("gate is not a PyTorch optimizer", hint="Pass the optimizer that changes the state, or None.")
        return found


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A checked request and the state taken apart. Only `flat.payloads` still refers to the caller's tensors."""

    step: int
    request: SaveOptions
    flat: FlatState
    metrics: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    config_hash: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further entries of `state.json`."""
    environment: dict[str, Any] = field(default_factory=lambda: capture_environment(Path.cwd()))
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers that this save writes."""
        return (LAST,) if self.request.best_key is None else (LAST, BEST)


def prepare(step: int, state: Any, request: SaveOptions) -> PendingSave:
    """Check everything that was asked for, and take the state apart. Nothing is copied or written."""
    _ = request.keep  # Refused if it makes no sense
    resume: dict[str, Any] = {}
    loader = request.loader
    if loader is not None:
        if not hasattr(loader, "state_dict") or not hasattr(loader, "load_state_dict"):
            raise Refused(
                f"the loader is a {type(loader).__name__}, which has no state_dict and load_state_dict",
                hint="Pass one that has both, such as torchdata's StatefulDataLoader.",
            )
        resume["loader"] = loader.state_dict()
    if request.rng:
        resume["rng"] = random_states.capture_rng()
    step = check_step(step)
    metrics = check_metrics(request.metrics, request.best_key if request.needs_best else None, request.mode)
    flat = flatten(state, resume or None)
    check_threads(request.threads)
    return PendingSave(
        step, request, flat, metrics, _encoded_metadata(request.metadata), config_hash(request.config)
    )  # fmt: skip


def _encoded_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as a manifest has it; Refused if it is not a mapping of text to values that can be stored."""
    given = {} if metadata is None else check_mapping(metadata, "metadata")
    return {name: leaves.encode(value, f"metadata {name}") for name, value in given.items()}


def save(store: RunStore, pending: PendingSave) -> dict[str, Any]:
    """Make a checkpoint durable, then move the markers, then prune. Return the summary for the caller.

    On any error the run is as it was before (P3); what was half written is removed now or by the next save. A process
    that is killed, or finds the disk full, may leave a pin of the step.
    """
    with store.writing():
        start = store.begin_save(pending)
        try:
            shards = store.write_shards(
                pending.step, pending.flat.payloads, start.found, threads=pending.request.threads
            )
            return store.commit_save(pending, shards, start)
        except BaseException:
            store.abort_save()
            raise


def check_is_free(store: RunStore, pending: PendingSave) -> tuple[list[StoredCheckpoint], list[BrokenCheckpoint]]:
    """Scan the store. Conflict if the step is taken, Refused if it is before the last one, unless `rewind` is set.

    Also Refused if another program wrote a marker that the save would replace, unless `adopt` is set.
    """
    step, request = pending.step, pending.request
    found, broken = store.scan()
    if not request.adopt:
        for name in store.foreign_markers(pending.markers):  # P1: refused before anything is written
            raise marker.refuse(store.path / name)
    if request.rewind:
        return found, broken
    hint = "Pass rewind=True if the run was set back on purpose."
    if frameworks.rank()[1] > 1:
        hint += " Let one rank save, or all of them through holdfast.adapters.dcp.HoldfastWriter."
    if any(each.step == step for each in found):
        raise Conflict(f"step {step} is already saved in {store.path}", hint=hint)
    if found and step < found[-1].step:
        raise Refused(f"step {step} comes before step {found[-1].step}, which is already saved", hint=hint)
    return found, broken


def documents(pending: PendingSave, shards: Sequence[WrittenShard]) -> tuple[bytes, bytes]:
    """Return the index (which tensor is in which file) and the state without tensors. The shards are `encoded`."""
    total = sum(shard.entry.bytes - shard.entry.header_bytes for shard in shards)
    index = encode_index([shard.index_text for shard in shards], total)
    flat = pending.flat
    state = {"schema_version": SCHEMA_VERSION, "state": flat.tree, "resume": flat.resume, **pending.extra}
    return index, encode_document(state, flat.nodes)


def make_manifest(
    pending: PendingSave, shards: Sequence[WrittenShard], files: Mapping[str, FileEntry], sequence: int
) -> Manifest:
    """Return the manifest of a checkpoint; `files` are the documents."""
    tensors: dict[str, TensorEntry] = {}
    for shard in shards:
        tensors |= shard.tensors
    return Manifest(
        step=pending.step, sequence=sequence, created_at=pending.created_at, digest_algorithm=digests.preferred(),
        files={shard.name: shard.entry for shard in shards} | dict(files), tensors=tensors, metrics=pending.metrics,
        metadata=pending.metadata, environment=pending.environment, config_hash=pending.config_hash,
        writer="holdfast",
    )  # fmt: skip


def summarize(
    pending: PendingSave, new: StoredCheckpoint, shards: Sequence[WrittenShard], *, is_best: bool, notes: list[str]
) -> dict[str, Any]:
    """Return what `save_checkpoint` returns, with everything the caller should know (P4)."""
    manifest, best_key = new.manifest, pending.request.best_key
    shared = sum(shard.entry.bytes for shard in shards if shard.is_linked)
    found = list(pending.flat.notes)
    if best_key and manifest.score(best_key, pending.request.mode) is None:
        found.insert(0, f"{best_key} is {manifest.metric(best_key)}, so this checkpoint cannot be the best")
    found += [f"{shard.replaces} was damaged, and was written again" for shard in shards if shard.replaces]
    return {
        "schema_version": SCHEMA_VERSION, "path": str(new.path), "step": new.step, "sequence": manifest.sequence,
        "created_at": manifest.created_at, "metrics": {name: manifest.metric(name) for name in manifest.metrics},
        "is_best": is_best, "bytes": manifest.total_bytes, "bytes_written": manifest.total_bytes - shared,
        "tensors": len(manifest.tensors), "files_shared": sum(shard.is_linked for shard in shards),
        "notes": found + notes,
    }  # fmt: skip
