"""Who does what of a run: one worker everything, or several each a share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Order:
    """What a plan asks for, as far as workers have to agree on it."""

    settings_digest: str
    corpus_digest: str
    retry_failed: bool
    revision: int
    documents: Mapping[str, str]
    """What to publish: names, and the digests of their contents."""
    deleted: Sequence[str]


class Share(Protocol):
    """One worker's part in a run.

    What it claimed is its own until its lease ends; each call makes the lease longer. Whether something is still its
    own is asked in `holding`, and stays so until that is left: nobody else publishes a document meanwhile.
    """

    generation: int

    @property
    def is_shared(self) -> bool:
        """Whether there may be others."""
        ...

    def wanted(self) -> dict[str, str]:
        """What is to be published and is nobody's: names, and the digests of their contents."""
        ...

    def deletions(self) -> list[str]:
        """What is to be taken away and is nobody's."""
        ...

    def claim(self, names: Sequence[str]) -> set[str]:
        """Take those that nobody has, or whose worker's lease has ended."""
        ...

    def renew(self) -> None:
        """Say that one is still there."""
        ...

    def holding(self, names: Sequence[str]) -> AbstractContextManager[set[str]]:
        """Those that are still one's own. What the ledger is told within is one transaction."""
        ...

    def done(self, names: Sequence[str]) -> None:
        """Write off what is published or taken away; called while holding it."""
        ...

    def moved(self, names: Sequence[str]) -> None:
        """Write off what is not as it was planned."""
        ...

    def all_moved(self) -> list[str]:
        """What anybody found not to be as planned."""
        ...

    def release(self) -> None:
        """Leave what one has to others."""
        ...

    def left(self) -> bool:
        """Whether there is something that nobody has done yet; waits as long as others are at it."""
        ...

    def is_open(self) -> bool:
        """Whether the run is yet to be ended."""
        ...

    def close(self) -> None:
        """End the run, in one's turn."""
        ...


class Alone:
    """The share of the only worker: everything."""

    def __init__(self, order: Order, generation: int) -> None:
        self.generation = generation
        self._wanted = dict(order.documents)
        self._deleted = list(order.deleted)
        self._moved: list[str] = []

    @property
    def is_shared(self) -> bool:
        return False

    def wanted(self) -> dict[str, str]:
        return self._wanted

    def deletions(self) -> list[str]:
        return self._deleted

    def claim(self, names: Sequence[str]) -> set[str]:
        return set(names)

    def renew(self) -> None:
        return

    @contextlib.contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[set[str]]:
        yield set(names)

    def done(self, names: Sequence[str]) -> None:
        return

    def moved(self, names: Sequence[str]) -> None:
        self._moved += names

    def all_moved(self) -> list[str]:
        return self._moved

    def release(self) -> None:
        return

    def left(self) -> bool:
        return False

    def is_open(self) -> bool:
        return True

    def close(self) -> None:
        return
