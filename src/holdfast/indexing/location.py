"""An index as a `Location`: the generations in its ledger.

The vector store is not opened: the configuration names it, and `holdfast.adapters.index_location` reads that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import NotFound
from holdfast.escaping import without_password
from holdfast.location import (
    Capability,
    Column,
    Comparison,
    Description,
    Details,
    Field,
    InvalidOption,
    Item,
    Option,
    Page,
    Table,
    UsageReport,
)

if TYPE_CHECKING:
    from holdfast.indexing.ledger import DocRow, Generation, Ledger, RunRecord

LEDGER = "ledger.db"
_PREFIX = "index+"
_COLUMNS = (
    Column("generation"),
    Column("state"),
    Column("documents", "count"),
    Column("chunks", "count"),
    Column("collection"),
)


class DocumentSize(NamedTuple):
    """A document of a generation, and how many chunks it is cut into."""

    name: str
    chunks: int


_List = list  # within the class, `list` is its method


class IndexLocation:
    """The generations of an index, by its ledger: the folder that it is in, or `index+postgresql://…`."""

    capabilities = frozenset([Capability.LIST, Capability.GET, Capability.DIFF, Capability.USAGE])
    options: tuple[Option, ...] = ()
    item_columns = _COLUMNS

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        del options
        from holdfast.indexing.ledger import open_ledger  # start-up cost: `options` is read without it

        self._address = address
        is_url = address.startswith(_PREFIX)
        self._file = None if is_url else os.path.join(address, LEDGER)
        self._url = address.removeprefix(_PREFIX)
        self._ledger: Ledger = open_ledger(self._file or self._url)

    def describe(self) -> Description:
        return Description("index", "an index", without_password(self._address), self.capabilities)

    def close(self) -> None:
        self._ledger.close()

    def list(self, limit: int | None, before: str | None = None) -> Page:
        if before is not None and not before.isdecimal():
            raise InvalidOption(f"invalid cursor {before!r}: pass the number of a generation")
        found = [each for each in self._generations() if before is None or each.number < int(before)]
        shown = found[:limit]
        cursor = str(shown[-1].number) if len(found) > len(shown) else None
        notes = [] if shown else ["There are no older ones." if before else "Nothing is indexed yet."]
        return Page(_COLUMNS, [self._item(each) for each in shown], cursor, notes)

    def get(self, ref: str | None) -> Details:
        found = self._find(ref)
        item = self._item(found)
        failures = self._ledger.failures() if found.state != "kept" else []
        texts, tokens, usd = self._ledger.spent()
        fields = [
            Field("generation", found.number),
            Field("state", found.state),
            Field("documents", item.document["documents"], "count"),
            Field("chunks", item.document["points"], "count"),
            Field("store", without_password(found.store)),
            Field("collection", found.collection),
            Field("channels", dict(found.channels), "json"),
            Field("sent so far", f"{texts:,} texts, {tokens:,} tokens, ${usd:,.2f}"),
            Field("failed", len(failures) or None, "count"),
        ]
        wrong = [{"document": each.document, "reason": each.reason} for each in failures]
        missing = {each.document: each.reason for each in failures}
        return Details(item.id, fields, item.document | {"failures": wrong}, missing=missing)

    def find(self, ref: str) -> Item:
        return self._item(self._find(ref))

    def diff(self, a: str | None, b: str | None) -> Comparison:
        """Which documents two generations do not have alike. Without B, the live one; without both, the last two."""
        numbers = self._generations()
        if a is None and len(numbers) < 2:
            raise NotFound("there is no generation before this one", hint="Name two: A B.")
        before, after = (numbers[1], numbers[0]) if a is None else (self._find(a), self._find(b))
        rows = list(self._changes(before, after))
        document = {
            "before": before.number,
            "after": after.number,
            "changes": [{"kind": kind, "document": name} for kind, name in rows],
        }
        notes = [] if rows else [("No differences.", ())]
        table = Table((Column(""), Column("document")), rows)
        return Comparison(document, table=table, notes=notes, title=f"{before.number} → {after.number}")

    def _changes(self, before: Generation, after: Generation) -> Iterator[tuple[str, str]]:
        old: dict[str, DocRow] = {row[0]: row for row in self._ledger.all_docs(before.number)}
        for row in self._ledger.all_docs(after.number):
            was = old.pop(row[0], None)
            if was is None:
                yield "added", row[0]
            elif was[2:] != row[2:]:  # the content, or how it is cut
                yield "changed", row[0]
        for name in old:
            yield "removed", name

    def usage(self, limit: int | None) -> UsageReport:
        """What each generation has, and what was paid for."""
        items = [self._item(each) for each in self._generations()]
        texts, tokens, usd = self._ledger.spent()
        size = os.path.getsize(self._file) if self._file else None
        fields = [
            Field("ledger", size, "bytes"),
            Field("texts sent", texts, "count"),
            Field("tokens sent", tokens, "count"),
            Field("paid", f"${usd:,.2f}"),
        ]
        shown = items[:limit]
        document = {
            "ledger_bytes": size,
            "texts": texts,
            "tokens": tokens,
            "usd": usd,
        }
        table = Table(_COLUMNS, [each.cells for each in shown])
        return UsageReport([each.document for each in shown], len(items) - len(shown), fields, [table], document)

    def history(self, limit: int, before: int | None = None) -> _List[RunRecord]:
        """Return what was applied, newest first; the first may still go on."""
        return self._ledger.records(limit, before)

    def documents(self, ref: str | None, limit: int, after: str = "") -> tuple[_List[DocumentSize], str | None]:
        """Return documents of a generation in the order of their names, and the name after which there are more."""
        number = self._find(ref).number
        names = [row[0] for row in islice(self._ledger.all_docs(number, after), limit + 1)]
        shown = names[:limit]
        points = self._ledger.points(number, shown)
        found = [DocumentSize(name, len(points.get(name, ()))) for name in shown]
        return found, shown[-1] if len(names) > limit else None

    def _generations(self) -> _List[Generation]:
        """Newest first. There are a few: old ones are deleted."""
        return self._ledger.generations()[::-1]

    def _find(self, ref: str | None) -> Generation:
        """By its number, or `live`, `building`, `latest`; None: the live one, or else the newest."""
        found = self._generations()
        if ref is None:
            found = [each for each in found if each.state == "live"] or found
        elif ref != "latest":
            found = [each for each in found if ref in (str(each.number), each.state)]
        if not found:
            raise NotFound(f"there is no generation {ref or 'yet'}", hint="List the generations.")
        return found[0]

    def _item(self, found: Generation) -> Item:
        documents, points = self._ledger.doc_count(found.number), self._ledger.point_count(found.number)
        document = {
            "generation": found.number,
            "state": found.state,
            "documents": documents,
            "points": points,
            "channels": dict(found.channels),
            "store": without_password(found.store),
            "collection": found.collection,
        }
        cells = (found.number, found.state, documents, points, found.collection)
        return Item(str(found.number), cells, document)
