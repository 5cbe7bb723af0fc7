"""A ledger in one SQLite file. `sqlite3` reads it: the tables are named after what they hold (P5)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Conflict, Unavailable
from holdfast.indexing.ledger import Batch, DocRow, Failure, Generation, LabelRow, Published
from holdfast.indexing.ledger.schema import connect, translated

_AT_ONCE = 500
"""How many values one question names."""


class SQLiteLedger:
    """The ledger of one index, for one process at a time to write to."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._db = connect(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def id(self) -> str:
        """Its own, made with it: a store says to which ledger it belongs."""
        return str(self._one("SELECT value FROM meta WHERE key = 'id'")[0])

    def revision(self) -> int:
        """Greater after every change."""
        return int(self._one("SELECT value FROM meta WHERE key = 'revision'")[0])

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only run. Conflict if another process is; its lock is free as soon as it ends, however it does."""
        lock = durable.Lock(self._path.with_name(self._path.name + ".lock"))
        try:
            is_free = lock.acquire(wait=False)
        except OSError as error:
            raise Unavailable(
                f"the ledger {self._path} cannot be written to: {error.strerror}", hint="Check the folder it is in."
            ) from error
        if not is_free:
            raise Conflict(f"another run is writing to {self._path}", hint="Wait for it to end, or end it.")
        try:
            yield
        finally:
            lock.release()

    # what is known of models

    def label(self, label: str) -> LabelRow | None:
        found = self._one("SELECT label, space, dimension, canaries FROM label WHERE label = ?", label)
        if found is None:
            return None
        size = found[2] * 4
        return LabelRow(
            found[0],
            found[1],
            found[2],
            tuple(found[3][place : place + size] for place in range(0, len(found[3]), size)),
        )

    def dimension(self, space: str) -> int | None:
        """How many numbers a cached vector of a space has."""
        found = self._one("SELECT dimension FROM label WHERE space = ?", space)
        return int(found[0]) if found else None

    def set_label(self, row: LabelRow, batch: Batch | None = None) -> None:
        with self._transaction() as db:
            values = (row.label, row.space, row.dimension, b"".join(row.canaries))
            db.execute("INSERT OR REPLACE INTO label VALUES (?, ?, ?, ?)", values)
            if batch is not None:
                _add_batch(db, batch)

    # what was paid for

    def known(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in self._among("SELECT key FROM vector WHERE key", keys)}

    def poisoned(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in self._among("SELECT key FROM failure WHERE key", keys)}

    def vectors(self, keys: Sequence[str]) -> dict[str, bytes]:
        return dict(self._among("SELECT key, data FROM vector WHERE key", keys))

    def sample(self, space: str, limit: int) -> list[bytes]:
        found = self._all("SELECT data FROM vector WHERE space = ? ORDER BY key LIMIT ?", space, limit)
        return [row[0] for row in found]

    def add_batch(self, batch: Batch) -> None:
        with self._transaction() as db:
            _add_batch(db, batch)

    def rate(self, space: str) -> float | None:
        """Texts a second, as measured."""
        texts, seconds = self._one("SELECT sum(texts), sum(seconds) FROM batch WHERE space = ?", space)
        return texts / seconds if texts and seconds else None

    def spent(self) -> tuple[int, int, float]:
        """Texts, tokens and dollars of all batches there were."""
        texts, tokens, usd = self._one("SELECT sum(texts), sum(tokens), sum(usd) FROM batch")
        return texts or 0, tokens or 0, usd or 0.0

    # generations

    def generations(self) -> list[Generation]:
        rows = self._all("SELECT number, state, shape, channels, store, collection FROM generation ORDER BY number")
        return [Generation(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5]) for row in rows]

    def begin(self, shape: str, channels: Mapping[str, Any], store: str) -> Generation:
        with self._transaction() as db:
            added = db.execute(
                "INSERT INTO generation (state, shape, channels, store, collection) VALUES ('building', ?, ?, ?, '')",
                (shape, json.dumps(channels), store),
            )
            number = int(added.lastrowid or 0)
            name = f"holdfast_{self.id()[:8]}_{number}"
            db.execute("UPDATE generation SET collection = ? WHERE number = ?", (name, number))
        return Generation(number, "building", shape, dict(channels), store, name)

    def make_live(self, number: int) -> None:
        with self._transaction() as db:
            db.execute("UPDATE generation SET state = 'kept' WHERE state = 'live' AND number != ?", (number,))
            db.execute("UPDATE generation SET state = 'live' WHERE number = ?", (number,))

    def describe(self, number: int, channels: Mapping[str, Any]) -> None:
        with self._transaction() as db:
            db.execute("UPDATE generation SET channels = ? WHERE number = ?", (json.dumps(channels), number))

    def forget(self, number: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM point WHERE doc IN (SELECT number FROM doc WHERE generation = ?)", (number,))
            for table in ("doc", "intent"):
                db.execute(f"DELETE FROM {table} WHERE generation = ?", (number,))
            db.execute("DELETE FROM generation WHERE number = ?", (number,))

    # recipes and cuts

    def recipe(self, digest: str, settings: Mapping[str, Any]) -> int:
        found = self.find_recipe(digest)
        if found is not None:
            return found
        with self._transaction() as db:
            added = db.execute(
                "INSERT INTO recipe (digest, settings) VALUES (?, ?)", (digest, json.dumps(settings, default=str))
            )
        return int(added.lastrowid or 0)

    def find_recipe(self, digest: str) -> int | None:
        found = self._one("SELECT number FROM recipe WHERE digest = ?", digest)
        return int(found[0]) if found else None

    def last_recipe(self, generation: int) -> int | None:
        """How the document that was published last was cut."""
        found = self._one("SELECT recipe FROM doc WHERE generation = ? ORDER BY number DESC LIMIT 1", generation)
        return int(found[0]) if found else None

    def recipe_settings(self, number: int) -> dict[str, Any]:
        found = self._one("SELECT settings FROM recipe WHERE number = ?", number)
        return dict(json.loads(found[0])) if found else {}

    def pieces(self, content: str, recipe: int) -> tuple[str, ...] | None:
        found = self._one("SELECT pieces FROM cut WHERE content = ? AND recipe = ?", content, recipe)
        return tuple(found[0].split()) if found else None

    # documents

    def docs(self, generation: int, names: Sequence[str]) -> dict[str, DocRow]:
        rows = self._among(
            "SELECT number, name, stamp, content, recipe FROM doc WHERE generation = ? AND name", names, generation
        )
        return {row[1]: DocRow(*row) for row in rows}

    def all_docs(self, generation: int) -> Iterable[tuple[int, str]]:
        return self._all("SELECT number, name FROM doc WHERE generation = ? ORDER BY name", generation)

    def doc_count(self, generation: int) -> int:
        return int(self._one("SELECT count(*) FROM doc WHERE generation = ?", generation)[0])

    def points(self, generation: int, name: str) -> list[str]:
        rows = self._all(
            "SELECT p.id FROM point p JOIN doc d ON d.number = p.doc WHERE d.generation = ? AND d.name = ?",
            generation,
            name,
        )
        return [row[0] for row in rows]

    def all_points(self, generation: int) -> Iterable[tuple[str, str]]:
        return self._all(
            "SELECT p.id, d.name FROM point p JOIN doc d ON d.number = p.doc WHERE d.generation = ?", generation
        )

    def point_count(self, generation: int) -> int:
        query = "SELECT count(*) FROM point p JOIN doc d ON d.number = p.doc WHERE d.generation = ?"
        return int(self._one(query, generation)[0])

    # publishing

    def open_intents(self, generation: int) -> dict[str, tuple[str, ...]]:
        """What runs that were killed may have added, by document."""
        rows = self._all("SELECT name, adds FROM intent WHERE generation = ?", generation)
        return {row[0]: tuple(row[1].split()) for row in rows}

    def intend(self, generation: int, adds: Mapping[str, Sequence[str]]) -> None:
        """Say which points documents will get. What was intended before and not done is not forgotten."""
        before = self.open_intents(generation)
        rows = [
            (generation, name, " ".join(dict.fromkeys((*before.get(name, ()), *ids)))) for name, ids in adds.items()
        ]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO intent VALUES (?, ?, ?)", rows)

    def publish(self, generation: int, documents: Sequence[Published]) -> None:
        """Write documents down as published and close their intents: the commit point."""
        with self._transaction() as db:
            for each in documents:
                self._publish(db, generation, each)

    def _publish(self, db: sqlite3.Connection, generation: int, each: Published) -> None:
        _remove(db, generation, each.name)
        added = db.execute(
            "INSERT INTO doc (generation, name, stamp, content, recipe) VALUES (?, ?, ?, ?, ?)",
            (generation, each.name, each.stamp, each.content, each.recipe),
        )
        db.executemany("INSERT INTO point VALUES (?, ?, ?)", [(added.lastrowid, *point) for point in each.points])
        db.execute(
            "INSERT OR REPLACE INTO cut (content, recipe, pieces) VALUES (?, ?, ?)",
            (each.content, each.recipe, " ".join(each.pieces)),
        )
        _fail(db, each.failures)

    def remove(self, generation: int, names: Sequence[str]) -> None:
        with self._transaction() as db:
            for name in names:
                _remove(db, generation, name)

    def redo(self, generation: int, names: Sequence[str]) -> None:
        """Have documents published again by the next plan, though nothing about them changed."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE doc SET recipe = 0, stamp = NULL WHERE generation = ? AND name = ?",
                [(generation, name) for name in names],
            )

    def fail(self, failures: Sequence[Failure]) -> None:
        """Say which documents cannot be indexed, in the place of those that were said before."""
        with self._transaction() as db:
            db.execute("DELETE FROM failure WHERE key = ''")
            _fail(db, failures)

    def failures(self) -> list[Failure]:
        rows = self._all("SELECT document, reason, hint, key FROM failure ORDER BY document, key")
        return [Failure(*row) for row in rows]

    # asking

    def _one(self, query: str, *values: object) -> Any:
        with translated(self._path):
            return self._db.execute(query, values).fetchone()

    def _all(self, query: str, *values: object) -> list[Any]:
        with translated(self._path):
            return self._db.execute(query, values).fetchall()

    def _among(self, query: str, names: Sequence[str], *values: object) -> Iterator[Any]:
        for place in range(0, len(names), _AT_ONCE):
            some = names[place : place + _AT_ONCE]
            yield from self._all(f"{query} IN ({','.join('?' * len(some))})", *values, *some)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise


def _add_batch(db: sqlite3.Connection, batch: Batch) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)",
        [(key, batch.space, data) for key, data in batch.vectors.items()],
    )
    db.execute(
        "INSERT INTO batch (space, texts, tokens, usd, seconds) VALUES (?, ?, ?, ?, ?)",
        (batch.space, batch.texts, batch.tokens, batch.usd, batch.seconds),
    )
    db.executemany("DELETE FROM failure WHERE key = ?", [(key,) for key in batch.vectors])
    _fail(db, batch.failures)


def _remove(db: sqlite3.Connection, generation: int, name: str) -> None:
    """Take a document's rows and intent away; also what was said of its failures, which are said anew."""
    db.execute(
        "DELETE FROM point WHERE doc IN (SELECT number FROM doc WHERE generation = ? AND name = ?)", (generation, name)
    )
    for table in ("doc", "intent"):
        db.execute(f"DELETE FROM {table} WHERE generation = ? AND name = ?", (generation, name))
    db.execute("DELETE FROM failure WHERE document = ?", (name,))


def _fail(db: sqlite3.Connection, failures: Iterable[Failure]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO failure VALUES (?, ?, ?, ?)",
        [(each.document, each.key, each.reason, each.hint) for each in failures],
    )
