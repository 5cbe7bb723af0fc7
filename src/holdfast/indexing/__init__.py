"""Indexing: what is done for which document, under which settings, and what a change of them costs.

    pipeline = Pipeline(source=Folder("docs"), embed={"dense": embed}, store=FlatStore("vectors.db"))
    with IndexRun(ledger="index.db", pipeline=pipeline) as run:
        plan = run.plan()  # what it would do and cost
        run.apply(plan)
        run.search("dense", "where are leases renewed")

A run plans (`planning`), applies (`applying`) and checks (`checking`); the ledger has what was paid for.

    run         `IndexRun`, which is called
    pipeline, stages         the parts of a pipeline; by what each is known
    sources, chunking, splitters    documents; cutting them, by our own hands and by others'
    standing, rows           what there is before a plan; documents beside those of the ledger
    planning, plan           making a plan; what it says
    spaces, families, deciding    in which space vectors lie; which models share one; what a change means
    settings, impact         of what kind settings are; how much a change costs
    precision   which datatypes can be made of which
    applying, working        carrying out a plan; documents on their way
    embedding, probing       paid work; whether a model is the one it was
    publishing, checking     points into a store; whether it holds what the ledger says
    keeping     which generations stay
    ledger/     what was done and paid for, in SQLite or PostgreSQL
    store, flat, blocks, database    what a store does; the one that comes along, and its vectors; SQLite files of ours
    arguments   validation of paths and names
    vectors, sparse, words   vectors as bytes; a sparse model of our own
    checkpoint, manager, fingerprint    the predecessor's interface
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
