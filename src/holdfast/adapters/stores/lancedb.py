"""A vector store in LanceDB: a table for each collection, in a folder. A small table names the live one.

Every write is a new version of its table, complete or absent (P3). Numbers are stored as floats: a coarser datatype
rounds them and saves no space.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast import durable
from holdfast.errors import Extra
from holdfast.indexing import vectors
from holdfast.indexing.validation import resolve_path
from holdfast.indexing.vector_store import Hit, Point, as_hit, is_there, no_collection, nothing_to_search, using
from holdfast.indexing.vectors import Query, Shape

with Extra("lancedb"):
    import lancedb
    import pyarrow as pa

_KEY = b"holdfast"
_LIVE = "holdfast_live"
_BATCH_ROWS = 500
_OPTIMIZE_EVERY = 64
"""Writes after which small files are merged."""
_OLD = timedelta(hours=1)
"""How long a version stays for processes that read it."""
_HINT = "Check that the folder is writable and try again; or move it away and apply a plan."


class LanceStore:
    """A store in a folder. Many may read it while one writes."""

    keeps_sparse = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a LanceStore")
        self._writes = 0
        with self._translated():
            if is_there(self._path):
                for left in self._path.glob("*.dropped"):  # left by a process that was killed
                    shutil.rmtree(left, ignore_errors=True)

    @functools.cached_property
    def _db(self) -> Any:
        durable.make_folder(self._path)
        return lancedb.connect(self._path)

    @property
    def identity(self) -> str:
        return f"lancedb:{self._path.resolve()}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        metadata = json.dumps({"fingerprint": dict(fingerprint), "shapes": vectors.shapes_to_json(shapes)})
        fields = [
            pa.field("id", pa.string()), pa.field("document", pa.string()), pa.field("ordinal", pa.int64()),
            pa.field("text", pa.string()),
        ]  # fmt: skip
        fields += [pa.field(_column(place), pa.list_(pa.float32(), each.dimension)) for place, each in _placed(shapes)]
        with self._translated():
            if not self._is_there(collection):
                self._db.create_table(collection, schema=pa.schema(fields, metadata={_KEY: metadata.encode()}))

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        metadata = self._metadata(collection)
        return None if metadata is None else dict(metadata["fingerprint"])

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        places = self._places(collection)
        if not points:
            return
        with self._translated():
            table = self._table(collection)
            rows = pa.Table.from_pylist([_row(each, places) for each in points], schema=table.schema)
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows)
            self._optimize(table)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        with self._translated():
            table = self._table(collection)
            for start in range(0, len(ids), _BATCH_ROWS):
                table.delete(_id_filter(ids[start : start + _BATCH_ROWS]))
            self._optimize(table)

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        places = self._places(collection)
        with self._translated():
            names = ["id", "document", *(_column(place) for place, _ in places.values())]
            for batch in self._table(collection).search().select(names).to_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    there = [(name, place, each) for name, (place, each) in places.items() if row[_column(place)]]
                    yield row["id"], row["document"], {name: each.size_bytes for name, _, each in there}

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        places = self._places(collection)
        with self._translated():
            rows = [
                row
                for start in range(0, len(ids), _BATCH_ROWS)
                for row in self._table(collection)
                .search()
                .where(_id_filter(ids[start : start + _BATCH_ROWS]))
                .limit(_BATCH_ROWS)
                .to_list()
            ]
        return {row["id"]: _point(row, places) for row in rows}

    def count(self, collection: str) -> int:
        with self._translated():
            return int(self._table(collection).count_rows()) if self._is_there(collection) else 0

    def live(self) -> str | None:
        with self._translated():
            rows = self._table(_LIVE).search().to_list() if self._is_there(_LIVE) else []
            name = rows[0]["collection"] if rows else None
            return str(name) if name and self._is_there(name) else None

    def make_live(self, collection: str) -> None:
        if self.fingerprint(collection) is None:
            raise no_collection(self.identity, collection)
        rows = pa.table({"collection": [collection]})
        with self._translated():
            self._db.create_table(_LIVE, rows, mode="overwrite")
            self._table(collection).optimize(cleanup_older_than=_OLD)

    def drop(self, collection: str) -> None:
        """Rename the table in one step first: a kill while its files are removed must not leave half of it (P3)."""
        with self._translated():
            if self._is_there(collection):
                aside = self._path / f"{collection}.dropped"
                durable.disk().rename(str(self._path / f"{collection}.lance"), str(aside))
                durable.sync_folder(self._path)
                shutil.rmtree(aside, ignore_errors=True)  # another process may be removing it, too

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        live = self.live()
        found = self._places(live).get(channel) if live else None
        if live is None or found is None:
            raise nothing_to_search(self.identity, channel)
        vector = vectors.normalise_query(query, found[1])
        with self._translated():
            near = self._table(live).search(vector, vector_column_name=_column(found[0]))
            rows = near.distance_type("cosine").select(["document", "ordinal", "text", "_distance"]).limit(limit)
            return [as_hit(self.identity, row, row["text"], 1 - float(row["_distance"])) for row in rows.to_list()]

    def close(self) -> None:
        """Do nothing: nothing stays open between calls."""

    def _optimize(self, table: Any) -> None:
        self._writes += 1
        if self._writes % _OPTIMIZE_EVERY == 0:
            table.optimize(cleanup_older_than=_OLD)

    def _is_there(self, collection: str) -> bool:
        return (self._path / f"{collection}.lance").is_dir()

    def _table(self, collection: str) -> Any:
        if not self._is_there(collection):
            raise no_collection(self.identity, collection)
        return self._db.open_table(collection)

    def _metadata(self, collection: str) -> dict[str, Any] | None:
        with self._translated():
            if not self._is_there(collection):
                return None
            metadata = (self._table(collection).schema.metadata or {}).get(_KEY)
            return dict(json.loads(metadata)) if metadata else {"fingerprint": {}, "shapes": {}}

    def _places(self, collection: str) -> dict[str, tuple[int, Shape]]:
        """Return the number of its column and its shape by channel."""
        shapes = vectors.shapes_from_json((self._metadata(collection) or {"shapes": {}})["shapes"])
        return {name: (place, shape) for place, (name, shape) in enumerate(shapes.items())}

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return using(self, self._path, hint=_HINT)


def _placed(shapes: Mapping[str, Shape]) -> Iterator[tuple[int, Shape]]:
    yield from enumerate(shapes.values())


def _column(place: int) -> str:
    return f"vector_{place}"


def _row(point: Point, places: Mapping[str, tuple[int, Shape]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": point.id, "document": point.document, "ordinal": point.ordinal, "text": point.text,
    }  # fmt: skip
    for name, (place, shape) in places.items():
        data = point.vectors.get(name)
        row[_column(place)] = None if data is None else vectors.floats(data, shape)
    return row


def _point(row: Mapping[str, Any], places: Mapping[str, tuple[int, Shape]]) -> Point:
    there = {
        name: vectors.derive(vectors.pack_floats(row[_column(place)]), shape)
        for name, (place, shape) in places.items()
        if row[_column(place)] is not None
    }
    return Point(row["id"], row["document"], row["ordinal"], row["text"], there)


def _id_filter(ids: Sequence[str]) -> str:
    return "id IN ({})".format(", ".join("'" + each.replace("'", "''") + "'" for each in ids))
