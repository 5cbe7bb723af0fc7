"""Indexing: what is done for which document, under which settings, and what a change of them costs.

pipeline = Pipeline(source=Folder("docs"), embed={"dense": embed}, store=FlatStore("vectors.db"))
with IndexRun(ledger="index.db", pipeline=pipeline) as run:
    plan = run.plan()  # what it would do and cost
    run.apply(plan)
    run.search("dense", "where are leases renewed")
"""

from __future__ import annotations

from holdfast.indexing.checkpoint import CheckpointSettingsMap, IndexingCheckpoint, get_checkpoint_settings_map
from holdfast.indexing.chunking import PlainChunker
from holdfast.indexing.fingerprint import CheckpointSettingsFingerprint
from holdfast.indexing.flat import FlatStore
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.manager import CheckpointManager
from holdfast.indexing.pipeline import Channel, Pipeline
from holdfast.indexing.plan import IndexPlan
from holdfast.indexing.run import IndexRun
from holdfast.indexing.sources import Document, Folder
from holdfast.indexing.splitters import Splitter
from holdfast.indexing.words import HashedWords

__all__ = [
    "ChangeImpact",
    "Channel",
    "CheckpointManager",
    "CheckpointSettingsFingerprint",
    "CheckpointSettingsMap",
    "Document",
    "FlatStore",
    "Folder",
    "HashedWords",
    "IndexPlan",
    "IndexRun",
    "IndexingCheckpoint",
    "Pipeline",
    "PlainChunker",
    "Splitter",
    "get_checkpoint_settings_map",
]
