"""The built-in chunker: splits at paragraphs, else lines, else words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.errors import Refused
from holdfast.validation import checked_options

_BREAKS = ("\n\n", "\n", ". ", " ")


@checked_options
@dataclass(frozen=True, slots=True)
class PlainChunker:
    """Splits a text into chunks of at most `size` characters, each starting `overlap` before the end of the last."""

    size: int = 1000
    overlap: int = 0

    stage_name = "holdfast.indexing.chunking.PlainChunker"
    version = "1"

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.overlap < self.size:
            raise Refused(
                f"chunks of {self.size} characters cannot overlap by {self.overlap}",
                hint="The size must be 1 or more, the overlap less than the size.",
            )

    def __call__(self, text: str) -> list[str]:
        return [chunk for chunk in self._cut(text) if chunk.strip()]

    def _cut(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            end = self._end(text, start)
            yield text[start:end]
            start = end if end >= len(text) else max(end - self.overlap, start + 1)

    def _end(self, text: str, start: int) -> int:
        """Return the end of a chunk: after the last break in its second half, or at its maximum size."""
        full = start + self.size
        if full >= len(text):
            return len(text)
        earliest = start + max(self.overlap, self.size // 2)
        for mark in _BREAKS:
            found = text.rfind(mark, earliest, full)
            if found >= 0:
                return min(found + len(mark), full)
        return full
