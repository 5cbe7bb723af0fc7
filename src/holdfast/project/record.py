"""How what a project knows of a checkpoint is written into its metadata, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import model
from holdfast.errors import HoldfastError
from holdfast.model import JSON
from holdfast.project.features import Features
from holdfast.project.nouns import Checkpoint, CheckpointType, FeatureState, GitState

TYPE, PROJECT, FORKED_FROM, ADOPTED_FROM = "type", "project", "forked_from", "adopted_from"
POSITION = "holdfast.position"
"""The name of the state that says where git stood before a rollback."""
_OURS = "holdfast."
_TYPES = frozenset(kind.value for kind in CheckpointType)


def metadata(
    kind: CheckpointType,
    name: str,
    description: str,
    git: GitState,
    features: Features,
    list_at: str,
    context: Mapping[str, JSON],
    not_held: list[str],
) -> dict[str, JSON]:
    """What is written: `type`, which the retention goes by, and all the rest under one key."""
    project = {
        "name": name,
        "description": description,
        "git": git.to_dict() | {"note": git.note},
        "features": {"current": features.current, "completed": list(features.completed), "note": features.note},
        "list_at": list_at,
        "context": dict(context),
        "not_held": not_held,
    }
    return {TYPE: kind.value, PROJECT: project}


def view(saved: model.Checkpoint) -> Checkpoint:
    """A stored checkpoint as a project sees it. One that no project made is a manual one with a message."""
    said = saved.metadata.get(PROJECT)
    said = said if isinstance(said, Mapping) else {}
    list_at, not_held = said.get("list_at"), said.get("not_held")
    git, features = git_of(said.get("git")), _features(said.get("features"))
    if isinstance(list_at, str) and list_at:
        features = FeatureState(features.current, features.completed, f"{saved.id}:{list_at}", note=features.note)
    lost = [str(each) for each in not_held] if isinstance(not_held, list) else []
    notes = (git.note, features.note, *lost, "" if saved.complete else "some files are not held: see `uncovered`")
    context = said.get("context")
    return Checkpoint(
        id=saved.id,
        name=str(said.get("name") or saved.name or ""),
        description=str(said.get("description") or ("" if said else saved.message)),
        timestamp=saved.timestamp.isoformat(),
        checkpoint_type=CheckpointType(saved.metadata[TYPE]) if is_typed(saved) else CheckpointType.MANUAL,
        git_state=git,
        feature_state=features,
        context=dict(context) if isinstance(context, Mapping) else {},
        complete=saved.complete and not lost,
        pinned=saved.pinned,
        notes=tuple(filter(None, notes)),
    )


def is_typed(saved: model.Checkpoint) -> bool:
    """Whether a project made it."""
    kind = saved.metadata.get(TYPE)
    return saved.operation is None and isinstance(kind, str) and kind in _TYPES


def without_ours(state: Mapping[str, JSON]) -> dict[str, JSON]:
    """The state that the caller named."""
    return {name: value for name, value in state.items() if not name.startswith(_OURS)}


def git_of(said: Any) -> GitState:
    """Where git stood, as it was written down."""
    try:
        return GitState.from_dict(said) if isinstance(said, Mapping) else GitState()
    except HoldfastError:  # not written by us
        return GitState(note="what the checkpoint says of git makes no sense")


def _features(said: Any) -> FeatureState:
    try:
        return FeatureState.from_dict(said) if isinstance(said, Mapping) else FeatureState()
    except HoldfastError:
        return FeatureState(note="what the checkpoint says of features makes no sense")
