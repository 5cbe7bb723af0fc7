"""A kind of location that exists only in tests: one file, and one line in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import NotFound
from holdfast.location import (
    Capability,
    Changed,
    Column,
    Comparison,
    Description,
    Details,
    Field,
    Item,
    Option,
    Page,
    PrunePlan,
    PruneResult,
    Table,
    UsageReport,
    Verification,
)
from holdfast.retention import Policy

COLUMNS = (Column("toy", "name"), Column("when", "time"), Column("size", "bytes"))
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
STORED: dict[str, list[str]] = {}
PINNED: set[str] = set()


class ToyLocation:
    """A box of toys; the newest is the last one."""

    capabilities = frozenset(Capability)
    options = (
        Option("colour", "Only toys of a colour.", frozenset([Capability.LIST]), "NAME", "TOY_COLOUR"),
        Option("loudly", "In capital letters.", frozenset([Capability.GET])),
    )
    item_columns = COLUMNS

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        self._address, self._options = address, options or {}
        self.toys = STORED.setdefault(address, [])

    def describe(self) -> Description:
        return Description("toy", "a box of toys", self._address, self.capabilities)

    def close(self) -> None:
        """Nothing is open."""

    def _item(self, name: str) -> Item:
        return Item(name, (name, NOON, 10), {"name": name, "pinned": name in PINNED})

    def list(self, limit: int | None, before: str | None = None) -> Page:
        found = [each for each in self.toys if each.startswith(self._options.get("colour", ""))][::-1]
        found = found[found.index(before) + 1 :] if before else found
        shown = found[:limit]
        cursor = shown[-1] if len(shown) < len(found) else None
        return Page(COLUMNS, [self._item(each) for each in shown], cursor)

    def get(self, ref: str | None) -> Details:
        item = self.find(self.toys[-1] if ref is None else ref)
        name = item.id.upper() if self._options.get("loudly") else item.id
        return Details(item.id, [Field("toy", name, "name")], item.document, state={"wheels": 4})

    def find(self, ref: str) -> Item:
        if ref not in self.toys:
            raise NotFound(f"there is no toy {ref!r}")
        return self._item(ref)

    def diff(self, a: str | None, b: str | None) -> Comparison:
        return Comparison({"a": a, "b": b}, changes=[Changed("name", "changed", a, b)])

    def verify(self, progress: object = None) -> Verification:
        broken = [each for each in self.toys if "broken" in each]
        return Verification(not broken, [(len(self.toys), "toy")], 10, broken, {"ok": not broken})

    def usage(self, limit: int | None) -> UsageReport:
        rows = [(each, NOON, 10) for each in self.toys[:limit]]
        items = [self._item(each).document for each in self.toys[:limit]]
        count = len(self.toys)
        fields = [Field("toys", count, "count")]
        return UsageReport(items, count - len(items), fields, [Table(COLUMNS, rows)], {"toys": count})

    def default_policy(self) -> Policy | None:
        return None

    def plan_prune(self, policy: Policy, now: datetime) -> PrunePlan:
        kept = self.toys[-(policy.keep_last or 1) :]
        removed = [self._item(each) for each in self.toys if each not in kept and each not in PINNED]
        why = dict.fromkeys(kept, "among the last")
        return PrunePlan(removed, COLUMNS, why, 10, {})

    def prune(self, plan: PrunePlan) -> PruneResult:
        for each in plan.removed:
            self.toys.remove(each.id)
        return PruneResult(plan.removed, 10, plan.document)

    def delete(self, ref: str) -> Item:
        item = self.find(ref)
        self.toys.remove(ref)
        return item

    def pin(self, ref: str, *, pinned: bool) -> tuple[Item, bool]:
        self.find(ref)
        was = ref in PINNED
        (PINNED.add if pinned else PINNED.discard)(ref)
        return self._item(ref), was
