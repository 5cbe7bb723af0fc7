"""Reading and writing the project's part of a checkpoint's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import model
from holdfast.errors import HoldfastError
from holdfast.model import JSON
from holdfast.project.features import Features
from holdfast.project.types import Checkpoint, CheckpointType, FeatureState, GitState

TYPE, PROJECT, FORKED_FROM, ADOPTED_FROM = "type", "project", "forked_from", "adopted_from"
GIT_STATE = "holdfast.position"
"""The name of the state with the git state before a rollback."""
_OWN_PREFIX = "holdfast."
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
    """Compose the metadata: `type`, which retention uses, and everything else under one key."""
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
    """A stored checkpoint as a project's. One that no project saved counts as manual, with a message."""
    stored = saved.metadata.get(PROJECT)
    stored = stored if isinstance(stored, Mapping) else {}
    list_at, not_held = stored.get("list_at"), stored.get("not_held")
    git = _head_of(saved.git) if "git" not in stored and saved.git else git_of(stored.get("git"))
    features = _features(stored.get("features"))
    if isinstance(list_at, str) and list_at:
        features = FeatureState(features.current, features.completed, f"{saved.id}:{list_at}", note=features.note)
    lost = [str(each) for each in not_held] if isinstance(not_held, list) else []
    notes = (git.note, features.note, *lost, "" if saved.complete else "some files are missing: see `uncovered`")
    context = stored.get("context")
    return Checkpoint(
        id=saved.id,
        name=str(stored.get("name") or saved.name or ""),
        description=str(stored.get("description") or ("" if stored else saved.message)),
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
    """Whether a project saved it."""
    kind = saved.metadata.get(TYPE)
    return saved.operation is None and isinstance(kind, str) and kind in _TYPES


def without_own_names(state: Mapping[str, JSON]) -> dict[str, JSON]:
    """The states of the caller."""
    return {name: value for name, value in state.items() if not name.startswith(_OWN_PREFIX)}


def git_of(stored: Any) -> GitState:
    """Read a stored git state."""
    try:
        return GitState.from_dict(stored) if isinstance(stored, Mapping) else GitState()
    except HoldfastError:  # not written by us
        return GitState(note="the stored git state is invalid")


def _head_of(git: model.GitHead) -> GitState:
    """The git state of a checkpoint that no project saved: only the manager looks for dirty files."""
    return GitState(git.commit, git.branch, note="dirty files were not recorded")


def _features(stored: Any) -> FeatureState:
    try:
        return FeatureState.from_dict(stored) if isinstance(stored, Mapping) else FeatureState()
    except HoldfastError:
        return FeatureState(note="the stored feature state is invalid")
