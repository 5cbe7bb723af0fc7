"""What a ledger does, in SQL that SQLite and PostgreSQL both understand; a back end adds how it is reached."""

from __future__ import annotations

import abc
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from holdfast.indexing.ledger import Batch, DocRow, Failure, Generation, LabelRow, Pruned, Published
from holdfast.indexing.ledger.pruning import prune

_AT_ONCE = 500
"""How many values one question names."""
_PAGE = 5_000
"""How many rows are in memory of those that are gone through."""


class Tables(abc.ABC):
    """The verbs of a ledger. `?` stands for a value in every statement."""

    clock: Callable[[], float] = staticmethod(time.time)
    name_type = "TEXT"

    # what a back end gives

    @abc.abstractmethod
    def ask(self, query: str, *values: object) -> list[Any]:
        """All rows of an answer."""

    @abc.abstractmethod
    def tell(self, query: str, *values: object) -> int:
        """Carry out a statement; how many rows it changed."""

    @abc.abstractmethod
    def tell_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        """Carry out a statement for each of some rows."""

    @abc.abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All that is done in it, or nothing; within another, a part of it. Counts the revision up at its end."""

    @abc.abstractmethod
    def shrink(self) -> None:
        """Give room back to the disk, where that is not the server's own work."""

    def _one(self, query: str, *values: object) -> Any:
        return next(iter(self.ask(query, *values)), None)

    def _among(self, query: str, names: Sequence[str], *values: object) -> Iterator[Any]:
        for place in range(0, len(names), _AT_ONCE):
            some = names[place : place + _AT_ONCE]
            yield from self.ask(f"{query} IN ({','.join('?' * len(some))})", *values, *some)

    def _paged(self, query: str, first: object, *values: object) -> Iterator[Any]:
        """Go through an answer in the order of its first column, which is asked to be greater than one seen."""
        last = first
        while rows := self.ask(f"{query} LIMIT {_PAGE}", *values, last):
            yield from rows
            last = rows[-1][0]
            if len(rows) < _PAGE:
                return

    # itself

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def id(self) -> str:
        """Its own, made with it: a store says to which ledger it belongs."""
        return str(self._one("SELECT id FROM head")[0])

    def revision(self) -> int:
        """Greater after every change."""
        return int(self._one("SELECT revision FROM head")[0])

    # what is known of models

    def label(self, label: str) -> LabelRow | None:
        found = self._one("SELECT label, space, dimension, canaries FROM label WHERE label = ?", label)
        if found is None:
            return None
        size = found[2] * 4
        places = range(0, len(found[3]), size)
        return LabelRow(found[0], found[1], found[2], tuple(bytes(found[3][each : each + size]) for each in places))

    def dimension(self, space: str) -> int | None:
        """How many numbers a cached vector of a space has."""
        found = self._one("SELECT dimension FROM label WHERE space = ?", space)
        return int(found[0]) if found else None

    def set_label(self, row: LabelRow) -> None:
        with self.transaction():
            self.tell(
                "INSERT INTO label VALUES (?, ?, ?, ?) ON CONFLICT (label) DO UPDATE"
                " SET space = excluded.space, dimension = excluded.dimension, canaries = excluded.canaries",
                row.label, row.space, row.dimension, b"".join(row.canaries),
            )  # fmt: skip

    # what was paid for

    def known(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in self._among("SELECT key FROM vector WHERE key", keys)}

    def poisoned(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in self._among("SELECT key FROM failure WHERE key", keys)}

    def vectors(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {row[0]: bytes(row[1]) for row in self._among("SELECT key, data FROM vector WHERE key", keys)}

    def sample(self, space: str, limit: int) -> list[bytes]:
        found = self.ask("SELECT data FROM vector WHERE space = ? ORDER BY key LIMIT ?", space, limit)
        return [bytes(row[0]) for row in found]

    def add_batch(self, batch: Batch) -> None:
        with self.transaction():
            self._add_batch(batch)

    def rate(self, space: str) -> float | None:
        """Texts a second, as measured."""
        texts, seconds = self._one("SELECT sum(texts), sum(seconds) FROM batch WHERE space = ?", space)
        return float(texts) / float(seconds) if texts and seconds else None

    def spent(self) -> tuple[int, int, float]:
        """Texts, tokens and dollars of all batches there were."""
        texts, tokens, usd = self._one("SELECT sum(texts), sum(tokens), sum(usd) FROM batch")
        return int(texts or 0), int(tokens or 0), float(usd or 0.0)

    def _add_batch(self, batch: Batch) -> None:
        keys = sorted(batch.vectors)  # in one order, so that no two workers wait for each other
        self.tell_many(
            "INSERT INTO vector (key, space, data) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET space = excluded.space, data = excluded.data, idle_since = NULL",
            [(key, batch.space, batch.vectors[key]) for key in keys],
        )
        self.tell(
            "INSERT INTO batch (space, texts, tokens, usd, seconds, at) VALUES (?, ?, ?, ?, ?, ?)",
            batch.space, batch.texts, batch.tokens, batch.usd, batch.seconds, self.clock(),
        )  # fmt: skip
        self.tell_many("DELETE FROM failure WHERE key = ?", [(key,) for key in keys])
        self._fail(batch.failures)

    # generations

    def generations(self) -> list[Generation]:
        rows = self.ask("SELECT number, state, shape, channels, store, collection FROM generation ORDER BY number")
        return [Generation(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5]) for row in rows]

    def begin(self, shape: str, channels: Mapping[str, Any], store: str) -> Generation:
        with self.transaction():
            number = self._one(
                "INSERT INTO generation (state, shape, channels, store, collection) VALUES ('building', ?, ?, ?, '')"
                " RETURNING number",
                shape, json.dumps(channels), store,
            )[0]  # fmt: skip
            name = f"holdfast_{self.id()[:8]}_{number}"
            self.tell("UPDATE generation SET collection = ? WHERE number = ?", name, number)
        return Generation(number, "building", shape, dict(channels), store, name)

    def make_live(self, number: int) -> None:
        with self.transaction():
            self.tell("UPDATE generation SET state = 'kept' WHERE state = 'live' AND number != ?", number)
            self.tell("UPDATE generation SET state = 'live' WHERE number = ?", number)

    def describe(self, number: int, channels: Mapping[str, Any]) -> None:
        with self.transaction():
            self.tell("UPDATE generation SET channels = ? WHERE number = ?", json.dumps(channels), number)

    def forget(self, number: int) -> None:
        with self.transaction():
            self.tell("DELETE FROM point WHERE doc IN (SELECT number FROM doc WHERE generation = ?)", number)
            for table in ("doc", "intent"):
                self.tell(f"DELETE FROM {table} WHERE generation = ?", number)
            self.tell("DELETE FROM generation WHERE number = ?", number)

    # recipes and cuts

    def recipe(self, digest: str, settings: Mapping[str, Any]) -> int:
        found = self.find_recipe(digest)
        if found is not None:
            return found
        with self.transaction():
            self.tell(
                "INSERT INTO recipe (digest, settings) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
                digest, json.dumps(settings, default=str),
            )  # fmt: skip
        return int(self._one("SELECT number FROM recipe WHERE digest = ?", digest)[0])

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
            "SELECT name, stamp, content, recipe FROM doc WHERE generation = ? AND name", names, generation
        )
        return {row[0]: tuple(row) for row in rows}

    def all_docs(self, generation: int) -> Iterator[DocRow]:
        """Every document in the order of its name's bytes, a page at a time."""
        query = "SELECT name, stamp, content, recipe FROM doc WHERE generation = ? AND name > ? ORDER BY name"
        return self._paged(query, "", generation)

    def doc_count(self, generation: int) -> int:
        return int((self._one("SELECT docs FROM generation WHERE number = ?", generation) or (0,))[0])

    def points(self, generation: int, names: Sequence[str]) -> dict[str, list[str]]:
        rows = self._among(
            "SELECT d.name, p.id FROM point p JOIN doc d ON d.number = p.doc WHERE d.generation = ? AND d.name",
            names, generation,
        )  # fmt: skip
        found: dict[str, list[str]] = {}
        for name, point in rows:
            found.setdefault(name, []).append(point)
        return found

    def all_points(self, generation: int) -> Iterator[tuple[str, tuple[str, ...], tuple[tuple[int, str], ...]]]:
        """Every document with the digests of its chunks, and its points by ordinal."""
        query = (
            "SELECT d.number, d.name, c.pieces FROM doc d LEFT JOIN cut c ON c.content = d.content"
            " AND c.recipe = d.recipe WHERE d.generation = ? AND d.number > ? ORDER BY d.number"
        )
        rows = self._paged(query, 0, generation)
        while some := [row for _, row in zip(range(_AT_ONCE), rows, strict=False)]:
            marks = ",".join("?" * len(some))
            placed = self.ask(
                f"SELECT doc, ordinal, id FROM point WHERE doc IN ({marks}) ORDER BY doc, ordinal",
                *(row[0] for row in some),
            )
            own = {doc: tuple((row[1], row[2]) for row in each) for doc, each in groupby(placed, lambda row: row[0])}
            for number, name, pieces in some:
                yield name, tuple((pieces or "").split()), own.get(number, ())

    def point_count(self, generation: int) -> int:
        return int((self._one("SELECT points FROM generation WHERE number = ?", generation) or (0,))[0])

    # publishing

    def open_intents(self, generation: int) -> dict[str, tuple[str, ...]]:
        """What runs that were killed may have added, by document."""
        rows = self.ask("SELECT name, adds FROM intent WHERE generation = ?", generation)
        return {row[0]: tuple(row[1].split()) for row in rows}

    def intents(self, generation: int, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        rows = self._among("SELECT name, adds FROM intent WHERE generation = ? AND name", names, generation)
        return {row[0]: tuple(row[1].split()) for row in rows}

    def intend(self, generation: int, adds: Mapping[str, Sequence[str]]) -> None:
        """Say which points documents will get. What was intended before and not done is not forgotten."""
        with self.transaction():
            before = self.intents(generation, list(adds))
            self.tell_many(
                "INSERT INTO intent VALUES (?, ?, ?) ON CONFLICT (generation, name) DO UPDATE SET adds = excluded.adds",
                [
                    (generation, name, " ".join(dict.fromkeys((*before.get(name, ()), *ids))))
                    for name, ids in sorted(adds.items())
                ],
            )

    def publish(self, generation: int, documents: Sequence[Published]) -> None:
        """Write documents down as published and close their intents: the commit point."""
        with self.transaction():
            docs, points = self._remove(generation, [each.name for each in documents])
            self.tell_many(
                "INSERT INTO doc (generation, name, stamp, content, recipe) VALUES (?, ?, ?, ?, ?)",
                [(generation, each.name, each.stamp, each.content, each.recipe) for each in documents],
            )
            numbers = dict(
                self._among(
                    "SELECT name, number FROM doc WHERE generation = ? AND name",
                    [each.name for each in documents],
                    generation,
                )
            )
            placed = [(numbers[each.name], *point) for each in documents for point in each.points]
            self.tell_many("INSERT INTO point VALUES (?, ?, ?)", placed)
            cuts = {(each.content, each.recipe): " ".join(each.pieces) for each in documents}
            self.tell_many(
                "INSERT INTO cut (content, recipe, pieces) VALUES (?, ?, ?)"
                " ON CONFLICT (content, recipe) DO UPDATE SET pieces = excluded.pieces",
                [(*key, cuts[key]) for key in sorted(cuts)],
            )
            self._fail([failure for each in documents for failure in each.failures])
            self._count(generation, len(documents) - docs, len(placed) - points)

    def remove(self, generation: int, names: Sequence[str]) -> None:
        with self.transaction():
            docs, points = self._remove(generation, names)
            self._count(generation, -docs, -points)

    def redo(self, generation: int, names: Sequence[str]) -> None:
        """Have documents published again by the next plan, though nothing about them changed."""
        with self.transaction():
            self.tell_many(
                "UPDATE doc SET recipe = 0, stamp = NULL WHERE generation = ? AND name = ?",
                [(generation, name) for name in names],
            )

    def fail(self, failures: Sequence[Failure]) -> None:
        """Say which documents cannot be indexed, in the place of those that were said before."""
        with self.transaction():
            self.tell("DELETE FROM failure WHERE key = ''")
            self._fail(failures)

    def failures(self) -> list[Failure]:
        rows = self.ask("SELECT document, reason, hint, key FROM failure ORDER BY document, key")
        return [Failure(*row) for row in rows]

    def _remove(self, generation: int, names: Sequence[str]) -> tuple[int, int]:
        """Take documents' rows and intents away, and their failures, which are said anew; how many rows there were."""
        docs = points = 0
        for place in range(0, len(names), _AT_ONCE):
            some = names[place : place + _AT_ONCE]
            marks = ",".join("?" * len(some))
            points += self.tell(
                f"DELETE FROM point WHERE doc IN (SELECT number FROM doc WHERE generation = ? AND name IN ({marks}))",
                generation, *some,
            )  # fmt: skip
            docs += self.tell(f"DELETE FROM doc WHERE generation = ? AND name IN ({marks})", generation, *some)
            self.tell(f"DELETE FROM intent WHERE generation = ? AND name IN ({marks})", generation, *some)
            self.tell(f"DELETE FROM failure WHERE document IN ({marks})", *some)
        return docs, points

    def _count(self, generation: int, docs: int, points: int) -> None:
        """Count last: of this row all workers wait for each other."""
        query = "UPDATE generation SET docs = docs + ?, points = points + ? WHERE number = ?"
        self.tell(query, docs, points, generation)

    def _fail(self, failures: Iterable[Failure]) -> None:
        self.tell_many(
            "INSERT INTO failure VALUES (?, ?, ?, ?) ON CONFLICT (document, key) DO UPDATE"
            " SET reason = excluded.reason, hint = excluded.hint",
            sorted((each.document, each.key, _plain(each.reason), _plain(each.hint)) for each in failures),
        )

    def prune(self, *, kept_for_s: float) -> Pruned:
        """Take out what no document needs."""
        return prune(self, now=self.clock(), kept_for_s=kept_for_s)


def _plain(text: str) -> str:
    """What others' errors say, as every database takes it."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
