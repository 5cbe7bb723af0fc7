"""Points in Chroma, embedded in a folder. Nothing is sent anywhere, and no model of its own is loaded.

A collection of Chroma's has one vector a point. So one of ours is one of Chroma's for each channel, and one more that
is empty and says what they are; it is made last and taken away first. Numbers are kept as floats: a coarser datatype
rounds them, and saves no room there.
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
from holdfast.indexing.arguments import place_of
from holdfast.indexing.store import Hit, Point, as_hit, as_point, is_there, no_collection, nothing_to_search, using
from holdfast.indexing.vectors import Query, Shape

with Extra("chroma"):
    import chromadb
    from chromadb.config import Settings
    from chromadb.errors import NotFoundError

_LIVE = "holdfast.live"
_PREFIX = "hf."
_PAGE = 1000
_HINT = "See that the folder can be written to, and try again; or put it away and apply."


class ChromaStore:
    """A store in a folder, for one process at a time."""

    keeps_sparse = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = place_of(path, "a ChromaStore")
        with self._translated():
            if self._is_there():
                _ = self._client  # what is wrong with it is told of at once

    @functools.cached_property
    def _client(self) -> Any:
        return chromadb.PersistentClient(path=str(self._path), settings=Settings(anonymized_telemetry=False))

    @functools.cached_property
    def _most(self) -> int:
        return int(self._client.get_max_batch_size())

    def _is_there(self) -> bool:
        return "_client" in vars(self) or is_there(self._path)

    @property
    def identity(self) -> str:
        return f"chroma:{self._path.resolve()}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        if self._said(collection) is not None:
            return
        said = {"fingerprint": json.dumps(fingerprint), "shapes": json.dumps(vectors.plain(shapes))}
        with self._translated():
            self._sweep()
            for place in range(len(shapes)):
                self._make(_part(collection, place))
            self._make(_name(collection), said)

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        said = self._said(collection)
        return None if said is None else dict(json.loads(said["fingerprint"]))

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        for place, (name, shape) in enumerate(self._shapes(collection).items()):
            having = [point for point in points if name in point.vectors]
            for start in range(0, len(having), self._most):
                some = having[start : start + self._most]
                with self._translated():
                    self._get(_part(collection, place)).upsert(
                        ids=[each.id for each in some],
                        embeddings=[vectors.floats(each.vectors[name], shape) for each in some],
                        metadatas=[{"document": each.document, "ordinal": each.ordinal} for each in some],
                        documents=[each.text for each in some],
                    )
            self._delete(_part(collection, place), [point.id for point in points if name not in point.vectors])

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        for place in range(len(self._shapes(collection))):
            self._delete(_part(collection, place), ids)

    def _delete(self, part: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), self._most):
            with self._translated():
                self._get(part).delete(ids=list(ids[start : start + self._most]))

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        documents: dict[str, str] = {}
        sizes: dict[str, dict[str, int]] = {}
        for place, (name, shape) in enumerate(self._shapes(collection).items()):
            for each, document, length in self._rows(_part(collection, place)):
                documents[each] = document
                sizes.setdefault(each, {})[name] = shape.size_bytes if length == shape.dimension else length
        for each, document in documents.items():
            yield each, document, sizes[each]

    def _rows(self, part: str) -> Iterator[tuple[str, str, int]]:
        start = 0
        while True:
            with self._translated():
                found = self._get(part).get(include=["metadatas", "embeddings"], limit=_PAGE, offset=start)
            for each, said, vector in zip(found["ids"], found["metadatas"], found["embeddings"], strict=True):
                yield each, str((said or {}).get("document")), len(vector)
            start += len(found["ids"])
            if len(found["ids"]) < _PAGE:
                return

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        points: dict[str, Point] = {}
        for place, (name, shape) in enumerate(self._shapes(collection).items()):
            for start in range(0, len(ids), _PAGE):
                for each in self._points(_part(collection, place), ids[start : start + _PAGE], name, shape):
                    before = points[each.id].vectors if each.id in points else {}
                    points[each.id] = replace(each, vectors={**before, **each.vectors})
        return points

    def _points(self, part: str, ids: Sequence[str], name: str, shape: Shape) -> Iterator[Point]:
        with self._translated():
            found = self._get(part).get(ids=list(ids), include=["metadatas", "embeddings", "documents"])
        rows = zip(found["ids"], found["metadatas"], found["documents"], found["embeddings"], strict=True)
        for each, said, text, vector in rows:
            there = {name: vectors.derive(vectors.packed(vector), shape)}
            yield as_point(each, said, text, there)

    def count(self, collection: str) -> int:
        shapes = self._shapes(collection)
        if len(shapes) > 1:  # a point may be without one of its vectors
            return sum(1 for _ in self.scan(collection))
        with self._translated():
            return int(self._get(_part(collection, 0)).count()) if shapes else 0

    def live(self) -> str | None:
        with self._translated():
            said = self._metadata(_LIVE)
        name = said["collection"] if said else None
        return str(name) if name is not None and self._said(name) is not None else None

    def make_live(self, collection: str) -> None:
        if self._said(collection) is None:
            raise no_collection(self.identity, collection)
        said = {"collection": collection}
        with self._translated():
            if self._metadata(_LIVE) is None:
                self._make(_LIVE, said)
            else:
                self._get(_LIVE).modify(metadata=said)

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
        asked = vectors.asked(query, shapes[channel])
        part = _part(live, list(shapes).index(channel))
        with self._translated():
            found = self._get(part).query(query_embeddings=[asked], n_results=limit)
        rows = zip(found["metadatas"][0], found["documents"][0], found["distances"][0], strict=True)
        return [as_hit(self.identity, said, text, 1 - distance) for said, text, distance in rows]

    def close(self) -> None:
        """Let go of the folder."""
        if "_client" in vars(self):
            self._client.close()

    # Chroma's own

    def _make(self, name: str, said: Mapping[str, Any] | None = None) -> None:
        self._client.create_collection(
            name,
            metadata=dict(said) if said else None,
            configuration={"hnsw": {"space": "cosine"}},
            embedding_function=None,  # else it may fetch one
        )

    def _get(self, name: str) -> Any:
        return self._client.get_collection(name, embedding_function=None)

    def _sweep(self) -> None:
        """Remove what nothing speaks for, be it that a process was killed between the one and the other."""
        names = {each.name for each in self._client.list_collections()}
        for name in names:
            whole, _, place = name.rpartition(".")
            if name.startswith(_PREFIX) and place.isdigit() and whole not in names:
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            self._client.delete_collection(name)

    def _metadata(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self._get(name).metadata or {}) if self._is_there() else None
        except NotFoundError:
            return None

    def _said(self, collection: str) -> dict[str, Any] | None:
        with self._translated():
            return self._metadata(_name(collection))

    def _shapes(self, collection: str) -> dict[str, Shape]:
        said = self._said(collection)
        return vectors.shapes_of(json.loads(said["shapes"])) if said else {}

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return using(self, self._path, hint=_HINT)


def _name(collection: str) -> str:
    return f"{_PREFIX}{collection}"


def _part(collection: str, place: int) -> str:
    return f"{_PREFIX}{collection}.{place}"
