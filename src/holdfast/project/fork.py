"""Forks: a checkpoint in a folder and a store of its own, so that several attempts go on side by side.

Order of writes (P3): the folder, by an export, which is there whole or not at all; then its store, with a checkpoint
that says where it came from. Adopting saves the fork, imports that checkpoint here, and restores it: old or new, each
time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from holdfast import model
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.model import JSON, Plan
from holdfast.project import record
from holdfast.project.ground import Ground, Place
from holdfast.project.nouns import Adopted, CheckpointType, Forked
from holdfast.project.rollback import Rollback


def fork(ground: Ground, source: model.Checkpoint, directory: Place, *, store: Place | None) -> Forked:
    """Write a checkpoint into a folder, and make that a project."""
    workspace = ground.workspace
    exported = workspace.export(source.id, directory)
    origin = {"id": source.id, "workspace": os.fspath(workspace.path), "store": os.fspath(workspace.store)}
    other = ground.at(exported.directory, store=store)
    seen, state = record.view(source), record.without_ours(source.state)
    name = f"fork of {seen.name or seen.id}"
    try:
        first = other.save(
            CheckpointType.MANUAL, name, context=seen.context, state=state, more={record.FORKED_FROM: origin}
        )
    except HoldfastError as error:
        hint = f"The files are in {exported.directory}. Remove it, and fork again. {error.hint}"
        raise type(error)(f"the fork has no store: {error.message}", hint=hint) from error
    return Forked(
        directory=exported.directory,
        store=os.fspath(other.workspace.store),
        checkpoint=record.view(first),
        source=source.id,
        written=exported.written,
        failed=exported.failed,
        missing=exported.missing,
    )


def adopt(
    ground: Ground,
    rollback: Rollback,
    directory: Place,
    *,
    store: Place | None,
    state: Mapping[str, JSON] | None,
    approve: Callable[[Plan], object] | None,
) -> Adopted:
    """Bring a fork's files and state back into the project."""
    other = ground.at(directory, store=store)
    forked_from, source = _origin(ground, other)
    with Rollback(other).settled():
        taken = _save(other)
    has_changed = source is None or bool(ground.workspace.diff(source.id))
    name, view = f"adopted {other.workspace.path.name}", record.view(taken)
    metadata = other.describe(CheckpointType.MANUAL, name, context=view.context, git=ground.position())
    origin = {"id": taken.id, "workspace": os.fspath(other.workspace.path), "source": forked_from}
    with rollback.settled():
        state = ground.last_state() if state is None else state  # what is imported is the newest from here on
        metadata[record.ADOPTED_FROM] = origin
        adopted = ground.workspace.import_from(other.workspace, taken.id, name, metadata=metadata)
        plan = _approved(ground, adopted, approve) if approve is not None else None
        done = rollback.restore(adopted, git="keep", confirm=False, keep_new=False, state=state, plan=plan)
    return Adopted(record.view(adopted), forked_from, done, has_changed)


def _approved(ground: Ground, adopted: model.Checkpoint, approve: Callable[[Plan], object]) -> Plan:
    """The plan, once it is approved; if it is not, what was imported for it goes."""
    plan = ground.workspace.preview(adopted.id)
    try:
        approve(plan)
    except BaseException:
        ground.workspace.delete(adopted.id)
        raise
    return plan


def _save(other: Ground) -> model.Checkpoint:
    """A fork as it is now, with the state and the context that were saved there last."""
    head = other.workspace.head()
    context = record.view(head).context if head else {}
    return other.save(CheckpointType.MANUAL, "adopted", context=context, state=other.last_state())


def _origin(ground: Ground, other: Ground) -> tuple[str, model.Checkpoint | None]:
    """What a folder was forked from: the id, and the checkpoint of this project, if that is still there; policies prune
    it like any other. Refused if it is no fork of this project."""
    if not other.has_store():
        raise NotFound(f"{other.folder} has no checkpoints", hint="Name a folder that `holdfast fork` made.")
    for each in other.workspace.list(None):
        origin = each.metadata.get(record.FORKED_FROM)
        if isinstance(origin, Mapping) and isinstance(origin.get("id"), str):
            try:
                return origin["id"], ground.workspace.get(origin["id"])
            except NotFound:
                if origin.get("store") == os.fspath(ground.workspace.store):
                    return origin["id"], None
    raise Refused(
        f"{other.folder} is not a fork of {ground.workspace.path}",
        hint="Name a folder that `holdfast fork` made of this project.",
    )
