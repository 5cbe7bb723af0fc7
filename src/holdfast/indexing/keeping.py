"""Which generations stay: the live one, the one being built, and as many of the others as one wants to go back to."""

from __future__ import annotations

from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.store import VectorStore


def forget(ledger: Ledger, store: VectorStore, generation: Generation) -> None:
    """Drop a generation. The record goes last: a collection that nobody knows of would stay for ever."""
    said = store.fingerprint(generation.collection) or {}
    if generation.store == store.identity or said.get("ledger") == ledger.id():  # its folder may have been moved
        _ask_another(ledger, store, generation)
        store.drop(generation.collection)
    ledger.forget(generation.number)


def forget_old(ledger: Ledger, store: VectorStore, *, keep: int) -> int:
    """Drop generations that are kept beyond the newest `keep`, and those whose collection is gone; how many."""
    kept = [each for each in ledger.generations() if each.state == "kept"]
    there = [each for each in kept if not _is_gone(store, each)]
    stay = {each.number for each in there[len(there) - keep :]} if keep else set()
    gone = [each for each in kept if each.number not in stay]
    for each in gone:
        forget(ledger, store, each)
    return len(gone)


def _ask_another(ledger: Ledger, store: VectorStore, generation: Generation) -> None:
    """Have the store ask what is live, if it asks what goes: a swap or a rollback was cut off."""
    if store.live() == generation.collection:
        for each in ledger.generations():
            if each.state == "live" and store.fingerprint(each.collection) is not None:
                store.make_live(each.collection)


def _is_gone(store: VectorStore, generation: Generation) -> bool:
    return generation.store == store.identity and store.fingerprint(generation.collection) is None
