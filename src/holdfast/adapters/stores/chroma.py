"""A vector store in Chroma, embedded in a folder. It sends nothing anywhere and loads no model of its own.

A collection of Chroma has one vector per point. So one collection here is one of Chroma's for each channel, and one
more, empty, whose metadata describes them; it is created last and deleted first (P3). Numbers are stored as floats: a
coarser datatype rounds them and saves no space.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import Extra
from holdfast.indexing import vectors
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

with Extra("chroma"):
    import chromadb
    from chromadb.config import Settings
    from chromadb.errors import NotFoundError

_LIVE = "holdfast.live"
_PREFIX = "hf."
_PAGE = 1000
_HINT = "Check that the folder is writable and try again; or move it away and apply a plan."


class ChromaStore:
    """A store in a folder, for one process at a time."""

    keeps_sparse = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a ChromaStore")
        with self._translated():
            if self._is_there():
                _ = self._client  # raise now if it cannot be opened

    @functools.cached_property
    def _client(self) -> Any:
        return chromadb.PersistentClient(path=str(self._path), settings=Settings(anonymized_telemetry=False))

    @functools.cached_property
    def _max_batch(self) -> int:
        return int(self._client.get_max_batch_size())

    def _is_there(self) -> bool:
        return "_client" in vars(self) or is_there(self._path)

    @property
    def identity(self) -> str:
        return f"chroma:{self._path.resolve()}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        if self._collection_metadata(collection) is not None:
            return
        metadata = {"fingerprint": json.dumps(fingerprint), "shapes": json.dumps(vectors.shapes_to_json(shapes))}
        with self._translated():
            self._sweep()
            for position in range(len(shapes)):
                self._make(_channel_name(collection, position))
            self._make(_name(collection), metadata)

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        metadata = self._collection_metadata(collection)
        return None if metadata is None else dict(json.loads(metadata["fingerprint"]))

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        for position, (name, shape) in enumerate(self._shapes(collection).items()):
            having = [point for point in points if name in point.vectors]
            for start in range(0, len(having), self._max_batch):
                some = having[start : start + self._max_batch]
                with self._translated():
                    self._get(_channel_name(collection, position)).upsert(
                        ids=[each.id for each in some],
                        embeddings=[vectors.floats(each.vectors[name], shape) for each in some],
                        metadatas=[{"document": each.document, "ordinal": each.ordinal} for each in some],
                        documents=[each.text for each in some],
                    )
            self._delete(
                _channel_name(collection, position), [point.id for point in points if name not in point.vectors]
            )

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        for position in range(len(self._shapes(collection))):
            self._delete(_channel_name(collection, position), ids)

    def _delete(self, part: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), self._max_batch):
            with self._translated():
                self._get(part).delete(ids=list(ids[start : start + self._max_batch]))

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        documents: dict[str, str] = {}
        sizes: dict[str, dict[str, int]] = {}
        for position, (name, shape) in enumerate(self._shapes(collection).items()):
            for each, document, length in self._rows(_channel_name(collection, position)):
                documents[each] = document
                sizes.setdefault(each, {})[name] = shape.size_bytes if length == shape.dimension else length
        for each, document in documents.items():
            yield each, document, sizes[each]

    def _rows(self, part: str) -> Iterator[tuple[str, str, int]]:
        start = 0
        while True:
            with self._translated():
                found = self._get(part).get(include=["metadatas", "embeddings"], limit=_PAGE, offset=start)
            for each, metadata, vector in zip(found["ids"], found["metadatas"], found["embeddings"], strict=True):
                yield each, str((metadata or {}).get("document")), len(vector)
            start += len(found["ids"])
            if len(found["ids"]) < _PAGE:
                return

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        points: dict[str, Point] = {}
        for position, (name, shape) in enumerate(self._shapes(collection).items()):
            for start in range(0, len(ids), _PAGE):
                for each in self._points(_channel_name(collection, position), ids[start : start + _PAGE], name, shape):
                    before = points[each.id].vectors if each.id in points else {}
                    points[each.id] = replace(each, vectors={**before, **each.vectors})
        return points

    def _points(self, part: str, ids: Sequence[str], name: str, shape: Shape) -> Iterator[Point]:
        with self._translated():
            found = self._get(part).get(ids=list(ids), include=["metadatas", "embeddings", "documents"])
        rows = zip(found["ids"], found["metadatas"], found["documents"], found["embeddings"], strict=True)
        for each, metadata, text, vector in rows:
            there = {name: vectors.derive(vectors.pack_floats(vector), shape)}
            yield as_point(each, metadata, text, there)

    def count(self, collection: str) -> int:
        shapes = self._shapes(collection)
        if len(shapes) > 1:  # a point may lack one of its vectors
            return sum(1 for _ in self.scan(collection))
        with self._translated():
            return int(self._get(_channel_name(collection, 0)).count()) if shapes else 0

    def live(self) -> str | None:
        with self._translated():
            metadata = self._metadata(_LIVE)
        name = metadata["collection"] if metadata else None
        return str(name) if name is not None and self._collection_metadata(name) is not None else None

    def make_live(self, collection: str) -> None:
        if self._collection_metadata(collection) is None:
            raise no_collection(self.identity, collection)
        metadata = {"collection": collection}
        with self._translated():
            if self._metadata(_LIVE) is None:
                self._make(_LIVE, metadata)
            else:
                self._get(_LIVE).modify(metadata=metadata)

    def drop(self, collection: str) -> None:
        with self._translated():
            if self._is_there():
                self._remove(_name(collection))
                self._sweep()

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        live = self.live()
        shapes = self._shapes(live) if live else {}
        if live is None or channel not in shapes:
            raise nothing_to_search(self.identity, channel)
        vector = vectors.normalise_query(query, shapes[channel])
        part = _channel_name(live, list(shapes).index(channel))
        with self._translated():
            found = self._get(part).query(query_embeddings=[vector], n_results=limit)
        rows = zip(found["metadatas"][0], found["documents"][0], found["distances"][0], strict=True)
        return [as_hit(self.identity, metadata, text, 1 - distance) for metadata, text, distance in rows]

    def close(self) -> None:
        """Close the folder."""
        if "_client" in vars(self):
            self._client.close()

    # calls of Chroma

    def _make(self, name: str, metadata: Mapping[str, Any] | None = None) -> None:
        self._client.create_collection(
            name,
            metadata=dict(metadata) if metadata else None,
            configuration={"hnsw": {"space": "cosine"}},
            embedding_function=None,  # the default may download one
        )

    def _get(self, name: str) -> Any:
        return self._client.get_collection(name, embedding_function=None)

    def _sweep(self) -> None:
        """Remove collections of channels whose description does not exist: a process was killed in between."""
        names = {each.name for each in self._client.list_collections()}
        for name in names:
            whole, _, position = name.rpartition(".")
            if name.startswith(_PREFIX) and position.isdigit() and whole not in names:
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            self._client.delete_collection(name)

    def _metadata(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self._get(name).metadata or {}) if self._is_there() else None
        except NotFoundError:
            return None

    def _collection_metadata(self, collection: str) -> dict[str, Any] | None:
        with self._translated():
            return self._metadata(_name(collection))

    def _shapes(self, collection: str) -> dict[str, Shape]:
        metadata = self._collection_metadata(collection)
        return vectors.shapes_from_json(json.loads(metadata["shapes"])) if metadata else {}

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return using(self, self._path, hint=_HINT)


def _name(collection: str) -> str:
    return f"{_PREFIX}{collection}"


def _channel_name(collection: str, position: int) -> str:
    return f"{_PREFIX}{collection}.{position}"
