"""A plain way to cut a text into chunks: at paragraphs, else lines, else words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.errors import Refused

_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class PlainChunker:
    """Cuts a text into chunks of at most `size` characters, each beginning `overlap` before the last one ended."""

    size: int = 1000
    overlap: int = 0

    version = "1"

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.overlap < self.size:
            raise Refused(
                f"chunks of {self.size} characters cannot overlap by {self.overlap}",
                hint="A size is 1 or more, an overlap less than that.",
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
        """After the last break that is not too early, or else where the chunk is full."""
        full = start + self.size
        if full >= len(text):
            return len(text)
        earliest = start + max(self.overlap, self.size // 2)
        for mark in _BREAKS:
            found = text.rfind(mark, earliest, full)
            if found >= 0:
                return min(found + len(mark), full)
        return full
