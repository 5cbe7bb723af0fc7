"""Every store that comes with Holdfast keeps the promises of one. Those of other packages: `test_package_stores.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from holdfast.adapters.stores.sqlite_vec import SQLiteVecStore
from holdfast.indexing import FlatStore
from holdfast.testing.store_contract import VectorStoreContract


def delete_points(file: Path, ids: Sequence[str]) -> None:
    """Delete behind the store's back."""
    with closing(sqlite3.connect(file)) as db:
        db.executemany("DELETE FROM point WHERE id = ?", [(each,) for each in ids])
        db.commit()


class TestFlat(VectorStoreContract):
    store = FlatStore

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        delete_points(place, ids)


class TestSQLiteVec(VectorStoreContract):
    store = SQLiteVecStore

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        delete_points(place, ids)
