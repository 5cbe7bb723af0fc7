"""Indexing: what is done for which document, under which settings, and what a change of them costs."""

from __future__ import annotations

from holdfast.indexing.checkpoint import CheckpointSettingsMap, IndexingCheckpoint, get_checkpoint_settings_map
from holdfast.indexing.fingerprint import CheckpointSettingsFingerprint
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.manager import CheckpointManager

__all__ = [
    "ChangeImpact",
    "CheckpointManager",
    "CheckpointSettingsFingerprint",
    "CheckpointSettingsMap",
    "IndexingCheckpoint",
    "get_checkpoint_settings_map",
]
