"""Where the shards of all ranks go, and what makes a checkpoint of them: in a folder, and in an object store.

A folder has a stage, which only its lock keeps from others. In a store an object is named after its content, and is
nothing until the manifest names it: no rank can be in another's way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.training import saving
from holdfast.training.folder import Found, TrainingFolder
from holdfast.training.saving import Wish
from holdfast.training.stored import digests
from holdfast.training.stored.shards import Payload
from holdfast.training.writing import WrittenShard, write_shards


@dataclass(frozen=True, slots=True)
class Begun:
    """What the coordinator found when a save began."""

    found: list[Found] = field(default_factory=list)
    replaced: Any = None
    """In a store, the manifest that will be replaced."""


def begin(folder: TrainingFolder, wish: Wish) -> Begun:
    """See that the step is free, and make a place for the shards. Done by the coordinator, before any rank writes."""
    if isinstance(folder, TrainingFolder):
        found = saving.prepare(folder, wish)
        folder.stage()
        return Begun(found)
    from holdfast.training import uploading  # an extra: `holdfast[s3]`

    return Begun(*uploading.prepare(folder, wish))


def write(
    folder: TrainingFolder, step: int, payloads: list[Payload], *, rank: int, threads: int | None
) -> list[WrittenShard]:
    """Write what one rank has, or share it with the checkpoint before."""
    found, _ = folder.look()
    if not isinstance(folder, TrainingFolder):
        from holdfast.training import uploading

        return uploading.send(folder, found, step, payloads, threads=threads)
    earlier = saving.earlier_of(folder, found)
    return write_shards(
        folder.staged, payloads, earlier, algorithm=digests.preferred(), threads=threads,
        name=lambda at, total: f"model-rank{rank:05d}-{at:05d}.safetensors",
    )  # fmt: skip


def finish(folder: TrainingFolder, wish: Wish, shards: list[WrittenShard], begun: Begun) -> dict[str, Any]:
    """Make the checkpoint."""
    if isinstance(folder, TrainingFolder):
        return saving.conclude(folder, folder.staged, wish, shards, begun.found)
    from holdfast.training import uploading

    folder.look()
    return uploading.commit(folder, wish, shards, begun.found, begun.replaced)
