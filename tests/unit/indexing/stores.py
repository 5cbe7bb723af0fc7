"""The stores that come with Holdfast, by name, for those tests that ask the same of each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PLACES = {
    "flat": "holdfast.indexing:FlatStore",
    "qdrant": "holdfast.adapters.stores.qdrant:QdrantStore",
    "lancedb": "holdfast.adapters.stores.lancedb:LanceStore",
    "sqlite-vec": "holdfast.adapters.stores.sqlite_vec:SQLiteVecStore",
    "chroma": "holdfast.adapters.stores.chroma:ChromaStore",
    "faiss": "holdfast.adapters.stores.faiss:FaissStore",
}
KINDS = tuple(PLACES)


def store(kind: str) -> Callable[[Path], Any]:
    """The class of a store."""
    module, _, name = PLACES[kind].partition(":")
    found: Callable[[Path], Any] = getattr(import_module(module), name)
    return found
