"""The built-in sparse model: the words of a text and their counts. It finds names and numbers exactly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2s

from holdfast.errors import Refused
from holdfast.validation import checked_options

_WORD = re.compile(r"\w+")
_PARTS = re.compile(r"[^\W_]+")


@checked_options
@dataclass(frozen=True)
class HashedWords:
    """Words weighted as in BM25: `embed={"sparse": HashedWords()}`.

    The rarity of a word is applied in the search, so that new and deleted documents change no vector. Words match in
    any case, and `snake_case` also by its parts.
    """

    saturation: float = 1.2
    by_length: float = 0.75
    usual_length: int = 150
    """The typical number of words of a chunk."""

    stage_name = "holdfast.indexing.words.HashedWords"
    version = "1"
    model = "holdfast-hashed-words"
    datatype = "sparse-idf"
    usd_per_mtok = 0.0

    def __post_init__(self) -> None:
        if self.saturation < 0 or not 0 <= self.by_length <= 1 or self.usual_length < 1:
            raise Refused("invalid settings for BM25", hint="saturation ≥ 0, by_length from 0 to 1, usual_length ≥ 1.")

    def __call__(self, texts: Sequence[str]) -> list[dict[int, float]]:
        return [self._vector(Counter(words(text))) for text in texts]

    def query(self, text: str) -> dict[int, float]:
        """Return the vector of a query: each word once."""
        return {_place(word): 1.0 for word in set(words(text))}

    def embed_query(self, texts: Sequence[str]) -> list[dict[int, float]]:
        """Return the vectors of queries, for a channel."""
        return [self.query(text) for text in texts]

    def _vector(self, counts: Counter[str]) -> dict[int, float]:
        longer = 1 - self.by_length + self.by_length * counts.total() / self.usual_length
        found: dict[int, float] = {}
        for word, count in counts.items():
            weight = count * (self.saturation + 1) / (count + self.saturation * longer)
            found[_place(word)] = found.get(_place(word), 0.0) + weight
        return found


def words(text: str) -> list[str]:
    """Return the words of a text, and the parts of compound words."""
    found = []
    for word in _WORD.findall(text.casefold()):
        parts = _PARTS.findall(word)
        found += [word] if parts == [word] else [word, *parts]
    return found


def _place(word: str) -> int:
    return int.from_bytes(blake2s(word.encode(), digest_size=4).digest(), "big")
