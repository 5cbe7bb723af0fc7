"""How the work of a run is divided: one worker has everything, or several have a share each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Order:
    """The part of a plan that workers have to agree on."""

    settings_digest: str
    corpus_digest: str
    retry_failed: bool
    revision: int
    documents: Mapping[str, str]
    """What to publish: names and digests of contents."""
    deleted: Sequence[str]


class TextClaims(Protocol):
    """Claims of texts, so that no two workers pay for the same."""

    def claiming(self, keys: Sequence[str]) -> AbstractContextManager[set[str]]:
        """Claim the keys that no other worker is sending, until the block ends."""
        ...

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Sleep and keep the lease."""
        ...

    def staying(self) -> AbstractContextManager[None]:
        """Keep the lease during a call of a model; the ledger must not be used within."""
        ...


class UncontestedClaims:
    """Claims of the only worker: every text is free."""

    @contextlib.contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[set[str]]:
        yield set(keys)

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        sleep(seconds)

    def staying(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


class Share(TextClaims, Protocol):
    """The share of one worker in a run.

    A worker owns what it claimed until its lease ends; each call renews the lease. `holding` checks the ownership and
    keeps it until the block ends: no other worker publishes the document meanwhile (P9).
    """

    generation: int

    def wanted(self) -> dict[str, str]:
        """Return unclaimed documents to publish: names and digests of contents."""
        ...

    def deletions(self) -> list[str]:
        """Return unclaimed documents to delete."""
        ...

    def claim(self, names: Sequence[str]) -> set[str]:
        """Claim documents that are free, or whose worker's lease has ended; return those."""
        ...

    def renew(self) -> None:
        """Renew the lease."""
        ...

    def holding(self, names: Sequence[str]) -> AbstractContextManager[set[str]]:
        """Yield the documents that this worker still owns; the block is one transaction of the ledger."""
        ...

    def done(self, names: Sequence[str]) -> None:
        """Mark documents as published or deleted; called within `holding`."""
        ...

    def moved(self, names: Sequence[str]) -> None:
        """Mark documents as changed since the plan."""
        ...

    def all_moved(self) -> list[str]:
        """Return the documents that any worker marked as changed."""
        ...

    def release(self) -> None:
        """Release the lease."""
        ...

    def left(self) -> bool:
        """Whether unfinished documents are free; wait while other workers own the rest."""
        ...

    def is_open(self) -> bool:
        """Whether the run has not ended."""
        ...

    def close(self) -> None:
        """End the run; called within `turn`."""
        ...


class Alone(UncontestedClaims):
    """The share of the only worker: all documents."""

    def __init__(self, order: Order, generation: int) -> None:
        self.generation = generation
        self._wanted = dict(order.documents)
        self._deleted = list(order.deleted)
        self._moved: list[str] = []

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
