"""A vector store in Qdrant: embedded in a folder, or through a client. The live collection is an alias.

Numbers are stored as floats: a coarser datatype rounds them and saves no space.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.errors import Extra, Refused
from holdfast.indexing import sparse_vectors, vectors
from holdfast.indexing.validation import resolve_path
from holdfast.indexing.vector_store import (
    Hit,
    Point,
    as_hit,
    as_point,
    is_there,
    no_collection,
    nothing_to_search,
    using,
)
from holdfast.indexing.vectors import Query, Shape

with Extra("qdrant"):
    from qdrant_client import QdrantClient, models

_PAGE = 256
_HINT = "Check that no other process has it open and try again; or move it away and apply a plan."


class QdrantStore:
    """A store in a folder, for one process at a time, or wherever the client connects to."""

    keeps_sparse = True

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, client: QdrantClient | None = None, alias: str = "holdfast"
    ) -> None:
        if (path is None) == (client is None):
            raise Refused("a QdrantStore needs a path or a client", hint="Pass exactly one of them.")
        self._path = resolve_path(path, "a QdrantStore").resolve() if path is not None else None
        self._alias = alias
        self._given_client = client
        with self._translated():
            if self._is_there():
                _ = self._client  # raise now if another process has it open
        self._shapes: dict[str, dict[str, Shape]] = {}

    @functools.cached_property
    def _client(self) -> QdrantClient:
        return self._given_client if self._given_client is not None else QdrantClient(path=str(self._path))

    def _is_there(self) -> bool:
        return self._path is None or "_client" in vars(self) or is_there(self._path)

    @property
    def identity(self) -> str:
        return f"qdrant:{self._path or 'client'}#{self._alias}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        metadata = {"fingerprint": dict(fingerprint), "shapes": vectors.shapes_to_json(shapes)}
        with self._translated():
            if not self._client.collection_exists(collection):
                dense = {name: _dense(each) for name, each in shapes.items() if not each.is_sparse}
                sparse = {name: _sparse(each) for name, each in shapes.items() if each.is_sparse}
                self._client.create_collection(
                    collection, vectors_config=dense, sparse_vectors_config=sparse or None, metadata=metadata
                )

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        metadata = self._metadata(collection)
        return None if metadata is None else dict(metadata.get("fingerprint", {}))

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        shapes = self._shapes_of(collection)
        made = [
            models.PointStruct(
                id=point.id,
                vector={name: _vector(data, shapes[name]) for name, data in point.vectors.items()},
                payload={"document": point.document, "ordinal": point.ordinal, "text": point.text},
            )
            for point in points
        ]
        if made:
            with self._translated():
                self._client.upsert(collection, made, wait=True)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        if not ids:
            return
        own: list[Any] = [
            int(each) if each.isdecimal() else each for each in ids
        ]  # points of other programs may have numbers
        with self._translated():
            self._client.delete(collection, points_selector=models.PointIdsList(points=own), wait=True)

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        shapes = self._shapes_of(collection)
        after: Any = None
        while True:
            with self._translated():
                found, after = self._client.scroll(collection, limit=_PAGE, offset=after, with_vectors=True)
            for record in found:
                vector = record.vector if isinstance(record.vector, dict) else {}
                sizes = {name: _size(each, shapes.get(name)) for name, each in vector.items()}
                yield str(record.id), str((record.payload or {}).get("document")), sizes
            if after is None:
                return

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        shapes = self._shapes_of(collection)
        with self._translated():
            found = self._client.retrieve(collection, ids=list(ids), with_payload=True, with_vectors=True)
        return {str(each.id): _point(each, shapes) for each in found}

    def count(self, collection: str) -> int:
        with self._translated():
            there = self._is_there() and self._client.collection_exists(collection)
            return int(self._client.count(collection, exact=True).count) if there else 0

    def live(self) -> str | None:
        with self._translated():
            aliases = self._client.get_aliases().aliases if self._is_there() else []
        return next((str(each.collection_name) for each in aliases if each.alias_name == self._alias), None)

    def make_live(self, collection: str) -> None:
        if self.fingerprint(collection) is None:
            raise no_collection(self.identity, collection)
        steps: list[Any] = []
        if self.live() is not None:
            steps.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self._alias)))
        alias = models.CreateAlias(collection_name=collection, alias_name=self._alias)
        with self._translated():
            self._client.update_collection_aliases([*steps, models.CreateAliasOperation(create_alias=alias)])

    def drop(self, collection: str) -> None:
        with self._translated():
            if self._is_there():
                self._client.delete_collection(collection)
        self._shapes.pop(collection, None)

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        live = self.live()
        shape = self._shapes_of(live).get(channel) if live else None
        if live is None or shape is None:
            raise nothing_to_search(self.identity, channel)
        with self._translated():
            vector = (
                _sparse_vector(sparse_vectors.check_query(query))
                if shape.is_sparse
                else vectors.normalise_query(query, shape)
            )
            found = self._client.query_points(live, query=vector, using=channel, limit=limit).points
        pairs = [(each.payload or {}, float(each.score)) for each in found]
        return [as_hit(self.identity, payload, payload.get("text"), score) for payload, score in pairs]

    def close(self) -> None:
        """Close the folder."""
        if "_client" in vars(self):
            self._client.close()

    def _metadata(self, collection: str) -> dict[str, Any] | None:
        with self._translated():
            if not (self._is_there() and self._client.collection_exists(collection)):
                return None
            return dict(self._client.get_collection(collection).config.metadata or {})

    def _shapes_of(self, collection: str) -> dict[str, Shape]:
        if collection not in self._shapes:
            metadata = (self._metadata(collection) or {}).get("shapes", {})
            self._shapes[collection] = vectors.shapes_from_json(metadata)
        return self._shapes[collection]

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return using(self, self._path, hint=_HINT)


def _dense(shape: Shape) -> models.VectorParams:
    return models.VectorParams(size=shape.dimension, distance=models.Distance.COSINE)


def _sparse(shape: Shape) -> models.SparseVectorParams:
    return models.SparseVectorParams(modifier=models.Modifier.IDF if shape.datatype == "sparse-idf" else None)


def _vector(data: bytes, shape: Shape) -> Any:
    return _sparse_vector(sparse_vectors.unpack(data)) if shape.is_sparse else vectors.floats(data, shape)


def _point(record: models.Record, shapes: Mapping[str, Shape]) -> Point:
    metadata = record.payload or {}
    vector = record.vector if isinstance(record.vector, dict) else {}
    there = {name: _blob(each, shapes[name]) for name, each in vector.items() if name in shapes}
    return as_point(str(record.id), metadata, metadata.get("text"), there)


def _sparse_vector(numbers: Mapping[int, float]) -> models.SparseVector:
    return models.SparseVector(indices=list(numbers), values=list(numbers.values()))


def _blob(vector: Any, shape: Shape) -> bytes:
    if isinstance(vector, models.SparseVector):
        return sparse_vectors.pack(dict(zip(vector.indices, vector.values, strict=True)))
    return vectors.derive(vectors.pack_floats(vector), shape)


def _size(vector: Any, shape: Shape | None) -> int:
    if isinstance(vector, models.SparseVector):
        return len(vector.indices) * 8
    return shape.size_bytes if shape is not None and len(vector) == shape.dimension else len(vector)
