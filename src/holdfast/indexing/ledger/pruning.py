"""What a ledger need not keep for ever. Every step is a transaction of its own, and the same when it is done twice.

Cuts and recipes that no document was made with go at once: they cost nothing to make again. Vectors were paid for: one
that no document needs is marked first, and goes when it has been so for as long as it is to be kept. Old batches of a
model become one, so that what was spent stays known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.indexing.ledger import Pruned, vector_key

if TYPE_CHECKING:
    from holdfast.indexing.ledger.tables import Tables


def prune(tables: Tables, *, now: float, kept_for_s: float) -> Pruned:
    """Take out what no document needs."""
    cuts = _drop_cuts(tables)
    _mark(tables, now)
    with tables.transaction():
        query = "DELETE FROM vector WHERE idle_since IS NOT NULL AND idle_since <= ?"
        vectors = tables.tell(query, now - kept_for_s)
    batches = _fold(tables, now - kept_for_s)
    tables.shrink()
    return Pruned(vectors=vectors, cuts=cuts, batches=batches)


def _drop_cuts(tables: Tables) -> int:
    with tables.transaction():
        cuts = tables.tell(
            "DELETE FROM cut WHERE NOT EXISTS"
            " (SELECT 1 FROM doc WHERE doc.content = cut.content AND doc.recipe = cut.recipe)"
        )
        tables.tell(
            "DELETE FROM recipe WHERE number NOT IN (SELECT recipe FROM doc) AND number NOT IN (SELECT recipe FROM cut)"
        )
    return cuts


def _mark(tables: Tables, now: float) -> None:
    """Note since when vectors have had no document; one that has one again is not idle any more."""
    is_used = "EXISTS (SELECT 1 FROM used WHERE used.key = vector.key)"
    with tables.transaction():
        tables.tell(f"CREATE TEMPORARY TABLE used (key {tables.name_type} PRIMARY KEY)")
        for generation in tables.generations():
            spaces = sorted({each["space"] for each in generation.channels.values()})
            for _, pieces, _ in tables.all_points(generation.number):
                keys = {vector_key(space, piece) for space in spaces for piece in pieces}
                tables.tell_many("INSERT INTO used VALUES (?) ON CONFLICT DO NOTHING", [(key,) for key in keys])
        tables.tell(f"UPDATE vector SET idle_since = NULL WHERE idle_since IS NOT NULL AND {is_used}")
        tables.tell(f"UPDATE vector SET idle_since = ? WHERE idle_since IS NULL AND NOT {is_used}", now)
        tables.tell("DROP TABLE used")


def _fold(tables: Tables, before: float) -> int:
    folded = 0
    with tables.transaction():
        sums = tables.ask(
            "SELECT space, sum(texts), sum(tokens), sum(usd), sum(seconds), max(number), count(*)"
            " FROM batch WHERE at <= ? GROUP BY space HAVING count(*) > 1 ORDER BY space",
            before,
        )
        for space, texts, tokens, usd, seconds, number, count in sums:
            tables.tell("DELETE FROM batch WHERE space = ? AND at <= ? AND number <> ?", space, before, number)
            tables.tell(
                "UPDATE batch SET texts = ?, tokens = ?, usd = ?, seconds = ? WHERE number = ?",
                int(texts), int(tokens), usd, seconds, number,
            )  # fmt: skip
            folded += count - 1
    return folded
