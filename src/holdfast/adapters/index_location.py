"""An index as a `Location`, with the vector store that the configuration of its project names.

The ledger alone says which generations there are (`holdfast.indexing.location`). Whether the store has what the ledger
says, and deleting a generation, need the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import Refused
from holdfast.indexing.location import IndexLocation
from holdfast.location import Capability, Item, Option, PrunePlan, PruneResult, Verification

if TYPE_CHECKING:
    from holdfast.adapters.index import StoredIndex
    from holdfast.indexing import IndexRun
    from holdfast.indexing.ledger import Generation
    from holdfast.indexing.plan import IndexPlan
    from holdfast.indexing.vector_store import Hit, VectorStore
    from holdfast.model import Progress
    from holdfast.retention import Policy

_WITH_STORE = frozenset([Capability.VERIFY, Capability.PRUNE, Capability.DELETE])


class ConfiguredIndexLocation(IndexLocation):
    """The generations of an index, and what its vector store has of them."""

    capabilities = IndexLocation.capabilities | _WITH_STORE
    options = (Option("project", "The folder whose configuration describes the index.", _WITH_STORE, metavar="DIR"),)

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(address)
        self._project = (options or {}).get("project")

    def verify(self, progress: Progress | None = None) -> Verification:
        """Compare every point of the live generation with the ledger, as `IndexRun.verify` does."""
        with self._run() as run:
            report = run.verify()
        problems = [*report.findings]
        problems += [f"{name}: point {point} differs, or is missing" for point, name in report.bad]
        problems += [f"point {point} belongs to no document" for point in report.orphans]
        document = {
            "ok": report.ok,
            "points": report.points,
            "compared": report.compared,
            "problems": problems,
        }
        cannot = report.points and not report.compared and not report.findings
        notes = ["The store cannot return vectors: only ids were compared."] if cannot else []
        return Verification(report.ok, [(report.points, "point")], None, problems, document, notes)

    def plan(self) -> IndexPlan:
        """Return what an apply would do and cost; no model is called."""
        with self._run() as run:
            return run.plan()

    def search(self, text: str, *, channel: str | None, limit: int) -> tuple[str, list[str], list[Hit]]:
        """Find the chunks nearest to a text; also return the channel that was asked, and all there are."""
        with self._run() as run:
            asked = channel or run.channels[0]
            return asked, list(run.channels), run.search(asked, text, limit=limit)

    def default_policy(self) -> Policy | None:
        return None

    def plan_prune(self, policy: Policy, now: datetime) -> PrunePlan:
        """The live generation, one that is being built, and those in another store always stay."""
        names = ("keep_for", "keep_last_per_session", "max_bytes")
        if unknown := [name for name in names if getattr(policy, name) is not None]:
            raise Refused(f"{unknown[0]} cannot be used with an index", hint="Use keep_last or keep_every.")
        found = self._generations()
        kept = self._reasons_to_stay(found)
        for place, each in enumerate(found):
            if place < (policy.keep_last or 0):
                kept.setdefault(each.number, f"one of the last {policy.keep_last}")
            if policy.keep_every and each.number % policy.keep_every == 0:
                kept.setdefault(each.number, f"a multiple of {policy.keep_every}")
        removed = [self._item(each) for each in found if each.number not in kept]
        reasons = {str(number): why for number, why in kept.items()}
        document = {"removed": [int(item.id) for item in removed], "kept": reasons}
        return PrunePlan(removed, self.item_columns, reasons, None, document)

    def prune(self, plan: PrunePlan) -> PruneResult:
        removed = self._drop([int(item.id) for item in plan.removed])
        gone = [item for item in plan.removed if int(item.id) in removed]
        return PruneResult(gone, None, {"removed": removed})

    def delete(self, ref: str) -> Item:
        """Delete a generation that is kept to roll back to. Refused for any other."""
        found = self._find(ref)
        item = self._item(found)
        if why := self._reasons_to_stay([found]).get(found.number):
            raise Refused(f"generation {found.number} cannot be deleted: {why}", hint="Name one in the state `kept`.")
        self._drop([found.number])
        return item

    def _reasons_to_stay(self, found: list[Generation]) -> dict[int, str]:
        with self._stored() as stored:
            ledger_id = self._ledger.id()
            return {each.number: why for each in found if (why := _reason(each, stored.store, ledger_id))}

    def _drop(self, numbers: list[int]) -> list[int]:
        """Delete generations, except those that have a reason to stay by now.

        A kill between two steps leaves a record whose collection is gone: the next prune deletes that, too (P3).
        """
        from holdfast.indexing.apply import forget

        dropped = []
        with self._stored() as stored, self._ledger.writing():
            found = self._ledger.generations()
            live = next((each for each in found if each.state == "live"), None)
            if any(each.state == "building" for each in found) or (live and self._ledger.open_intents(live.number)):
                raise Refused("the index is not finished", hint="Apply a plan first.")  # P1: it may need old vectors
            for each in found:
                if each.number in numbers and not _reason(each, stored.store, self._ledger.id()):
                    forget(self._ledger, stored.store, each)
                    dropped.append(each.number)
        return dropped

    @contextmanager
    def _run(self) -> Iterator[IndexRun]:
        """The index with its models, as the configuration describes it. Refused if that is another index."""
        from holdfast.adapters.index import open_index  # start-up cost: `options` is read without it

        with self._stored():
            pass
        with open_index(self._folder(), create=False) as run:
            yield run

    @contextmanager
    def _stored(self) -> Iterator[StoredIndex]:
        """The store that the configuration names. Refused if it is that of another index."""
        from holdfast.adapters.index import open_stored_index  # start-up cost

        folder = self._folder()
        with open_stored_index(folder) as stored:
            if not self._is_own(stored.ledger):
                raise Refused(f"the configuration of {folder} describes another index", hint="Name its project.")
            yield stored

    def _folder(self) -> str:
        """Where the configuration is: the project that was named, or the folder of the ledger, or one above it."""
        if self._project is not None:
            return os.path.expanduser(str(self._project))
        if self._file is None:
            raise Refused("the ledger does not say which store the vectors are in", hint="Name the project.")
        return os.path.dirname(os.path.abspath(self._file))

    def _is_own(self, ledger: str) -> bool:
        if self._file is None or "://" in ledger:
            return self._file is None and ledger == self._url
        return os.path.realpath(ledger) == os.path.realpath(self._file)


def _reason(generation: Generation, store: VectorStore, ledger_id: str) -> str | None:
    if generation.state != "kept":
        return "live" if generation.state == "live" else "being built"
    if generation.store == store.identity:
        return None
    fingerprint = store.fingerprint(generation.collection) or {}
    is_moved = fingerprint.get("ledger") == ledger_id
    return None if is_moved else "in another store"  # its collection would stay there without a record
