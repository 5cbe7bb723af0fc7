"""What git keeps beside what Holdfast reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.shadowgit.git_files import all_refs, forget_packed, loose_copies

A, B = "a" * 40, "b" * 40


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "refs" / "tags").mkdir(parents=True)
    (tmp_path / "refs" / "heads").mkdir()
    (tmp_path / "objects" / "pack").mkdir(parents=True)
    return tmp_path


def test_every_ref_is_told_packed_or_not(store: Path) -> None:
    (store / "packed-refs").write_text(f"# pack-refs with: peeled \n{A} refs/tags/one\n^{B}\n{B} refs/heads/mine\n")
    (store / "refs" / "tags" / "one").write_text(f"{B}\n")
    found = sorted(all_refs(store))
    assert found == [("refs/heads/mine", B), ("refs/tags/one", A), ("refs/tags/one", B)]


def test_only_the_named_ones_are_taken_out_of_the_packed_refs(store: Path) -> None:
    text = f"# pack-refs with: peeled \n{A} refs/tags/one\n{B} refs/tags/one-more\n{B} refs/heads/one\n"
    (store / "packed-refs").write_text(text)
    forget_packed(store, {"two"})
    assert (store / "packed-refs").read_text() == text
    forget_packed(store, {"one"})
    assert (store / "packed-refs").read_text() == text.replace(f"{A} refs/tags/one\n", "")


def test_nothing_packed_is_nothing_to_do(store: Path) -> None:
    forget_packed(store, {"one"})
    assert not (store / "packed-refs").exists()


def test_loose_copies_are_found(store: Path) -> None:
    oid = bytes.fromhex(A)
    assert loose_copies(store, [oid]) == []
    place = store / "objects" / A[:2] / A[2:]
    place.parent.mkdir()
    place.write_bytes(b"")
    assert loose_copies(store, [oid, bytes.fromhex(B)]) == [place]
