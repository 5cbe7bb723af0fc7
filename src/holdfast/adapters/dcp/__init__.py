"""Holdfast as the storage of `torch.distributed.checkpoint`: atomic, verified, shared, and without a pickle on disk.

    dcp.save(state, storage_writer=HoldfastWriter("runs/exp1/checkpoints", step=1200))
    dcp.load(state, storage_reader=HoldfastReader("runs/exp1/checkpoints", step="latest"))

All ranks share a file system or an object store (`s3://bucket/prefix`). Each writes its own shards, and the coordinator
alone makes the checkpoint (`finish`): a rank that dies before that changes nothing (P3).
"""

from holdfast.errors import Extra

with Extra("training"):
    from holdfast.adapters.dcp.reader import HoldfastReader
    from holdfast.adapters.dcp.writer import HoldfastWriter

__all__ = ["HoldfastReader", "HoldfastWriter"]
