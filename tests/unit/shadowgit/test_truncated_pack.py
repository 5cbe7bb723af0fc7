"""A pack that somebody cuts short while it is open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import Damaged, HoldfastError
from holdfast.shadowgit import ObjectKind, ObjectStore


@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("kept", [0, 1, 40, 5000])
def test_file_truncated_during_the_read_is_damage(tmp_path: Path, suffix: str, kept: int) -> None:
    store = ObjectStore(tmp_path / "store")
    store.create()
    writer = store.writer()
    oids = [writer.add(ObjectKind.BLOB, os.urandom(20_000)) for _ in range(20)]
    name = writer.commit()
    store.refresh()
    assert len(store.blob(oids[0])) == 20_000
    os.truncate(tmp_path / "store" / "objects" / "pack" / f"{name}{suffix}", kept)
    for oid in oids:
        try:
            assert len(store.blob(oid)) == 20_000
        except HoldfastError as error:
            assert isinstance(error, Damaged)
            assert suffix == ".pack"
