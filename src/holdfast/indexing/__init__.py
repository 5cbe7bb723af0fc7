"""Indexing: what is done for which document, under which settings, and what a change of them costs.

    pipeline = Pipeline(source=FolderSource("docs"), embed={"dense": embed}, store=FlatStore("vectors.db"))
    with IndexRun(ledger="index.db", pipeline=pipeline) as run:
        plan = run.plan()  # what it would do and cost
        run.apply(plan)
        run.search("dense", "where are leases renewed")

A run plans (`planner`), applies (`apply`) and checks (`verify`); the ledger has what was paid for.

    run                              `IndexRun`, the entry point
    location                         an index as a `Location`, for commands and pages
    pipeline, stages                 the parts of a pipeline; what identifies each part
    sources, chunking, splitters     documents; our own chunker; chunkers of other packages
    baseline, planner, plan          the state before a plan; making a plan; its values
    spaces, model_families           the space that vectors are in; which models share one
    channel_changes, settings, impact    what a change of a channel or a setting means and costs
    apply, publish                   carrying out a plan; documents from reading to publishing
    embed, canaries                  paid calls of a model; whether a model is still the same
    verify                           whether a store has what the ledger says
    ledger/                          what was done and paid for, in SQLite or PostgreSQL
    vector_store, flat_store         the interface of a vector store; the built-in store
    sqlite_store                     what stores in an SQLite file share
    validation                       validation of paths and names
    vectors, sparse_vectors          vectors as bytes
    word_model                       the built-in sparse model
    checkpoint, manager, fingerprint    the predecessor's interface
"""

from __future__ import annotations

from holdfast.indexing.checkpoint import CheckpointSettingsMap, IndexingCheckpoint, get_checkpoint_settings_map
from holdfast.indexing.chunking import PlainChunker
from holdfast.indexing.fingerprint import CheckpointSettingsFingerprint
from holdfast.indexing.flat_store import FlatStore
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.manager import CheckpointManager
from holdfast.indexing.pipeline import Channel, Pipeline
from holdfast.indexing.plan import IndexPlan
from holdfast.indexing.run import IndexRun
from holdfast.indexing.sources import Document, FolderSource
from holdfast.indexing.splitters import Splitter
from holdfast.indexing.word_model import HashedWords

__all__ = [
    "ChangeImpact",
    "Channel",
    "CheckpointManager",
    "CheckpointSettingsFingerprint",
    "CheckpointSettingsMap",
    "Document",
    "FlatStore",
    "FolderSource",
    "HashedWords",
    "IndexPlan",
    "IndexRun",
    "IndexingCheckpoint",
    "Pipeline",
    "PlainChunker",
    "Splitter",
    "get_checkpoint_settings_map",
]
