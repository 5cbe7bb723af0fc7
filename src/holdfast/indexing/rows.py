"""The documents of a generation beside those of a source: two rows of names, gone through together."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.indexing.ledger import DocRow, Generation, Ledger


class Rows:
    """What is published, by names that mostly come in order: then nothing but the next row is in memory.

    A row that is passed is kept until its name comes, or to the end: it is what the source has not any more.
    """

    def __init__(self, ledger: Ledger, generation: Generation | None) -> None:
        self._ledger = ledger
        self._generation = generation
        self._rows: Iterator[DocRow] = ledger.all_docs(generation.number) if generation else iter(())
        self._ahead: DocRow | None = next(self._rows, None)
        self._passed: dict[str, DocRow] = {}

    def passes(self, name: str, stamp: str, recipe: int | None) -> bool:
        """Whether the next row is this one; if so, it is given."""
        ahead = self._ahead
        if ahead is None or ahead[0] != name or ahead[1] != stamp or ahead[3] != recipe:
            return False
        self._ahead = next(self._rows, None)
        return True

    def find(self, name: str) -> DocRow | None:
        """The row of a name, given once."""
        ahead = self._ahead
        while ahead is not None and ahead[0] < name:
            self._passed[ahead[0]] = ahead
            ahead = next(self._rows, None)
        if ahead is not None and ahead[0] == name:
            self._ahead = next(self._rows, None)
            return ahead
        self._ahead = ahead
        return self._passed.pop(name, None) if self._passed else None

    def has(self, name: str) -> bool:
        """Whether there is a row of a name, given already or not."""
        return self._generation is not None and bool(self._ledger.docs(self._generation.number, [name]))

    def rest(self) -> Iterator[str]:
        """The names whose rows were never asked for."""
        yield from self._passed
        if self._ahead is not None:
            yield self._ahead[0]
        yield from (row[0] for row in self._rows)
