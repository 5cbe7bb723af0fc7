"""Forks: a checkpoint in a separate folder with its own store, so that several approaches can be tried in parallel.

Order of writes (P3): the folder, by an export, which is atomic; then its store, with a checkpoint that records its
origin. Adopting saves the fork, imports that checkpoint here, and restores it; each of these is atomic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from holdfast import model
from holdfast.errors import HoldfastError, NotFound, Refused, Remedy
from holdfast.model import JSON, Plan
from holdfast.project import metadata
from holdfast.project.context import Place, ProjectContext
from holdfast.project.rollback import Rollback
from holdfast.project.types import Adopted, CheckpointType, Forked


def fork(project: ProjectContext, source: model.Checkpoint, directory: Place, *, store: Place | None) -> Forked:
    """Export a checkpoint to a folder, and make that a project."""
    workspace = project.workspace
    exported = workspace.export(source.id, directory)
    origin = {"id": source.id, "workspace": os.fspath(workspace.path), "store": os.fspath(workspace.store)}
    other = project.at(exported.directory, store=store)
    seen, state = metadata.view(source), metadata.without_own_names(source.state)
    name = f"fork of {seen.name or seen.id}"
    try:
        first = other.save(
            CheckpointType.MANUAL, name, context=seen.context, state=state, more={metadata.FORKED_FROM: origin}
        )
    except HoldfastError as error:
        hint = f"The files are in {exported.directory}. Remove it, and fork again. {error.advice}".rstrip()
        raise type(error)(f"the fork has no store: {error.message}", hint=hint, remedy=error.remedy) from error
    return Forked(
        directory=exported.directory,
        store=os.fspath(other.workspace.store),
        checkpoint=metadata.view(first),
        source=source.id,
        written=exported.written,
        failed=exported.failed,
        missing=exported.missing,
    )


def adopt(
    project: ProjectContext,
    rollback: Rollback,
    directory: Place,
    *,
    store: Place | None,
    state: Mapping[str, JSON] | None,
    approve: Callable[[Plan], object] | None,
) -> Adopted:
    """Restore a fork's files and state into the project."""
    other = project.at(directory, store=store)
    forked_from, source = _origin(project, other)
    with Rollback(other).settled():
        taken = _save(other)
    has_changed = source is None or bool(project.workspace.diff(source.id))
    name, view = f"adopted {other.workspace.path.name}", metadata.view(taken)
    described = other.describe(CheckpointType.MANUAL, name, context=view.context, git=project.git_state())
    origin = {"id": taken.id, "workspace": os.fspath(other.workspace.path), "source": forked_from}
    with rollback.settled():
        state = project.last_state() if state is None else state  # read before the import, which becomes the newest
        described[metadata.ADOPTED_FROM] = origin
        adopted = project.workspace.import_from(other.workspace, taken.id, name, metadata=described)
        plan = _approved(project, adopted, approve) if approve is not None else None
        done = rollback.restore(adopted, git="keep", confirm=False, keep_new=False, state=state, plan=plan)
    return Adopted(metadata.view(adopted), forked_from, done, has_changed)


def _approved(project: ProjectContext, adopted: model.Checkpoint, approve: Callable[[Plan], object]) -> Plan:
    """The plan, if `approve` accepts it; else delete the imported checkpoint."""
    plan = project.workspace.preview(adopted.id)
    try:
        approve(plan)
    except BaseException:
        project.workspace.delete(adopted.id)
        raise
    return plan


def _save(other: ProjectContext) -> model.Checkpoint:
    """Save the fork, with the state and the context of its last checkpoint."""
    head = other.workspace.head()
    context = metadata.view(head).context if head else {}
    return other.save(CheckpointType.MANUAL, "adopted", context=context, state=other.last_state())


def _origin(project: ProjectContext, other: ProjectContext) -> tuple[str, model.Checkpoint | None]:
    """What a folder was forked from: the id, and the checkpoint of this project, if it was not pruned since. Refused
    if the folder is no fork of this project."""
    if not other.has_store():
        raise NotFound(f"{other.folder} has no checkpoints", remedy=Remedy("forked_folder"))
    for each in other.workspace.list(None):
        origin = each.metadata.get(metadata.FORKED_FROM)
        if isinstance(origin, Mapping) and isinstance(origin.get("id"), str):
            try:
                return origin["id"], project.workspace.get(origin["id"])
            except NotFound:
                if origin.get("store") == os.fspath(project.workspace.store):
                    return origin["id"], None
    raise Refused(
        f"{other.folder} is not a fork of {project.workspace.path}",
        remedy=Remedy("forked_folder"),
    )
