"""Tensors that were stored in pieces are put together for a comparison."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from holdfast.training.diff import Piece, Tensor
from holdfast.training.stored.manifest import TensorEntry


class Stored:
    """The pieces of an array, as a reader hands them out."""

    def __init__(self, pieces: dict[str, np.ndarray[Any, Any]]) -> None:
        self._pieces = pieces

    def fetch(self, name: str) -> Any:
        piece = self._pieces[name]
        return memoryview(piece.tobytes()), "I32", piece.shape


@pytest.mark.parametrize(
    ("shape", "cuts"),
    [
        ((6,), (3,)), ((5, 4), (2, 1)), ((5, 4), (1, 3)), ((3, 4, 5), (1, 2, 1)), ((3, 4, 5), (3, 2, 5)),
        ((2, 3, 1, 4), (2, 3, 1, 2)),
    ],
)  # fmt: skip
def test_pieces_make_the_whole_array(shape: tuple[int, ...], cuts: tuple[int, ...]) -> None:
    whole = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    stored: dict[str, Any] = {}
    pieces = []
    steps = [-(-size // count) for size, count in zip(shape, cuts, strict=True)]
    for offsets in itertools.product(*(range(0, size, step) for size, step in zip(shape, steps, strict=True))):
        part = whole[tuple(slice(at, at + step) for at, step in zip(offsets, steps, strict=True))]
        name = str(offsets)
        stored[name] = np.ascontiguousarray(part)
        pieces.append(Piece(name, offsets, TensorEntry("f", "I32", part.shape, 0, part.nbytes, "", "")))
    assert len(pieces) > 1
    reader: Any = Stored(stored)
    data, _, found = Tensor("I32", shape, tuple(reversed(pieces)), "").read(reader)
    assert found == shape
    assert bytes(data) == whole.tobytes()
